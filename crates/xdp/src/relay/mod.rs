//! The relay's XDP body: application-layer multicast whose copies are made below the host. One
//! packet to a group comes in, and for each child of the group a unicast copy leaves, without a
//! system call or a socket buffer.
//!
//! It knows groups, children, and which interface and MAC address a copy leaves with; who finds
//! those out, and who makes copies of what it leaves to the network stack, is somebody else.
//!
//! Where its limits are: [`RELAY_LENGTH_MAX`] bytes of a packet, [`RELAY_INTERFACES_MAX`]
//! interfaces that copies leave by, all else as [`RelaySettings`] say. A driver's transmit ring has
//! to hold the copies of all packets that the kernel takes in at once, up to 64 of them (that of a
//! virtual link holds 256 frames); it takes them from the first child on, and what it has no room
//! for is lost and counted. Each copy takes a page of memory until it has left.

mod abi;
mod change;
mod child;
mod counts;
mod error;
mod group;
mod lists;
mod meters;
mod plan;
mod settled;

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

use crate::map::SharedArray;
use crate::object::{self, Loaded, possible_processors};
use crate::test_run::{self, Outcome};
use crate::{AttachMode, Attachment, Interface, XdpError};

pub use abi::RELAY_INTERFACES_MAX;
pub use change::{RelayFormer, RelayGone};
pub use child::RelayChild;
pub use counts::{RelayChildCounts, RelayCounts, RelayGroupCounts, RelayPassed, RelayRefusal};
pub use error::RelayError;
pub use group::{RELAY_LENGTH_MAX, RelayGroup, RelayLimit};
pub use meters::RelayMeters;

use group::Book;
use plan::Interfaces;

const NAME: &str = "relay";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/relay.o"));
const DROPS: &str = "count_full";
/// Prefixes of sources and own addresses that there is room for, for each group.
const SOURCES_OF_GROUP: u32 = 128;

/// Words of the set of ports.
const PORT_WORDS: u32 = (1 << 16) / abi::PORTS_OF_WORD as u32;

/// How large the kernel's tables are: memory is taken when the programs are loaded, about 128 bytes
/// for each group and possible child of it, and 32 for each child and processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelaySettings {
    /// Groups at once, at most.
    pub groups: u32,
    /// Children of a group, at most.
    pub children_of_group: u32,
    /// Children of all groups together, at most.
    pub children: u32,
    /// Addresses that packets of all groups go to, at most.
    pub addresses: u32,
}

/// The relay's programs, loaded; they work where they are attached. All of its functions are for
/// threads in the network namespace of the interfaces.
pub struct Relay {
    settings: RelaySettings,
    config: abi::Config,
    groups: Arc<SharedArray<abi::Group>>,
    fan_out: Arc<SharedArray<abi::FanOut>>,
    ports: SharedArray<u64>,
    slots: SharedArray<abi::Slot>,
    rows: SharedArray<abi::Row>,
    places: SharedArray<abi::Place>,
    states: SharedArray<abi::State>,
    slot_counts: SharedArray<abi::SlotCounts>,
    child_counts: SharedArray<abi::ChildCounts>,
    books: BTreeMap<SocketAddr, Book>,
    /// Counters that no child has.
    free_children: Vec<u32>,
    interfaces: Interfaces,
    /// Holds the program that counts what drivers have no room for, or says why there is none.
    drops: Result<OwnedFd, XdpError>,
    loaded: Loaded,
}

impl Relay {
    /// Loads the programs. They copy nothing before a group is set and they are attached.
    pub fn load(settings: &RelaySettings) -> Result<Self, XdpError> {
        let settings = RelaySettings {
            groups: settings.groups.max(1),
            children_of_group: settings.children_of_group.max(1),
            children: settings.children.max(1),
            addresses: settings.addresses.max(1),
        };
        let processors = possible_processors();
        // While children change, those that go still have their counters when those that come do.
        let counted = settings.children + settings.children_of_group;
        let config = abi::Config { slots: 2 * settings.groups, children: counted };
        let sizes = settings.sizes(config, processors);
        // Not every kernel lets programs see what drivers have no room for.
        let load = |drops| {
            Loaded::load(NAME, OBJECT, |open| {
                sizes
                    .iter()
                    .try_for_each(|&(map, size)| object::size_map(open, NAME, map, size))?;
                object::set_constants(open, NAME, config.as_bytes())?;
                include_drops(open, drops)
            })
        };
        let (loaded, drops) = match load(true) {
            Err(why @ XdpError::Load { .. }) => (load(false)?, Err(why)),
            loaded => {
                let loaded = loaded?;
                let drops = see_drops(&loaded);
                (loaded, drops)
            }
        };
        let entries = |part: &str| sizes.iter().find(|(map, _)| *map == part).map_or(1, |m| m.1);
        let groups = SharedArray::map(loaded.map("relay_groups")?.as_fd(), settings.groups)?;
        let empty = abi::Group { slot: abi::NO_SLOT, ..groups.read(0) };
        (0..settings.groups).for_each(|number| groups.write(number, &empty));
        let (slots, rows) = (entries("relay_slots"), entries("relay_rows"));
        let (of_slots, of_children) = (entries("relay_slot_counts"), entries("relay_child_counts"));
        let indices = abi::INTERFACE_INDICES;
        Ok(Self {
            settings,
            config,
            groups: Arc::new(groups),
            fan_out: Arc::new(SharedArray::map(loaded.map("relay_fan_out")?.as_fd(), 1)?),
            ports: SharedArray::map(loaded.map("relay_ports")?.as_fd(), PORT_WORDS)?,
            slots: SharedArray::map(loaded.map("relay_slots")?.as_fd(), slots)?,
            rows: SharedArray::map(loaded.map("relay_rows")?.as_fd(), rows)?,
            places: SharedArray::map(loaded.map("relay_interfaces")?.as_fd(), indices)?,
            states: SharedArray::map(loaded.map("relay_states")?.as_fd(), processors)?,
            slot_counts: SharedArray::map(loaded.map("relay_slot_counts")?.as_fd(), of_slots)?,
            child_counts: SharedArray::map(loaded.map("relay_child_counts")?.as_fd(), of_children)?,
            books: BTreeMap::new(),
            free_children: (0..counted).rev().collect(),
            interfaces: Interfaces::default(),
            drops,
            loaded,
        })
    }

