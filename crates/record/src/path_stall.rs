//! The result of `horolog path stall`: which ways of writing to a TCP connection wait for a timer,
//! what held the data back, and what cures it; or the same of traffic that was watched.

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult, PathEnd, TcpFigures, TcpTarget};

/// The schema's name and version.
pub const PATH_STALL_SCHEMA: &str = "horolog.path-stall/1";

/// As many connections that there was no room for are counted in [`StallWatch`].
pub const CONNECTIONS_MISSED_MAX: u64 = 65_536;

/// A whole measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStallResult {
    /// [`PATH_STALL_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that measured.
    pub host: Host,
    /// The far end; absent where traffic was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TcpTarget>,
    /// This end.
    pub near: PathEnd,
    /// The far end as it describes itself; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<PathEnd>,
    /// What this kernel does about acknowledgements.
    pub kernel: StallKernel,
    /// What the mechanisms were told by.
    pub evidence: StallEvidence,
    /// An exchange that took this much longer than one that waits for nothing stalled, in ns.
    pub stall_min_ns: u64,
    /// Patterns of writing under options of sockets.
    pub cells: Vec<StallCell>,
    /// The congestion window as it grew from the first segment on, and over a pause.
    pub window: Vec<WindowStep>,
    /// What is said of such stalls, held against what was measured.
    pub claims: Vec<StallClaim>,
    /// Traffic of a port that was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<StallWatch>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures, and what to change.
    pub findings: Vec<Finding>,
}

/// What a kernel does about acknowledgements and windows. Nothing of it is ever changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallKernel {
    /// Timer interrupts in a second (`CONFIG_HZ`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hz: Option<u64>,
    /// HZ/25 ticks, for which the kernel delays an acknowledgement at least, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_ack_min_ns: Option<u64>,
    /// `net.ipv4.tcp_delack_min`, where a kernel has such a setting, as it stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_delack_min: Option<u64>,
    /// The most that a socket delays an acknowledgement (`TCP_DELACK_MAX_US`), in ns, where the
    /// kernel tells.
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

/// What the mechanisms were told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallEvidence {
    /// `TCP_INFO` of the sockets, at both ends, and timing.
    TcpInfo,
    /// That, and the packets.
    Packets,
}

/// A way of writing and reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallPattern {
    /// One write there, one back.
    Single,
    /// Two small writes, then a read.
    WriteWriteRead,
    /// Two writes of a whole segment each, then a read.
    FullSegments,
    /// A small write, then one with the end of the stream: one exchange, the last of a connection.
    LastWithEnd,
    /// So many small writes, each answered by its own, then as many reads.
    Batch,
    /// The far end writes a header, then a body from a file.
    HeaderAndBody,
    /// The same, and closes where it would have removed a cork.
    HeaderBodyClose,
    /// The same, and forgets to remove the cork.
    CorkForgotten,
}

/// What was set on the sockets of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketOption {
    /// Nothing.
    None,
    /// `TCP_NODELAY`.
    NoDelay,
    /// `TCP_QUICKACK`, once at the beginning.
    QuickAckOnce,
    /// `TCP_QUICKACK` before every receive.
    QuickAckEach,
    /// `TCP_CORK` around the writes that belong together.
    Cork,
}

/// One pattern under one option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallCell {
    /// The pattern.
    pub pattern: StallPattern,
    /// Writes in a batch; 1 or 2 of other patterns.
    pub writes: u32,
    /// Payload of each write, in bytes.
    pub write_bytes: u64,
    /// What was set.
    pub option: SocketOption,
    /// Exchanges that were through.
    pub exchanges: u64,
    /// How long the first one took, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
    /// How long each took, the first one included, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_ns: Option<Distribution>,
    /// Exchanges that stalled.
    pub stalled: u64,
    /// Exchanges that took from 38 to 42 ms.
    pub in_band: u64,
    /// The read that waited longest in most stalled exchanges, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_read: Option<u32>,
    /// What held most stalled exchanges; absent where none stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// What was seen of the sockets while exchanges waited.
    pub held: HeldSamples,
    /// Longest time that the far end took for an answer once it had the request, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_max_ns: Option<u64>,
    /// What the kernel said of this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_tcp: Option<TcpFigures>,
    /// What the kernel said of the far end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_tcp: Option<TcpFigures>,
    /// What the packets said, where they were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<AckDelays>,
}

/// What makes data wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Nagle's algorithm waits for an acknowledgement, which the other end delays.
    NagleDelayedAck,
    /// The congestion window is full until an acknowledgement comes, which the other end delays.
    WindowDelayedAck,
    /// A cork that nobody removed: the kernel lets go after 200 ms.
    Cork,
    /// Nothing was held: the far end had it all and took its time.
    LateAnswer,
    /// A segment was lost and sent again.
    Loss,
    /// The path or the machine took its time; no socket held anything back.
    Elsewhere,
}

/// How often each was seen while an exchange waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSamples {
    /// Data not sent, segments under way, room in the window: Nagle's algorithm.
    pub nagle: u64,
    /// Data not sent and the congestion window full.
    pub window: u64,
    /// Data not sent with nothing under way, under a cork.
    pub cork: u64,
    /// All sent and acknowledged: the other end has it.
    pub delivered: u64,
}

/// How acknowledgements came, by the packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AckDelays {
    /// Acknowledgements without data.
    pub pure: u64,
    /// Those that came later than a stall's least time.
    pub delayed: u64,
    /// How late those were, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<DelayedAck>,
    /// Those of them at which data left that had been held.
    pub released: u64,
}

/// How late acknowledgements were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedAck {
    /// The earliest, in ns.
    pub min: u64,
    /// The median, in ns.
    pub p50: u64,
    /// The latest, in ns.
    pub max: u64,
}

/// The congestion window after an exchange that was longer than it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStep {
    /// Bytes sent on this connection before.
    pub sent_bytes: u64,
    /// Whether there was a pause before, longer than it takes to send again.
    pub after_pause: bool,
    /// Congestion window before the exchange, in segments.
    pub cwnd: u64,
    /// How long the exchange took, in ns.
    pub exchange_ns: u64,
}

/// Something that is said of stalls, and whether it holds here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallClaim {
    /// A short name that stays.
    pub id: String,
    /// What is said.
    pub says: String,
    /// Whether it held; absent where it could not be tried here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The figure that decided, or why there is none.
    pub figure: String,
}

/// Traffic that was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallWatch {
    /// The port.
    pub port: u16,
    /// How long, in ns.
    pub duration_ns: u64,
    /// The connections that were seen, those that stalled most first.
    pub connections: Vec<WatchedConnection>,
    /// Connections that there was no room for; at [`CONNECTIONS_MISSED_MAX`], at least so many.
    pub connections_missed: u64,
    /// Packets that were dropped before they were seen.
    pub packets_dropped: u64,
}

/// One connection that was watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedConnection {
    /// The end whose port was watched.
    pub server: String,
    /// The other end.
    pub client: String,
    /// Answers: data one way after data the other way; absent where packets were not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Times that data waited at the client for a delayed acknowledgement.
    pub client_stalls: u64,
    /// Times that data waited at the server.
    pub server_stalls: u64,
    /// How long data waited, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ns: Option<Distribution>,
    /// Those of from 38 to 42 ms.
    pub in_band: u64,
    /// What held most of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// How acknowledgements came; absent where packets were not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<AckDelays>,
}
