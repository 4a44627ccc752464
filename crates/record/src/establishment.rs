//! The result of `horolog load nts-ke`: how many key establishments (RFC 8915, section 4) a server
//! completes in a second, and how long each takes. Clients ask again as soon as they are answered,
//! or at the planned rates of a search.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, Mode, SearchResult, Target};

/// A whole run against one server for NTS key establishment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstablishmentResult {
    /// [`crate::LOAD_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that generated the load.
    pub host: Host,
    /// What was loaded; the port is one of TCP.
    pub target: Target,
    /// [`Mode::NtsKe`].
    pub mode: Mode,
    /// The trials, in the order in which they ran.
    pub trials: Vec<EstablishmentTrial>,
    /// What was searched for and found, where there was a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// What the run was held against, where it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitResult>,
    /// Doubts about the numbers.
    pub findings: Vec<Finding>,
}

/// Some clients that ask for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstablishmentTrial {
    /// The rate at which establishments were to begin, per second, where one was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rate: Option<f64>,
    /// Completed establishments over the time from the first one's start to the last one's end;
    /// where a rate was planned, begun ones per second from the first to the last.
    pub achieved_rate: f64,
    /// That time, in seconds; the planned one where a rate was planned.
    pub duration_s: f64,
    /// Clients, each with one connection at a time.
    pub clients: u64,
    /// Establishments that were begun.
    pub sent: u64,
    /// Those that gave keys and cookies.
    pub received: u64,
    /// `sent` less `received`.
    pub lost: u64,
    /// The others by reason; the counts add up to `lost`.
    pub failures: BTreeMap<FailureReason, u64>,
    /// From the beginning of the connection, or from when it was due where a rate was planned, to
    /// the end of the response, where it gave keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_ns: Option<Distribution>,
}

/// Why a key establishment came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureReason {
    /// There was no TCP connection, or it broke.
    Connection,
    /// It took too long.
    Timeout,
    /// TLS failed, for instance because the certificate is not trusted.
    Tls,
    /// The response was incomplete or made no sense.
    Response,
    /// The server refused, or had no protocol or algorithm in common.
    Refused,
}
