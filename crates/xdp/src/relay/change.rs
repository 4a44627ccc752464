//! Changes of groups and their children while packets are copied.
//!
//! A group has two slots in the kernel's tables. One holds its present children; a change prepares
//! the new children in the other, and one word selects the slot from which packets are copied. So
//! every packet is copied either for the previous children or for the new ones, and a child in both
//! sets gets it once. Then the change waits until no program reads the previous slot any more.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::abi::{self, ChildEntry, ChildEntryRange, RelayGroupConfigSlot};
use super::completion::CopyCompletionTracker;
use super::group::{ChildState, GroupState, RELAY_LENGTH_MAX, RoleBitsByPrefix};
use super::interface_numbers::InterfaceNumbers;
use super::lists::{ignore_not_found, map_error};
use super::{
    RelayChild, RelayChildCounts, RelayGroup, RelayGroupCounts, RelayGroupError, RelayPrograms,
};
use crate::XdpError;
use crate::attach::supports_redirect;

/// Removed children with the final counts of their copies.
pub type RemovedChildren = Vec<(SocketAddr, RelayChildCounts)>;

/// Removed group with its final counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovedGroup {
    /// Final counts of the group's packets.
    pub counts: RelayGroupCounts,
    /// Children that the group had, with their final counts.
    pub children: RemovedChildren,
}

/// Change of a group after all steps whose failure leaves the group unchanged; packets are not
/// copied by it yet.
struct PreparedGroupChange {
    /// Side of the group's two slots (0 or 1) in which the children are prepared.
    side: u32,
    slot: RelayGroupConfigSlot,
    rows: Vec<ChildEntry>,
    children: Vec<ChildState>,
    /// Counter numbers that the new children take from the free ones.
    new_counters: Vec<u32>,
    copies: Option<MapHandle>,
    addresses: Vec<SocketAddr>,
    sources: RoleBitsByPrefix,
    interfaces: InterfaceNumbers,
}

impl RelayPrograms {
    /// Sets a group and all of its children; a group that does not exist is added. A child with the
    /// same destination as before keeps its counters. Packets to a group without children are
    /// passed to the network stack. Returns the removed children with their final counts.
    ///
    /// The change takes the kernel some milliseconds. After an error before the new children are
    /// active, the group is unchanged. If only the wait for the previous children or their removal
    /// from the kernel's tables fails, the new children are active, and the counts of the removed
    /// ones are lost.
    pub fn set_group(
        &mut self,
        group: &RelayGroup,
        children: &[RelayChild],
    ) -> Result<RemovedChildren, RelayGroupError> {
        group.check(children)?;
        let (existed, mut group_state) = match self.group_states.remove(&group.address) {
            Some(group_state) => (true, group_state),
            None => (false, self.create_group_state(group)?),
        };
        let prepared = self.prepare(&group_state, group, children);
        let result = prepared.map(|prepared| self.commit(&mut group_state, prepared));
        if existed || result.is_ok() {
            self.group_states.insert(group.address, group_state);
        } else {
            let _ = self.remove_entries(&group_state);
            self.update_ports(None);
        }
        result?
    }

    /// Removes a group and its children, and returns their final counts; those of an unknown group
    /// are empty. From the call on, even if it fails, packets to the group are passed to the
    /// network stack.
    pub fn remove_group(&mut self, address: SocketAddr) -> Result<RemovedGroup, RelayGroupError> {
        let Some(group_state) = self.group_states.remove(&address) else {
            return Ok(RemovedGroup::default());
        };
        self.select_slot(group_state.number, abi::NO_SLOT);
        let waited = self.wait_for_readers(&group_state);
        let packets = self.packets_since_change(&group_state);
        let counts = self.counts_of_group(&group_state);
        let with_counts =
            |child: &ChildState| (child.destination, self.counts_of_child(child, packets, 0));
        let children = group_state.children.iter().map(with_counts).collect();
        let removed = self.remove_entries(&group_state);
        self.update_ports(None);
        self.free_children.extend(group_state.children.iter().map(|child| child.number));
        self.release_interfaces();
        let copies = self.loaded.map("relay_copies")?;
        for side in 0..2 {
            ignore_not_found(copies.delete(&group_state.slot(side).to_ne_bytes()))?;
        }
        waited.and(removed)?;
        Ok(RemovedGroup { counts, children })
    }

    /// Returns the addresses of all groups.
    pub fn groups(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.group_states.keys().copied()
    }

