//! The result of `horolog load`: what was asked, what was sent, what came back and where the rest
//! went.

use std::collections::BTreeMap;
use std::net::IpAddr;

use horolog_stats::loss::loss_ratio;
use horolog_stats::search::Reason;
use serde::{Deserialize, Serialize};

use crate::{
    Distribution, Fairness, Finding, Host, LimitResult, OffsetMethod, Overload, Series,
    SignedDistribution, Silence, WellBehaved,
};

/// The schema's name and version.
pub const LOAD_SCHEMA: &str = "horolog.load/1";

/// A whole run against one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`LOAD_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that generated the load.
    pub host: Host,
    /// What was loaded.
    pub target: Target,
    /// What was asked of it.
    pub mode: Mode,
    /// How requests were sent.
    pub engine: Engine,
    /// Sending threads.
    pub threads: usize,
    /// How requests were spaced.
    pub spacing: Spacing,
    /// A reply that takes longer than this counts as late, not as received, in ns.
    pub reply_timeout_ns: u64,
    /// How offsets of the server's timestamps were taken, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<OffsetMethod>,
    /// The trials, in the order in which they ran.
    pub trials: Vec<Trial>,
    /// What the search found, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// The run over time, where its rate followed a course.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// When the server was silent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silences: Vec<Silence>,
    /// What an overload did, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// What the run was held against, where it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitResult>,
    /// Doubts about the numbers.
    pub findings: Vec<Finding>,
}

/// What was loaded, and by which way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The address that requests went to.
    pub address: IpAddr,
    /// The UDP port.
    pub port: u16,
    /// The name that was given for it, where a name was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The interface that requests left by, where the engine chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The link-layer address of the target or of the gateway to it, `aa:bb:cc:dd:ee:ff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The network that the simulated clients' addresses came from, `address/bits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_network: Option<String>,
}

/// What kind of request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// NTP client requests in basic mode (RFC 5905).
    #[serde(rename = "ntp-basic")]
    NtpBasic,
    /// NTP client requests in interleaved mode (RFC 9769).
    #[serde(rename = "ntp-interleaved")]
    NtpInterleaved,
    /// NTP client requests authenticated by NTS (RFC 8915), all of them or a share.
    #[serde(rename = "ntp-nts")]
    NtpNts,
    /// NTS key establishment (RFC 8915, section 4); see [`crate::EstablishmentResult`].
    #[serde(rename = "nts-ke")]
    NtsKe,
    /// PTP delay requests (IEEE 1588-2019, clause 11.3).
    #[serde(rename = "ptp-delay")]
    PtpDelay,
    /// PTP delay requests that ask for a Sync as well, by NetSync Monitor.
    #[serde(rename = "ptp-nsm")]
    PtpNsm,
    /// Requests for unicast PTP messages (IEEE 1588-2019, clause 16.1).
    #[serde(rename = "ptp-unicast")]
    PtpUnicast,
    /// The same requests to a reflector that sends them back as they are.
    #[serde(rename = "echo")]
    Echo,
    /// Several of these at once, as [`Trial::parts`] says.
    #[serde(rename = "mix")]
    Mix,
}

/// How requests were sent and replies received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Ordinary UDP sockets.
    Udp,
    /// `AF_PACKET` sockets with simulated clients.
    Packet,
    /// Generation and verification inside the kernel, in XDP.
    Xdp,
}

impl Engine {
    /// The name that the command line and the result file use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        }
    }
}

/// How the intended send instants follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// All intervals alike.
    Constant,
    /// Exponentially distributed intervals: a Poisson process.
    Exponential,
}

