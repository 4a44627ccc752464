//! Result of `horolog path udp`: outcomes of datagrams to a far end and back, one row per length
//! and load.
//!
//! L, R, M, S and T are those of Hao, Xue and Qin, "Performance and test method for real-time
//! parallel system", section 4.2 and Table 4: L is the length of a valid datagram, R the number of
//! invalid ones (load) per valid one, M the share of valid ones lost, S the share received in
//! order, and T half the round trip.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, SignedDistribution, TimestampSource};

/// The schema's name and version.
pub const PATH_UDP_SCHEMA: &str = "horolog.path-udp/2";

/// Result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathUdpResult {
    /// [`PATH_UDP_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Near end.
    pub host: Host,
    /// Far end.
    pub target: PathTarget,
    /// Protocol of the requests.
    pub protocol: PathProtocol,
    /// Sending mode.
    pub mode: PathMode,
    /// Parallel flows, each with its own port.
    pub flows: u64,
    /// True if replies were busy-polled instead of waiting in sleep.
    pub busy_polling: bool,
    /// Source of the timestamps of sent requests and received replies, in addition to the program's
    /// own, on which round trips are based.
    pub timestamps: TimestampSource,
    /// DSCP of requests.
    pub dscp: u8,
    /// Uncounted requests sent first in each row and flow.
    pub warm_up: u64,
    /// Timeout of a reply, in ns; a later one counts as late.
    pub reply_timeout_ns: u64,
    /// Length of a datagram of load, in bytes.
    pub load_length: u64,
    /// True if load is broadcast to the link.
    pub load_broadcast: bool,
    /// Cost of the measurement itself.
    pub cost: PathCost,
    /// Rows, in the order in which they were measured.
    pub rows: Vec<PathRow>,
    /// Limits of `--fail-if`; their trial is a row.
    pub limits: Vec<LimitResult>,
    /// Findings about the result; their trial is a row.
    pub findings: Vec<Finding>,
}

/// Far end of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTarget {
    /// Name as given.
    pub name: String,
    /// Address.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// MTU of the path, as far as this host knows it; longer datagrams are fragmented.
    pub mtu: u64,
    /// True if it runs on the same kernel, with the same clock.
    pub same_clock: bool,
    /// Largest difference between the clocks of both ends, in ns; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// Protocols to query a far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathProtocol {
    /// Horolog's own protocol, of `horolog path serve`.
    Horolog,
    /// STAMP (RFC 8762).
    Stamp,
}

/// Sending modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMode {
    /// Each request after the previous one was answered or abandoned.
    PingPong,
    /// Constant rate, regardless of other requests; latency counts from the intended send time.
    OpenLoop,
}

/// Cost of the measurement itself, measured before the first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathCost {
    /// Clock reading, in ns; a round trip includes one.
    pub clock_reading_ns: f64,
    /// Work of the near end for an exchange other than its two system calls, in ns: writing the
    /// request, clock readings, checking and counting the reply.
    pub bookkeeping_ns: f64,
}

/// Row: one length under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathRow {
    /// L: bytes of UDP payload of a valid datagram.
    pub length: u64,
    /// IP packets per such datagram.
    pub fragments: u64,
    /// Duration of the row without its warm-up, in seconds.
    pub duration_s: f64,
    /// Intended requests per second, if sent at a constant rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_rate: Option<f64>,
    /// Requests sent per second.
    pub achieved_rate: f64,
    /// Load on the path.
    pub load: PathLoad,
    /// Outcomes of the requests.
    pub counts: PathCounts,
    /// Outcomes in the forward direction, if the far end counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<PathDirection>,
    /// Outcomes in the backward direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<PathDirection>,
    /// Packets that reached one of the hosts but were lost in it: these are no losses of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_losses: Option<PathHostLosses>,
    /// Round trip, in ns: from the clock reading before the request was passed to the kernel, or
    /// from the intended send time at a constant rate, to the reading after the reply was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// T: half of the round trip, in ns. Its histogram is that of the round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Distribution>,
    /// Send lateness of requests, in ns, at a constant rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_late_ns: Option<Distribution>,
    /// From the transmit timestamp of the request to its receive timestamp, in ns, if the clocks of
    /// both ends permit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ns: Option<SignedDistribution>,
    /// From the transmit timestamp of the reply to its receive timestamp, likewise.
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
    /// Rest of the round trip after subtraction of these two and of the far end's own time, in ns:
    /// the wire, and the far end's path from its program to its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_ns: Option<Distribution>,
    /// DSCP with which requests arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_forward: Option<u8>,
    /// DSCP with which replies returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_backward: Option<u8>,
    /// Reason for the row's premature end, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<RowEnd>,
}

/// Load on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathLoad {
    /// R: intended load ratio.
    pub planned_ratio: f64,
    /// R: achieved load ratio, datagrams of load per request.
    pub ratio: f64,
    /// n: datagrams of load sent, without those of the warm-up.
    pub sent: u64,
    /// Datagrams of load sent, including the warm-up.
    pub sent_in_all: u64,
    /// Number of these that reached the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
}

/// Outcomes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    /// N: requests sent.
    pub sent: u64,
    /// First replies within the timeout.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Replies after the timeout; they are included in the lost ones.
    pub late: u64,
    /// Further replies to an answered request.
    pub duplicate: u64,
    /// Received replies that arrived after one to a later request (RFC 4737).
    pub reordered: u64,
    /// Datagrams that were not a reply.
    pub invalid: u64,
    /// Requests refused by the own sending path; they are not included in `sent`.
    pub refused: u64,
}

/// Outcomes of datagrams in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathDirection {
    /// Lost datagrams.
    pub lost: u64,
    /// Duplicate datagrams.
    pub duplicate: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
}

/// Losses of received packets in the hosts at both ends during a row. Each number is absent if that
/// end does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHostLosses {
    /// Requests without a reply because of the far end's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_limited: Option<u64>,
    /// Datagrams dropped by the far end's socket because its buffer was full: requests, load and
    /// packets from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_dropped: Option<u64>,
    /// Datagrams dropped by this host's sockets, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_dropped: Option<u64>,
}

/// Loss locations of requests without a reply in time; late replies are excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathLosses {
    /// Limit of the far end.
    pub far_limit: u64,
    /// Socket of the far end, at most.
    pub far_socket: u64,
    /// Path to the far end, at least.
    pub path_forward: u64,
    /// Sockets of the near end, at most.
    pub near_socket: u64,
    /// Path back, at least.
    pub path_backward: u64,
}

/// Reasons for the premature end of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowEnd {
    /// End of the run.
    Interrupted,
    /// No further replies from the far end.
    Vanished,
    /// Report of the far end's host that the port is closed.
    Closed,
    /// Failure of the own socket.
    Failed,
}

impl PathRow {
    /// Returns the loss locations of requests; `None` if the far end does not report them.
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
            path_forward: there.lost - far_limit - far_socket,
            near_socket,
            path_backward: back.lost - near_socket,
        })
    }

    /// Returns M: the share of valid datagrams that were lost, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        share(self.counts.lost, self.counts.sent)
    }

    /// Returns S: the share of received ones that arrived in order, from 0 to 1; `None` if none was
    /// received.
    #[must_use]
    pub fn order_ratio(&self) -> Option<f64> {
        let PathCounts { received, reordered, .. } = self.counts;
        (received > 0).then(|| 1.0 - share(reordered, received))
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 }
}
