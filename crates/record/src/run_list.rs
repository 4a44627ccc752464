//! Runs of a store, as listed by `horolog runs list`.

use serde::{Deserialize, Serialize};

/// Name and version of the schema.
pub const RUN_LIST_SCHEMA: &str = "horolog.runs/1";

/// Stored runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRunList {
    /// [`RUN_LIST_SCHEMA`].
    pub schema: String,
    /// Path of the store's file.
    pub store: String,
    /// Runs, in the order of their starts.
    pub runs: Vec<StoredRun>,
}

/// One stored run, without its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Number of the run.
    pub id: i64,
    /// Key: first 16 hexadecimal digits of the SHA-256 of the result's JSON text on one line.
    pub key: String,
    /// Name assigned by the user; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Schema of its result.
    pub kind: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run; words with spaces or other characters special to a shell are
    /// quoted.
    pub command: String,
    /// Findings of severity error.
    pub errors: u64,
    /// Findings of severity warning.
    pub warnings: u64,
    /// Failed limits.
    #[serde(default)]
    pub broken_limits: u64,
    /// Size of its result, in bytes.
    pub bytes: u64,
}
