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

use horolog_sys::clock::MonotonicClock;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_xdp::{
    RelayChildCounts, RelayGroupCounts, RelayGroupError, RelayPrograms, RelayRateState,
    RelaySettings, XdpError, supports_redirect,
};

use crate::limits::{cap_debt, copies_ahead_ns};
use crate::route_cache::RouteCache;
use crate::table::{CHILDREN_MAX, GROUPS_MAX};
use crate::{ChildCounts, CopyDrop, Group, GroupCounts, PacketRefusal, RoutingTable};
use ingress::IngressInterfaces;
pub use ingress::InterfaceListing;
use offload::OffloadPlan;
pub(crate) use offload::RING;

/// Destination addresses of groups' packets: those of the groups, and this host's own for groups
/// that listen on all of them.
pub(crate) const ADDRESSES_MAX: u32 = 4_096;

/// Reason for which there is no XDP engine.
#[derive(Debug, thiserror::Error)]
pub enum XdpEngineError {
    /// Its programs cannot be loaded.
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
    /// Held by readers while they wait and read: a change of several groups lets them in between
    /// two.
    readers: Mutex<()>,
    meters: RelayRateState,
    handed: Arc<InjectableGroups>,
    /// Reason for which copies that find no room in a transmit ring count as sent.
    ring_drops_unseen: Option<String>,
}

/// Groups whose packets the programs copy when they arrive by the send interface, with the longest
/// length of such a packet. Locked during an injection.
type InjectableGroups = Mutex<HashMap<SocketAddr, u32>>;

struct XdpEngineState {
    relay: RelayPrograms,
    entrances: IngressInterfaces,
    /// Groups that the XDP programs have, by their address.
    taken: HashMap<SocketAddr, OffloadedGroup>,
    /// Reasons for which others are not among them, by their index.
    refused: HashMap<usize, String>,
    handed: Arc<InjectableGroups>,
}

/// Group that the XDP programs have.
struct OffloadedGroup {
    group: Arc<Group>,
    wanted: OffloadPlan,
}

impl std::fmt::Debug for XdpEngineState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("entrances", &self.entrances).finish_non_exhaustive()
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
            let is_there = |name: &String| links.iter().any(|link| link.name == *name);
            if let Some(name) = interfaces.iter().find(|name| !is_there(name)) {
                return Err(XdpEngineError::Interface(name.clone()));
            }
        }
        let relay = RelayPrograms::load(&RelaySettings {
            groups: GROUPS_MAX as u32,
            children_of_group: CHILDREN_MAX as u32,
            children: CHILDREN_MAX as u32,
            addresses: ADDRESSES_MAX,
        })?;
        let meters = relay.meters();
        let ring_drops_unseen = relay.uncounted_drops_reason().map(ToString::to_string);
        let handed = Arc::<InjectableGroups>::default();
        let state = XdpEngineState {
            relay,
            entrances: IngressInterfaces::new(interfaces.to_vec()),
            taken: HashMap::new(),
            refused: HashMap::new(),
            handed: Arc::clone(&handed),
        };
        let (state, readers) = (Mutex::new(state), Mutex::new(()));
        Ok(Self { state, readers, meters, handed, ring_drops_unseen })
    }

    pub(crate) fn meters(&self) -> RelayRateState {
        self.meters.clone()
    }

    /// Returns the reason for which copies that find no room in a transmit ring count as sent;
    /// `None` if they do not.
    pub(crate) fn ring_drops_unseen(&self) -> Option<String> {
        self.ring_drops_unseen.clone()
    }

    /// Sets the interface by which only packets that the relay injects arrive.
    pub(crate) fn set_send_interface(&self, index: u32) {
        self.state().entrances.set_send_interface(index);
    }

    /// Has the programs copy a packet of this length to a group, by injecting it into the send
    /// interface. Returns false if they do not have the group, or would leave such a packet to the
    /// socket engine.
    pub(crate) fn can_inject(
        &self,
        to: SocketAddr,
        length: u32,
        put_in: impl FnOnce() -> bool,
    ) -> bool {
        let handed = lock(&self.handed);
        handed.get(&to).is_some_and(|length_max| length <= *length_max) && put_in()
    }

    /// Locks the state for a change; readers take precedence.
    fn state(&self) -> MutexGuard<'_, XdpEngineState> {
        drop(lock(&self.readers));
        lock(&self.state)
    }

    /// Locks the present state of the programs. Changes wait meanwhile.
    pub(crate) fn lock_counters(&self) -> CounterGuard<'_> {
        let reader_guard = lock(&self.readers);
        CounterGuard { state: lock(&self.state), _readers: reader_guard }
    }

    /// Applies the table to the programs, with the present routes. A concurrent reader waits for
    /// one group at most.
    pub(crate) fn sync(&self, table: &RoutingTable, ways: &RouteCache) {
        let (gone, wanted) = self.state().compare(table, ways);
        // Removals make room for additions.
        for at in gone {
            self.state().let_go(at);
        }
        for (group, wanted) in wanted {
            self.state().take(group, wanted);
        }
        cap_debt(&self.meters, table, MonotonicClock.now().as_ns() as u64);
    }
}