/// One rate, held for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The name of the phase that it is, where the rate followed a course.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The rate that was planned, in requests per second.
    pub offered_rate: f64,
    /// The rate that really left: requests sent over the time between the first and the last.
    pub achieved_rate: f64,
    /// How long requests were sent, in seconds.
    pub duration_s: f64,
    /// Simulated clients.
    pub clients: u64,
    /// Requests that left.
    pub sent: u64,
    /// Valid replies within the time allowed, each request's first one only.
    pub received: u64,
    /// `sent` less `received`: neither late nor invalid replies are taken off.
    pub lost: u64,
    /// Further valid replies to a request that was already answered.
    pub duplicate: u64,
    /// Valid replies that came after the time allowed.
    pub late: u64,
    /// Replies that were not valid, by reason.
    pub invalid: BTreeMap<InvalidReason, u64>,
    /// Valid replies by kind.
    pub responses: Responses,
    /// Of the requests, those that were authenticated, where any were to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated: Option<ClassCounts>,
    /// Of the authenticated requests, those with a cookie that was used before, where each client
    /// has a session of its own and should use every cookie once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies_reused: Option<u64>,
    /// How evenly the clients were answered, where that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// What became of well-behaved clients beside the load, whose requests are not among its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub well_behaved: Option<WellBehaved>,
    /// Round trip, from the *intended* send instant to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// The server's own response time, its transmit less its receive timestamp: of basic replies,
    /// and by interleaved ones of the reply before each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<Distribution>,
    /// Offset of the server's transmit timestamps, as [`LoadResult::offset`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx_offset_ns: Option<SignedDistribution>,
    /// Of the replies received, those that had a receive timestamp for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamped: Option<u64>,
    /// How long after its intended instant each request was really sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ns: Option<Distribution>,
    /// Where the lost requests and replies went; the counts add up to `lost`.
    pub lost_at: BTreeMap<Place, u64>,
    /// In a mix of requests, what became of each kind of them; they are among the counts above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// One kind of requests in a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What it is called on the command line.
    pub name: String,
    /// What was asked.
    pub mode: Mode,
    /// Its share of the rate, from 0 to 1.
    pub share: f64,
    /// What became of it. Where packets were lost is known of the whole trial only, so `lost_at` is
    /// empty.
    pub trial: Trial,
}

impl Trial {
    /// The share of sent requests that stayed without a valid reply in time, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }

    /// Replies that were not valid, for whatever reason. Saturates: a file may claim any counts.
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
    /// Replies in interleaved mode, with the transmit timestamp of the reply before.
    #[serde(default)]
    pub interleaved: u64,
    /// Authentic replies to requests that were authenticated by NTS.
    #[serde(default)]
    pub nts: u64,
    /// Answers to PTP delay requests.
    #[serde(default)]
    pub delay: u64,
    /// Syncs of NetSync Monitor, each with its follow-up where it has one. Such a request is owed
    /// one of these and a delay response, and counts as received when both are there.
    #[serde(default)]
    pub sync_follow_up: u64,
    /// Requests for unicast PTP messages that were granted.
    #[serde(default)]
    pub grant: u64,
    /// Those that were denied.
    #[serde(default)]
    pub denial: u64,
    /// Times that a master took back what unicast messages a client had asked for.
    #[serde(default)]
    pub cancellation: u64,
    /// Messages that came during the trial because they had been granted; they are no replies.
    #[serde(default)]
    pub granted_messages: u64,
}

/// What became of the requests of one class; they are among the trial's counts as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Requests that left.
    pub sent: u64,
    /// Valid replies within the time allowed.
    pub received: u64,
    /// `sent` less `received`.
    pub lost: u64,
}

/// Why a reply does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidReason {
    /// Shorter than an NTP header or longer than the request; not as long as a PTP message says, or
    /// as its TLVs say.
    Length,
    /// Not mode 4 (server); in PTP not a message that answers.
    Mode,
    /// Another version than the request's.
    Version,
    /// The origin timestamp, or the port that a PTP message says had asked, is not one of ours.
    Origin,
    /// It came to another client than the one that asked.
    Client,
    /// A stratum above 16, or 0: a kiss of death.
    Stratum,
    /// The leap indicator and the stratum contradict one another.
    Leap,
    /// The transmit timestamp is 0 or lies before the receive timestamp; in PTP also a timestamp
    /// that is none.
    Timestamp,
    /// Of another PTP domain, or another profile's.
    Domain,
    /// The flags of a PTP message say that it goes to one address only where it does not, or the
    /// other way round.
    Flags,
    /// A PTP message has the number of no request that waits for one.
    Sequence,
    /// Another PTP port than the one that answered first.
    Source,
    /// NetSync Monitor was asked for and the reply says nothing of it.
    Monitor,
    /// A PTP master was asked for unicast messages and grants others, or says nothing of it.
    Contract,
    /// It should be authentic by NTS and is not, or the server refused the cookie.
    Nts,
    /// It has no MAC of the request's key, or a wrong one.
    Mac,
}

