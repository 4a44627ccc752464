//! Result of `horolog path stall`: write patterns on a TCP connection that stall until a timer
//! expires, the mechanisms that hold the data back, and remedies; or stalls in the observed traffic
//! of a port.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, PathEndFacts, TcpInfoSummary, TcpTarget};

/// The schema's name and version.
pub const PATH_STALL_SCHEMA: &str = "horolog.path-stall/2";

/// Largest value of [`WatchedTraffic::connections_untracked`]; it means at least that many.
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
    /// Properties of the near end.
    pub near: PathEndFacts,
    /// Properties of the far end as reported by it; absent if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<PathEndFacts>,
    /// TCP settings of this host's kernel.
    pub kernel: StallKernelSettings,
    /// Evidence by which the mechanisms of stalls were determined.
    pub evidence: StallEvidenceKind,
    /// Excess in ns over an exchange that waits for nothing from which on an exchange counts as
    /// stalled.
    pub stall_min_ns: u64,
    /// Write patterns under socket options.
    pub cells: Vec<StallMeasurement>,
    /// Growth of the congestion window from the first segment on, and after a pause.
    pub window: Vec<CongestionWindowSample>,
    /// Common claims about such stalls, compared with the measurement.
    pub claims: Vec<TestedStallClaim>,
    /// Observed traffic of a port; absent if patterns were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<WatchedTraffic>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result, and recommended changes.
    pub findings: Vec<Finding>,
}

/// Settings of a kernel for acknowledgements and windows. They are never changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallKernelSettings {
    /// `CONFIG_HZ`: timer interrupts per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hz: Option<u64>,
    /// Minimum delay of a delayed acknowledgement in ns: HZ/25 ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_ack_min_ns: Option<u64>,
    /// `net.ipv4.tcp_delack_min`, in the unit of the kernel; absent if the kernel lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_delack_min: Option<u64>,
    /// Largest delay of an acknowledgement (`TCP_DELACK_MAX_US`), in ns; absent if the kernel does
    /// not report it.
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

/// Evidence by which the mechanisms of stalls are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallEvidenceKind {
    /// `TCP_INFO` of the sockets, at both ends, and timing.
    TcpInfo,
    /// Captured packets, in addition to `TCP_INFO` and timing.
    Packets,
}

/// Patterns of writing and reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePattern {
    /// One write in each direction.
    Single,
    /// Two small writes, then a read.
    WriteWriteRead,
    /// Two writes of a whole segment each, then a read.
    FullSegments,
    /// A small write, then one with the end of the stream: a single exchange, the last of a
    /// connection.
    LastWithEnd,
    /// Several small writes, each of which is answered separately, then as many reads.
    Batch,
    /// The far end writes a header, then a body from a file.
    HeaderAndBody,
    /// Header and body; the far end closes the connection instead of removing a cork.
    HeaderBodyClose,
    /// Header and body; the far end forgets to remove the cork.
    CorkForgotten,
}

/// Options set on the sockets of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallSocketOption {
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

/// Measurement of one write pattern with one socket option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallMeasurement {
    /// Write pattern.
    pub pattern: WritePattern,
    /// Writes in a batch; 1 or 2 for other patterns.
    pub writes: u32,
    /// Payload of each write, in bytes.
    pub write_bytes: u64,
    /// Socket option.
    pub option: StallSocketOption,
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
    /// Number of exchanges that took from 38 to 42 ms, typical of a delayed acknowledgement.
    pub in_band: u64,
    /// Number of the read, from 1, that waited longest in most of the stalled exchanges; absent if
    /// none stalled, or an exchange has a single read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_read: Option<u32>,
    /// Mechanism that held data back in most of the stalled exchanges; absent if none stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<StallMechanism>,
    /// Samples of the sockets' state while exchanges waited.
    pub held: HeldDataSampleCounts,
    /// Longest time in ns that the far end took to answer a complete request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_max_ns: Option<u64>,
    /// `TCP_INFO` of the near end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_tcp: Option<TcpInfoSummary>,
    /// `TCP_INFO` of the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_tcp: Option<TcpInfoSummary>,
    /// Acknowledgements in the captured packets; absent without a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<AckCounts>,
}

/// Mechanisms that make data wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallMechanism {
    /// Nagle's algorithm waits for an acknowledgement, which the other end delays.
    NagleDelayedAck,
    /// The congestion window is full until an acknowledgement comes, which the other end delays.
    WindowDelayedAck,
    /// A cork that was not removed: the kernel sends after 200 ms.
    Cork,
    /// No socket held data back: the far end had the complete request and answered late.
    LateAnswer,
    /// A segment was lost and retransmitted.
    Loss,
    /// No socket held data back: the path or a host was slow.
    Elsewhere,
}

/// Samples of the state of the sockets at both ends while an exchange waited, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldDataSampleCounts {
    /// Unsent data, segments in flight, room in the window: Nagle's algorithm.
    pub nagle: u64,
    /// Unsent data and a full congestion window.
    pub window: u64,
    /// Unsent data under a cork, with room in the congestion window.
    pub cork: u64,
    /// All data of the near end sent and acknowledged: the far end has it.
    pub delivered: u64,
}

/// Counts of acknowledgements in the captured packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AckCounts {
    /// Acknowledgements without data.
    pub pure: u64,
    /// Acknowledgements that were delayed by the time of a stall or longer.
    pub delayed: u64,
    /// Delays of the delayed acknowledgements; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<AckDelaySummary>,
    /// Delayed acknowledgements upon which held data was sent.
    pub released: u64,
}

/// Summary of the delays of delayed acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckDelaySummary {
    /// Shortest delay, in ns.
    pub min: u64,
    /// Median delay, in ns.
    pub p50: u64,
    /// Longest delay, in ns.
    pub max: u64,
}

/// One exchange of a series that lets the congestion window grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionWindowSample {
    /// Bytes sent on this connection before.
    pub sent_bytes: u64,
    /// True if there was a pause before, longer than the retransmission timeout.
    pub after_pause: bool,
    /// Congestion window before the exchange, in segments.
    pub cwnd: u64,
    /// Duration of the exchange, in ns.
    pub exchange_ns: u64,
}

/// Common claim about stalls, tested on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedStallClaim {
    /// Stable short name.
    pub id: String,
    /// Text of the claim.
    pub statement: String,
    /// True if the claim holds; absent if it could not be tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Measured value that decides it, or the reason why there is none.
    pub evidence: String,
}

/// Observed traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedTraffic {
    /// Observed TCP port.
    pub port: u16,
    /// Duration of the observation, in ns.
    pub duration_ns: u64,
    /// Observed connections, in falling order of stalls.
    pub connections: Vec<WatchedConnection>,
    /// Connections that were not tracked because the table was full; [`CONNECTIONS_MISSED_MAX`]
    /// means at least that many.
    pub connections_untracked: u64,
    /// Packets that were dropped before they could be observed.
    pub packets_dropped: u64,
}

/// One observed connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedConnection {
    /// End whose port was observed.
    pub server: String,
    /// Address of the other end.
    pub client: String,
    /// Answers: data in one direction after data in the other; absent if packets were not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Number of times that data waited at the client for a delayed acknowledgement.
    pub client_stalls: u64,
    /// Number of times that data waited at the server.
    pub server_stalls: u64,
    /// Times for which data waited, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ns: Option<Distribution>,
    /// Number of waits of 38 to 42 ms.
    pub in_band: u64,
    /// Mechanism that caused most of the waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<StallMechanism>,
    /// Acknowledgements in the captured packets; absent without a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<AckCounts>,
}
