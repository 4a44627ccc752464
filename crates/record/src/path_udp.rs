//! Result of `horolog path udp`: outcomes of datagrams sent to a far end and back, one row per
//! datagram length and load.
//!
//! The symbols are those of Hao, Xue and Qin, "Performance and test method for real-time parallel
//! system", section 4.2 and Table 4. A "valid" datagram is a request or its reply, an "invalid" one
//! belongs to the load. L: length of a valid datagram; R: number of invalid datagrams per valid
//! one; M: share of valid datagrams lost; S: share of received ones that arrived in order; T: half
//! the round trip.

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
    /// Host of the near end.
    pub host: Host,
    /// Far end.
    pub target: PathTarget,
    /// Protocol of the requests.
    pub protocol: PathProtocol,
    /// Mode in which requests are sent.
    pub mode: PathSendMode,
    /// Number of parallel flows, each with its own port.
    pub flows: u64,
    /// True if the near end polled its sockets in a busy loop instead of sleeping until a reply
    /// arrived.
    pub busy_polling: bool,
    /// Source of the timestamps of sent requests and received replies, in addition to the program's
    /// own, on which round trips are based.
    pub timestamps: TimestampSource,
    /// DSCP of requests.
    pub dscp: u8,
    /// Number of requests per row and flow that are sent first and not counted.
    pub warm_up: u64,
    /// Timeout of a reply, in ns; a later one counts as late.
    pub reply_timeout_ns: u64,
    /// Length of a datagram of load, in bytes.
    pub load_length: u64,
    /// True if the load is sent to the link's broadcast address.
    pub load_broadcast: bool,
    /// Cost of the measurement itself.
    pub cost: PathMeasurementCost,
    /// Rows, in the order in which they were measured.
    pub rows: Vec<PathUdpRow>,
    /// Limits of `--fail-if`; their trial is a row.
    pub limits: Vec<LimitResult>,
    /// Findings about the result; their trial is a row.
    pub findings: Vec<Finding>,
}

/// Far end of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTarget {
    /// Name as on the command line.
    pub name: String,
    /// Address.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Path MTU in bytes, as far as this host knows it; longer datagrams are fragmented.
    pub mtu: u64,
    /// True if it runs on the same kernel, so that both ends read the same clock.
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

/// Modes in which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathSendMode {
    /// Ping-pong: each request is sent after the previous one was answered or abandoned.
    PingPong,
    /// Constant rate, regardless of other requests; latency counts from the intended send time.
    OpenLoop,
}

/// Cost of the measurement itself, measured before the first row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathMeasurementCost {
    /// Clock reading, in ns; a round trip includes one.
    pub clock_reading_ns: f64,
    /// CPU time of the near end per exchange without its two system calls, in ns: writing the
    /// request, reading the clock, checking and counting the reply.
    pub bookkeeping_ns: f64,
}

/// Row: one length under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathUdpRow {
    /// L: bytes of UDP payload of a valid datagram.
    pub length: u64,
    /// IP packets per valid datagram.
    pub fragments: u64,
    /// Duration of the row in seconds, without the warm-up.
    pub duration_s: f64,
    /// Intended rate, in requests per second; absent in ping-pong mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_rate: Option<f64>,
    /// Achieved rate, in requests per second.
    pub achieved_rate: f64,
    /// Load on the path during the row.
    pub load: PathLoad,
    /// Outcomes of the requests.
    pub counts: PathRequestCounts,
    /// Counts in the forward direction; absent if the far end does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<PathDirectionCounts>,
    /// Counts in the backward direction; absent if the far end does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<PathDirectionCounts>,
    /// Packets that reached a host but were lost inside it, which are not losses of the path;
    /// absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_losses: Option<PathHostLosses>,
    /// Round trip, in ns: from the clock reading before the request was passed to the kernel, or
    /// from the intended send time at a constant rate, to the reading after the reply was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// T: half of the round trip, in ns. Its `histogram` is that of the whole round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Distribution>,
    /// Send lateness of the requests, in ns; in open-loop mode only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_late_ns: Option<Distribution>,
    /// One-way time of requests in ns, from the near end's transmit timestamp to the far end's
    /// receive timestamp; absent unless the clocks are close enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ns: Option<SignedDistribution>,
    /// One-way time of replies in ns, from the far end's transmit timestamp to the near end's
    /// receive timestamp; absent unless the clocks are close enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_ns: Option<SignedDistribution>,
    /// From the far end's timestamp of the request to that of the reply, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_ns: Option<Distribution>,
    /// From the program to the driver, in ns, by the kernel's timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_send_ns: Option<Distribution>,
    /// Receive path of this host, in ns: from the driver to the program, by the kernel's
    /// timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_receive_ns: Option<Distribution>,
    /// Remainder of the round trip without `host_send_ns`, `host_receive_ns` and `far_ns`, in ns:
    /// the wire, and the path through the kernel of the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_ns: Option<Distribution>,
    /// DSCP with which requests arrived at the far end; absent if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_forward: Option<u8>,
    /// DSCP with which replies arrived at the near end; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp_backward: Option<u8>,
    /// Reason for the premature end of the row; absent if it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UdpRowEndReason>,
}

