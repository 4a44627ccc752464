//! Result of `horolog demo`: several server configurations (candidates), each under the same
//! capacity search.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LoadResult};

/// The schema's name and version.
pub const DEMO_SCHEMA: &str = "horolog.demo/2";

/// Result of the demonstration over all servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// [`DEMO_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Candidates, in the order in which they were tested.
    pub candidates: Vec<DemoCandidateResult>,
    /// Findings about the comparison as a whole.
    pub findings: Vec<Finding>,
}

/// One server configuration and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoCandidateResult {
    /// Human-readable label, such as `socket, 2 threads`.
    pub label: String,
    /// Command that started the server.
    pub server_command: Vec<String>,
    /// Result of the load run against this server.
    pub load: LoadResult,
}
