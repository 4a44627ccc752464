//! What a run was held against and what became of it: the limits of `--fail-if`.

use serde::{Deserialize, Serialize};

/// One limit and the figure that came closest to it, or broke it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// The limit as it was given: it is broken where it holds.
    pub expression: String,
    /// What `bound` and `value` are.
    pub unit: LimitUnit,
    /// The figure that the limit names.
    pub bound: f64,
    /// The worst figure that was measured; absent where one was missing, which breaks the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The index of the trial that it is from, where it is from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
    /// What it is a figure of, in words, where it is from no trial: a core, a function with its
    /// delay and setting, a row with its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Whether the limit was broken.
    pub failed: bool,
}

/// What the figures of a limit are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitUnit {
    /// A share from 0 to 1.
    Ratio,
    /// Nanoseconds.
    Ns,
    /// Requests per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// A number by which something is multiplied.
    Factor,
}
