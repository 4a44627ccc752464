//! Limits of `--fail-if` and their outcomes for a run.

use serde::{Deserialize, Serialize};

/// One limit and the value that came closest to it or exceeded it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// Expression as given: the limit fails if it is true.
    pub expression: String,
    /// Unit of `bound` and `value`.
    pub unit: LimitUnit,
    /// Bound stated by the limit.
    pub bound: f64,
    /// Worst measured value; absent if one is missing, in which case the limit fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Index of the trial that it is from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
    /// Description of the value's origin if it is from no trial: a core, a function with its delay
    /// and setting, a row with its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// True if the limit failed.
    pub failed: bool,
}

/// Units of a limit's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitUnit {
    /// Ratio from 0 to 1.
    Ratio,
    /// Nanoseconds.
    Ns,
    /// Requests per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Factor by which something is multiplied.
    Factor,
}
