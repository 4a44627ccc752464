//! Settings and features of a NIC, as reported by its driver and the kernel, and recommended
//! changes for serving or loading time. Facts that an interface lacks are absent, with the reason
//! in [`HostNicResult::unavailable`].

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
    /// Interface.
    pub interface: String,
    /// Kind of a virtual interface, such as `veth`; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Driver.
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
    /// True if it can pass packets now.
    pub operational: bool,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Speed in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_s: Option<u32>,
    /// True if both directions work at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_duplex: Option<bool>,
    /// Queues.
    pub queues: NicQueues,
    /// Distribution of received packets over queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss: Option<NicRss>,
    /// Interrupts.
    pub interrupts: Vec<NicInterrupt>,
    /// Ring sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings: Option<NicRings>,
    /// Interrupt coalescing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<NicCoalescing>,
    /// Offloads relevant to time packets.
    pub offloads: Vec<NicOffload>,
    /// XDP.
    pub xdp: NicXdp,
    /// Timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<NicTimestamps>,
    /// Packets dropped since the interface was created.
    pub drops: NicDrops,
    /// Unavailable facts and the reasons.
    pub unavailable: Vec<NicUnavailable>,
    /// Recommended changes.
    pub advice: Vec<NicAdvice>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Queues of an interface, in use and at most. A combined queue has both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicQueues {
    /// Receive queues in use, combined ones included.
    pub rx: u32,
    /// Transmit queues in use, combined ones included.
    pub tx: u32,
    /// Receive queues at most.
    pub rx_max: u32,
    /// Transmit queues at most.
    pub tx_max: u32,
    /// True if queues are combined.
    pub combined: bool,
}

/// Table by which a packet's hash selects its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRss {
    /// Number of entries.
    pub entries: usize,
    /// Number of entries for each queue, starting with the first.
    pub entries_of_queues: Vec<u64>,
    /// Length of the hash key, in bytes.
    pub key_bytes: u32,
}

/// Interrupt of a NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInterrupt {
    /// Number of the interrupt.
    pub number: u32,
    /// Purpose, as named by the driver.
    pub name: String,
    /// Number of occurrences on all cores.
    pub count: u64,
    /// Cores to which it may be delivered, as a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cores: Option<String>,
    /// Cores to which it is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_cores: Option<String>,
}

/// Number of packets that the NIC's rings hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRings {
    /// Received packets.
    pub rx: u32,
    /// Packets to send.
    pub tx: u32,
    /// The largest `rx`.
    pub rx_max: u32,
    /// The largest `tx`.
    pub tx_max: u32,
}

/// Delay of interrupts to wait for more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicCoalescing {
    /// Delay after a received packet, in ns.
    pub rx_ns: u64,
    /// Number of received packets.
    pub rx_frames: u32,
    /// Delay after a sent packet, in ns.
    pub tx_ns: u64,
    /// Number of sent packets.
    pub tx_frames: u32,
    /// True if the driver adapts `rx_ns` to the load.
    pub adaptive_rx: bool,
    /// True if the driver adapts `tx_ns` to the load.
    pub adaptive_tx: bool,
}

/// Offload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicOffload {
    /// Name used by the kernel.
    pub name: String,
    /// True if it is on.
    pub on: bool,
    /// True if it can be changed.
    pub changeable: bool,
}

/// XDP on an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicXdp {
    /// Attachment mode of a program; absent if there is none.
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
    /// After the driver.
    Generic,
    /// In the NIC.
    Offloaded,
    /// In several of these modes.
    Several,
}

/// XDP features of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicXdpFeature {
    /// Run a program that drops, passes and replies.
    Native,
    /// Redirect packets to other interfaces.
    Redirect,
    /// Take packets that others redirect.
    RedirectTarget,
    /// `AF_XDP` without copies.
    ZeroCopy,
    /// Run a program in the NIC.
    Offload,
    /// Accept packets in several buffers.
    Fragments,
    /// Provide a program with the hardware timestamp of a packet.
    TimestampMetadata,
}

/// Timestamps supported by an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "two takers, two directions, all independent")]
pub struct NicTimestamps {
    /// Kernel timestamps of received packets.
    pub software_rx: bool,
    /// Driver timestamps of sent packets.
    pub software_tx: bool,
    /// NIC timestamps of received packets.
    pub hardware_rx: bool,
    /// NIC timestamps of sent packets.
    pub hardware_tx: bool,
    /// PHC of the NIC, such as `/dev/ptp0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Modes of NIC timestamps of sent packets: `off`, `on`, `onestep-sync`, ...
    pub transmit_types: Vec<String>,
    /// Filters of NIC timestamps of received packets: `none`, `all`, `ptpv2-event`, ...
    pub receive_filters: Vec<String>,
}

/// Dropped packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicDrops {
    /// Received packets dropped for lack of room.
    pub rx_dropped: u64,
    /// Received packets dropped because the ring was full.
    pub rx_missed: u64,
    /// Received packets with errors.
    pub rx_errors: u64,
    /// Packets to send that were dropped.
    pub tx_dropped: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// Unavailable fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicUnavailable {
    /// Name of the fact.
    pub item: String,
    /// Reason.
    pub reason: String,
}

/// Recommended change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicAdvice {
    /// Purpose of the change.
    pub purpose: NicPurpose,
    /// Recommended action and its reason.
    pub text: String,
    /// Command that performs it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Uses of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicPurpose {
    /// Serving time to many clients.
    Serving,
    /// Loading a server.
    Loading,
    /// Accurate timestamps.
    Accuracy,
}
