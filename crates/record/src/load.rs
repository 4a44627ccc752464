//! Result of `horolog load`: intended load, requests sent, replies received, and the loss locations
//! of the rest.

use std::collections::BTreeMap;
use std::net::IpAddr;

use horolog_stats::loss::loss_ratio;
use horolog_stats::search::StopReason;
use serde::{Deserialize, Serialize};

use crate::{
    CompliantClients, Distribution, Fairness, Finding, Host, InvalidReason, LimitResult,
    OffsetMethod, Outage, Overload, Series, SignedDistribution,
};

/// The schema's name and version.
pub const LOAD_SCHEMA: &str = "horolog.load/2";

/// Result of one run against one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`LOAD_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that generated the load.
    pub host: Host,
    /// Target of the load.
    pub target: Target,
    /// Kind of requests.
    pub mode: RequestMode,
    /// Sending engine.
    pub engine: LoadEngineKind,
    /// Sending threads.
    pub threads: usize,
    /// Spacing of requests.
    pub spacing: Spacing,
    /// Timeout of a reply, in ns; a later one counts as late, not as received.
    pub reply_timeout_ns: u64,
    /// Method for offsets of the server's timestamps, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<OffsetMethod>,
    /// Trials, in the order in which they ran.
    pub trials: Vec<Trial>,
    /// Result of the search, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// Time series of the run, if its rate followed a load profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Outages of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Effects of an overload, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Limits of `--fail-if`, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Target of the load, and the path to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Address to which requests were sent.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Name given for the address, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Interface of the requests, if the engine chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Link-layer address of the target or of the gateway to it, `aa:bb:cc:dd:ee:ff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Network of the simulated clients' addresses, `address/bits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_network: Option<String>,
}

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestMode {
    /// NTP client requests in basic mode (RFC 5905).
    #[serde(rename = "ntp-basic")]
    NtpBasic,
    /// NTP client requests in interleaved mode (RFC 9769).
    #[serde(rename = "ntp-interleaved")]
    NtpInterleaved,
    /// NTP client requests of which all or a share are authenticated by NTS (RFC 8915).
    #[serde(rename = "ntp-nts")]
    NtpNts,
    /// NTS-KE exchanges (RFC 8915, section 4); see [`crate::NtsKeResult`].
    #[serde(rename = "nts-ke")]
    NtsKe,
    /// PTP delay requests (IEEE 1588-2019, clause 11.3).
    #[serde(rename = "ptp-delay")]
    PtpDelay,
    /// PTP delay requests that also request a Sync, by NetSync Monitor.
    #[serde(rename = "ptp-nsm")]
    PtpNsm,
    /// Requests for unicast PTP messages (IEEE 1588-2019, clause 16.1).
    #[serde(rename = "ptp-unicast")]
    PtpUnicast,
    /// Requests to a reflector that returns them unchanged.
    #[serde(rename = "echo")]
    Echo,
    /// Mix of several of these, as stated by [`Trial::parts`].
    #[serde(rename = "mix")]
    Mix,
}

/// Sending and receiving engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadEngineKind {
    /// UDP sockets.
    Udp,
    /// `AF_PACKET` sockets with simulated clients.
    Packet,
    /// Generation and verification inside the kernel, in XDP.
    Xdp,
}

impl LoadEngineKind {
    /// Returns the name used on the command line and in the result file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        }
    }
}

/// Spacing of the intended send times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Equal intervals.
    Constant,
    /// Exponentially distributed intervals: a Poisson process.
    Exponential,
}

/// One intended rate held for one duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the phase, if the rate followed a load profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Intended rate, in requests per second.
    pub intended_rate: f64,
    /// Achieved rate: requests sent over the time between the first and the last.
    pub achieved_rate: f64,
    /// Duration of sending, in seconds.
    pub duration_s: f64,
    /// Simulated clients.
    pub clients: u64,
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout, only the first to each request.
    pub received: u64,
    /// `sent` minus `received`; late and invalid replies are not subtracted.
    pub lost: u64,
    /// Further valid replies to an already answered request.
    pub duplicate: u64,
    /// Valid replies after the timeout.
    pub late: u64,
    /// NTP replies of `received` whose server reports that it is not synchronised; absent from
    /// earlier results.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Invalid replies by reason.
    pub invalid: BTreeMap<InvalidReason, u64>,
    /// Valid replies by kind.
    pub responses: Responses,
    /// Counts of the authenticated requests, if any were planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated: Option<ClassCounts>,
    /// Authenticated requests with an already used cookie, if each client has its own session and
    /// should use every cookie once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies_reused: Option<u64>,
    /// Fairness among the clients, if counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// Results of compliant clients beside the load; their requests are not among its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliant_clients: Option<CompliantClients>,
    /// Round trip, from the *intended* send time to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// Response time of the server, its transmit minus its receive timestamp: of basic replies, and
    /// by interleaved ones of the preceding reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<Distribution>,
    /// Offset of the server's transmit timestamps, by the method in [`LoadResult::offset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_offset_ns: Option<SignedDistribution>,
    /// Received replies with a receive timestamp for that offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamped: Option<u64>,
    /// Send lateness: actual minus intended send time of each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
    /// Loss locations of requests and replies; the counts add up to `lost`.
    pub lost_at: BTreeMap<LossLocation, u64>,
    /// Results by kind of request in a mix; they are included in the counts above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<MixPartResult>,
}

