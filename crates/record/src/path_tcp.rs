//! Result of `horolog path tcp`: latency and bandwidth of TCP by message size, with the kernel's
//! data on the connections and facts about both ends.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult};

/// The schema's name and version.
pub const PATH_TCP_SCHEMA: &str = "horolog.path-tcp/2";

/// Result of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathTcpResult {
    /// [`PATH_TCP_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that measured.
    pub host: Host,
    /// Far end of the measurement.
    pub target: TcpTarget,
    /// Near end.
    pub near: PathEnd,
    /// Description of the far end by itself; absent if it gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<PathEnd>,
    /// Settings of the connections.
    pub settings: TcpSettings,
    /// Round trips, one row per size.
    pub latency: Vec<TcpLatency>,
    /// Transfers, one row per size and direction.
    pub bandwidth: Vec<TcpBandwidth>,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Address of the far end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTarget {
    /// Address and port.
    pub address: SocketAddr,
    /// Name as requested; absent if the address was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One end of a path. Unavailable and undisclosed facts are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEnd {
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// CPU model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// CPUs available to the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u64>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Name of the Linux distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Interface of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Kind of interface: the driver of a NIC, or the kind of a virtual interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Largest IP packet of the interface, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u64>,
    /// Congestion control algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Program and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Settings of the connections at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of a socket")]
pub struct TcpSettings {
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// `TCP_QUICKACK`, set again before every receive.
    pub quick_ack: bool,
    /// `TCP_CORK` around every message.
    pub cork: bool,
    /// `MSG_ZEROCOPY` for transfers.
    pub zero_copy: bool,
    /// Parallel connections.
    pub connections: u32,
    /// Measured time per row, in ns.
    pub time_ns: u64,
    /// Uncounted time before it, in ns.
    pub warm_up_ns: u64,
}

/// Round trips of messages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpLatency {
    /// Payload of each message, in bytes.
    pub size_bytes: u64,
    /// Round trips of all connections.
    pub round_trips: u64,
    /// Duration of a round trip, in ns; the latency is half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// `TCP_INFO` of the connections at the end; absent if they were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpFigures>,
}

/// Messages of one size in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpBandwidth {
    /// Payload of each message, in bytes.
    pub size_bytes: u64,
    /// Direction of the transfer.
    pub direction: TcpDirection,
    /// Bytes received over all connections.
    pub received_bytes: u64,
    /// Time of their reception by the receiver's clock, in ns.
    pub duration_ns: u64,
    /// Bytes received per second.
    pub rate: f64,
    /// Messages received per second.
    pub message_rate: f64,
    /// Sends without a copy, and the number that the kernel copied nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<ZeroCopyCounts>,
    /// `TCP_INFO` of the sending ends; absent if they were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpFigures>,
}

/// Sends by `MSG_ZEROCOPY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroCopyCounts {
    /// Sends reported by the kernel.
    pub sends: u64,
    /// Sends that it copied.
    pub copied: u64,
}

/// Direction of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpDirection {
    /// To the far end.
    Forward,
    /// From the far end.
    Backward,
}

/// `TCP_INFO` of one connection, or of several: sums of counts, the largest of other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFigures {
    /// Congestion window, in segments.
    pub cwnd: u64,
    /// Largest payload of a segment, in bytes.
    pub mss_bytes: u64,
    /// Smoothed round trip, in ns.
    pub rtt_ns: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Delay of an acknowledgement without data, in ns.
    pub ato_ns: u64,
}
