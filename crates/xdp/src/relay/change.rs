//! Changes of groups and their children while packets are copied.
//!
//! A group has two slots in the kernel's tables. Its children are in one; another set of children
//! is prepared in the other, and one word selects the slot that packets are copied from. So every
//! packet is copied for the previous children or for the new ones, and a child in both sets gets it
//! once. Then the change waits until no program in the kernel reads the former slot any more.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::abi::{self, ChildRow, RelaySlot, RowRange};
use super::completion::CompletionTracker;
use super::group::{ChildState, GroupState, RELAY_LENGTH_MAX, Sources};
use super::interface_numbers::InterfaceNumbers;
use super::lists::{absent_is_fine, map_failed};
use super::{
    RelayChild, RelayChildCounts, RelayGroup, RelayGroupCounts, RelayGroupError, RelayPrograms,
};
use crate::XdpError;
use crate::attach::supports_redirect;

/// Removed children, each with all counts of its copies.
pub type RemovedChildren = Vec<(SocketAddr, RelayChildCounts)>;

/// A removed group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovedGroup {
    /// All counts of its packets.
    pub counts: RelayGroupCounts,
    /// Its children.
    pub children: RemovedChildren,
}

/// A change with all steps done that can fail: packets do not use it yet.
struct PreparedGroupChange {
    /// Slot of the group that the children will be in.
    side: u32,
    slot: RelaySlot,
    rows: Vec<ChildRow>,
    children: Vec<ChildState>,
    /// Numbers of their counters that were free.
    taken: Vec<u32>,
    copies: Option<MapHandle>,
    addresses: Vec<SocketAddr>,
    sources: Sources,
    interfaces: InterfaceNumbers,
}

impl RelayPrograms {
    /// Replaces a group and all of its children; a new group is added. The same child (the same
    /// destination) keeps its counters. Packets to a group without children are passed to the
    /// network stack.
    ///
    /// The change takes the kernel some milliseconds. An error leaves everything as it was.
    pub fn set(
        &mut self,
        group: &RelayGroup,
        children: &[RelayChild],
    ) -> Result<RemovedChildren, RelayGroupError> {
        group.check(children)?;
        let (former, mut group_state) = match self.group_states.remove(&group.address) {
            Some(group_state) => (true, group_state),
            None => (false, self.create_group_state(group)?),
        };
        let prepared = self.prepare(&group_state, group, children);
        let changed = prepared.map(|prepared| self.commit(&mut group_state, prepared));
        if former || changed.is_ok() {
            self.group_states.insert(group.address, group_state);
        } else {
            let _ = self.forget_lists(&group_state);
            self.mark_ports(None);
        }
        changed?
    }

    /// Removes a group and its children. Packets to it are passed to the network stack.
    pub fn remove(&mut self, address: SocketAddr) -> Result<RemovedGroup, RelayGroupError> {
        let Some(group_state) = self.group_states.remove(&address) else {
            return Ok(RemovedGroup::default());
        };
        self.show(group_state.number, abi::NO_SLOT);
        let done = self.wait(&group_state);
        let packets = self.packets_now(&group_state);
        let counts = self.of_group(&group_state);
        let of = |child: &ChildState| (child.destination, self.of_child(child, packets, 0));
        let children = group_state.children.iter().map(of).collect();
        let forgotten = self.forget_lists(&group_state);
        self.mark_ports(None);
        let copies = self.loaded.map("relay_copies")?;
        for side in 0..2 {
            absent_is_fine(copies.delete(&group_state.slot(side).to_ne_bytes()))?;
        }
        self.free_children.extend(group_state.children.iter().map(|child| child.number));
        self.release_interfaces();
        done.and(forgotten)?;
        Ok(RemovedGroup { counts, children })
    }

    /// Returns the addresses of all groups.
    pub fn groups(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.group_states.keys().copied()
    }

    /// Returns true if the kernel makes copies by all interfaces with which the children of the
    /// group with this address were set. It makes none by a removed interface, not even after one
    /// with the same index and name was added, until the group is set again.
    #[must_use]
    pub fn is_whole(&self, address: SocketAddr) -> bool {
        let Some(group_state) = self.group_states.get(&address) else { return false };
        let Some(copies) = &group_state.copies else { return true };
        let mut last_interface = None;
        // Children that share an interface have adjacent entries, in their order.
        let interfaces = group_state.children.iter().filter_map(|child| child.interface);
        (0_u32..).zip(interfaces).all(|(key, index)| {
            last_interface.replace(index) == Some(index)
                // An entry whose state cannot be read is not assumed to be missing.
                || !matches!(copies.lookup(&key.to_ne_bytes(), MapFlags::ANY), Ok(None))
        })
    }

    fn create_group_state(&mut self, group: &RelayGroup) -> Result<GroupState, RelayGroupError> {
        let (address, number, max) = (group.address, group.number, self.settings.groups);
        if number >= max {
            return Err(RelayGroupError::GroupsFull { address, max });
        }
        if self.group_states.values().any(|group_state| group_state.number == number) {
            return Err(RelayGroupError::NumberTaken { address, number });
        }
        let group_state = GroupState::new(number);
        for slot in [0, 1].map(|side| group_state.slot(side)) {
            let of = |processor| processor * self.config.slots + slot;
            (0..self.states.entries()).for_each(|at| self.slot_counts.clear(of(at)));
        }
        Ok(group_state)
    }