impl InvalidReason {
    /// All of them, in the order in which engines number them. The in-kernel one, which neither
    /// negotiates unicast messages nor knows NTS or MACs, has no numbers for the last three.
    pub const ALL: [Self; 16] = [
        Self::Length,
        Self::Mode,
        Self::Version,
        Self::Origin,
        Self::Client,
        Self::Stratum,
        Self::Leap,
        Self::Timestamp,
        Self::Domain,
        Self::Flags,
        Self::Sequence,
        Self::Source,
        Self::Monitor,
        Self::Contract,
        Self::Nts,
        Self::Mac,
    ];
}

/// Where a request or its reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The generator's own sending path refused it.
    Generator,
    /// The reply reached this machine and its receive ring or socket was full.
    OwnRing,
    /// Between the two interfaces.
    Link,
    /// The server's interface had no room in its receive ring.
    Interface,
    /// The server's socket buffer was full.
    Socket,
    /// The server received it and did not answer, or could not send.
    Server,
    /// Nowhere: the reply came, but after the time allowed. That is counted from the intended
    /// instant, so a generator that falls behind by as much makes every reply late.
    Late,
    /// None of the counters that could be read accounts for it.
    Unknown,
}

/// What a search was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchKind {
    /// No-drop rate: the highest rate without loss (RFC 2544, section 26.1).
    Ndr,
    /// Partial-drop rate: the highest rate within a given loss ratio.
    Pdr,
}

/// The highest rate within a loss goal (RFC 9971).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// No-drop or partial-drop.
    pub kind: SearchKind,
    /// The loss ratio that was allowed.
    pub goal_loss_ratio: f64,
    /// The rate found: what was sent per second at the relevant lower bound.
    pub rate: f64,
    /// Highest rate that held the goal, where one did.
    pub lower: Option<f64>,
    /// Lowest rate above it that did not, where one was met.
    pub upper: Option<f64>,
    /// The loss ratio at the lower bound.
    pub loss_ratio: f64,
    /// Why the search ended.
    pub end: SearchEnd,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnd {
    /// The bounds are as close as was asked.
    Converged,
    /// The highest rate allowed held the goal.
    CappedAtMax,
    /// Even the lowest rate allowed did not.
    BelowMin,
    /// The generator could not send more: the server may well hold more.
    GeneratorLimit,
    /// Its time or its trials were used up.
    BudgetSpent,
}

impl From<Reason> for SearchEnd {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Converged => Self::Converged,
            Reason::CappedAtMax => Self::CappedAtMax,
            Reason::GeneratorLimit => Self::GeneratorLimit,
            Reason::BelowMin => Self::BelowMin,
            Reason::BudgetSpent => Self::BudgetSpent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_called_the_same_on_the_command_line_and_in_the_file() {
        for engine in [Engine::Udp, Engine::Packet, Engine::Xdp] {
            assert_eq!(serde_json::to_value(engine).unwrap(), engine.name());
        }
    }

    #[test]
    fn every_reason_is_in_the_list_once() {
        for (place, reason) in InvalidReason::ALL.into_iter().enumerate() {
            assert_eq!(place_of(reason), place, "{reason:?}");
        }
    }

    /// Where it stands in the list. A new reason does not compile before it has a place here.
    fn place_of(reason: InvalidReason) -> usize {
        match reason {
            InvalidReason::Length => 0,
            InvalidReason::Mode => 1,
            InvalidReason::Version => 2,
            InvalidReason::Origin => 3,
            InvalidReason::Client => 4,
            InvalidReason::Stratum => 5,
            InvalidReason::Leap => 6,
            InvalidReason::Timestamp => 7,
            InvalidReason::Domain => 8,
            InvalidReason::Flags => 9,
            InvalidReason::Sequence => 10,
            InvalidReason::Source => 11,
            InvalidReason::Monitor => 12,
            InvalidReason::Contract => 13,
            InvalidReason::Nts => 14,
            InvalidReason::Mac => 15,
        }
    }
}