/// Load on a path during a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathLoad {
    /// R: intended load ratio, in datagrams of load per request.
    pub planned_ratio: f64,
    /// R: achieved load ratio, datagrams of load per request.
    pub ratio: f64,
    /// n: number of datagrams of load sent, without the warm-up.
    pub sent: u64,
    /// Datagrams of load sent, including the warm-up.
    pub sent_in_all: u64,
    /// Number of these that arrived at the far end; absent if it does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
}

/// Outcomes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRequestCounts {
    /// N: requests sent.
    pub sent: u64,
    /// First replies within the timeout.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Replies after the timeout; they are included in the lost ones.
    pub late: u64,
    /// Further replies to a request that was already answered.
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
pub struct PathDirectionCounts {
    /// Lost datagrams.
    pub lost: u64,
    /// Duplicate datagrams.
    pub duplicate: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
}

/// Packets lost inside the hosts at both ends during a row, after they had crossed the path. A
/// number is absent if that end does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHostLosses {
    /// Requests that the far end did not answer because its limit was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_limited: Option<u64>,
    /// Datagrams dropped by the far end's socket because its buffer was full: requests, load and
    /// packets of other hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_dropped: Option<u64>,
    /// Datagrams dropped by the near end's sockets because their buffers were full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_dropped: Option<u64>,
}

/// Requests without any reply, by the location of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathLossesByLocation {
    /// Limit of the far end.
    pub far_limit: u64,
    /// Socket of the far end, at most.
    pub far_socket: u64,
    /// Path in the forward direction: lower bound.
    pub path_forward: u64,
    /// Sockets of the near end, at most.
    pub near_socket: u64,
    /// Path in the backward direction: lower bound.
    pub path_backward: u64,
}

/// Reasons why a row ended prematurely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UdpRowEndReason {
    /// The run ended.
    Interrupted,
    /// The far end stopped replying.
    Vanished,
    /// The far end's host reported that the port is closed (ICMP port unreachable).
    Closed,
    /// A socket of the near end failed.
    Failed,
}

impl PathUdpRow {
    /// Returns the lost requests by location; `None` if the far end does not report its counts.
    /// Unknown drops of the near end's sockets count as 0.
    #[must_use]
    pub fn loss_locations(&self) -> Option<PathLossesByLocation> {
        let (forward, backward) = self.forward.zip(self.backward)?;
        let hosts = self.host_losses?;
        let far_limit = hosts.far_limited?.min(forward.lost);
        let far_socket = hosts.far_dropped?.min(forward.lost - far_limit);
        let near_socket = hosts.near_dropped.unwrap_or(0).min(backward.lost);
        Some(PathLossesByLocation {
            far_limit,
            far_socket,
            path_forward: forward.lost - far_limit - far_socket,
            near_socket,
            path_backward: backward.lost - near_socket,
        })
    }

    /// Returns M: the share of requests without a reply within the timeout, from 0 to 1; 0 if none
    /// was sent.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        share(self.counts.lost, self.counts.sent)
    }

    /// Returns S: the share of received replies that arrived in order, from 0 to 1; `None` if none
    /// was received.
    #[must_use]
    pub fn order_ratio(&self) -> Option<f64> {
        let PathRequestCounts { received, reordered, .. } = self.counts;
        (received > 0).then(|| 1.0 - share(reordered, received))
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 }
}
