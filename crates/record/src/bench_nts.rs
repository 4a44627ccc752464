//! The result of `horolog bench nts`: what a server gives on more and more threads while a growing
//! share of its requests is authenticated.

use serde::{Deserialize, Serialize};

use crate::{Finding, Host, LoadResult};

/// The schema's name and version.
pub const BENCH_NTS_SCHEMA: &str = "horolog.bench-nts/1";

/// The whole experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchNtsResult {
    /// [`BENCH_NTS_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// One search for each number of threads and share, in the order in which they ran.
    pub capacities: Vec<NtsCapacity>,
    /// Doubts about the experiment as a whole.
    pub findings: Vec<Finding>,
}

/// What one server gave under one mix of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NtsCapacity {
    /// Threads of the server that answer.
    pub threads: usize,
    /// Of a hundred requests, those that were authenticated.
    pub authenticated_percent: u8,
    /// The command that started the server.
    pub server_command: Vec<String>,
    /// Processor time of the server's threads for each reply, in ns, at a rate that it holds. What
    /// the kernel does for it outside its threads, as XDP does, is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_reply: Option<f64>,
    /// What the search for the capacity gave.
    pub load: LoadResult,
}
