//! The result of `horolog bench cores`: how many requests a server answers on one core, two and so
//! on, at rising rates, each run several times.

use serde::{Deserialize, Serialize};

use crate::{Engine, Finding, Host};

/// The schema's name and version.
pub const BENCH_CORES_SCHEMA: &str = "horolog.bench-cores/1";

/// The whole experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchCoresResult {
    /// [`BENCH_CORES_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine, which generator and server shared.
    pub host: Host,
    /// How the generator sent.
    pub engine: Option<Engine>,
    /// Requests per second that a server is wanted for.
    pub required_rate: f64,
    /// One server on each number of cores, in the order in which they ran.
    pub columns: Vec<CoresColumn>,
    /// What somebody else counted, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureCheck>,
    /// Doubts about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// A server on so many cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresColumn {
    /// Threads that answer, each on a core of its own where there are as many.
    pub cores: usize,
    /// The command that started the server.
    pub server_command: Vec<String>,
    /// One for each rate, rising, up to the one at which the server was saturated.
    pub points: Vec<CoresPoint>,
}

/// What a server answered at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresPoint {
    /// Requests per second that were asked for.
    pub rate: f64,
    /// Whether the server left more requests unanswered than the experiment allows.
    pub saturated: bool,
    /// Every run at this rate, in order.
    pub runs: Vec<CoresRun>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresRun {
    /// Requests that left.
    pub sent: u64,
    /// Requests that left per second.
    pub achieved_rate: f64,
    /// Valid replies in time.
    pub received: u64,
    /// Valid replies in time per second of sending.
    pub responses_per_s: f64,
}

/// A trial in which the generator's count is held against the count of a capture of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureCheck {
    /// Frames that the generator says it received from the server, valid or not.
    pub counted: u64,
    /// Frames from the server that the capture saw.
    pub captured: u64,
    /// Frames that the capture had no room for.
    pub dropped: u64,
}

impl CaptureCheck {
    /// Whether both saw the same.
    #[must_use]
    pub const fn agrees(&self) -> bool {
        self.counted == self.captured.saturating_add(self.dropped)
    }
}

/// A generator that sends less than this share of what it should has met its own limit.
const ACHIEVED_MIN: f64 = 0.99;

impl CoresPoint {
    /// Whether the generator sent this rate, in most runs at least: a single one that did not is a
    /// hiccup of the machine.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        let behind = |run: &&CoresRun| run.achieved_rate < self.rate * ACHIEVED_MIN;
        self.runs.iter().filter(behind).count() * 2 <= self.runs.len()
    }

    /// Whether the server was really asked so much and answered all of it.
    fn is_answered_in_full(&self) -> bool {
        !self.saturated && self.was_sent()
    }

    /// Lowest, highest and mean of the responses per second; `None` without a run.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        let rates = || self.runs.iter().map(|run| run.responses_per_s);
        let (min, max) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
        Some(Spread { min, max, mean: rates().sum::<f64>() / self.runs.len() as f64 })
    }
}

/// How several runs differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// The arithmetic mean.
    pub mean: f64,
}

impl CoresColumn {
    /// The highest rate that was answered in full; `None` where none was.
    #[must_use]
    pub fn answered_in_full(&self) -> Option<f64> {
        let full = self.points.iter().filter(|point| point.is_answered_in_full());
        full.map(|point| point.rate).reduce(f64::max)
    }

    /// What the server gave where it was saturated: its capacity. `None` where it never was.
    #[must_use]
    pub fn capacity(&self) -> Option<Spread> {
        self.points.iter().find(|point| point.saturated)?.spread()
    }
}

impl BenchCoresResult {
    /// Whether any server was asked for the required rate, or was saturated below it.
    #[must_use]
    pub fn decided(&self) -> bool {
        let decided = |column: &CoresColumn| {
            let asked = |point: &CoresPoint| {
                point.rate >= self.required_rate && point.is_answered_in_full()
            };
            column.points.iter().any(|point| point.saturated || asked(point))
        };
        !self.columns.is_empty() && self.columns.iter().all(decided)
    }

    /// The fewest cores on which the server answers the required rate in full.
    #[must_use]
    pub fn cores_required(&self) -> Option<usize> {
        let enough = |column: &&CoresColumn| {
            column.answered_in_full().is_some_and(|rate| rate >= self.required_rate)
        };
        self.columns.iter().filter(enough).map(|column| column.cores).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate: f64, saturated: bool, responses: &[f64]) -> CoresPoint {
        let run = |&responses_per_s| CoresRun {
            sent: rate as u64,
            achieved_rate: rate,
            received: responses_per_s as u64,
            responses_per_s,
        };
        CoresPoint { rate, saturated, runs: responses.iter().map(run).collect() }
    }

    fn column(cores: usize, points: Vec<CoresPoint>) -> CoresColumn {
        CoresColumn { cores, server_command: Vec::new(), points }
    }

    #[test]
    fn the_capacity_is_what_is_answered_at_saturation() {
        let column =
            column(1, vec![point(5e3, false, &[5e3, 5e3]), point(1e4, true, &[8e3, 6e3, 7e3])]);
        assert_eq!(column.answered_in_full(), Some(5e3));
        assert_eq!(column.capacity(), Some(Spread { min: 6e3, max: 8e3, mean: 7e3 }));
        assert_eq!(point(1.0, true, &[]).spread(), None);
    }

    #[test]
    fn the_fewest_cores_that_are_enough() {
        let result = BenchCoresResult {
            schema: BENCH_CORES_SCHEMA.to_owned(),
            started: String::new(),
            command: Vec::new(),
            host: Host::read(),
            engine: None,
            required_rate: 3e4,
            columns: vec![
                column(3, vec![point(3e4, false, &[3e4])]),
                column(2, vec![point(3e4, false, &[3e4]), point(4e4, true, &[3.5e4])]),
                column(1, vec![point(2e4, false, &[2e4]), point(3e4, true, &[2.6e4])]),
            ],
            capture: None,
            findings: Vec::new(),
        };
        assert_eq!(result.cores_required(), Some(2));
        assert_eq!(BenchCoresResult { required_rate: 5e4, ..result }.cores_required(), None);
    }

    #[test]
    fn what_the_generator_could_not_send_is_not_answered() {
        let mut behind = point(3e4, false, &[1e4, 1e4, 3e4]);
        behind.runs[..2].iter_mut().for_each(|run| run.achieved_rate = 1e4);
        assert!(!behind.was_sent());
        let column = column(1, vec![point(1e4, false, &[1e4]), behind.clone()]);
        assert_eq!(column.answered_in_full(), Some(1e4));
        behind.runs[0].achieved_rate = 3e4;
        assert!(behind.was_sent(), "one hiccup");
    }

    #[test]
    fn a_capture_agrees_with_what_it_had_no_room_for() {
        assert!(CaptureCheck { counted: 10, captured: 8, dropped: 2 }.agrees());
        assert!(!CaptureCheck { counted: 10, captured: 9, dropped: 0 }.agrees());
    }
}
