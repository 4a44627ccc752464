//! XDP engine: copies made in the kernel's driver path (`horolog_xdp`). The part of a table that it
//! may take over is determined in [`offload`], the ingress interfaces in [`ingress`]. Everything
//! else stays with the sockets, packet by packet, and so do packets that the XDP programs do not
//! support.
//!
//! A packet is processed by one of the two engines: the programs take it, or leave it to the
//! socket. So a change that is made in one after the other loses and duplicates nothing.

mod ingress;
mod offload;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_sys::clock::ClockMonotonic;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_xdp::{
    RelayChildCounts, RelayGroupCounts, RelayGroupError, RelayPrograms, RelayTableCapacities,
    RelayTheoreticalArrivalTimes, XdpError, supports_redirect,
};

use crate::limits::{cap_leads, copy_tolerance_ns};
use crate::route_cache::RouteCache;
use crate::table::{CHILDREN_MAX, GROUPS_MAX};
use crate::{ChildCounts, CopyDrop, Group, GroupCounts, PacketRefusal, RoutingTable};
pub use ingress::XdpInterfaceListing;
use ingress::XdpProgramInterfaces;
use offload::GroupMapEntries;
pub(crate) use offload::RING_FRAMES_MIN;

/// Maximum number of destination addresses of groups' packets: addresses of groups, and this host's
/// own addresses for groups that listen on all of them.
pub(crate) const ADDRESSES_MAX: u32 = 4_096;

/// Reason for which there is no XDP engine.
#[derive(Debug, thiserror::Error)]
pub enum XdpEngineError {
    /// The XDP programs cannot be loaded.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The interface does not exist.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    Interface(String),
}

/// The XDP engine. It ends with the process, however that ends.
#[derive(Debug)]
pub struct XdpEngine {
    state: Mutex<XdpEngineState>,
    /// Taken by readers before `state`; a change takes it before each group, so that readers get in
    /// between two groups.
    readers: Mutex<()>,
    rate_state: RelayTheoreticalArrivalTimes,
    injectable: Arc<InjectionLengthsByGroup>,
    /// Reason why this kernel does not report drops at a full transmit ring, so that such copies
    /// count as sent; `None` if it does.
    uncounted_drops_reason: Option<String>,
}

/// Addresses of the groups whose injected packets the programs copy, each with the longest IP
/// packet that they support, in bytes. Locked during an injection.
type InjectionLengthsByGroup = Mutex<HashMap<SocketAddr, u32>>;

struct XdpEngineState {
    relay: RelayPrograms,
    ingress: XdpProgramInterfaces,
    /// Groups that the XDP programs have, by their address.
    offloaded: HashMap<SocketAddr, InKernelGroup>,
    /// Reasons for which the programs do not have the other groups, by group index.
    refusals: HashMap<usize, String>,
    injectable: Arc<InjectionLengthsByGroup>,
}

/// Group whose copies the XDP programs make, with its map entries.
struct InKernelGroup {
    group: Arc<Group>,
    plan: GroupMapEntries,
}

impl std::fmt::Debug for XdpEngineState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpEngineState").field("ingress", &self.ingress).finish_non_exhaustive()
    }
}

impl XdpEngine {
    /// Loads the programs. They are attached to the ingress interfaces of groups' packets, or only
    /// to these interfaces if any are named, once a relay has started.
    ///
    /// Loading needs more privileges than all that follows: `CAP_NET_ADMIN` and `CAP_BPF`.
    pub fn load(interfaces: &[String]) -> Result<Self, XdpEngineError> {
        if !interfaces.is_empty() {
            let links = Netlink::open().and_then(|mut netlink| netlink.links()).unwrap_or_default();
            let exists = |name: &String| links.iter().any(|link| link.name == *name);
            if let Some(name) = interfaces.iter().find(|name| !exists(name)) {
                return Err(XdpEngineError::Interface(name.clone()));
            }
        }
        let relay = RelayPrograms::load(&RelayTableCapacities {
            groups: GROUPS_MAX as u32,
            children_per_group: CHILDREN_MAX as u32,
            children: CHILDREN_MAX as u32,
            addresses: ADDRESSES_MAX,
        })?;
        let rate_state = relay.rate_state();
        let uncounted_drops_reason = relay.uncounted_drops_reason().map(ToString::to_string);
        let injectable = Arc::<InjectionLengthsByGroup>::default();
        let state = XdpEngineState {
            relay,
            ingress: XdpProgramInterfaces::new(interfaces.to_vec()),
            offloaded: HashMap::new(),
            refusals: HashMap::new(),
            injectable: Arc::clone(&injectable),
        };
        let (state, readers) = (Mutex::new(state), Mutex::new(()));
        Ok(Self { state, readers, rate_state, injectable, uncounted_drops_reason })
    }

    pub(crate) fn rate_state(&self) -> RelayTheoreticalArrivalTimes {
        self.rate_state.clone()
    }

    /// Returns the reason why this kernel does not report drops at a full transmit ring, so that
    /// such copies count as sent; `None` if it does.
    pub(crate) fn uncounted_drops_reason(&self) -> Option<String> {
        self.uncounted_drops_reason.clone()
    }

