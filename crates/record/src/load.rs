//! Result of `horolog load`: intended load, requests sent, replies received, and the loss locations
//! of the rest.

use std::collections::BTreeMap;
use std::net::IpAddr;

use horolog_stats::loss::loss_ratio;
use horolog_stats::search::StopReason;
use serde::{Deserialize, Serialize};

use crate::{
    Distribution, Finding, Host, InvalidReplyReason, LimitResult, LoadTimeSeries, Outage,
    OverloadResult, SignedDistribution, TimestampOffsetMethod,
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
    pub target: LoadTarget,
    /// Kind of requests.
    pub mode: RequestMode,
    /// Engine that sends and receives.
    pub engine: LoadEngineKind,
    /// Sending threads.
    pub threads: usize,
    /// Distribution of the time between requests.
    pub spacing: RequestSpacing,
    /// Timeout of a reply, in ns; a later one counts as late, not as received.
    pub reply_timeout_ns: u64,
    /// Method by which offsets of the server's timestamps were measured; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<TimestampOffsetMethod>,
    /// Trials, in the order in which they ran.
    pub trials: Vec<Trial>,
    /// Result of the search; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<CapacitySearchResult>,
    /// Time series of the run; absent unless the rate followed a load profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<LoadTimeSeries>,
    /// Outages of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Outcome of an overload; absent if not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<OverloadResult>,
    /// Limits of `--fail-if`, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Target of the load, and the route to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTarget {
    /// Address to which requests were sent.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Name of the target on the command line; absent if an address was stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Interface by which requests were sent; absent if the engine did not select one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// MAC address of the next hop: the target or a gateway, as `aa:bb:cc:dd:ee:ff`.
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
    /// NTS-KE exchanges (RFC 8915, section 4); their result is [`crate::NtsKeLoadResult`].
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
    /// Mix of several kinds, listed in [`Trial::parts`].
    #[serde(rename = "mix")]
    Mix,
}

/// Engines that send requests and receive replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadEngineKind {
    /// UDP sockets.
    Udp,
    /// `AF_PACKET` sockets with simulated clients.
    Packet,
    /// XDP programs that generate requests and verify replies in the kernel.
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

/// Distributions of the time between intended send times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestSpacing {
    /// Constant time between requests.
    Constant,
    /// Exponentially distributed intervals: a Poisson process.
    Exponential,
}

/// Trial: one intended rate held for one duration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the phase; absent unless the rate followed a load profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Intended rate, in requests per second.
    pub intended_rate: f64,
    /// Achieved rate, in requests per second: intervals between requests over the time from the
    /// first request to the last; 0 for fewer than two.
    pub achieved_rate: f64,
    /// Planned duration of sending, in seconds; if planned requests were omitted, the time from the
    /// first request to the last.
    pub duration_s: f64,
    /// Simulated clients.
    pub clients: u64,
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout, only the first to each request.
    pub received: u64,
    /// `sent` minus `received`; it includes requests with late or invalid replies.
    pub lost: u64,
    /// Further valid replies to a request that was already answered.
    pub duplicate: u64,
    /// Valid replies after the timeout.
    pub late: u64,
    /// Replies of `received` whose server reports that it is not synchronised (NTP only); absent
    /// from earlier results.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Invalid replies by reason.
    pub invalid: BTreeMap<InvalidReplyReason, u64>,
    /// Valid replies by kind.
    pub responses: ReplyKindCounts,
    /// Counts of the NTS-authenticated requests; absent if none were planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated: Option<RequestClassCounts>,
    /// Authenticated requests with a cookie that was used before; absent unless each client has its
    /// own session, in which every cookie should be used once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies_reused: Option<u64>,
    /// Fairness among the clients; absent if replies were not counted by client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<ClientFairness>,
    /// Results of compliant clients beside the load; their requests are not included in the other
    /// counts. Absent without such clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliant_clients: Option<CompliantClientsResult>,
    /// Round trip in ns, from the *intended* send time to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// Response time of the server in ns: its transmit minus its receive timestamp. An interleaved
    /// reply gives that of the preceding reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<Distribution>,
    /// Offset of the server's timestamps in ns, by the method in [`LoadResult::offset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_offset_ns: Option<SignedDistribution>,
    /// Received replies with a receive timestamp for that offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamped: Option<u64>,
    /// Send lateness in ns: actual minus intended send time of each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
    /// Loss locations of requests and replies; the counts add up to `lost`.
    pub lost_at: BTreeMap<LossLocation, u64>,
    /// Results by kind of request in a mix; they are included in the counts above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<MixRequestKindResult>,
}

