//! Measurement of one relay, and of the path without one: the highest rate without loss, then
//! latencies and cost at half of it.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use horolog_record::{RelayBaseline, RelayHalfRateTrial, RelayRepetition};
use horolog_report::units;
use horolog_stats::{LossGoal, Recorder, Search, SearchConfig, SearchStep, TrialOutcome};
use horolog_sys::affinity;

use super::cost::ProcessorTime;
use super::testbed::{PacketSource, RelayTestbed, TrialArrivals, TrialLoad};
use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Packets per second at the start of a search, minimum and maximum.
const START_RATE: f64 = 4_000.0;
const MIN_RATE: f64 = 500.0;
const MAX_RATE: f64 = 50e6;
/// Relative width at which a search ends; two searches of the same relay differ by more.
const WIDTH: f64 = 0.02;
/// Least share of a rate that must be sent for the rate to count as achieved.
const ACHIEVED_SHARE_MIN: f64 = 0.995;
const INITIAL_DURATION: Duration = Duration::from_millis(50);
/// Least duration of trials for CPU time: the kernel counts it in ticks of some milliseconds.
const COST_TIME: Duration = Duration::from_millis(500);

/// The configuration of a search that sends for about `time`.
pub(super) fn search(time: Duration, loss_ratio: f64) -> Result<SearchConfig, CommandFailure> {
    let goal = LossGoal::new(loss_ratio).map_err(CommandFailure::usage)?;
    let mut config = SearchConfig::new(goal, MIN_RATE, MAX_RATE);
    config.start_rate = START_RATE;
    config.width = WIDTH;
    config.initial_duration = INITIAL_DURATION;
    // With the default second for the decisive trials a search sends for about ten.
    output::scale_search(&mut config, (time / 10).max(INITIAL_DURATION));
    Ok(config)
}

/// One repetition of a relay's measurement.
pub(super) struct RelayMeasurement {
    pub(super) round: RelayRepetition,
    pub(super) first_copy: Recorder,
    pub(super) last_copy: Recorder,
    /// True if copies had the wrong length, or a child received one twice instead of another.
    pub(super) is_spoiled: bool,
}

/// A running relay, and the load that it receives.
pub(super) struct RelayUnderTest<'a> {
    pub(super) stage: &'a mut RelayTestbed,
    pub(super) source: &'a PacketSource,
    pub(super) load: TrialLoad,
    pub(super) config: SearchConfig,
    /// CPU time of receiving a copy, in ns.
    pub(super) receiving_ns: Option<f64>,
    pub(super) progress: &'a ProgressLine,
}