    /// Sets the interface by which only packets that the relay injects arrive.
    pub(crate) fn set_send_interface(&self, index: u32) {
        self.lock_state().ingress.set_send_interface(index);
    }

    /// Injects a packet of this length into the send interface by `inject`, if the programs have
    /// the group and support the length. Returns true if the packet was injected.
    pub(crate) fn try_inject(
        &self,
        destination: SocketAddr,
        length: u32,
        inject: impl FnOnce() -> bool,
    ) -> bool {
        let injectable = lock(&self.injectable);
        injectable.get(&destination).is_some_and(|length_max| length <= *length_max) && inject()
    }

    /// Locks the state for a change, after waiting readers.
    fn lock_state(&self) -> MutexGuard<'_, XdpEngineState> {
        drop(lock(&self.readers));
        lock(&self.state)
    }

    /// Locks the counters and the present state of the programs for reading. Changes wait
    /// meanwhile.
    pub(crate) fn lock_counters(&self) -> CounterGuard<'_> {
        let reader_guard = lock(&self.readers);
        CounterGuard { state: lock(&self.state), _readers: reader_guard }
    }

    /// Applies the table to the programs, with the present routes. A concurrent reader waits at
    /// most for the attachment to the interfaces, or for one group.
    pub(crate) fn sync(&self, table: &RoutingTable, route_cache: &RouteCache) {
        let (removed, additions) = self.lock_state().plan_changes(table, route_cache);
        // Removals make room for additions.
        for listen in removed {
            self.lock_state().remove_group(listen);
        }
        for (group, plan) in additions {
            self.lock_state().offload_group(group, plan);
        }
        cap_leads(&self.rate_state, table, ClockMonotonic.now().as_ns() as u64);
    }
}

/// Guard of the programs' counters and state, which are constant while it is held.
pub(crate) struct CounterGuard<'a> {
    state: MutexGuard<'a, XdpEngineState>,
    _readers: MutexGuard<'a, ()>,
}

