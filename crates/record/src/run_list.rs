//! The runs that a store has, as `horolog runs list` tells them.

use serde::{Deserialize, Serialize};

/// The name and version of this record.
pub const RUN_LIST_SCHEMA: &str = "horolog.runs/1";

/// Runs that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunList {
    /// [`RUN_LIST_SCHEMA`].
    pub schema: String,
    /// The store's file.
    pub store: String,
    /// The runs, in the order in which they began.
    pub runs: Vec<KeptRun>,
}

/// One of them, without its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Its number.
    pub id: i64,
    /// The beginning of the SHA-256 of its result's text on one line, in hexadecimal digits.
    pub key: String,
    /// The name that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its result's schema.
    pub kind: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that was given, words with spaces in them quoted.
    pub command: String,
    /// Findings that are errors.
    pub errors: u64,
    /// Findings that are warnings.
    pub warnings: u64,
    /// Limits that it was held against and that were broken.
    #[serde(default)]
    pub broken_limits: u64,
    /// Bytes of its result.
    pub bytes: u64,
}
