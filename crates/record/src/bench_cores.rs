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
    /// Engine of the generator; `None` if nothing was run.
    pub engine: Option<LoadEngineKind>,
    /// Rate that a server has to answer, in requests per second.
    pub required_rate: f64,
    /// One entry per number of cores, in the order in which they ran.
    pub columns: Vec<CoreCountResult>,
    /// Comparison of the generator's counts with an independent packet capture; absent if none was
    /// made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureCheck>,
    /// Findings about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// Results of a server on one number of cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreCountResult {
    /// Server threads, each on its own core if there are enough.
    pub cores: usize,
    /// The command that started the server.
    pub server_command: Vec<String>,
    /// One entry per rate in ascending order, up to the rate that saturated the server.
    pub points: Vec<CoresRateResult>,
}

/// Replies of a server at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresRateResult {
    /// Intended requests per second.
    pub rate: f64,
    /// True if the loss exceeded the limit of the experiment.
    pub saturated: bool,
    /// All repetitions at this rate, in order.
    pub runs: Vec<CoresRepetition>,
}

/// One repetition at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresRepetition {
    /// Requests sent.
    pub sent: u64,
    /// Requests sent per second.
    pub achieved_rate: f64,
    /// Valid replies within the timeout.
    pub received: u64,
    /// Valid replies within the timeout, per second of sending.
    pub responses_per_s: f64,
}

/// Trial that compares the generator's count with that of an independent capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureCheck {
    /// Frames from the server that the generator counted, valid or not.
    pub counted: u64,
    /// Frames from the server in the capture.
    pub captured: u64,
    /// Frames dropped by the capture because its buffer was full.
    pub dropped: u64,
}

impl CaptureCheck {
    /// Returns true if the capture accounts for every frame that the generator counted.
    #[must_use]
    pub const fn has_equal_counts(&self) -> bool {
        self.counted == self.captured.saturating_add(self.dropped)
    }
}

/// Smallest ratio of achieved to intended rate at which the rate counts as sent; below it the
/// generator was at its limit.
const ACHIEVED_MIN: f64 = 0.99;

impl CoresRateResult {
    /// Returns true if the generator achieved at least 99% of this rate in at least half of the
    /// repetitions; a single shortfall is a disturbance of the host.
    #[must_use]
    pub fn is_rate_reached(&self) -> bool {
        let fell_short = |run: &&CoresRepetition| run.achieved_rate < self.rate * ACHIEVED_MIN;
        self.runs.iter().filter(fell_short).count() * 2 <= self.runs.len()
    }

    /// Returns true if this rate was reached and did not saturate the server.
    fn is_answered_in_full(&self) -> bool {
        !self.saturated && self.is_rate_reached()
    }

    /// Returns the lowest, highest and mean responses per second; `None` without a repetition.
    #[must_use]
    pub fn spread(&self) -> Option<ReplyRateSpread> {
        let rates = || self.runs.iter().map(|run| run.responses_per_s);
        let (min, max) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
        Some(ReplyRateSpread { min, max, mean: rates().sum::<f64>() / self.runs.len() as f64 })
    }
}

/// Spread of the reply rate over several repetitions, in replies per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplyRateSpread {
    /// Lowest value.
    pub min: f64,
    /// Highest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

impl CoreCountResult {
    /// Returns the highest rate that was reached without saturation, in requests per second; `None`
    /// if there was none.
    #[must_use]
    pub fn full_answer_rate(&self) -> Option<f64> {
        let full = self.points.iter().filter(|point| point.is_answered_in_full());
        full.map(|point| point.rate).reduce(f64::max)
    }

    /// Returns the capacity: the reply rate at the lowest rate that saturated the server; `None` if
    /// the server was never saturated.
    #[must_use]
    pub fn capacity(&self) -> Option<ReplyRateSpread> {
        self.points.iter().find(|point| point.saturated)?.spread()
    }
}

impl BenchCoresResult {
    /// Returns true if, on every number of cores, the server was saturated at some rate or answered
    /// at least the required rate in full, so that the capacity is known to suffice or not.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let is_column_decided = |column: &CoreCountResult| {
            let meets_rate = |point: &CoresRateResult| {
                point.rate >= self.required_rate && point.is_answered_in_full()
            };
            column.points.iter().any(|point| point.saturated || meets_rate(point))
        };
        !self.columns.is_empty() && self.columns.iter().all(is_column_decided)
    }

    /// Returns the smallest number of cores on which the server answered the required rate or a
    /// higher one without saturation; `None` if there is none.
    #[must_use]
    pub fn cores_required(&self) -> Option<usize> {
        let is_sufficient = |column: &&CoreCountResult| {
            column.full_answer_rate().is_some_and(|rate| rate >= self.required_rate)
        };
        self.columns.iter().filter(is_sufficient).map(|column| column.cores).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate: f64, saturated: bool, responses: &[f64]) -> CoresRateResult {
        let run = |&responses_per_s| CoresRepetition {
            sent: rate as u64,
            achieved_rate: rate,
            received: responses_per_s as u64,
            responses_per_s,
        };
        CoresRateResult { rate, saturated, runs: responses.iter().map(run).collect() }
    }

    fn column(cores: usize, points: Vec<CoresRateResult>) -> CoreCountResult {
        CoreCountResult { cores, server_command: Vec::new(), points }
    }

    #[test]
    fn the_capacity_is_what_is_answered_at_saturation() {
        let column =
            column(1, vec![point(5e3, false, &[5e3, 5e3]), point(1e4, true, &[8e3, 6e3, 7e3])]);
        assert_eq!(column.full_answer_rate(), Some(5e3));
        assert_eq!(column.capacity(), Some(ReplyRateSpread { min: 6e3, max: 8e3, mean: 7e3 }));
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
        assert!(!behind.is_rate_reached());
        let column = column(1, vec![point(1e4, false, &[1e4]), behind.clone()]);
        assert_eq!(column.full_answer_rate(), Some(1e4));
        behind.runs[0].achieved_rate = 3e4;
        assert!(behind.is_rate_reached(), "one hiccup");
    }

    #[test]
    fn a_capture_agrees_with_what_it_had_no_room_for() {
        assert!(CaptureCheck { counted: 10, captured: 8, dropped: 2 }.has_equal_counts());
        assert!(!CaptureCheck { counted: 10, captured: 9, dropped: 0 }.has_equal_counts());
    }
}
