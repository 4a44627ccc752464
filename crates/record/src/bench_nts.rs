//! Result of `horolog bench nts`: capacity of a server by its number of threads and by the share of
//! NTS-authenticated requests.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LoadResult};

/// The schema's name and version.
pub const BENCH_NTS_SCHEMA: &str = "horolog.bench-nts/2";

/// Result of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchNtsResult {
    /// [`BENCH_NTS_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// One search per number of threads and share, in the order in which they ran.
    pub capacities: Vec<NtsMixCapacity>,
    /// Findings about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// Capacity of one server under one mix of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NtsMixCapacity {
    /// Threads of the server that answer requests.
    pub threads: usize,
    /// Percentage of authenticated requests.
    pub authenticated_percent: u8,
    /// Command that started the server.
    pub server_command: Vec<String>,
    /// CPU time of the server's threads per reply, in ns, at a rate that the server sustains.
    /// Kernel work outside these threads, such as XDP, is not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_reply: Option<f64>,
    /// Result of the capacity search.
    pub load: LoadResult,
}