    /// Returns true if the kernel still makes copies by all interfaces of the group's children;
    /// false for an unknown group. It makes none by an interface that was removed, even if one with
    /// the same index and name was added later, until the group is set again.
    #[must_use]
    pub fn has_all_interfaces(&self, address: SocketAddr) -> bool {
        let Some(group_state) = self.group_states.get(&address) else { return false };
        let Some(copies) = &group_state.copy_map else { return true };
        let mut last_interface = None;
        // Children that share an interface have adjacent entries, in the order of the copies.
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
            let entry_of = |processor| processor * self.config.slots + slot;
            (0..self.states.entries())
                .for_each(|processor| self.slot_counts.clear(entry_of(processor)));
        }
        Ok(group_state)
    }

    fn prepare(
        &self,
        group_state: &GroupState,
        group: &RelayGroup,
        children: &[RelayChild],
    ) -> Result<PreparedGroupChange, RelayGroupError> {
        let (address, max) = (group.address, self.settings.children_per_group);
        let count = children.len();
        if count > max as usize {
            return Err(RelayGroupError::GroupFull { address, count, max });
        }
        let others: usize =
            self.group_states.values().map(|group_state| group_state.children.len()).sum();
        if others + count > self.settings.children as usize {
            return Err(RelayGroupError::ChildrenFull { max: self.settings.children });
        }
        let mut interfaces = self.interfaces.clone();
        interfaces.assign(children)?;
        let side = 1 - group_state.side;
        let (ordered, rows_by_interface) =
            interfaces.egress_order(children, group_state.slot(side) * max);
        let copies = if ordered.is_empty() { None } else { Some(self.create_copy_map(&ordered)?) };
        if let Some(copies) = &copies {
            self.set_copy_map(group_state.slot(side), copies)?;
        }
        let sources = group.source_roles(children);
        let with_port = |ip: &IpAddr| SocketAddr::new(*ip, address.port());
        let addresses: Vec<SocketAddr> = group.addresses.iter().map(with_port).collect();
        self.update_ports(Some(address.port()));
        let added = self
            .add_sources(group_state.number, &group_state.sources, &sources)
            .and_then(|()| self.add_endpoints(group_state, children))
            .and_then(|()| self.add_addresses(group_state, &addresses));
        if let Err(error) = added {
            // Undoes the additions; entries that could not be added do not exist.
            let _ = self.finish_sources(group_state.number, &group_state.sources, &sources);
            let _ =
                self.remove_endpoints(group_state, children.iter().map(|child| child.destination));
            let _ = self.remove_addresses(&addresses, &group_state.addresses);
            return Err(error.into());
        }
        let unrouted = children.iter().filter(|child| child.interface.is_none());
        let all: Vec<&RelayChild> = ordered.iter().copied().chain(unrouted).collect();
        let (child_states, new_counters) = self.assign_counters(group_state, &all);
        let rows = ordered.iter().zip(&child_states).map(|(child, known)| child.row(known.number));
        let slot = relay_slot(group_state.number, group, &rows_by_interface);
        Ok(PreparedGroupChange {
            side,
            slot,
            rows: rows.collect(),
            children: child_states,
            new_counters,
            copies,
            addresses,
            sources,
            interfaces,
        })
    }

    /// Returns the states of the children, and the counter numbers that new children take from the
    /// free ones.
    fn assign_counters(
        &self,
        group_state: &GroupState,
        ordered: &[&RelayChild],
    ) -> (Vec<ChildState>, Vec<u32>) {
        let mut free = self.free_children.iter().rev().copied();
        let mut new_counters = Vec::new();
        let child_states = ordered.iter().filter_map(|child| {
            let destination = child.destination;
            let previous =
                group_state.children.iter().find(|known| known.destination == destination);
            let interface = child.interface.as_ref().map(|interface| interface.index);
            if let Some(former) = previous {
                return Some(ChildState { interface, ..former.clone() });
            }
            let number = free.next().inspect(|&number| new_counters.push(number))?;
            let not_made_max = Arc::default();
            Some(ChildState { destination, number, interface, packets_before: 0, not_made_max })
        });
        let known = child_states.collect();
        (known, new_counters)
    }

    /// Activates the prepared change, removes the previous state, and returns the removed children
    /// with their final counts. After an error the change is in effect nevertheless.
    fn commit(
        &mut self,
        group_state: &mut GroupState,
        prepared: PreparedGroupChange,
    ) -> Result<RemovedChildren, RelayGroupError> {
        let PreparedGroupChange { side, slot, rows, children, new_counters, copies, .. } = prepared;
        let PreparedGroupChange { addresses, sources, interfaces, .. } = prepared;
        self.interfaces = interfaces;
        for (index, number) in self.interfaces.iter() {
            let entry = self.interface_entries.read(index);
            self.interface_entries
                .write(index, &abi::InterfaceEntry { egress_number: number + 1, ..entry });
        }
        self.free_children.truncate(self.free_children.len() - new_counters.len());
        for number in new_counters {
            let entry_of = |processor| processor * self.config.children + number;
            (0..self.states.entries())
                .for_each(|processor| self.child_counts.clear(entry_of(processor)));
        }
        let index = group_state.slot(side);
        for (row, content) in (index * self.settings.children_per_group..).zip(&rows) {
            self.rows.write(row, content);
        }
        self.slots.write(index, &slot);
        let packets_by_processor = self.packets_by_processor(index);
        self.select_slot(
            group_state.number,
            if rows.is_empty() { abi::NO_SLOT } else { index.into() },
        );
        let waited = match (&group_state.copy_map, &copies) {
            // Without a previous map no program can be using the slot.
            (None, _) => Ok(()),
            (Some(_), Some(copies)) => self.set_copy_map(index, copies),
            (Some(_), None) => self.wait_for_readers(group_state),
        };
        let packets = self.packets_since_change(group_state);
        // All copies for the previous children are complete now; for those that remain, this
        // records the missing copies.
        let all = group_state.children.iter().map(|known| self.counts_of_child(known, packets, 0));
        let counts: Vec<RelayChildCounts> = all.collect();
        let previous = std::mem::replace(&mut group_state.children, children);
        for child in &mut group_state.children {
            if previous.iter().any(|known| known.number == child.number) {
                child.packets_before += packets;
            }
        }
        group_state.packets_before = packets_by_processor.iter().sum();
        group_state.completion = CopyCompletionTracker::new(packets_by_processor);
        group_state.side = side;
        group_state.copy_map = copies;
        let is_retained = |known: &ChildState| {
            group_state.children.iter().any(|child| child.number == known.number)
        };
        let removed = previous.into_iter().zip(counts).filter(|(known, _)| !is_retained(known));
        let with_counts = |(known, counts): (ChildState, _)| {
            let destination = known.destination;
            (known, (destination, counts))
        };
        let (removed, removed_counts): (Vec<ChildState>, RemovedChildren) =
            removed.map(with_counts).unzip();
        let removed_entries = self
            .finish_sources(group_state.number, &sources, &group_state.sources)
            .and(self.remove_endpoints(group_state, removed.iter().map(|known| known.destination)))
            .and(self.remove_addresses(&group_state.addresses, &addresses));
        group_state.sources = sources;
        group_state.addresses = addresses;
        self.free_children.extend(removed.iter().map(|known| known.number));
        self.release_interfaces_except(&group_state.children);
        waited?;
        removed_entries?;
        Ok(removed_counts)
    }

    /// Creates the device map that makes one copy for each of these children, in this order. Fails
    /// if one of their interfaces does not send redirected frames.
    fn create_copy_map(&self, ordered: &[&RelayChild]) -> Result<MapHandle, RelayGroupError> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let program = self.loaded.program("copy")?.as_raw_fd().cast_unsigned();
        let (key_size, value_size) = (size_of::<u32>() as u32, 2 * size_of::<u32>() as u32);
        let (name, count) = (Some("copies"), ordered.len() as u32);
        let copies =
            MapHandle::create(MapType::Devmap, name, key_size, value_size, count, &options)
                .map_err(|error| map_error(&error))?;
        let mut checked = None;
        let interfaces = ordered.iter().filter_map(|child| child.interface.as_ref());
        for (key, interface) in (0_u32..).zip(interfaces) {
            if checked != Some(interface.index) {
                if !supports_redirect(interface.index) {
                    return Err(RelayGroupError::RedirectUnsupported {
                        interface: interface.name.clone(),
                    });
                }
                checked = Some(interface.index);
            }
            // struct bpf_devmap_val of linux/bpf.h: a copy's egress interface, and the program that
            // changes it.
            let value = [interface.index, program].map(u32::to_ne_bytes).concat();
            copies
                .update(&key.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(|error| map_error(&error))?;
        }
        Ok(copies)
    }

    /// Sets the device map of a slot. The kernel returns once every program that was running has
    /// ended (`maybe_wait_bpf_programs` of `kernel/bpf/syscall.c`).
    fn set_copy_map(&self, slot: u32, copies: &MapHandle) -> Result<(), XdpError> {
        let inner = copies.as_fd().as_raw_fd().to_ne_bytes();
        let all = self.loaded.map("relay_copies")?;
        all.update(&slot.to_ne_bytes(), &inner, MapFlags::ANY).map_err(|error| map_error(&error))
    }

    /// Waits until every program that may have read the group's present children has ended.
    fn wait_for_readers(&self, group_state: &GroupState) -> Result<(), XdpError> {
        group_state
            .copy_map
            .as_ref()
            .map_or(Ok(()), |copies| self.set_copy_map(group_state.slot(group_state.side), copies))
    }

    /// Selects the slot from which packets of a group are copied.
    fn select_slot(&self, group: u32, slot: u64) {
        // Release order publishes the contents of the slot, written before.
        self.groups.atomic(group, std::mem::offset_of!(abi::GroupEntry, slot)).store(slot, Release);
    }

    fn release_interfaces(&mut self) {
        self.release_interfaces_except(&[]);
    }

    /// Releases the numbers of interfaces by which neither the children of any group nor `children`
    /// are reached.
    fn release_interfaces_except(&mut self, children: &[ChildState]) {
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

fn relay_slot(
    number: u32,
    group: &RelayGroup,
    rows: &[ChildEntryRange; abi::RELAY_INTERFACES_MAX],
) -> RelayGroupConfigSlot {
    let (interval_ns, tolerance_ns) = group.limit_ns();
    RelayGroupConfigSlot {
        group: number,
        length_max: group.length_max.min(RELAY_LENGTH_MAX),
        interface: group.interface.unwrap_or(0),
        hops_max: group.hops_max,
        hops_reset: group.hops_reset.into(),
        reserved: 0,
        interval_ns,
        tolerance_ns,
        copies_ns: group.copy_cost_ns,
        rows: *rows,
    }
}
