//! Result of `horolog load nts-ke`: rate at which a server completes NTS-KE exchanges (RFC 8915,
//! section 4), and their durations. A client starts the next exchange when it has a response, or at
//! the intended rate of a search.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    CapacitySearchResult, Distribution, Finding, Host, LimitResult, LoadTarget, RequestMode,
};

/// Result of one run against one NTS-KE server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NtsKeLoadResult {
    /// [`crate::LOAD_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that generated the load.
    pub host: Host,
    /// Target of the load; the port is a TCP port.
    pub target: LoadTarget,
    /// Mode: always [`RequestMode::NtsKe`].
    pub mode: RequestMode,
    /// Trials, in the order in which they ran.
    pub trials: Vec<NtsKeTrial>,
    /// Result of the search; absent without a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<CapacitySearchResult>,
    /// Limits of `--fail-if`, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Trial with a number of clients for a duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NtsKeTrial {
    /// Intended rate of exchange starts per second; absent if clients do not wait between
    /// exchanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_rate: Option<f64>,
    /// Achieved rate per second: without an intended rate, completed exchanges from the first start
    /// to the last end; with one, started exchanges from the first start to the last.
    pub achieved_rate: f64,
    /// Duration to which `achieved_rate` refers, in seconds; with an intended rate the planned
    /// duration.
    pub duration_s: f64,
    /// Clients, each with one connection at a time.
    pub clients: u64,
    /// Exchanges started.
    pub sent: u64,
    /// Exchanges that yielded keys and cookies.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Failed exchanges by reason; the counts add up to `lost`.
    pub failures: BTreeMap<NtsKeFailureReason, u64>,
    /// Duration in ns of the exchanges that yielded keys, from the start of the connection (with an
    /// intended rate, from the intended start) to the end of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_ns: Option<Distribution>,
}

/// Reasons why an NTS-KE exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NtsKeFailureReason {
    /// No TCP connection, or a broken one.
    Connection,
    /// No response within the timeout.
    Timeout,
    /// TLS failure, for instance because the certificate is not trusted.
    Tls,
    /// Incomplete or invalid response.
    Response,
    /// Refusal by the server, or no protocol or algorithm in common.
    Refused,
}
