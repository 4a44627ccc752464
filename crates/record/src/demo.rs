//! The result of `horolog demo`: several servers, each under the same search.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LoadResult};

/// The schema's name and version.
pub const DEMO_SCHEMA: &str = "horolog.demo/1";

/// All servers that the demonstration tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// [`DEMO_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// The servers, in the order in which they were tried.
    pub candidates: Vec<Candidate>,
    /// Doubts about the comparison as a whole.
    pub findings: Vec<Finding>,
}

/// One server configuration and how it fared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// What a person calls it, such as `socket, 2 threads`.
    pub label: String,
    /// The command that started it.
    pub server_command: Vec<String>,
    /// What the load run against it gave.
    pub load: LoadResult,
}