    /// Attaches the relay in native mode to an interface that packets to groups come in by. It
    /// works there until the attachment is dropped.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        self.place(interface, false)
    }

    /// Attaches the relay to an interface by which nothing comes in but what this process puts
    /// there itself, having looked where it is from: sources are not judged again.
    pub fn attach_own(&self, interface: &Interface) -> Result<Attachment, XdpError> {
        self.place(interface, true)
    }

    fn place(&self, interface: &Interface, is_own: bool) -> Result<Attachment, XdpError> {
        if interface.index < abi::INTERFACE_INDICES {
            let place = self.places.read(interface.index);
            self.places.write(interface.index, &abi::Place { is_own: is_own.into(), ..place });
        } else if is_own {
            let source = io::Error::other("its index is beyond the relay's table");
            return Err(XdpError::Attach { interface: interface.name.clone(), source });
        }
        Attachment::new(self.loaded.program("relay")?, interface, AttachMode::Native)
    }

    /// Says which MAC address an interface has: what comes in by it to another one is left to the
    /// network stack. Until it is said, all that comes in is for this host.
    pub fn set_mac(&self, index: u32, mac: [u8; 6]) {
        if index < abi::INTERFACE_INDICES {
            let place = self.places.read(index);
            self.places.write(index, &abi::Place { mac, ..place });
        }
    }

    /// Limits the copies of all groups together: how far they may be ahead, in ns, of what
    /// [`RelayGroup::copies_ns`] says that those of a packet take. A packet is copied for all
    /// children or none.
    pub fn limit_copies(&self, tolerance_ns: Option<NonZeroU64>) {
        let offset = std::mem::offset_of!(abi::FanOut, tolerance_ns);
        let tolerance_ns = tolerance_ns.map_or(0, NonZeroU64::get);
        self.fan_out.atomic(0, offset).store(tolerance_ns, Relaxed);
    }

    /// What the limits remember, for others that make copies for the same groups.
    #[must_use]
    pub fn meters(&self) -> RelayMeters {
        RelayMeters::new(Arc::clone(&self.groups), Arc::clone(&self.fan_out))
    }

    /// Why copies that a driver had no room for are not counted but taken for sent, where the
    /// kernel does not tell of them.
    #[must_use]
    pub fn driver_drops_unseen(&self) -> Option<&XdpError> {
        self.drops.as_ref().err()
    }

    /// Runs the program once over a frame, as if it had arrived at the loopback interface, without
    /// making copies.
    pub fn test_run(&self, frame: &[u8]) -> Result<Outcome, XdpError> {
        test_run::once(self.loaded.program("relay")?, frame)
    }
}

impl RelaySettings {
    /// How many entries the maps have.
    const fn sizes(&self, config: abi::Config, processors: u32) -> [(&'static str, u32); 11] {
        [
            ("relay_numbers", 2 * self.addresses),
            ("relay_sources", 2 * (config.children + self.groups * SOURCES_OF_GROUP)),
            ("relay_ends", config.children),
            ("relay_groups", self.groups),
            ("relay_slots", config.slots),
            ("relay_rows", config.slots * self.children_of_group),
            ("relay_copies", config.slots),
            ("relay_states", processors),
            ("relay_slot_counts", processors * config.slots),
            ("relay_child_counts", processors * config.children),
            ("relay_fan_out", 1),
        ]
    }
}

fn include_drops(open: &mut OpenObject, include: bool) -> Result<(), XdpError> {
    open.progs_mut()
        .find(|program| program.name() == OsStr::new(DROPS))
        .ok_or(XdpError::Missing { object: NAME, part: DROPS })?
        .set_autoload(include);
    Ok(())
}

/// Has the kernel run the program that counts what drivers have no room for. It ends with the
/// descriptor.
fn see_drops(loaded: &Loaded) -> Result<OwnedFd, XdpError> {
    let program = loaded.program(DROPS)?.as_raw_fd();
    // SAFETY: the name is a constant string that ends with a NUL, the program's descriptor is open.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(c"xdp_devmap_xmit".as_ptr(), program) };
    if link < 0 {
        return Err(XdpError::Run(io::Error::from_raw_os_error(-link)));
    }
    // SAFETY: the call returned a fresh descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}
