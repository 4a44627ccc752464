//! XDP engine of the relay: application-layer multicast with in-kernel copies. For each packet to a
//! group, a unicast copy leaves to every child of the group, without a system call or a socket
//! buffer.
//!
//! The caller supplies groups, children, and the interface and MAC addresses of each copy. It
//! resolves these itself, and copies the packets that this engine passes to the network stack.
//!
//! Limits: [`RELAY_LENGTH_MAX`] bytes of a packet, [`RELAY_INTERFACES_MAX`] egress interfaces, and
//! those of [`RelayTableCapacities`]. The kernel receives up to 64 packets at once, and the
//! driver's transmit ring must hold all of their copies (that of a veth holds 256 frames). It fills
//! from the first child on; copies that do not fit are dropped and counted. Each copy takes a page
//! of memory until it has left.

mod abi;
mod change;
mod child;
mod completion;
mod counts;
mod error;
mod group;
mod interface_numbers;
mod lists;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::OpenObject;
use zerocopy::IntoBytes;

use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject, possible_processors};
use crate::test_run::{self, TestRunOutcome};
use crate::{AttachMode, Attachment, Interface, XdpError};

pub use abi::RELAY_INTERFACES_MAX;
pub use change::{RemovedChildren, RemovedGroup};
pub use child::RelayChild;
pub use counts::{
    RelayChildCounts, RelayCounts, RelayDropReason, RelayGroupCounts, RelayPassedReason,
};
pub use error::RelayGroupError;
pub use group::{RELAY_LENGTH_MAX, RelayGroup, RelayPacketRateLimit, RelayTheoreticalArrivalTimes};

use group::GroupState;
use interface_numbers::InterfaceNumbers;

const NAME: &str = "relay";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/relay.o"));
const DROP_COUNTER_PROGRAM: &str = "count_driver_drops";
/// Capacity for prefixes of sources and local addresses, for each group.
const PREFIXES_PER_GROUP: u32 = 128;

/// Words of the bitmap of listen ports.
const PORT_WORDS: u32 = (1 << 16) / abi::PORTS_OF_WORD as u32;

/// Capacities of the kernel's tables; 0 counts as 1. Memory is allocated when the programs are
/// loaded: about 128 bytes for each possible child of each group, and 32 for each child and CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayTableCapacities {
    /// Most groups at once.
    pub groups: u32,
    /// Most children of a group.
    pub children_per_group: u32,
    /// Most children of all groups together.
    pub children: u32,
    /// Most destination addresses of all groups together.
    pub addresses: u32,
}

/// Loaded programs of the relay, which copy packets on the interfaces to which they are attached.
/// Call its functions only from threads in the network namespace of those interfaces.
pub struct RelayPrograms {
    settings: RelayTableCapacities,
    config: abi::RawRelayConfig,
    groups: Arc<MappedArrayMap<abi::GroupEntry>>,
    fan_out: Arc<MappedArrayMap<abi::FanOutRateState>>,
    ports: MappedArrayMap<u64>,
    slots: MappedArrayMap<abi::RelayGroupConfigSlot>,
    rows: MappedArrayMap<abi::ChildEntry>,
    interface_entries: MappedArrayMap<abi::InterfaceEntry>,
    states: MappedArrayMap<abi::RelayCpuState>,
    slot_counts: MappedArrayMap<abi::RelayGroupSlotCounts>,
    child_counts: MappedArrayMap<abi::RawChildCounts>,
    group_states: BTreeMap<SocketAddr, GroupState>,
    /// Numbers of unused child counters.
    free_children: Vec<u32>,
    interfaces: InterfaceNumbers,
    /// Link of the program that counts frames dropped by drivers for lack of room, or the reason
    /// why it could not be attached.
    drop_counter: Result<OwnedFd, XdpError>,
    loaded: LoadedBpfObject,
}

