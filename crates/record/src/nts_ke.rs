//! Result of `horolog load nts-ke`: rate of NTS-KE exchanges (RFC 8915, section 4) that a server
//! completes, and their durations. Clients begin the next exchange as soon as they have a response,
//! or at the intended rates of a search.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, RequestMode, SearchResult, Target};

/// Result of one run against one NTS-KE server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NtsKeResult {
    /// [`crate::LOAD_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that generated the load.
    pub host: Host,
    /// Target of the load; the port is a TCP port.
    pub target: Target,
    /// Mode: always `nts-ke`.
    pub mode: RequestMode,
    /// Trials, in the order in which they ran.
    pub trials: Vec<NtsKeTrial>,
    /// Goal and result of the search, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// Limits of `--fail-if`, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Trial with a number of clients for a duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NtsKeTrial {
    /// Intended rate of exchange starts per second, if planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_rate: Option<f64>,
    /// Completed exchanges over the time from the first one's start to the last one's end; if a
    /// rate was planned, exchanges begun per second from the first to the last.
    pub achieved_rate: f64,
    /// Duration of that time, in seconds; the planned one if a rate was planned.
    pub duration_s: f64,
    /// Clients, each with one connection at a time.
    pub clients: u64,
    /// Exchanges begun.
    pub sent: u64,
    /// Exchanges that yielded keys and cookies.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Failed exchanges by reason; the counts add up to `lost`.
    pub failures: BTreeMap<FailureReason, u64>,
    /// From the start of the connection, or from the intended start if a rate was planned, to the
    /// end of the response, for exchanges that yielded keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_ns: Option<Distribution>,
}

/// Reason for which an NTS-KE exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureReason {
    /// No TCP connection, or a broken one.
    Connection,
    /// Timeout.
    Timeout,
    /// TLS failure, for instance because the certificate is not trusted.
    Tls,
    /// Incomplete or invalid response.
    Response,
    /// Refusal by the server, or no protocol or algorithm in common.
    Refused,
}