    fn prepare(
        &self,
        group_state: &GroupState,
        group: &RelayGroup,
        children: &[RelayChild],
    ) -> Result<PreparedGroupChange, RelayGroupError> {
        let (address, max) = (group.address, self.settings.children_of_group);
        let count = children.len();
        if count > max as usize {
            return Err(RelayGroupError::ChildrenOfGroup { address, count, max });
        }
        let others: usize =
            self.group_states.values().map(|group_state| group_state.children.len()).sum();
        if others + count > self.settings.children as usize {
            return Err(RelayGroupError::ChildrenFull { max: self.settings.children });
        }
        let mut interfaces = self.interfaces.clone();
        interfaces.admit(children)?;
        let side = 1 - group_state.side;
        let (ordered, rows_by_interface) =
            interfaces.in_order(children, group_state.slot(side) * max);
        let copies = if ordered.is_empty() { None } else { Some(self.copies_of(&ordered)?) };
        if let Some(copies) = &copies {
            self.put(group_state.slot(side), copies)?;
        }
        let sources = group.listed(children);
        let to = |ip: &IpAddr| SocketAddr::new(*ip, address.port());
        let addresses: Vec<SocketAddr> = group.addresses.iter().map(to).collect();
        self.mark_ports(Some(address.port()));
        let listed = self
            .list_sources(group_state.number, &group_state.sources, &sources)
            .and_then(|()| self.list_ends(group_state, children))
            .and_then(|()| self.list_addresses(group_state, &addresses));
        if let Err(error) = listed {
            // New entries are removed again; those that could not be added do not exist.
            let _ = self.settle_sources(group_state.number, &group_state.sources, &sources);
            let _ = self.forget_ends(group_state, children.iter().map(|child| child.destination));
            let _ = self.forget_addresses(&addresses, &group_state.addresses);
            return Err(error.into());
        }
        let nowhere = children.iter().filter(|child| child.interface.is_none());
        let all: Vec<&RelayChild> = ordered.iter().copied().chain(nowhere).collect();
        let (known, taken) = self.numbered(group_state, &all);
        let rows = ordered.iter().zip(&known).map(|(child, known)| child.row(known.number));
        let slot = slot_of(group_state.number, group, &rows_by_interface);
        Ok(PreparedGroupChange {
            side,
            slot,
            rows: rows.collect(),
            children: known,
            taken,
            copies,
            addresses,
            sources,
            interfaces,
        })
    }

    /// Returns the children with the numbers of their counters, and those of these that were free.
    fn numbered(
        &self,
        group_state: &GroupState,
        ordered: &[&RelayChild],
    ) -> (Vec<ChildState>, Vec<u32>) {
        let mut free = self.free_children.iter().rev().copied();
        let mut taken = Vec::new();
        let known = ordered.iter().filter_map(|child| {
            let destination = child.destination;
            let former = group_state.children.iter().find(|known| known.destination == destination);
            let interface = child.interface.as_ref().map(|interface| interface.index);
            if let Some(former) = former {
                return Some(ChildState { interface, ..former.clone() });
            }
            let number = free.next().inspect(|&number| taken.push(number))?;
            let unmade = Arc::default();
            Some(ChildState { destination, number, interface, packets_before: 0, unmade })
        });
        let known = known.collect();
        (known, taken)
    }

    /// Activates the prepared change, and removes the previous state.
    fn commit(
        &mut self,
        group_state: &mut GroupState,
        prepared: PreparedGroupChange,
    ) -> Result<RemovedChildren, RelayGroupError> {
        let PreparedGroupChange { side, slot, rows, children, taken, copies, .. } = prepared;
        let PreparedGroupChange { addresses, sources, interfaces, .. } = prepared;
        self.interfaces = interfaces;
        for (index, number) in self.interfaces.iter() {
            let entry = self.interface_entries.read(index);
            self.interface_entries
                .write(index, &abi::InterfaceEntry { egress_number: number + 1, ..entry });
        }
        self.free_children.truncate(self.free_children.len() - taken.len());
        for number in taken {
            let of = |processor| processor * self.config.children + number;
            (0..self.states.entries()).for_each(|at| self.child_counts.clear(of(at)));
        }
        let index = group_state.slot(side);
        for (row, content) in (index * self.settings.children_of_group..).zip(&rows) {
            self.rows.write(row, content);
        }
        self.slots.write(index, &slot);
        let counted = self.packets_by_processor(index);
        self.show(group_state.number, if rows.is_empty() { abi::NO_SLOT } else { index.into() });
        let waited = match (&group_state.copies, &copies) {
            // Nothing was copied before, so no program can be using it.
            (None, _) => Ok(()),
            (Some(_), Some(copies)) => self.put(index, copies),
            (Some(_), None) => self.wait(group_state),
        };
        let packets = self.packets_now(group_state);
        // None of their copies is still to be made. For the remaining children, the missing ones
        // are recorded.
        let all = group_state.children.iter().map(|known| self.of_child(known, packets, 0));
        let counts: Vec<RelayChildCounts> = all.collect();
        let before = std::mem::replace(&mut group_state.children, children);
        for child in &mut group_state.children {
            if before.iter().any(|known| known.number == child.number) {
                child.packets_before += packets;
            }
        }
        group_state.packets_before = counted.iter().sum();
        group_state.settled = CompletionTracker::new(counted);
        group_state.side = side;
        group_state.copies = copies;
        let stays = |known: &ChildState| {
            group_state.children.iter().any(|child| child.number == known.number)
        };
        let gone = before.into_iter().zip(counts).filter(|(known, _)| !stays(known));
        let with_counts = |(known, counts): (ChildState, _)| {
            let destination = known.destination;
            (known, (destination, counts))
        };
        let (gone, former): (Vec<ChildState>, RemovedChildren) = gone.map(with_counts).unzip();
        let forgotten = self
            .settle_sources(group_state.number, &sources, &group_state.sources)
            .and(self.forget_ends(group_state, gone.iter().map(|known| known.destination)))
            .and(self.forget_addresses(&group_state.addresses, &addresses));
        group_state.sources = sources;
        group_state.addresses = addresses;
        self.free_children.extend(gone.iter().map(|known| known.number));
        self.release_interfaces_but(&group_state.children);
        waited?;
        forgotten?;
        Ok(former)
    }

