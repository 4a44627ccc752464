//! Layouts of the relay, as `bpf/abi.h` defines them in C. Both sides assert the sizes; a change to
//! one requires a change to the other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `RELAY_INTERFACES_MAX`: most egress interfaces of all groups together.
pub const RELAY_INTERFACES_MAX: usize = 64;
/// `RELAY_INTERFACE_INDICES`: limit of the interface indices; those from here on have no entry.
pub(super) const INTERFACE_INDICES: u32 = 1 << 16;
/// `RELAY_BULK`: most copies that the kernel passes to a driver at once.
const BULK: usize = 16;
/// `RELAY_NO_SLOT`: no slot, for a group without children.
pub(super) const NO_SLOT: u64 = u64::MAX;
/// `RELAY_PASSED_REASONS`: number of reasons in `enum relay_passed`.
pub(super) const PASSED_REASONS: usize = 4;
/// `RELAY_REFUSALS`: number of reasons in `enum relay_refusal`.
pub(super) const REFUSALS: usize = 6;
/// `RELAY_SOURCE_ALLOWED`: the source may send to the group.
pub(super) const SOURCE_ALLOWED: u8 = 1;
/// `RELAY_SOURCE_CHILD`: the source is a child of the group.
pub(super) const SOURCE_CHILD: u8 = 2;
/// `RELAY_SOURCE_OWN`: the source is an address of this host.
pub(super) const SOURCE_OWN: u8 = 4;
/// `RELAY_PORTS_OF_WORD`: ports in one word of the bitmap of ports.
pub(super) const PORTS_OF_WORD: u16 = 64;

/// `struct relay_config`: number of slots of all groups, and of child counters of each CPU.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RawRelayConfig {
    pub(super) slots: u32,
    pub(super) children: u32,
}

/// `struct relay_source_key`: prefix of source addresses of a group, key of a
/// longest-prefix-match map.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RelaySourcePrefixKey {
    pub(super) length: u32,
    pub(super) group: u32,
    pub(super) address: [u8; 16],
}

/// `struct relay_endpoint_key`: destination address and port of a child of a group.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RelayChildEndpointKey {
    pub(super) group: u32,
    pub(super) port: [u8; 2],
    pub(super) reserved: u16,
    pub(super) address: [u8; 16],
}

/// `struct relay_interface`: egress number of an interface plus 1 (0 without one), MAC address, and
/// whether only packets of this process arrive there.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InterfaceEntry {
    pub(super) egress_number: u8,
    pub(super) is_own: u8,
    pub(super) mac: [u8; 6],
}

/// `struct relay_group`: present slot of a group, and the state of its rate limit.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct GroupEntry {
    pub(super) slot: u64,
    pub(super) reserved: [u64; 7],
    pub(super) arrival: u64,
    pub(super) reserved2: [u64; 7],
}

/// `struct relay_fan_out`: rate limit of all copies, with its state.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FanOutRateState {
    pub(super) tolerance_ns: u64,
    pub(super) reserved: [u64; 7],
    pub(super) arrival: u64,
    pub(super) reserved2: [u64; 7],
}

/// `struct relay_span`: range of child rows of one egress interface.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct ChildEntryRange {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// `struct relay_slot`: conditions and children of a group. Each group has two slots; packets are
/// copied from one of them.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RelayGroupConfigSlot {
    pub(super) group: u32,
    pub(super) length_max: u32,
    pub(super) interface: u32,
    pub(super) hops_max: u8,
    pub(super) hops_reset: u8,
    pub(super) reserved: u16,
    pub(super) interval_ns: u64,
    pub(super) tolerance_ns: u64,
    pub(super) copies_ns: u64,
    pub(super) rows: [ChildEntryRange; RELAY_INTERFACES_MAX],
}

/// `struct relay_row`: headers for the copies to one child.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct ChildEntry {
    pub(super) destination_mac: [u8; 6],
    pub(super) source_mac: [u8; 6],
    pub(super) source_port: [u8; 2],
    pub(super) destination_port: [u8; 2],
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    pub(super) address_sum: u32,
    pub(super) port_sum: u32,
    pub(super) child: u32,
    pub(super) unresolved: u32,
}

/// `struct relay_state`: counters and pending copies of one CPU.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RelayCpuState {
    pub(super) packets: u64,
    pub(super) strays: u64,
    pub(super) passed: [u64; PASSED_REASONS],
    pub(super) batch_len: u32,
    pub(super) batch: [u32; BULK],
    pub(super) reserved: [u32; 3],
    pub(super) leaving: [[u64; 2]; RELAY_INTERFACES_MAX],
}

/// `struct relay_slot_counts`: packets of a slot on one CPU.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RelayGroupSlotCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) refused: [u64; REFUSALS],
    pub(super) refused_bytes: u64,
    pub(super) reserved: [u64; 7],
}

/// `struct relay_child_counts`: copies for a child on one CPU.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawChildCounts {
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) unresolved: u64,
    pub(super) driver_full: u64,
}

const _: () = {
    assert!(size_of::<RawRelayConfig>() == 8);
    assert!(size_of::<RelaySourcePrefixKey>() == 24);
    assert!(size_of::<RelayChildEndpointKey>() == 24);
    assert!(size_of::<InterfaceEntry>() == 8);
    assert!(size_of::<GroupEntry>() == 128);
    assert!(size_of::<FanOutRateState>() == 128);
    assert!(size_of::<RelayGroupConfigSlot>() == 40 + 8 * RELAY_INTERFACES_MAX);
    assert!(size_of::<ChildEntry>() == 64);
    assert!(size_of::<RelayCpuState>() == 128 + 16 * RELAY_INTERFACES_MAX);
    assert!(size_of::<RelayGroupSlotCounts>() == 128);
    assert!(size_of::<RawChildCounts>() == 32);
};
