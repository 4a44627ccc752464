//! The result of `horolog path udp`: what becomes of datagrams on the way to a far end and back, a
//! row for each length and load.
//!
//! L, R, M, S and T are those of Hao, Xue and Qin, "Performance and test method for real-time
//! parallel system", section 4.2 and Table 4: L is the length of a valid datagram, R the number of
//! invalid ones (load) for each valid one, M the share of valid ones that were lost, S the share
//! that came in their order, and T half the round trip.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, SignedDistribution, StampKind};

/// The schema's name and version.
pub const PATH_UDP_SCHEMA: &str = "horolog.path-udp/1";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathUdpResult {
    /// [`PATH_UDP_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The near end.
    pub host: Host,
    /// The far end.
    pub target: PathTarget,
    /// By which protocol it was asked.
    pub protocol: PathProtocol,
    /// When requests were sent.
    pub mode: PathMode,
    /// Conversations side by side, each of a port of its own.
    pub flows: u64,
    /// Whether replies were looked for all the time, instead of slept for.
    pub busy_polling: bool,
    /// By whom the timestamps of requests that left and replies that came were taken, beside the
    /// program's own that round trips are counted by.
    pub timestamps: StampKind,
    /// The DSCP of requests.
    pub dscp: u8,
    /// Requests of each row and flow that were sent first and not counted.
    pub warm_up: u64,
    /// A reply that takes longer than this counts as late, in ns.
    pub reply_timeout_ns: u64,
    /// Length of a datagram of load, in bytes.
    pub load_length: u64,
    /// Whether load is broadcast to the link.
    pub load_broadcast: bool,
    /// What the measurement itself costs.
    pub cost: PathCost,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<PathRow>,
    /// The limits of `--fail-if`; what they call a trial is a row.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures; what they call a trial is a row.
    pub findings: Vec<Finding>,
}

/// A far end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTarget {
    /// As it was named.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its UDP port.
    pub port: u16,
    /// The MTU of the path, as far as this host knows it; what is longer goes in fragments.
    pub mtu: u64,
    /// Whether it runs on this very kernel, by the same clock.
    pub same_clock: bool,
    /// The most that the clocks of both ends may be apart, in ns; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// A protocol by which a far end is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathProtocol {
    /// This project's, of `horolog path serve`.
    Horolog,
    /// STAMP (RFC 8762).
    Stamp,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMode {
    /// Each when the one before it was answered or given up.
    PingPong,
    /// At a fixed rate, whatever becomes of the others; latency counts from the intended instant.
    OpenLoop,
}

/// What the measurement itself costs, measured before the first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathCost {
    /// A reading of the clock, in ns; a round trip has one in it.
    pub clock_reading_ns: f64,
    /// All that the near end does for an exchange beside its two system calls, in ns: writing the
    /// request, readings of the clock, checking and counting the reply.
    pub bookkeeping_ns: f64,
}

/// A row: one length under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRow {
    /// L: bytes of UDP payload of a valid datagram.
    pub length: u64,
    /// IP packets that such a datagram goes in.
    pub fragments: u64,
    /// How long the row took, its warm-up left out, in seconds.
    pub duration_s: f64,
    /// Requests in a second that were planned, where they were sent at a fixed rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_rate: Option<f64>,
    /// Requests in a second that were sent.
    pub achieved_rate: f64,
    /// The load on the path.
    pub load: PathLoad,
    /// What became of the requests.
    pub counts: PathCounts,
    /// The same on the way there, where the far end counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<PathDirection>,
    /// On the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<PathDirection>,
    /// What came to one of the hosts and got no further: no losses of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_losses: Option<PathHostLosses>,
    /// The round trip, in ns: from the reading of the clock before the request was handed over, or
    /// from the intended instant at a fixed rate, to that after the reply was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// T: half of it, in ns. Its histogram is the other's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Distribution>,
    /// How late requests were sent, in ns, at a fixed rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_late_ns: Option<Distribution>,
    /// From the timestamp of the request that left to that of its coming, in ns, where the clocks
    /// of both ends allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ns: Option<SignedDistribution>,
    /// The same of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_ns: Option<SignedDistribution>,
    /// From the far end's timestamp of the request to that of the reply, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_ns: Option<Distribution>,
    /// From the program to the driver, in ns, by the kernel's timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_send_ns: Option<Distribution>,
    /// From the driver to the program, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_receive_ns: Option<Distribution>,
    /// What is left of the round trip when both of these and the far end's own time are taken off,
    /// in ns: the wire, and the far end's way from its program to its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_ns: Option<Distribution>,
    /// The DSCP with which requests came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_there: Option<u8>,
    /// The DSCP with which replies came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_back: Option<u8>,
    /// Why the row ended before it was through, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<RowEnd>,
}