    /// Creates the map that makes the copies for these children, in this order.
    fn copies_of(&self, ordered: &[&RelayChild]) -> Result<MapHandle, RelayGroupError> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let program = self.loaded.program("copy")?.as_raw_fd().cast_unsigned();
        let (key_size, value_size) = (size_of::<u32>() as u32, 2 * size_of::<u32>() as u32);
        let (name, count) = (Some("copies"), ordered.len() as u32);
        let copies =
            MapHandle::create(MapType::Devmap, name, key_size, value_size, count, &options)
                .map_err(|error| map_failed(&error))?;
        let mut checked = None;
        let interfaces = ordered.iter().filter_map(|child| child.interface.as_ref());
        for (key, interface) in (0_u32..).zip(interfaces) {
            if checked != Some(interface.index) {
                if !supports_redirect(interface.index) {
                    return Err(RelayGroupError::NoRedirects { interface: interface.name.clone() });
                }
                checked = Some(interface.index);
            }
            // struct bpf_devmap_val of linux/bpf.h: a copy's egress interface, and the program that
            // changes it.
            let value = [interface.index, program].map(u32::to_ne_bytes).concat();
            copies
                .update(&key.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(|error| map_failed(&error))?;
        }
        Ok(copies)
    }

    /// Sets the map that makes the copies of a slot. The kernel returns when no program runs any
    /// more that ran before (`maybe_wait_bpf_programs` of `kernel/bpf/syscall.c`).
    fn put(&self, slot: u32, copies: &MapHandle) -> Result<(), XdpError> {
        let inner = copies.as_fd().as_raw_fd().to_ne_bytes();
        let all = self.loaded.map("relay_copies")?;
        all.update(&slot.to_ne_bytes(), &inner, MapFlags::ANY).map_err(|error| map_failed(&error))
    }

    /// Waits until no program runs that may have read the group's present children.
    fn wait(&self, group_state: &GroupState) -> Result<(), XdpError> {
        group_state
            .copies
            .as_ref()
            .map_or(Ok(()), |copies| self.put(group_state.slot(group_state.side), copies))
    }

    /// Selects the slot that packets of a group are copied from.
    fn show(&self, group: u32, slot: u64) {
        // The contents of the slot were written before.
        self.groups.atomic(group, std::mem::offset_of!(abi::GroupEntry, slot)).store(slot, Release);
    }

    fn release_interfaces(&mut self) {
        self.release_interfaces_but(&[]);
    }

    /// Releases the numbers of interfaces that neither the groups' children nor these use for
    /// egress.
    fn release_interfaces_but(&mut self, children: &[ChildState]) {
        let group_states = &self.group_states;
        let all =
            || group_states.values().flat_map(|group_state| &group_state.children).chain(children);
        let used = |index| all().any(|known| known.interface == Some(index));
        let unused = self.interfaces.release(used);
        for index in unused {
            let entry = self.interface_entries.read(index);
            self.interface_entries.write(index, &abi::InterfaceEntry { egress_number: 0, ..entry });
        }
    }
}

fn slot_of(
    number: u32,
    group: &RelayGroup,
    rows: &[RowRange; abi::RELAY_INTERFACES_MAX],
) -> RelaySlot {
    let (interval_ns, tolerance_ns) = group.limit_ns();
    RelaySlot {
        group: number,
        length_max: group.length_max.min(RELAY_LENGTH_MAX),
        interface: group.interface.unwrap_or(0),
        hops_max: group.hops_max,
        hops_reset: group.hops_reset.into(),
        reserved: 0,
        interval_ns,
        tolerance_ns,
        copies_ns: group.copies_ns,
        rows: *rows,
    }
}
