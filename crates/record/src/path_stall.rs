//! Result of `horolog path stall`: write patterns on a TCP connection that wait for a timer, the
//! mechanisms that held the data back, and the remedies; or the same for observed traffic.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, PathEnd, TcpFigures, TcpTarget};

/// The schema's name and version.
pub const PATH_STALL_SCHEMA: &str = "horolog.path-stall/2";

/// Largest count of connections without room in [`StallWatch`].
pub const CONNECTIONS_MISSED_MAX: u64 = 65_536;

/// Result of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStallResult {
    /// [`PATH_STALL_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that measured.
    pub host: Host,
    /// Far end; absent if traffic was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TcpTarget>,
    /// Near end.
    pub near: PathEnd,
    /// Description of the far end by itself; absent if it gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<PathEnd>,
    /// Settings of this kernel for acknowledgements.
    pub kernel: StallKernel,
    /// Evidence for the mechanisms.
    pub evidence: StallEvidence,
    /// Excess in ns over an exchange that waits for nothing from which on an exchange counts as
    /// stalled.
    pub stall_min_ns: u64,
    /// Write patterns under socket options.
    pub cells: Vec<StallCell>,
    /// Congestion window as it grew from the first segment on, and after a pause.
    pub window: Vec<WindowStep>,
    /// Common claims about such stalls, compared with the measurement.
    pub claims: Vec<StallClaim>,
    /// Observed traffic of a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<StallWatch>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result, and recommended changes.
    pub findings: Vec<Finding>,
}

/// Settings of a kernel for acknowledgements and windows. They are never changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallKernel {
    /// Timer interrupts per second (`CONFIG_HZ`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hz: Option<u64>,
    /// HZ/25 ticks, the kernel's minimum delay of an acknowledgement, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_ack_min_ns: Option<u64>,
    /// `net.ipv4.tcp_delack_min`, if the kernel has it, as stated there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_delack_min: Option<u64>,
    /// Largest delay of an acknowledgement by a socket (`TCP_DELACK_MAX_US`), in ns, if the kernel
    /// reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_ack_max_ns: Option<u64>,
    /// `net.ipv4.tcp_slow_start_after_idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start_after_idle: Option<bool>,
    /// `net.ipv4.tcp_pingpong_thresh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pingpong_thresh: Option<u64>,
    /// `net.ipv4.tcp_autocorking`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autocorking: Option<bool>,
    /// `rto_min` of the route to the target, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_rto_min_ns: Option<u64>,
    /// `quickack` of the route to the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_quick_ack: Option<bool>,
    /// `initcwnd` of the route to the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_initial_cwnd: Option<u64>,
}

/// Evidence for the mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallEvidence {
    /// `TCP_INFO` of the sockets, at both ends, and timing.
    TcpInfo,
    /// `TCP_INFO` and timing, and the packets.
    Packets,
}

/// Patterns of writing and reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallPattern {
    /// One write in each direction.
    Single,
    /// Two small writes, then a read.
    WriteWriteRead,
    /// Two writes of a whole segment each, then a read.
    FullSegments,
    /// A small write, then one with the end of the stream: a single exchange, the last of a
    /// connection.
    LastWithEnd,
    /// Several small writes, each with its own answer, then as many reads.
    Batch,
    /// The far end writes a header, then a body from a file.
    HeaderAndBody,
    /// Header and body; the far end closes where it would have removed a cork.
    HeaderBodyClose,
    /// Header and body; the far end forgets to remove the cork.
    CorkForgotten,
}

/// Options set on the sockets of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketOption {
    /// No option.
    None,
    /// `TCP_NODELAY`.
    NoDelay,
    /// `TCP_QUICKACK`, once at the start.
    QuickAckOnce,
    /// `TCP_QUICKACK` before every receive.
    QuickAckEach,
    /// `TCP_CORK` around the writes that belong together.
    Cork,
}