/// The load on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathLoad {
    /// R as it was asked for.
    pub planned_ratio: f64,
    /// R as it was: datagrams of load for each request.
    pub ratio: f64,
    /// n: datagrams of load that were sent, those of the warm-up left out.
    pub sent: u64,
    /// Datagrams of load that were sent, warm-up and all.
    pub sent_in_all: u64,
    /// How many of these came to the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
}

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    /// N: requests that left.
    pub sent: u64,
    /// First replies within the time allowed.
    pub received: u64,
    /// `sent` less `received`.
    pub lost: u64,
    /// Replies that came after the time allowed; they are among the lost.
    pub late: u64,
    /// Further replies to a request that was answered.
    pub duplicate: u64,
    /// Replies, of those received, that came behind one to a later request (RFC 4737).
    pub reordered: u64,
    /// Datagrams that were no reply.
    pub invalid: u64,
    /// Requests that the own sending path refused; they are not among `sent`.
    pub refused: u64,
}

/// What became of datagrams in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathDirection {
    /// How many were lost.
    pub lost: u64,
    /// How many came once more.
    pub duplicate: u64,
    /// How many came behind a later one.
    pub reordered: u64,
}

/// What the hosts at both ends lost of what came to them while a row was measured. Each number is
/// absent where that end does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHostLosses {
    /// Requests that the far end's limit left without a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_limited: Option<u64>,
    /// Datagrams that the far end's socket dropped because its buffer was full: requests, load and
    /// what others sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_dropped: Option<u64>,
    /// Datagrams that this host's sockets dropped, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_dropped: Option<u64>,
}

/// Where requests were lost that have no reply in time, late ones left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathLosses {
    /// By the far end's limit.
    pub far_limit: u64,
    /// At the far end's socket, at most.
    pub far_socket: u64,
    /// On the path to the far end, at least.
    pub path_there: u64,
    /// At the near end's sockets, at most.
    pub near_socket: u64,
    /// On the path back, at least.
    pub path_back: u64,
}

/// Why a row ended before it was through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowEnd {
    /// The run was ended.
    Interrupted,
    /// The far end did not answer any more.
    Vanished,
    /// The far end's host says that nobody listens there any more.
    Closed,
    /// The own socket failed.
    Failed,
}

impl PathRow {
    /// Where requests were lost; `None` where the far end does not tell.
    #[must_use]
    pub fn losses(&self) -> Option<PathLosses> {
        let (there, back) = self.forward.zip(self.backward)?;
        let hosts = self.host_losses?;
        let far_limit = hosts.far_limited?.min(there.lost);
        let far_socket = hosts.far_dropped?.min(there.lost - far_limit);
        let near_socket = hosts.near_dropped.unwrap_or(0).min(back.lost);
        Some(PathLosses {
            far_limit,
            far_socket,
            path_there: there.lost - far_limit - far_socket,
            near_socket,
            path_back: back.lost - near_socket,
        })
    }

    /// M: the share of valid datagrams that were lost, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        share(self.counts.lost, self.counts.sent)
    }

    /// S: the share of those received that came in their order, from 0 to 1; `None` where none was.
    #[must_use]
    pub fn order_ratio(&self) -> Option<f64> {
        let PathCounts { received, reordered, .. } = self.counts;
        (received > 0).then(|| 1.0 - share(reordered, received))
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 }
}
