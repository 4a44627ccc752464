//! What is measured of one relay, and of the way without one: the highest rate at which nothing is
//! lost, then latencies and cost at half of it.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use horolog_record::{RelayDirect, RelayHalf, RelayRound};
use horolog_report::units;
use horolog_stats::{LossGoal, Recorder, Search, SearchConfig, Step, TrialOutcome};
use horolog_sys::affinity;

use super::cost::ProcessorTime;
use super::stage::{Came, Course, Source, Stage};
use crate::failure::Failure;
use crate::output::{self, Progress};

/// Packets per second that a search begins with, at the least and at the most.
const START_RATE: f64 = 4_000.0;
const MIN_RATE: f64 = 500.0;
const MAX_RATE: f64 = 50e6;
/// Two searches for the same differ by more than this.
const WIDTH: f64 = 0.02;
/// Of a rate that was kept, so much was sent at least.
const KEPT: f64 = 0.995;
const INITIAL_DURATION: Duration = Duration::from_millis(50);
/// Trials of which processor time is taken last this long at least: the kernel counts it in ticks
/// of some milliseconds.
const COST_TIME: Duration = Duration::from_millis(500);

/// How to search: sending for about `time`.
pub(super) fn search(time: Duration, loss_ratio: f64) -> Result<SearchConfig, Failure> {
    let goal = LossGoal::new(loss_ratio).map_err(Failure::usage)?;
    let mut config = SearchConfig::new(goal, MIN_RATE, MAX_RATE);
    config.start_rate = START_RATE;
    config.width = WIDTH;
    config.initial_duration = INITIAL_DURATION;
    // With the usual second for the decisive trials a search sends for about ten.
    output::scale_search(&mut config, (time / 10).max(INITIAL_DURATION));
    Ok(config)
}

/// One round of a relay.
pub(super) struct Measured {
    pub(super) round: RelayRound,
    pub(super) first_copy: Recorder,
    pub(super) last_copy: Recorder,
    /// Copies of another length, and packets that came to a child twice while another did not.
    pub(super) is_spoiled: bool,
}

/// A relay in place, and how it is sent to.
pub(super) struct Subject<'a> {
    pub(super) stage: &'a mut Stage,
    pub(super) source: &'a Source,
    pub(super) course: Course,
    pub(super) config: SearchConfig,
    /// Processor time of receiving a copy, in ns.
    pub(super) receiving_ns: Option<f64>,
    pub(super) progress: &'a Progress,
}

impl Subject<'_> {
    fn trial(&mut self, course: &Course) -> Result<Came, Failure> {
        let (rate, seconds) = (units::human_rate(course.rate), course.duration.as_secs_f64());
        self.progress.doing(&format!("{rate} packets for {seconds:.2} s"));
        self.stage.relayed(self.source, course)
    }

    /// Searches, and then looks at half the rate; `None` where it was ended meanwhile.
    pub(super) fn measure(&mut self) -> Result<Option<Measured>, Failure> {
        let mut search = Search::new(self.config).map_err(Failure::usage)?;
        let (mut trials, mut disordered, mut is_spoiled) = (Vec::new(), 0, false);
        let outcome = loop {
            let (rate, duration) = match search.next() {
                Step::Trial { rate, duration } => (rate, duration),
                Step::Done(outcome) => break outcome,
            };
            let came = self.trial(&Course { rate, duration, ..self.course })?;
            if output::flow().is_break() {
                return Ok(None);
            }
            disordered += came.disordered;
            is_spoiled |= came.mixed_up || came.damaged > 0;
            let outcome = outcome_of(&came, rate, duration, self.course.children);
            search.record(&outcome);
            trials.push((outcome, came.rate * came.copies as f64 / came.sent.max(1) as f64));
        };
        let copies_per_s = outcome.lower.and_then(|rate| came_at(rate, &trials)).unwrap_or(0.0);
        let mut measured = Measured {
            round: RelayRound {
                copies_per_s,
                lower: outcome.lower,
                upper: outcome.upper,
                end: outcome.reason.into(),
                trials: outcome.trials,
                disordered,
                half: None,
            },
            first_copy: Recorder::new(),
            last_copy: Recorder::new(),
            is_spoiled,
        };
        if copies_per_s > 0.0 {
            let rate = copies_per_s / self.course.children as f64;
            self.at_half(rate / 2.0, &mut measured)?;
        }
        Ok(Some(measured).filter(|_| output::flow().is_continue()))
    }

    /// Latencies and cost, in trials of their own: taking latencies costs as well.
    fn at_half(&mut self, rate: f64, measured: &mut Measured) -> Result<(), Failure> {
        let duration = self.config.final_duration.max(COST_TIME);
        let course = Course { rate, duration, ..self.course };
        let came = self.trial(&course)?;
        measured.round.half = Some(RelayHalf {
            rate: came.rate,
            copies: came.copies,
            lost: came.lost,
            cpu_ns_per_copy: came.cpu_ns.and_then(|ns| each(ns, came.copies)),
            receiving_ns_per_copy: self.receiving_ns,
        });
        let duration = self.config.final_duration;
        let came = self.trial(&Course { duration, timed: true, ..course })?;
        (measured.first_copy, measured.last_copy) = (came.first_copy, came.last_copy);
        Ok(())
    }
}