/// Results of one kind of requests in a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixRequestKindResult {
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
    /// Returns the ratio of requests without a valid reply within the timeout, from 0 to 1; 0 if
    /// none was sent.
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
pub struct ReplyKindCounts {
    /// NTP replies in basic mode without NTS authentication, and replies of an echo reflector.
    pub basic: u64,
    /// Replies in interleaved mode, with the transmit timestamp of the preceding reply.
    #[serde(default)]
    pub interleaved: u64,
    /// NTP replies with valid NTS authentication.
    #[serde(default)]
    pub nts: u64,
    /// Delay responses of PTP.
    #[serde(default)]
    pub delay: u64,
    /// Syncs requested by NetSync Monitor, each with its follow-up if it is a two-step Sync. Such a
    /// request counts as received when both the Sync and the delay response have arrived.
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
    /// Unicast PTP messages received under a grant during the trial; they do not count as replies.
    #[serde(default)]
    pub granted_messages: u64,
}

/// Counts of one class of requests, such as authenticated ones; they are also included in the
/// trial's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestClassCounts {
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
}

/// Locations at which a request or its reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossLocation {
    /// Generator: its host refused to send the request.
    Generator,
    /// Receive ring or socket of the generator: the reply arrived while it was full.
    OwnRing,
    /// Link between the interfaces of generator and server.
    Link,
    /// Receive ring of the server's interface, which was full.
    Interface,
    /// The server's socket buffer was full.
    Socket,
    /// Server: the request was received, but no reply was sent.
    Server,
    /// Not lost: the reply arrived, but after the timeout. That counts from the intended send time,
    /// so a generator whose lateness is that large makes every reply late.
    Late,
    /// Not lost: the reply was invalid.
    Invalid,
    /// Unknown: no readable counter accounts for the loss.
    Unknown,
}

/// Goals of a search for the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapacitySearchGoal {
    /// Non-drop rate: the highest rate without loss (RFC 2544, section 26.1).
    Ndr,
    /// Partial drop rate: the highest rate within a given loss ratio.
    Pdr,
}

/// Highest rate within a loss goal (RFC 9971).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacitySearchResult {
    /// Goal of the search.
    pub kind: CapacitySearchGoal,
    /// Largest loss ratio that meets the goal.
    pub goal_loss_ratio: f64,
    /// Rate found: achieved rate at the relevant lower bound, in requests per second; 0 if no rate
    /// met the goal.
    pub rate: f64,
    /// Highest rate that met the goal, in requests per second; absent if none did.
    pub lower: Option<f64>,
    /// Lowest rate above `lower` that did not meet the goal; absent if there was none.
    pub upper: Option<f64>,
    /// Loss ratio at the lower bound; 0 without one.
    pub loss_ratio: f64,
    /// Reason for the end of the search.
    pub end: SearchEndReason,
}

/// Reasons why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEndReason {
    /// The bounds are as close as requested.
    Converged,
    /// The highest rate allowed met the goal.
    CappedAtMax,
    /// The lowest allowed rate did not meet the goal.
    BelowMin,
    /// The generator could not send more: the server may well sustain more.
    GeneratorLimit,
    /// The budget of time or trials was spent.
    BudgetSpent,
}

impl From<StopReason> for SearchEndReason {
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

/// Fairness of the replies among the clients of a trial. The share of a client is the ratio of its
/// answered requests to its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientFairness {
    /// Clients that sent requests.
    pub clients: u64,
    /// Clients without any reply.
    pub unanswered: u64,
    /// Smallest share, from 0 to 1.
    pub share_min: f64,
    /// Median share.
    pub share_median: f64,
    /// Largest share.
    pub share_max: f64,
    /// Jain's fairness index of the shares (Jain, Chiu, Hawe, 1984): 1 if all are equal, 1/n if
    /// only one of n clients was answered; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_index: Option<f64>,
}

/// Results of low-rate clients that keep to the poll interval beside the load of the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompliantClientsResult {
    /// Compliant clients; each has its own address.
    pub clients: u64,
    /// Time between the starts of two bursts of one client, in seconds.
    pub interval_s: f64,
    /// Requests in a burst.
    pub burst: u32,
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Invalid replies, such as kisses of death.
    pub invalid: u64,
    /// Clients that sent requests.
    pub clients_active: u64,
    /// Clients with at least one request without a valid reply in time.
    pub clients_affected: u64,
    /// Round trip in ns, from the intended send time to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

impl CompliantClientsResult {
    /// Returns the ratio of requests without a valid reply within the timeout, from 0 to 1; 0 if
    /// none was sent.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
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
