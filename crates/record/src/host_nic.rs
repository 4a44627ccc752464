//! Result of `horolog host nic`: settings and features of a NIC, as reported by its driver and the
//! kernel, and recommended changes for a time server or a load generator. Facts that an interface
//! lacks are absent, with the reason in [`HostNicResult::unavailable`].

use serde::{Deserialize, Serialize};

use crate::{Finding, Host};

/// The schema's name and version.
pub const HOST_NIC_SCHEMA: &str = "horolog.host-nic/2";

/// Result for one interface of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNicResult {
    /// [`HOST_NIC_SCHEMA`].
    pub schema: String,
    /// Time of the examination, RFC 3339 in UTC.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host of the run.
    pub host: Host,
    /// Name of the interface.
    pub interface: String,
    /// Kind of a virtual interface, such as `veth`; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Firmware of the NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Bus address of the NIC, such as `0000:03:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// NUMA node nearest to the NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// True if the interface can send and receive now.
    pub operational: bool,
    /// MTU, in bytes.
    pub mtu: u32,
    /// Speed in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_s: Option<u32>,
    /// True for a full-duplex link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_duplex: Option<bool>,
    /// Numbers of queues.
    pub queues: NicQueues,
    /// RSS indirection table (receive-side scaling): distribution of received packets over the
    /// queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss: Option<NicRssTable>,
    /// Interrupts of the NIC.
    pub interrupts: Vec<NicInterrupt>,
    /// Ring sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings: Option<NicRings>,
    /// Interrupt coalescing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<NicCoalescing>,
    /// Offloads relevant to time packets.
    pub offloads: Vec<NicOffload>,
    /// XDP program and features.
    pub xdp: NicXdpFacts,
    /// Timestamping capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<NicTimestamps>,
    /// Packets dropped since the interface was created.
    pub drops: NicDrops,
    /// Unavailable facts and the reasons.
    pub unavailable: Vec<UnavailableNicFact>,
    /// Recommended changes.
    pub advice: Vec<NicRecommendation>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Queues of an interface, in use and at most. A combined queue has both directions. If the driver
/// does not report them, all are those that the kernel created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicQueues {
    /// Receive queues in use, combined ones included.
    pub rx: u32,
    /// Transmit queues in use, combined ones included.
    pub tx: u32,
    /// Largest supported number of receive queues, combined ones included.
    pub rx_max: u32,
    /// Largest supported number of transmit queues, combined ones included.
    pub tx_max: u32,
    /// True if the driver supports combined queues.
    pub combined: bool,
}

/// RSS indirection table, which maps the hash of a packet to a receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRssTable {
    /// Number of entries.
    pub entries: usize,
    /// Number of entries that select each queue, from queue 0.
    pub entries_of_queues: Vec<u64>,
    /// Length of the hash key, in bytes.
    pub key_bytes: u32,
}

/// Interrupt of the NIC, with its affinity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInterrupt {
    /// Number of the interrupt.
    pub number: u32,
    /// Name assigned by the driver, which states its purpose.
    pub name: String,
    /// Number of occurrences on all cores.
    pub count: u64,
    /// Cores to which it may be delivered, as a list such as `0-3` (`smp_affinity_list`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cores: Option<String>,
    /// Cores to which it is delivered (`effective_affinity_list`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_cores: Option<String>,
}

/// Sizes of the NIC's descriptor rings, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRings {
    /// Size of the receive ring.
    pub rx: u32,
    /// Size of the transmit ring.
    pub tx: u32,
    /// Largest supported size of the receive ring.
    pub rx_max: u32,
    /// Largest supported size of the transmit ring.
    pub tx_max: u32,
}

/// Interrupt coalescing: an interrupt is delayed until a time has passed or a number of packets is
/// reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicCoalescing {
    /// Delay after a received packet, in ns.
    pub rx_ns: u64,
    /// Number of received packets after which the interrupt is raised.
    pub rx_frames: u32,
    /// Delay after a sent packet, in ns.
    pub tx_ns: u64,
    /// Number of sent packets after which the interrupt is raised.
    pub tx_frames: u32,
    /// True if the driver adapts `rx_ns` to the load.
    pub adaptive_rx: bool,
    /// True if the driver adapts `tx_ns` to the load.
    pub adaptive_tx: bool,
}

/// Offload and its state (`ethtool -k`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicOffload {
    /// Name of the feature in the kernel.
    pub name: String,
    /// True if it is enabled.
    pub on: bool,
    /// True if it can be changed.
    pub changeable: bool,
}

/// XDP program and features of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicXdpFacts {
    /// Mode of the attached XDP program; absent if none is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<NicXdpMode>,
    /// XDP features of the driver; absent if the kernel does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported: Option<Vec<NicXdpFeature>>,
}

/// Attachment modes of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicXdpMode {
    /// In the driver.
    Native,
    /// Generic: in the network stack, after the driver.
    Generic,
    /// Offloaded: in the NIC.
    Offloaded,
    /// Programs in several of these modes.
    Several,
}

/// XDP features of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicXdpFeature {
    /// Native programs that drop, pass or send back packets.
    Native,
    /// Redirect packets to other interfaces.
    Redirect,
    /// Transmission of packets that were redirected from other interfaces.
    RedirectTarget,
    /// Zero-copy `AF_XDP` sockets.
    ZeroCopy,
    /// Programs offloaded to the NIC.
    Offload,
    /// Packets in several buffers (multi-buffer XDP).
    Fragments,
    /// Hardware receive timestamps as metadata of a packet.
    TimestampMetadata,
}

/// Timestamping capabilities of an interface (`ethtool -T`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "two takers, two directions, all independent")]
pub struct NicTimestamps {
    /// Receive timestamps by the kernel.
    pub software_rx: bool,
    /// Transmit timestamps by the driver.
    pub software_tx: bool,
    /// Receive timestamps by the NIC.
    pub hardware_rx: bool,
    /// Transmit timestamps by the NIC.
    pub hardware_tx: bool,
    /// PHC of the NIC, such as `/dev/ptp0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Modes of NIC timestamps of sent packets: `off`, `on`, `onestep-sync`, ...
    pub transmit_types: Vec<String>,
    /// Supported filters of hardware receive timestamps: `none`, `all`, `ptpv2-event`, ...
    pub receive_filters: Vec<String>,
}

/// Counts of dropped packets since the interface was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicDrops {
    /// Received packets that the kernel did not process, for instance for lack of memory or of a
    /// protocol that takes them.
    pub rx_dropped: u64,
    /// Received packets dropped because the ring was full.
    pub rx_missed: u64,
    /// Received packets with errors.
    pub rx_errors: u64,
    /// Packets dropped on transmission.
    pub tx_dropped: u64,
    /// Packets that failed on transmission.
    pub tx_errors: u64,
}

/// Fact that is unavailable, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableNicFact {
    /// Name of the fact.
    pub item: String,
    /// Reason why it is unavailable.
    pub reason: String,
}

/// Recommended change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRecommendation {
    /// Use of the interface for which it is recommended.
    pub purpose: NicUse,
    /// Recommendation and its reason.
    pub text: String,
    /// Command that makes the change; absent if no command can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Uses of an interface for which changes are recommended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicUse {
    /// Time server with many clients.
    Serving,
    /// Load generator.
    Loading,
    /// Accurate timestamps.
    Accuracy,
}
