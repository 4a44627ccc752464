//! The result of `horolog path tcp`: latency and bandwidth of TCP by message size, with what the
//! kernel says of the connections, and both ends' facts.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Finding, Host, LimitResult};

/// The schema's name and version.
pub const PATH_TCP_SCHEMA: &str = "horolog.path-tcp/1";

/// A whole measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathTcpResult {
    /// [`PATH_TCP_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that measured.
    pub host: Host,
    /// What was measured.
    pub target: TcpTarget,
    /// This end.
    pub near: PathEnd,
    /// The far end as it describes itself; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<PathEnd>,
    /// How connections were used.
    pub settings: TcpSettings,
    /// Round trips, a row for each size.
    pub latency: Vec<TcpLatency>,
    /// Transfers, a row for each size and direction.
    pub bandwidth: Vec<TcpBandwidth>,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// Where the far end is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTarget {
    /// Its address and port.
    pub address: SocketAddr,
    /// The name that it was asked for by; absent where that was the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One end of a path. What it cannot or does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEnd {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Processor's model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Processors that the process may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u64>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// The interface that the connection goes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its kind: the driver of a card, or the kind of a virtual interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Largest IP packet of the interface, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u64>,
    /// The algorithm for congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// The program and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// How connections were used, at both ends.
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
    /// Connections side by side.
    pub connections: u32,
    /// Time for each row, in ns.
    pub time_ns: u64,
    /// Time before it that is not counted, in ns.
    pub warm_up_ns: u64,
}

/// Messages of one size there and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpLatency {
    /// Payload of each message, in bytes.
    pub size_bytes: u64,
    /// Round trips of all connections.
    pub round_trips: u64,
    /// The time of a round trip, in ns; the latency is half of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
    /// What the kernel said of the connections at the end; absent where they were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpFigures>,
}

/// Messages of one size in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpBandwidth {
    /// Payload of each message, in bytes.
    pub size_bytes: u64,
    /// Which way.
    pub direction: TcpDirection,
    /// Bytes that came, over all connections.
    pub received_bytes: u64,
    /// The time in which they came, as the receiver saw it, in ns.
    pub duration_ns: u64,
    /// Bytes received per second.
    pub rate: f64,
    /// Messages received per second.
    pub message_rate: f64,
    /// Sends without a copy, and how many of them the kernel copied after all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<ZeroCopyCounts>,
    /// What the kernel said of the sending ends; absent where they were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpFigures>,
}

/// Sends by `MSG_ZEROCOPY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroCopyCounts {
    /// All that the kernel told of.
    pub sends: u64,
    /// Those that it copied.
    pub copied: u64,
}

/// Which way messages went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpDirection {
    /// To the far end.
    Out,
    /// From the far end.
    Back,
}

/// What `TCP_INFO` says of one connection, or of several: sums of what is counted, the largest of
/// what is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFigures {
    /// Congestion window, in segments.
    pub cwnd: u64,
    /// Largest payload of a segment, in bytes.
    pub mss_bytes: u64,
    /// Smoothed round trip, in ns.
    pub rtt_ns: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Time after which an acknowledgement without data is sent, in ns.
    pub ato_ns: u64,
}
