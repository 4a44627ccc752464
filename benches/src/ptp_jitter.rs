//! Jitter of the Sync messages of each PTP master under `Delay_Req` messages at the same rate:
//! deviation of their intervals from the nominal one, by the kernel's receive timestamps at the
//! client's end of the link.
//!
//! On a host with few cores, the generator and the link share the cores with the master and delay
//! its Syncs too. Both masters run under the same conditions, alternating, so the ratio is what to
//! compare. Of some 300 intervals in a run, three are above the 99th percentile.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_load::LoadProcedure;
use horolog_load::ramp::Ramp;
use horolog_stats::ExactSummary;
use horolog_time::{NS_PER_S, Timestamp, Utc};
use horolog_wire::ptp::MessageType;

use crate::capacity::PTP_DELAY;
use crate::figure::{Figure, Goal};
use crate::ptp_masters::{Listener, MASTERS, Master, RunningMaster};

/// Interval of Sync messages: 16 per second, as in the PTP profiles for telecommunication.
const LOG_SYNC_INTERVAL: i8 = -4;
const NOMINAL_NS: i64 = NS_PER_S >> 4;
/// Intended rate of delay requests per second, which ptp4l still answers.
const REQUEST_RATE: f64 = 10e3;
const DURATION: Duration = Duration::from_secs(20);

/// Result of one run.
struct JitterRun {
    /// Deviation of the intervals from the nominal one, in ns.
    jitter: ExactSummary,
    /// Share of the requests that were answered, from 0 to 1.
    answered: f64,
}

/// Statistic of the jitter: name, and function that returns its value in ns.
type JitterStatistic = (&'static str, fn(&ExactSummary) -> i64);

const STATISTICS: [JitterStatistic; 3] =
    [("p50", |jitter| jitter.p50), ("p99", |jitter| jitter.p99), ("max", |jitter| jitter.max)];

/// Measures the jitter of both masters `rounds` times and compares them.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut runs = MASTERS.map(|_| Vec::new());
    for round in 1..=rounds {
        for (master, runs) in MASTERS.into_iter().zip(&mut runs) {
            let run = measure_jitter(master, binary).context(master.name())?;
            let [p50, p99, max] = STATISTICS.map(|(_, of)| of(&run.jitter) as f64 / 1e3);
            eprintln!(
                "round {round} of {rounds}: Sync of {}: {p50:.1} us, p99 {p99:.1} us, max {max:.1} us, \
                 of {}; {:.2}% answered",
                master.name(),
                run.jitter.count,
                run.answered * 100.0
            );
            runs.push(run);
        }
    }
    let figure = |index: usize, what: &str, unit, of: &dyn Fn(&JitterRun) -> f64| {
        let name = format!("{what}: {}", MASTERS[index].name());
        Figure::new(name, unit, runs[index].iter().map(of).collect())
    };
    let mut figures = Vec::new();
    for (part, of) in STATISTICS {
        let what = format!("jitter of Sync intervals, {part}");
        let [ptp4l, ours] =
            [0, 1].map(|index| figure(index, &what, "us", &|run| of(&run.jitter) as f64 / 1e3));
        let ratio = Figure::ratio(format!("{what}: horolog to ptp4l"), &ours, &ptp4l);
        let ratio = if part == "p99" { ratio.with(Goal::Below(1.0)) } else { ratio };
        figures.extend([ptp4l, ours, ratio]);
    }
    let answered = [0, 1].map(|index| {
        figure(index, "delay requests answered meanwhile, share", "", &|run| run.answered)
    });
    Ok(figures.into_iter().chain(answered).collect())
}

/// Loads a master and records its Syncs meanwhile.
fn measure_jitter(master: Master, binary: &Path) -> Result<JitterRun> {
    let started = RunningMaster::new(master, binary, LOG_SYNC_INTERVAL)?;
    let listener = Listener::join_events(started.client())?;
    let ramp = Ramp { min: REQUEST_RATE, max: REQUEST_RATE, multiplier: 2.0, duration: DURATION };
    // The load begins before the listener and ends after it.
    let (result, arrivals) = thread::scope(|scope| {
        let arrivals = scope.spawn(move || {
            thread::sleep(DURATION / 20);
            arrivals(listener, Instant::now() + DURATION * 9 / 10)
        });
        let result = started.load(PTP_DELAY, LoadProcedure::Ramp(ramp));
        (result, arrivals.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (result, arrivals) = (result?, arrivals?);
    let trial = result.trials.first().context("the result has no trial")?;
    let expected = DURATION.as_nanos() as i64 / NOMINAL_NS * 9 / 10;
    ensure!(arrivals.len() as i64 * 2 > expected, "too few Syncs received: {}", arrivals.len());
    let jitter =
        ExactSummary::from_values(deviations(&arrivals)).context("no consecutive Syncs")?;
    Ok(JitterRun { jitter, answered: trial.received as f64 / trial.sent.max(1) as f64 })
}

/// Sequence number and receive timestamp of a Sync.
type Arrival = (u16, Timestamp<Utc>);

fn arrivals(listener: Listener, until: Instant) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    listener.listen(until, |message, packet| {
        if let (Some(MessageType::Sync), Some(at)) = (message.kind(), packet.received_at) {
            arrivals.push((message.header.sequence_id, at));
        }
        false
    })?;
    Ok(arrivals)
}

/// Returns the absolute deviations of the intervals between Syncs from the nominal one, in ns. A
/// lost Sync removes its two intervals.
fn deviations(arrivals: &[Arrival]) -> Vec<i64> {
    let interval = |pair: &[Arrival]| match *pair {
        [(number, at), (next, later)] if next == number.wrapping_add(1) => {
            Some(((later - at).as_ns() - NOMINAL_NS).abs())
        }
        _ => None,
    };
    arrivals.windows(2).filter_map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_sync_makes_no_long_interval() {
        let at = |number: u16, ns: i64| (number, Timestamp::from_ns(ns));
        let arrivals = [
            at(u16::MAX, 0),
            at(0, NOMINAL_NS + 70),
            at(1, 2 * NOMINAL_NS),
            at(3, 4 * NOMINAL_NS),
            at(4, 5 * NOMINAL_NS),
        ];
        assert_eq!(deviations(&arrivals), [70, 70, 0]);
        assert!(deviations(&arrivals[..1]).is_empty());
    }
}