/// One kind of requests in a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixPartResult {
    /// Name on the command line.
    pub name: String,
    /// Kind of request.
    pub mode: RequestMode,
    /// Share of the rate, from 0 to 1.
    pub share: f64,
    /// Results of this kind. Loss locations are known only for the whole trial, so `lost_at` is
    /// empty.
    pub trial: Trial,
}

impl Trial {
    /// Returns the share of sent requests without a valid reply in time, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }

    /// Returns the number of invalid replies for all reasons. Saturates: a file may claim any
    /// counts.
    #[must_use]
    pub fn invalid_total(&self) -> u64 {
        self.invalid.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Valid replies by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responses {
    /// Replies in NTP's basic mode.
    pub basic: u64,
    /// Replies in interleaved mode, with the transmit timestamp of the preceding reply.
    #[serde(default)]
    pub interleaved: u64,
    /// Authentic replies to requests authenticated by NTS.
    #[serde(default)]
    pub nts: u64,
    /// Replies to PTP delay requests.
    #[serde(default)]
    pub delay: u64,
    /// Syncs of NetSync Monitor, each with its follow-up if it has one. Such a request expects one
    /// of these and a delay response, and counts as received when both have arrived.
    #[serde(default)]
    pub sync_follow_up: u64,
    /// Granted requests for unicast PTP messages.
    #[serde(default)]
    pub grant: u64,
    /// Denied requests for unicast PTP messages.
    #[serde(default)]
    pub denial: u64,
    /// Cancellations by a master of unicast messages that a client had requested.
    #[serde(default)]
    pub cancellation: u64,
    /// Messages received during the trial under a grant; they are not replies.
    #[serde(default)]
    pub granted_messages: u64,
}

/// Counts for the requests of one class; they are included in the trial's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
}

/// Loss location of a request or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossLocation {
    /// The generator's own sending path refused the request.
    Generator,
    /// The reply reached this host, but its receive ring or socket was full.
    OwnRing,
    /// Between the two interfaces.
    Link,
    /// The server's interface had no room in its receive ring.
    Interface,
    /// The server's socket buffer was full.
    Socket,
    /// The server received the request and did not reply, or could not send.
    Server,
    /// Not lost: the reply arrived, but after the timeout. That counts from the intended send time,
    /// so a generator whose lateness is that large makes every reply late.
    Late,
    /// Not lost: an invalid reply arrived.
    Invalid,
    /// No readable counter accounts for it.
    Unknown,
}

/// Goals of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchKind {
    /// No-drop rate: the highest rate without loss (RFC 2544, section 26.1).
    Ndr,
    /// Partial-drop rate: the highest rate within a given loss ratio.
    Pdr,
}

/// Highest rate within a loss goal (RFC 9971).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// Kind of the search: no-drop or partial-drop.
    pub kind: SearchKind,
    /// Allowed loss ratio.
    pub goal_loss_ratio: f64,
    /// Rate found: requests sent per second at the relevant lower bound.
    pub rate: f64,
    /// Highest rate that met the goal, if any.
    pub lower: Option<f64>,
    /// Lowest rate above it that did not, if any.
    pub upper: Option<f64>,
    /// Loss ratio at the lower bound.
    pub loss_ratio: f64,
    /// Reason for the end of the search.
    pub end: SearchEnd,
}

/// Reason for the end of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnd {
    /// The bounds are as close as requested.
    Converged,
    /// The highest rate allowed met the goal.
    CappedAtMax,
    /// Not even the lowest rate allowed met the goal.
    BelowMin,
    /// The generator could not send more: the server may well sustain more.
    GeneratorLimit,
    /// The budget of time or trials was spent.
    BudgetSpent,
}

impl From<StopReason> for SearchEnd {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::Converged => Self::Converged,
            StopReason::CappedAtMax => Self::CappedAtMax,
            StopReason::GeneratorLimit => Self::GeneratorLimit,
            StopReason::BelowMin => Self::BelowMin,
            StopReason::BudgetSpent => Self::BudgetSpent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_called_the_same_on_the_command_line_and_in_the_file() {
        for engine in [LoadEngineKind::Udp, LoadEngineKind::Packet, LoadEngineKind::Xdp] {
            assert_eq!(serde_json::to_value(engine).unwrap(), engine.name());
        }
    }
}