/// Counters of the programs, constant while this is held.
pub(crate) struct CounterGuard<'a> {
    state: MutexGuard<'a, XdpEngineState>,
    _readers: MutexGuard<'a, ()>,
}

impl CounterGuard<'_> {
    /// Returns the programs' counts of a group and its children.
    pub(crate) fn tallies(&self, group: &Group) -> (GroupCounts, Vec<ChildCounts>) {
        let at = group.spec.listen;
        let (mut of_group, mut all) = (GroupCounts::default(), HashMap::new());
        // Counts of another group that listened on this address before do not belong to it.
        let known = self.state.taken.get(&at);
        if known.is_some_and(|taken| Arc::ptr_eq(&taken.group.xdp_counters, &group.xdp_counters)) {
            let relay = &self.state.relay;
            of_group = relay.group_counts(at).as_ref().map(tally_of_group).unwrap_or_default();
            all.extend(relay.child_counts(at));
        }
        let of = |address| all.get(&address).map(of_child).unwrap_or_default();
        let children = group.children.iter().map(|child| {
            // A child that was removed and added again keeps its earlier counts.
            child.xdp_counters.counts() + of(child.address)
        });
        (group.xdp_counters.counts() + of_group, children.collect())
    }

    /// Returns the reason for which the programs do not have a group; `None` if they do.
    pub(crate) fn refusal(&self, group: &Group) -> Option<String> {
        if self.has(group) {
            return None;
        }
        let why = self.state.refused.get(&group.index).cloned();
        Some(why.unwrap_or_else(|| "the in-kernel programs are being started".to_owned()))
    }

    /// Returns true if the programs have a group or have been refused it, rather than being about
    /// to take it.
    pub(crate) fn is_settled(&self, group: &Group) -> bool {
        self.has(group) || self.state.refused.contains_key(&group.index)
    }

    fn has(&self, group: &Group) -> bool {
        let taken = self.state.taken.get(&group.spec.listen);
        taken.is_some_and(|taken| taken.group.index == group.index)
    }

    /// Returns the ingress interfaces of groups' packets.
    pub(crate) fn interfaces(&self) -> Vec<InterfaceListing> {
        self.state.entrances.listing()
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of the locked value is complete before anything can panic.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl XdpEngineState {
    /// Attaches and detaches the programs as the table requires, and returns the groups that they
    /// must no longer have, and those that they are to have, in their present form.
    fn compare<'a>(
        &mut self,
        table: &'a RoutingTable,
        ways: &RouteCache,
    ) -> (Vec<SocketAddr>, Vec<(&'a Arc<Group>, OffloadPlan)>) {
        self.relay.limit_copies(NonZeroU64::new(copies_ahead_ns(table.copy_rate())));
        self.entrances.sync(&self.relay, table, ways);
        self.refused.clear();
        self.relay.poll_completions();
        let mut redirects = HashMap::new();
        let mut takes = |index| *redirects.entry(index).or_insert_with(|| supports_redirect(index));
        let mut wanted = Vec::new();
        for group in table.groups() {
            let entrance = self.entrances.of(group, ways);
            let chosen = entrance
                .and_then(|at| offload::plan_offload(table, group, ways, at.only, &mut takes));
            match chosen {
                Ok(one) => wanted.push((group, one)),
                Err(why) => drop(self.refused.insert(group.index, why)),
            }
        }
        // A group that listens on all addresses gives one up before another gets it.
        wanted.sort_by_key(|(group, _)| !group.spec.listen.ip().is_unspecified());
        let stays = |at: &SocketAddr, taken: &OffloadedGroup| {
            let same = |(group, _): &&(&Arc<Group>, OffloadPlan)| group.spec.listen == *at;
            let group = wanted.iter().find(same).map(|(group, _)| group);
            group.is_some_and(|group| {
                group.index == taken.group.index
                    && Arc::ptr_eq(&group.xdp_counters, &taken.group.xdp_counters)
            })
        };
        let gone = self.taken.iter().filter(|(at, taken)| !stays(at, taken)).map(|(at, _)| *at);
        (gone.collect(), wanted)
    }

    /// Leaves a group to the sockets.
    fn let_go(&mut self, at: SocketAddr) {
        let Some(taken) = self.taken.remove(&at) else { return };
        lock(&self.handed).remove(&at);
        // Remains that could not be cleared are overwritten when their index is used again.
        if let Ok(gone) = self.relay.remove(at) {
            taken.group.xdp_counters.absorb(&tally_of_group(&gone.counts));
            settle(&taken.group, &gone.children);
        }
    }

    /// Has the programs take a group, or update it to its present form.
    fn take(&mut self, group: &Arc<Group>, wanted: OffloadPlan) {
        let at = group.spec.listen;
        let relay = &self.relay;
        let known = self.taken.get_mut(&at);
        if let Some(known) = known.filter(|one| one.wanted == wanted && relay.is_whole(at)) {
            known.group = Arc::clone(group);
            return;
        }
        let length_max = wanted.group.length_max;
        if let Some(handed) = lock(&self.handed).get_mut(&at) {
            *handed = length_max.min(*handed);
        }
        match self.relay.set(&wanted.group, &wanted.children) {
            Ok(former) => {
                if self.entrances.has_own() {
                    lock(&self.handed).insert(at, length_max);
                }
                let group = Arc::clone(group);
                let before = self.taken.insert(at, OffloadedGroup { group, wanted });
                if let Some(before) = before {
                    settle(&before.group, &former);
                }
            }
            Err(error) => {
                // Its form in the programs is outdated; the sockets have the present children.
                self.let_go(at);
                self.refused.insert(group.index, error_text(&error));
            }
        }
    }
}

fn error_text(error: &RelayGroupError) -> String {
    error.to_string()
}

/// Records the counts of children that the programs no longer have.
fn settle(group: &Group, former: &[(SocketAddr, RelayChildCounts)]) {
    for (address, counts) in former {
        if let Some(child) = group.children.iter().find(|child| child.address == *address) {
            child.xdp_counters.absorb(&of_child(counts));
        }
    }
}

fn of_child(counts: &RelayChildCounts) -> ChildCounts {
    let mut dropped = [0; CopyDrop::ALL.len()];
    dropped[CopyDrop::Unresolved as usize] = counts.unresolved;
    dropped[CopyDrop::BufferFull as usize] = counts.driver_full;
    dropped[CopyDrop::Unreachable as usize] = counts.interface_down;
    ChildCounts { packets: counts.sent, bytes: counts.bytes, dropped }
}

fn tally_of_group(counts: &RelayGroupCounts) -> GroupCounts {
    use horolog_xdp::RelayRefusal as Below;
    let mut refused = [0; PacketRefusal::ALL.len()];
    for (reason, count) in Below::ALL.iter().zip(counts.refused) {
        let reason = match reason {
            Below::Source => PacketRefusal::Source,
            Below::Child => PacketRefusal::Child,
            Below::Oneself => PacketRefusal::Oneself,
            Below::Hops => PacketRefusal::HopLimit,
            Below::Rate => PacketRefusal::Rate,
            Below::FanOut => PacketRefusal::CopyRate,
        };
        refused[reason as usize] = count;
    }
    let packets = counts.packets + counts.refused.iter().sum::<u64>();
    GroupCounts { packets, bytes: counts.bytes + counts.refused_bytes, refused }
}
