//! Result of `horolog bench cores`: replies of a server on one core, two and so on, at rising
//! rates, each with several repetitions.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LoadEngineKind};

/// The schema's name and version.
pub const BENCH_CORES_SCHEMA: &str = "horolog.bench-cores/2";

/// Result of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchCoresResult {
    /// [`BENCH_CORES_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host shared by generator and server.
    pub host: Host,
    /// Sending engine.
    pub engine: Option<LoadEngineKind>,
    /// Requests per second required of a server.
    pub required_rate: f64,
    /// One server on each number of cores, in the order in which they ran.
    pub columns: Vec<CoresColumn>,
    /// Comparison with an independent capture, made once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureCheck>,
    /// Findings about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// Results of a server on one number of cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresColumn {
    /// Answering threads, each on its own core if there are enough.
    pub cores: usize,
    /// The command that started the server.
    pub server_command: Vec<String>,
    /// One entry per rate, rising, up to the rate that saturated the server.
    pub points: Vec<CoresPoint>,
}

/// Replies of a server at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresPoint {
    /// Intended requests per second.
    pub rate: f64,
    /// True if the server left more requests unanswered than the experiment allows.
    pub saturated: bool,
    /// All repetitions at this rate, in order.
    pub runs: Vec<CoresRepetition>,
}

/// One repetition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresRepetition {
    /// Requests sent.
    pub sent: u64,
    /// Requests sent per second.
    pub achieved_rate: f64,
    /// Valid replies in time.
    pub received: u64,
    /// Valid replies in time per second of sending.
    pub responses_per_s: f64,
}

/// Trial that compares the generator's count with that of an independent capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureCheck {
    /// Frames from the server that the generator counted, valid or not.
    pub counted: u64,
    /// Frames from the server in the capture.
    pub captured: u64,
    /// Frames for which the capture had no room.
    pub dropped: u64,
}

impl CaptureCheck {
    /// Returns true if both counts are equal.
    #[must_use]
    pub const fn agrees(&self) -> bool {
        self.counted == self.captured.saturating_add(self.dropped)
    }
}

/// Least share of the intended rate that a generator must send; below it, its own limit was
/// reached.
const ACHIEVED_MIN: f64 = 0.99;

impl CoresPoint {
    /// Returns true if the generator sent this rate in at least most repetitions; a single
    /// shortfall is a disturbance of the host.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        let behind = |run: &&CoresRepetition| run.achieved_rate < self.rate * ACHIEVED_MIN;
        self.runs.iter().filter(behind).count() * 2 <= self.runs.len()
    }

    /// Returns true if this rate was really sent and the server answered all of it.
    fn is_answered_in_full(&self) -> bool {
        !self.saturated && self.was_sent()
    }

    /// Returns the lowest, highest and mean responses per second; `None` without a repetition.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        let rates = || self.runs.iter().map(|run| run.responses_per_s);
        let (min, max) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
        Some(Spread { min, max, mean: rates().sum::<f64>() / self.runs.len() as f64 })
    }
}

/// Spread of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Lowest value.
    pub min: f64,
    /// Highest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

impl CoresColumn {
    /// Returns the highest rate answered in full; `None` if there was none.
    #[must_use]
    pub fn answered_in_full(&self) -> Option<f64> {
        let full = self.points.iter().filter(|point| point.is_answered_in_full());
        full.map(|point| point.rate).reduce(f64::max)
    }

    /// Returns the responses of the saturated server, its capacity; `None` if it never was
    /// saturated.
    #[must_use]
    pub fn capacity(&self) -> Option<Spread> {
        self.points.iter().find(|point| point.saturated)?.spread()
    }
}

impl BenchCoresResult {
    /// Returns true if any server was tested at the required rate, or was saturated below it.
    #[must_use]
    pub fn decided(&self) -> bool {
        let decided = |column: &CoresColumn| {
            let meets_rate = |point: &CoresPoint| {
                point.rate >= self.required_rate && point.is_answered_in_full()
            };
            column.points.iter().any(|point| point.saturated || meets_rate(point))
        };
        !self.columns.is_empty() && self.columns.iter().all(decided)
    }

    /// Returns the fewest cores on which the server answers the required rate in full.
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
        let run = |&responses_per_s| CoresRepetition {
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