impl RelayUnderTest<'_> {
    fn trial(&mut self, load: &TrialLoad) -> Result<TrialArrivals, CommandFailure> {
        let (rate, seconds) = (units::human_rate(load.rate), load.duration.as_secs_f64());
        self.progress.set_message(&format!("{rate} packets for {seconds:.2} s"));
        self.stage.run_relayed(self.source, load)
    }

    /// Searches, and then measures at half the rate; `None` if it was interrupted.
    pub(super) fn measure(&mut self) -> Result<Option<RelayMeasurement>, CommandFailure> {
        let mut search = Search::new(self.config).map_err(CommandFailure::usage)?;
        let (mut trials, mut disordered, mut is_spoiled) = (Vec::new(), 0, false);
        let outcome = loop {
            let (rate, duration) = match search.next() {
                SearchStep::Trial { rate, duration } => (rate, duration),
                SearchStep::Done(outcome) => break outcome,
            };
            let arrivals = self.trial(&TrialLoad { rate, duration, ..self.load })?;
            if output::flow().is_break() {
                return Ok(None);
            }
            disordered += arrivals.disordered;
            is_spoiled |= arrivals.mixed_up || arrivals.damaged > 0;
            let outcome = outcome_of(&arrivals, rate, duration, self.load.children);
            search.record(&outcome);
            trials.push((
                outcome,
                arrivals.rate * arrivals.copies as f64 / arrivals.sent.max(1) as f64,
            ));
        };
        let copies_per_s =
            outcome.lower.and_then(|rate| copies_per_s_at(rate, &trials)).unwrap_or(0.0);
        let mut measured = RelayMeasurement {
            round: RelayRepetition {
                copies_per_s,
                lower: outcome.lower,
                upper: outcome.upper,
                end: outcome.reason.into(),
                trials: outcome.trials,
                disordered,
                half_rate: None,
            },
            first_copy: Recorder::new(),
            last_copy: Recorder::new(),
            is_spoiled,
        };
        if copies_per_s > 0.0 {
            let rate = copies_per_s / self.load.children as f64;
            self.at_half(rate / 2.0, &mut measured)?;
        }
        Ok(Some(measured).filter(|_| output::flow().is_continue()))
    }

    /// Latencies and cost, in separate trials: measuring latencies costs as well.
    fn at_half(
        &mut self,
        rate: f64,
        measured: &mut RelayMeasurement,
    ) -> Result<(), CommandFailure> {
        let duration = self.config.final_duration.max(COST_TIME);
        let load = TrialLoad { rate, duration, ..self.load };
        let arrivals = self.trial(&load)?;
        measured.round.half_rate = Some(RelayHalfRateTrial {
            rate: arrivals.rate,
            copies: arrivals.copies,
            lost: arrivals.lost,
            cpu_ns_per_copy: arrivals.cpu_ns.and_then(|ns| each(ns, arrivals.copies)),
            receiving_ns_per_copy: self.receiving_ns,
        });
        let duration = self.config.final_duration;
        let timed_arrivals = self.trial(&TrialLoad { duration, timed: true, ..load })?;
        (measured.first_copy, measured.last_copy) =
            (timed_arrivals.first_copy, timed_arrivals.last_copy);
        Ok(())
    }
}

/// The outcome of a trial. A rate that the source did not achieve does not count as sustained by
/// the relay: with in-kernel copies it is the copies that keep the source's core from sending.
/// Unsent packets count as lost.
fn outcome_of(
    arrivals: &TrialArrivals,
    rate: f64,
    duration: Duration,
    children: usize,
) -> TrialOutcome {
    let planned = rate * duration.as_secs_f64();
    // One packet more or less is due to the edges.
    let is_behind = arrivals.sent as f64 + 1.0 < planned * ACHIEVED_SHARE_MIN;
    let missing = if is_behind { planned as u64 - arrivals.sent } else { 0 };
    let copies = children as u64;
    TrialOutcome {
        intended_rate: rate,
        achieved_rate: rate,
        sent: (arrivals.sent + missing) * copies,
        // A duplicate replaced a missing copy.
        lost: arrivals.lost + arrivals.disordered + arrivals.damaged + missing * copies,
        duration,
    }
}

/// Copies per second received in the trials at a rate, the median of the longest ones: packets sent
/// in time by the count may have taken a little longer.
fn copies_per_s_at(rate: f64, trials: &[(TrialOutcome, f64)]) -> Option<f64> {
    let at = || trials.iter().filter(|(trial, _)| is_same(trial.intended_rate, rate));
    let longest = at().map(|(trial, _)| trial.duration).max()?;
    let mut rates: Vec<_> =
        at().filter(|(trial, _)| trial.duration == longest).map(|(_, rate)| *rate).collect();
    rates.sort_by(f64::total_cmp);
    Some(rates[rates.len() / 2])
}

fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * other
}

/// Measures the path without a relay.
pub(super) fn direct(
    stage: &mut RelayTestbed,
    source: &PacketSource,
    size: usize,
    time: Duration,
) -> Result<RelayBaseline, CommandFailure> {
    let (sink, attachment) = stage.direct_sink()?;
    let time = time.max(COST_TIME);
    let lanes = stage.cores.len();
    let batch = stage.batch(1);
    let most =
        TrialLoad { rate: MAX_RATE, duration: time, lanes, batch, children: 1, timed: false };
    let flat_out = stage.run_direct(source, &sink, &most)?;
    drop((attachment, sink));
    Ok(RelayBaseline {
        size_bytes: size,
        source_threads: lanes,
        rate: flat_out.rate * flat_out.copies as f64 / flat_out.sent.max(1) as f64,
        receiving_frame_ns: flat_out.cpu_ns.and_then(|ns| each(ns, flat_out.copies)),
        receiving_socket_ns: from_socket(stage, size, time)?,
    })
}