/// One pattern under one option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallCell {
    /// Write pattern.
    pub pattern: StallPattern,
    /// Writes in a batch; 1 or 2 for other patterns.
    pub writes: u32,
    /// Payload of each write, in bytes.
    pub write_bytes: u64,
    /// Socket option.
    pub option: SocketOption,
    /// Completed exchanges.
    pub exchanges: u64,
    /// Duration of the first exchange, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
    /// Duration of each exchange including the first, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_ns: Option<Distribution>,
    /// Exchanges that stalled.
    pub stalled: u64,
    /// Exchanges that took from 38 to 42 ms.
    pub in_band: u64,
    /// Read that waited longest in most stalled exchanges, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_read: Option<u32>,
    /// Mechanism that held most stalled exchanges; absent if none stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// Samples of the sockets' state while exchanges waited.
    pub held: HoldSamples,
    /// Longest time from the far end's receipt of a request to its answer, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_max_ns: Option<u64>,
    /// `TCP_INFO` of the near end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_tcp: Option<TcpFigures>,
    /// `TCP_INFO` of the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_tcp: Option<TcpFigures>,
    /// Acknowledgements by the packets, if observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<AckDelays>,
}

/// Mechanisms that make data wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Nagle's algorithm waits for an acknowledgement, which the other end delays.
    NagleDelayedAck,
    /// The congestion window is full until an acknowledgement comes, which the other end delays.
    WindowDelayedAck,
    /// A cork that was not removed: the kernel sends after 200 ms.
    Cork,
    /// Nothing was held: the far end had the complete request and answered late.
    LateAnswer,
    /// A segment was lost and retransmitted.
    Loss,
    /// The path or the host was slow; no socket held anything back.
    Elsewhere,
}

/// Samples of each state while an exchange waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldSamples {
    /// Unsent data, segments in flight, room in the window: Nagle's algorithm.
    pub nagle: u64,
    /// Unsent data and a full congestion window.
    pub window: u64,
    /// Unsent data with nothing in flight, under a cork.
    pub cork: u64,
    /// Everything sent and acknowledged: the other end has it.
    pub delivered: u64,
}

/// Acknowledgements, by the packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AckDelays {
    /// Acknowledgements without data.
    pub pure: u64,
    /// Acknowledgements later than a stall's least time.
    pub delayed: u64,
    /// Delays of these, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<DelayedAck>,
    /// Delayed acknowledgements upon which held data was sent.
    pub released: u64,
}

/// Delays of acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedAck {
    /// Shortest delay, in ns.
    pub min: u64,
    /// Median delay, in ns.
    pub p50: u64,
    /// Longest delay, in ns.
    pub max: u64,
}

/// Congestion window after an exchange longer than it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStep {
    /// Bytes sent on this connection before.
    pub sent_bytes: u64,
    /// True if there was a pause before, longer than the retransmission timeout.
    pub after_pause: bool,
    /// Congestion window before the exchange, in segments.
    pub cwnd: u64,
    /// Duration of the exchange, in ns.
    pub exchange_ns: u64,
}

/// Common claim about stalls, and its validity on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallClaim {
    /// Stable short name.
    pub id: String,
    /// Text of the claim.
    pub statement: String,
    /// True if it held; absent if it could not be tested here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Value that decided it, or the reason for its absence.
    pub evidence: String,
}

/// Observed traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallWatch {
    /// Port.
    pub port: u16,
    /// Duration, in ns.
    pub duration_ns: u64,
    /// Observed connections, in falling order of stalls.
    pub connections: Vec<WatchedConnection>,
    /// Connections without room; [`CONNECTIONS_MISSED_MAX`] means at least that many.
    pub connections_untracked: u64,
    /// Packets dropped before observation.
    pub packets_dropped: u64,
}

/// One observed connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedConnection {
    /// End whose port was observed.
    pub server: String,
    /// Other end.
    pub client: String,
    /// Answers: data in one direction after data in the other; absent if packets were not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Number of times that data waited at the client for a delayed acknowledgement.
    pub client_stalls: u64,
    /// Number of times that data waited at the server.
    pub server_stalls: u64,
    /// Waiting time of data, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ns: Option<Distribution>,
    /// Waiting times of 38 to 42 ms.
    pub in_band: u64,
    /// Mechanism that held most of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// Acknowledgements; absent if packets were not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<AckDelays>,
}