impl RelayPrograms {
    /// Loads the programs. They copy nothing until a group is set and they are attached.
    pub fn load(settings: &RelayTableCapacities) -> Result<Self, XdpError> {
        let settings = RelayTableCapacities {
            groups: settings.groups.max(1),
            children_per_group: settings.children_per_group.max(1),
            children: settings.children.max(1),
            addresses: settings.addresses.max(1),
        };
        let processors = possible_processors();
        // During a change, removed children still have their counters while new ones are added.
        let counted = settings.children + settings.children_per_group;
        let config = abi::RawRelayConfig { slots: 2 * settings.groups, children: counted };
        let sizes = settings.map_sizes(config, processors);
        // Not every kernel lets programs observe frames dropped by drivers.
        let load = |with_drop_counter| {
            LoadedBpfObject::load(NAME, OBJECT, |open| {
                sizes
                    .iter()
                    .try_for_each(|&(map, size)| object::set_map_entries(open, NAME, map, size))?;
                object::set_constants(open, NAME, config.as_bytes())?;
                set_drop_counter_autoload(open, with_drop_counter)
            })
        };
        let (loaded, drops) = match load(true) {
            Err(error @ XdpError::Load { .. }) => (load(false)?, Err(error)),
            loaded => {
                let loaded = loaded?;
                let drops = attach_drop_counter(&loaded);
                (loaded, drops)
            }
        };
        let entries = |part: &str| sizes.iter().find(|(map, _)| *map == part).map_or(1, |m| m.1);
        let groups = MappedArrayMap::map(loaded.map("relay_groups")?.as_fd(), settings.groups)?;
        let empty = abi::GroupEntry { slot: abi::NO_SLOT, ..groups.read(0) };
        (0..settings.groups).for_each(|number| groups.write(number, &empty));
        let (slots, rows) = (entries("relay_slots"), entries("relay_rows"));
        let (of_slots, of_children) = (entries("relay_slot_counts"), entries("relay_child_counts"));
        let indices = abi::INTERFACE_INDICES;
        Ok(Self {
            settings,
            config,
            groups: Arc::new(groups),
            fan_out: Arc::new(MappedArrayMap::map(loaded.map("relay_fan_out")?.as_fd(), 1)?),
            ports: MappedArrayMap::map(loaded.map("relay_ports")?.as_fd(), PORT_WORDS)?,
            slots: MappedArrayMap::map(loaded.map("relay_slots")?.as_fd(), slots)?,
            rows: MappedArrayMap::map(loaded.map("relay_rows")?.as_fd(), rows)?,
            interface_entries: MappedArrayMap::map(
                loaded.map("relay_interfaces")?.as_fd(),
                indices,
            )?,
            states: MappedArrayMap::map(loaded.map("relay_states")?.as_fd(), processors)?,
            slot_counts: MappedArrayMap::map(loaded.map("relay_slot_counts")?.as_fd(), of_slots)?,
            child_counts: MappedArrayMap::map(
                loaded.map("relay_child_counts")?.as_fd(),
                of_children,
            )?,
            group_states: BTreeMap::new(),
            free_children: (0..counted).rev().collect(),
            interfaces: InterfaceNumbers::default(),
            drop_counter: drops,
            loaded,
        })
    }

