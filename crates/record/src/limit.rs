//! Limits of `--fail-if` and their outcomes for a run.

use serde::{Deserialize, Serialize};

/// Outcome of a limit, with the value closest to its bound or farthest beyond it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// Expression as on the command line; the limit fails if it is true.
    pub expression: String,
    /// Unit of `bound` and `value`.
    pub unit: LimitUnit,
    /// Bound in the expression.
    pub bound: f64,
    /// Worst measured value; absent if one is missing, in which case the limit fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Index of the trial with that value; absent if it belongs to no trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
    /// Origin of the value if it belongs to no trial: a core; a function with its delay and
    /// setting; a row with its length.
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
    /// Dimensionless factor.
    Factor,
}