impl CounterGuard<'_> {
    /// Returns the counts of a group and of its children, in their order, by the programs: present
    /// counts, and those retained from earlier.
    pub(crate) fn counts(&self, group: &Group) -> (GroupCounts, Vec<ChildCounts>) {
        let listen = group.spec.listen;
        let (mut group_counts, mut child_counts) = (GroupCounts::default(), HashMap::new());
        // Counts of another group that listened on this address before do not belong to it.
        let offloaded = self.state.offloaded.get(&listen);
        if offloaded
            .is_some_and(|taken| Arc::ptr_eq(&taken.group.xdp_counters, &group.xdp_counters))
        {
            let relay = &self.state.relay;
            group_counts =
                relay.group_counts(listen).as_ref().map(to_group_counts).unwrap_or_default();
            child_counts.extend(relay.child_counts(listen));
        }
        let counts_of =
            |address| child_counts.get(&address).map(to_child_counts).unwrap_or_default();
        let children = group.children.iter().map(|child| {
            // A child that was removed and added again keeps its earlier counts.
            child.xdp_counters.counts() + counts_of(child.address)
        });
        (group.xdp_counters.counts() + group_counts, children.collect())
    }

    /// Returns the reason for which the programs do not have a group, also if that is not decided
    /// yet; `None` if they have it.
    pub(crate) fn refusal(&self, group: &Group) -> Option<String> {
        if self.is_offloaded(group) {
            return None;
        }
        let reason = self.state.refusals.get(&group.index).cloned();
        Some(reason.unwrap_or_else(|| "the in-kernel programs are being started".to_owned()))
    }

    /// Returns true if it is decided whether the programs have a group.
    pub(crate) fn is_settled(&self, group: &Group) -> bool {
        self.is_offloaded(group) || self.state.refusals.contains_key(&group.index)
    }

    fn is_offloaded(&self, group: &Group) -> bool {
        let offloaded = self.state.offloaded.get(&group.spec.listen);
        offloaded.is_some_and(|taken| taken.group.index == group.index)
    }

    /// Returns the interfaces to which the programs are to be attached.
    pub(crate) fn interfaces(&self) -> Vec<XdpInterfaceListing> {
        self.state.ingress.listing()
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of the locked value is complete before anything can panic.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl XdpEngineState {
    /// Attaches and detaches the programs as the table requires. Returns the addresses of the
    /// groups to be removed from the programs, and the groups to be added or updated.
    fn plan_changes<'a>(
        &mut self,
        table: &'a RoutingTable,
        route_cache: &RouteCache,
    ) -> (Vec<SocketAddr>, Vec<(&'a Arc<Group>, GroupMapEntries)>) {
        self.relay.limit_copies(NonZeroU64::new(copy_tolerance_ns(table.copy_rate())));
        self.ingress.sync(&self.relay, table, route_cache);
        self.refusals.clear();
        self.relay.poll_completions();
        let mut redirects = HashMap::new();
        let mut accepts_redirects =
            |index| *redirects.entry(index).or_insert_with(|| supports_redirect(index));
        let mut additions = Vec::new();
        for group in table.groups() {
            let ingress = self.ingress.group_ingress(group, route_cache);
            let plan = ingress.and_then(|ingress| {
                offload::plan_offload(
                    table,
                    group,
                    route_cache,
                    ingress.sole_interface,
                    &mut accepts_redirects,
                )
            });
            match plan {
                Ok(plan) => additions.push((group, plan)),
                Err(why) => drop(self.refusals.insert(group.index, why)),
            }
        }
        // A group that listens on all addresses gives one up before another gets it.
        additions.sort_by_key(|(group, _)| !group.spec.listen.ip().is_unspecified());
        let is_retained = |at: &SocketAddr, offloaded: &InKernelGroup| {
            let same = |(group, _): &&(&Arc<Group>, GroupMapEntries)| group.spec.listen == *at;
            let group = additions.iter().find(same).map(|(group, _)| group);
            group.is_some_and(|group| {
                group.index == offloaded.group.index
                    && Arc::ptr_eq(&group.xdp_counters, &offloaded.group.xdp_counters)
            })
        };
        let removed =
            self.offloaded.iter().filter(|(at, taken)| !is_retained(at, taken)).map(|(at, _)| *at);
        (removed.collect(), additions)
    }

    /// Removes a group from the programs, so that all its packets go to the sockets, and retains
    /// its counts, which are lost if the programs report an error.
    fn remove_group(&mut self, listen: SocketAddr) {
        let Some(offloaded) = self.offloaded.remove(&listen) else { return };
        lock(&self.injectable).remove(&listen);
        // Map entries that could not be deleted are overwritten when their index is used again.
        if let Ok(removed) = self.relay.remove_group(listen) {
            offloaded.group.xdp_counters.add_counts(&to_group_counts(&removed.counts));
            retain_counts(&offloaded.group, &removed.children);
        }
    }

    /// Adds a group to the programs, or updates it. If that fails, the group is removed from them
    /// and the reason is recorded.
    fn offload_group(&mut self, group: &Arc<Group>, plan: GroupMapEntries) {
        let listen = group.spec.listen;
        let relay = &self.relay;
        let offloaded = self.offloaded.get_mut(&listen);
        if let Some(known) =
            offloaded.filter(|one| one.plan == plan && relay.has_all_interfaces(listen))
        {
            known.group = Arc::clone(group);
            return;
        }
        let length_max = plan.group.length_max;
        if let Some(injectable_length) = lock(&self.injectable).get_mut(&listen) {
            *injectable_length = length_max.min(*injectable_length);
        }
        match self.relay.set_group(&plan.group, &plan.children) {
            Ok(removed_children) => {
                if self.ingress.is_send_interface_attached() {
                    lock(&self.injectable).insert(listen, length_max);
                }
                let group = Arc::clone(group);
                let before = self.offloaded.insert(listen, InKernelGroup { group, plan });
                if let Some(previous) = before {
                    retain_counts(&previous.group, &removed_children);
                }
            }
            Err(error) => {
                // Its form in the programs is outdated; the sockets have the present children.
                self.remove_group(listen);
                self.refusals.insert(group.index, error_text(&error));
            }
        }
    }
}

fn error_text(error: &RelayGroupError) -> String {
    error.to_string()
}

/// Adds the counts of removed children, whose entries the XDP programs have deleted, to the counts
/// that the relay keeps for each child.
fn retain_counts(group: &Group, removed_children: &[(SocketAddr, RelayChildCounts)]) {
    for (address, counts) in removed_children {
        if let Some(child) = group.children.iter().find(|child| child.address == *address) {
            child.xdp_counters.add_counts(&to_child_counts(counts));
        }
    }
}

fn to_child_counts(counts: &RelayChildCounts) -> ChildCounts {
    let mut dropped = [0; CopyDrop::ALL.len()];
    dropped[CopyDrop::Unresolved as usize] = counts.unresolved;
    dropped[CopyDrop::BufferFull as usize] = counts.driver_full;
    dropped[CopyDrop::Unreachable as usize] = counts.interface_down;
    ChildCounts { packets: counts.sent, bytes: counts.bytes, dropped }
}

fn to_group_counts(counts: &RelayGroupCounts) -> GroupCounts {
    use horolog_xdp::RelayDropReason as Below;
    let mut refused = [0; PacketRefusal::ALL.len()];
    for (reason, count) in Below::ALL.iter().zip(counts.refused) {
        let reason = match reason {
            Below::Source => PacketRefusal::Source,
            Below::Child => PacketRefusal::Child,
            Below::Relay => PacketRefusal::Relay,
            Below::HopLimit => PacketRefusal::HopLimit,
            Below::Rate => PacketRefusal::Rate,
            Below::FanOut => PacketRefusal::CopyRate,
        };
        refused[reason as usize] = count;
    }
    let packets = counts.packets + counts.refused.iter().sum::<u64>();
    GroupCounts { packets, bytes: counts.bytes + counts.refused_bytes, refused }
}