/// Measures the delay of packets of this load to the relay's interface with no relay there.
pub(super) fn without_relay(
    stage: &mut RelayTestbed,
    source: &PacketSource,
    load: &TrialLoad,
) -> Result<Recorder, CommandFailure> {
    let (sink, _attachment) = stage.direct_sink()?;
    let arrivals =
        stage.run_direct(source, &sink, &TrialLoad { children: 1, timed: true, ..*load })?;
    Ok(arrivals.first_copy)
}

/// CPU time of receiving a packet from a socket of the relay's host, in ns.
fn from_socket(
    stage: &mut RelayTestbed,
    size: usize,
    time: Duration,
) -> Result<Option<f64>, CommandFailure> {
    let mut payload = vec![0; size];
    let mark = stage.expect_from_socket(size);
    payload[..mark.len()].copy_from_slice(&mark);
    let child = stage.children(1)[0];
    let Some(core) = stage.cores.last().copied() else { return Ok(None) };
    let Some(before) = ProcessorTime::read() else { return Ok(None) };
    let send = || -> std::io::Result<()> {
        affinity::pin_to_core(core)?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(child)?;
        let begun = Instant::now();
        while begun.elapsed() < time {
            for _ in 0..64 {
                socket.send(&payload)?;
            }
        }
        Ok(())
    };
    stage.relay_host().run(send)?.map_err(CommandFailure::environment)?;
    let spent = ProcessorTime::read().map(|now| now.spent_ns(&before, &stage.cores));
    let received = stage.received_from_socket();
    Ok(spent.and_then(|ns| each(ns, received)))
}

/// Time per item; `None` if nothing arrived, or no tick was counted.
fn each(ns: f64, count: u64) -> Option<f64> {
    (count > 0 && ns > 0.0).then(|| ns / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(sent: u64, rate: f64) -> TrialArrivals {
        TrialArrivals { sent, rate, copies: sent * 4, ..TrialArrivals::default() }
    }

    #[test]
    fn what_the_source_could_not_send_is_not_held() {
        let second = Duration::from_secs(1);
        let achieved = outcome_of(&arrivals(998, 950.0), 1e3, second, 4);
        assert_eq!((achieved.sent, achieved.lost), (3_992, 0));
        let behind = outcome_of(&arrivals(900, 900.0), 1e3, second, 4);
        assert_eq!((behind.sent, behind.lost), (4_000, 400));
        let unsent = outcome_of(&arrivals(0, 0.0), 1e3, second, 4);
        assert_eq!((unsent.sent, unsent.lost), (4_000, 4_000));
    }

    #[test]
    fn rate_is_the_median_of_the_longest_trials() {
        let trial = |rate, ms| TrialOutcome {
            duration: Duration::from_millis(ms),
            ..outcome_of(&arrivals(1, 1.0), rate, Duration::ZERO, 1)
        };
        let trials = [
            (trial(1e3, 50), 9e3),
            (trial(1e3, 200), 3.9e3),
            (trial(1e3, 200), 4e3),
            (trial(1e3, 200), 3e3),
            (trial(2e3, 200), 8e3),
        ];
        assert_eq!(
            (copies_per_s_at(1e3, &trials), copies_per_s_at(3e3, &trials)),
            (Some(3.9e3), None)
        );
    }

    #[test]
    fn duplicated_or_damaged_copies_count_as_lost() {
        let spoiled = TrialArrivals { lost: 1, disordered: 2, damaged: 3, ..arrivals(1_000, 1e3) };
        assert_eq!(outcome_of(&spoiled, 1e3, Duration::from_secs(1), 4).lost, 6);
    }

    #[test]
    fn search_has_the_requested_duration() {
        let config = search(Duration::from_secs(2), 0.0).unwrap();
        assert_eq!(config.final_duration, Duration::from_millis(200));
        let short = search(Duration::from_millis(100), 0.01).unwrap();
        assert_eq!(short.final_duration, INITIAL_DURATION);
        assert!(search(Duration::from_secs(2), 1.5).is_err());
    }
}