/// A rate that the source did not keep is none that the relay held: below the host it is the copies
/// that keep the source's core from sending. What was not sent counts as lost.
fn outcome_of(came: &Came, rate: f64, duration: Duration, children: usize) -> TrialOutcome {
    let planned = rate * duration.as_secs_f64();
    // One packet more or less lies at the edges.
    let is_behind = came.sent as f64 + 1.0 < planned * KEPT;
    let missing = if is_behind { planned as u64 - came.sent } else { 0 };
    let copies = children as u64;
    TrialOutcome {
        offered_rate: rate,
        achieved_rate: rate,
        sent: (came.sent + missing) * copies,
        // What came twice took the place of what did not.
        lost: came.lost + came.disordered + came.damaged + missing * copies,
        duration,
    }
}

/// Copies per second that really came in the trials at a rate, as the middle one of the longest:
/// what was sent in time by the count may have taken a little longer.
fn came_at(rate: f64, trials: &[(TrialOutcome, f64)]) -> Option<f64> {
    let at = || trials.iter().filter(|(trial, _)| is_same(trial.offered_rate, rate));
    let longest = at().map(|(trial, _)| trial.duration).max()?;
    let mut rates: Vec<_> =
        at().filter(|(trial, _)| trial.duration == longest).map(|(_, rate)| *rate).collect();
    rates.sort_by(f64::total_cmp);
    Some(rates[rates.len() / 2])
}

fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * other
}

/// Measures the way without a relay.
pub(super) fn direct(
    stage: &mut Stage,
    source: &Source,
    size: usize,
    time: Duration,
) -> Result<RelayDirect, Failure> {
    let (sink, attachment) = stage.direct_sink()?;
    let time = time.max(COST_TIME);
    let lanes = stage.cores.len();
    let batch = stage.batch(1);
    let most = Course { rate: MAX_RATE, duration: time, lanes, batch, children: 1, timed: false };
    let flat_out = stage.direct(source, &sink, &most)?;
    drop((attachment, sink));
    Ok(RelayDirect {
        size_bytes: size,
        source_threads: lanes,
        rate: flat_out.rate * flat_out.copies as f64 / flat_out.sent.max(1) as f64,
        receiving_frame_ns: flat_out.cpu_ns.and_then(|ns| each(ns, flat_out.copies)),
        receiving_socket_ns: from_socket(stage, size, time)?,
    })
}

/// Measures how long packets of such a course take to the relay's interface with no relay there.
pub(super) fn without_relay(
    stage: &mut Stage,
    source: &Source,
    course: &Course,
) -> Result<Recorder, Failure> {
    let (sink, _attachment) = stage.direct_sink()?;
    let came = stage.direct(source, &sink, &Course { children: 1, timed: true, ..*course })?;
    Ok(came.first_copy)
}

/// Processor time of receiving a packet from a socket of the relay's host, in ns.
fn from_socket(stage: &mut Stage, size: usize, time: Duration) -> Result<Option<f64>, Failure> {
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
    stage.middle().run(send)?.map_err(Failure::environment)?;
    let spent = ProcessorTime::read().map(|now| now.spent_ns(&before, &stage.cores));
    let came = stage.came_from_socket();
    Ok(spent.and_then(|ns| each(ns, came)))
}

/// What one of so many took; `None` where nothing came, or no tick fell on it.
fn each(ns: f64, count: u64) -> Option<f64> {
    (count > 0 && ns > 0.0).then(|| ns / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(sent: u64, rate: f64) -> Came {
        Came { sent, rate, copies: sent * 4, ..Came::default() }
    }

    #[test]
    fn what_the_source_could_not_send_is_not_held() {
        let second = Duration::from_secs(1);
        let kept = outcome_of(&came(998, 950.0), 1e3, second, 4);
        assert_eq!((kept.sent, kept.lost), (3_992, 0));
        let behind = outcome_of(&came(900, 900.0), 1e3, second, 4);
        assert_eq!((behind.sent, behind.lost), (4_000, 400));
        let silent = outcome_of(&came(0, 0.0), 1e3, second, 4);
        assert_eq!((silent.sent, silent.lost), (4_000, 4_000));
    }

    #[test]
    fn the_rate_is_what_came_in_the_longest_trials() {
        let trial = |rate, ms| TrialOutcome {
            duration: Duration::from_millis(ms),
            ..outcome_of(&came(1, 1.0), rate, Duration::ZERO, 1)
        };
        let trials = [
            (trial(1e3, 50), 9e3),
            (trial(1e3, 200), 3.9e3),
            (trial(1e3, 200), 4e3),
            (trial(1e3, 200), 3e3),
            (trial(2e3, 200), 8e3),
        ];
        assert_eq!((came_at(1e3, &trials), came_at(3e3, &trials)), (Some(3.9e3), None));
    }

    #[test]
    fn what_came_twice_or_damaged_counts_as_lost() {
        let spoiled = Came { lost: 1, disordered: 2, damaged: 3, ..came(1_000, 1e3) };
        assert_eq!(outcome_of(&spoiled, 1e3, Duration::from_secs(1), 4).lost, 6);
    }

    #[test]
    fn a_search_is_as_long_as_asked() {
        let config = search(Duration::from_secs(2), 0.0).unwrap();
        assert_eq!(config.final_duration, Duration::from_millis(200));
        let short = search(Duration::from_millis(100), 0.01).unwrap();
        assert_eq!(short.final_duration, INITIAL_DURATION);
        assert!(search(Duration::from_secs(2), 1.5).is_err());
    }
}