    /// Attaches the relay in native mode to an ingress interface, until the attachment is dropped.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        self.attach_program(interface, false)
    }

    /// Attaches the relay in native mode to the send interface, by which only packets of this
    /// process arrive, until the attachment is dropped. The sources of these packets were checked
    /// before they were sent; only their roles in the group are checked again. Fails if the index
    /// of the interface exceeds 65,535.
    pub fn attach_send_interface(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        self.attach_program(interface, true)
    }

    fn attach_program(&self, interface: &Interface, is_own: bool) -> Result<Attachment, XdpError> {
        if interface.index < abi::INTERFACE_INDICES {
            let entry = self.interface_entries.read(interface.index);
            self.interface_entries
                .write(interface.index, &abi::InterfaceEntry { is_own: is_own.into(), ..entry });
        } else if is_own {
            let source = io::Error::other("its index exceeds the relay's table");
            return Err(XdpError::Attach { interface: interface.name.clone(), source });
        }
        Attachment::new(self.loaded.program("relay")?, interface, AttachMode::Native)
    }

    /// Sets the MAC address of the interface with this index: frames to other MAC addresses are
    /// passed to the network stack. Until it is set, all frames that arrive there count as
    /// addressed to this host. An index above 65,535 is ignored.
    pub fn set_mac(&self, index: u32, mac: [u8; 6]) {
        if index < abi::INTERFACE_INDICES {
            let entry = self.interface_entries.read(index);
            self.interface_entries.write(index, &abi::InterfaceEntry { mac, ..entry });
        }
    }

    /// Limits the rate of the copies of all groups together; each packet costs
    /// [`RelayGroup::copy_cost_ns`]. `tolerance_ns` is the time by which they may be ahead,
    /// including the cost of the present packet; `None` sets no limit. A packet is copied for all
    /// children or for none.
    pub fn limit_copies(&self, tolerance_ns: Option<NonZeroU64>) {
        let offset = std::mem::offset_of!(abi::FanOutRateState, tolerance_ns);
        let tolerance_ns = tolerance_ns.map_or(0, NonZeroU64::get);
        self.fan_out.atomic(0, offset).store(tolerance_ns, Relaxed);
    }

    /// Returns the state of the rate limits, which another engine shares that makes copies for the
    /// same groups.
    #[must_use]
    pub fn rate_state(&self) -> RelayTheoreticalArrivalTimes {
        RelayTheoreticalArrivalTimes::new(Arc::clone(&self.groups), Arc::clone(&self.fan_out))
    }

    /// Returns the reason why the kernel does not report frames dropped by drivers; such copies
    /// then count as sent. `None` if it reports them.
    #[must_use]
    pub fn uncounted_drops_reason(&self) -> Option<&XdpError> {
        self.drop_counter.as_ref().err()
    }

    /// Runs the program once over a frame, as if it had arrived by the loopback interface, without
    /// making copies.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        test_run::run_once(self.loaded.program("relay")?, frame)
    }
}

impl RelayTableCapacities {
    /// Returns the names of the maps and their numbers of entries.
    const fn map_sizes(
        &self,
        config: abi::RawRelayConfig,
        processors: u32,
    ) -> [(&'static str, u32); 11] {
        [
            ("relay_numbers", 2 * self.addresses),
            ("relay_sources", 2 * (config.children + self.groups * PREFIXES_PER_GROUP)),
            ("relay_endpoints", config.children),
            ("relay_groups", self.groups),
            ("relay_slots", config.slots),
            ("relay_rows", config.slots * self.children_per_group),
            ("relay_copies", config.slots),
            ("relay_states", processors),
            ("relay_slot_counts", processors * config.slots),
            ("relay_child_counts", processors * config.children),
            ("relay_fan_out", 1),
        ]
    }
}

fn set_drop_counter_autoload(open: &mut OpenObject, include: bool) -> Result<(), XdpError> {
    open.progs_mut()
        .find(|program| program.name() == OsStr::new(DROP_COUNTER_PROGRAM))
        .ok_or(XdpError::Missing { object: NAME, part: DROP_COUNTER_PROGRAM })?
        .set_autoload(include);
    Ok(())
}

/// Attaches the program that counts frames dropped by drivers. Closing the descriptor detaches it.
fn attach_drop_counter(loaded: &LoadedBpfObject) -> Result<OwnedFd, XdpError> {
    let program = loaded.program(DROP_COUNTER_PROGRAM)?.as_raw_fd();
    // SAFETY: the name is a constant string that ends with a NUL, the program's descriptor is open.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(c"xdp_devmap_xmit".as_ptr(), program) };
    if link < 0 {
        return Err(XdpError::Run(io::Error::from_raw_os_error(-link)));
    }
    // SAFETY: the call returned a fresh descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}
