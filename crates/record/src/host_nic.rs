//! What a network card is set to and able to do, as its driver and the kernel tell, and what to
//! change of it for serving or loading time. What an interface does not have is absent, with the
//! reason in [`HostNicResult::untold`].

use serde::{Deserialize, Serialize};

use crate::{Finding, Host};

/// The schema's name and version.
pub const HOST_NIC_SCHEMA: &str = "horolog.host-nic/1";

/// An interface of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNicResult {
    /// [`HOST_NIC_SCHEMA`].
    pub schema: String,
    /// When it was looked at, as RFC 3339 in UTC.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub host: Host,
    /// The interface.
    pub interface: String,
    /// The kind of a virtual interface, such as `veth`; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The card's firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Where the card is, such as `0000:03:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// The memory node that the card is nearest to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Whether it can pass packets now.
    pub operational: bool,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Speed in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_s: Option<u32>,
    /// Whether both directions work at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_duplex: Option<bool>,
    /// Its queues.
    pub queues: NicQueues,
    /// How received packets are spread over queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spreading: Option<NicSpreading>,
    /// Its interrupts.
    pub interrupts: Vec<NicInterrupt>,
    /// Ring sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings: Option<NicRings>,
    /// How long interrupts wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<NicCoalescing>,
    /// Offloads that matter to packets of time.
    pub offloads: Vec<NicOffload>,
    /// XDP.
    pub xdp: NicXdp,
    /// Timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<NicTimestamps>,
    /// Packets that were thrown away since the interface was made.
    pub drops: NicDrops,
    /// What it does not tell, and why.
    pub untold: Vec<NicUntold>,
    /// What to change.
    pub advice: Vec<NicAdvice>,
    /// Doubts.
    pub findings: Vec<Finding>,
}

/// Queues of an interface, in use and at most. A combined one has both directions.
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
    /// Whether queues are combined.
    pub combined: bool,
}

/// The table by which a packet's hash chooses its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSpreading {
    /// Entries of the table.
    pub entries: usize,
    /// How many of them lead to each queue, from the first on.
    pub entries_of_queues: Vec<u64>,
    /// Bytes of the hash's key.
    pub key_bytes: u32,
}

/// An interrupt of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicInterrupt {
    /// Its number.
    pub number: u32,
    /// What it is for, as the driver names it.
    pub name: String,
    /// How often it came, on all cores.
    pub count: u64,
    /// Cores that it may go to, as a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cores: Option<String>,
    /// Cores that it does go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_cores: Option<String>,
}

/// Packets that wait in a card's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicRings {
    /// Received ones.
    pub rx: u32,
    /// Ones to send.
    pub tx: u32,
    /// The largest `rx`.
    pub rx_max: u32,
    /// The largest `tx`.
    pub tx_max: u32,
}

/// How long an interrupt waits for more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicCoalescing {
    /// After a packet was received, in ns.
    pub rx_ns: u64,
    /// For so many received packets.
    pub rx_frames: u32,
    /// After a packet was sent, in ns.
    pub tx_ns: u64,
    /// For so many sent packets.
    pub tx_frames: u32,
    /// Whether the driver changes `rx_ns` by the load.
    pub adaptive_rx: bool,
    /// Whether it changes `tx_ns`.
    pub adaptive_tx: bool,
}

/// An offload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicOffload {
    /// The kernel's name of it.
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it can be changed.
    pub changeable: bool,
}

/// XDP at an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicXdp {
    /// How a program is attached; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<NicXdpMode>,
    /// What the driver can do; absent where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can: Option<Vec<NicXdpAbility>>,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicXdpMode {
    /// In the driver.
    Native,
    /// Behind the driver.
    Generic,
    /// In the card.
    Offloaded,
    /// At several of these places.
    Several,
}

/// What a driver can do for XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicXdpAbility {
    /// Run a program that drops, passes and answers.
    Native,
    /// Redirect packets to other interfaces.
    Redirect,
    /// Take packets that others redirect.
    RedirectTarget,
    /// `AF_XDP` without copies.
    ZeroCopy,
    /// Run a program in the card.
    Offload,
    /// Take packets in several buffers.
    Fragments,
    /// Tell a program the hardware timestamp of a packet.
    TimestampMetadata,
}

/// Which timestamps an interface takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "two takers, two directions, all independent")]
pub struct NicTimestamps {
    /// The kernel, of what is received.
    pub software_rx: bool,
    /// The driver, of what is sent.
    pub software_tx: bool,
    /// The card, of what is received.
    pub hardware_rx: bool,
    /// The card, of what is sent.
    pub hardware_tx: bool,
    /// The card's clock, such as `/dev/ptp0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// What the card stamps of what is sent: `off`, `on`, `onestep-sync`, ...
    pub transmit_types: Vec<String>,
    /// Of what is received: `none`, `all`, `ptpv2-event`, ...
    pub receive_filters: Vec<String>,
}

/// Packets that were thrown away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicDrops {
    /// Received ones, for want of room.
    pub rx_dropped: u64,
    /// Received ones, because the ring was full.
    pub rx_missed: u64,
    /// Received ones that were bad.
    pub rx_errors: u64,
    /// Ones to send.
    pub tx_dropped: u64,
    /// Ones that could not be sent.
    pub tx_errors: u64,
}

/// Something that is not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicUntold {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicAdvice {
    /// For what it is good.
    pub purpose: NicPurpose,
    /// What to do, and why.
    pub text: String,
    /// The command that does it; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What an interface is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicPurpose {
    /// Serving time to many.
    Serving,
    /// Loading a server.
    Loading,
    /// Timestamps that are right.
    Accuracy,
}
