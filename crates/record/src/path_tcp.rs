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
    /// Properties of the near end.
    pub near: PathEndFacts,
    /// Properties of the far end as reported by it; absent if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<PathEndFacts>,
    /// Settings of the connections.
    pub settings: TcpSettings,
    /// Round trips, one row per size.
    pub latency: Vec<TcpLatencyRow>,
    /// Transfers, one row per size and direction.
    pub bandwidth: Vec<TcpBandwidthRow>,
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

/// Properties of one end of a path. Properties that are unavailable or not disclosed are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEndFacts {
    /// Hostname.
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
    /// `TCP_CORK`, set before and removed after each message.
    pub cork: bool,
    /// `MSG_ZEROCOPY` for transfers.
    pub zero_copy: bool,
    /// Parallel connections.
    pub connections: u32,
    /// Duration of the measurement per row, in ns.
    pub time_ns: u64,
    /// Duration of the warm-up before it, in ns, which is not counted.
    pub warm_up_ns: u64,
}

/// Round trips of messages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpLatencyRow {
    /// Payload of each message, in bytes.
    pub size_bytes: u64,
    /// Round trips of all connections.
    pub round_trips: u64,
    /// Round-trip time, in ns. The reported latency is half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// `TCP_INFO` at the end of the row; absent if the connections were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpInfoSummary>,
}

/// Messages of one size in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpBandwidthRow {
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
    /// Counts of `MSG_ZEROCOPY` sends; absent if it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<ZeroCopyCounts>,
    /// `TCP_INFO` of the sending ends; absent if they were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpInfoSummary>,
}

/// Completion notifications of `MSG_ZEROCOPY` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroCopyCounts {
    /// Sends that the kernel reported as complete.
    pub sends: u64,
    /// Sends whose data the kernel copied nevertheless.
    pub copied: u64,
}

/// Direction of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpDirection {
    /// Near to far end.
    Forward,
    /// From the far end.
    Backward,
}

/// Fields of `TCP_INFO`; over several connections the sum of `retransmitted` and the largest of
/// each other field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpInfoSummary {
    /// Congestion window, in segments.
    pub cwnd: u64,
    /// Maximum segment size (MSS), in bytes.
    pub mss_bytes: u64,
    /// Smoothed round trip, in ns.
    pub rtt_ns: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// `tcpi_ato`: timeout of a delayed acknowledgement, in ns.
    pub ato_ns: u64,
}
