//! The other body: copies made in the kernel's driver path (`horolog_xdp`). What it may take over
//! of a table, [`choice`] says; where packets come in, [`entrances`]. All else stays with the
//! sockets, packet by packet, and so does what the kernel's programs do not know.
//!
//! A packet is seen by one of both: the programs take it, or leave it to the socket. So a change
//! that is made in one after the other loses and doubles nothing.

mod choice;
mod entrances;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_sys::clock::MonotonicClock;
use horolog_sys::netlink::Netlink;
use horolog_time::Clock;
use horolog_xdp::{
    Relay, RelayChildCounts, RelayError, RelayGroupCounts, RelayMeters, RelaySettings, XdpError,
    takes_redirects,
};

use crate::limits::{copies_ahead_ns, forgive_below};
use crate::table::{CHILDREN_MAX, GROUPS_MAX};
use crate::ways::Ways;
use crate::{ChildTally, Drop, Group, GroupTally, Refusal, Table};
pub(crate) use choice::RING;
use choice::Wanted;
use entrances::Entrances;
pub use entrances::InterfaceListing;

/// Addresses that groups' packets may go to: those of the groups, and this host's own for groups
/// that listen at all of them.
pub(crate) const ADDRESSES_MAX: u32 = 4_096;

/// Why there is no body in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Its programs cannot be loaded.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// There is no such interface.
    #[error("there is no interface '{0}'; 'ip link' shows those that there are")]
    Interface(String),
}

/// The body in the kernel. It ends with the process, however that ends.
#[derive(Debug)]
pub struct Kernel {
    state: Mutex<State>,
    /// Held by who looks, until he has seen: whoever changes one group after the other lets him in
    /// between two.
    looking: Mutex<()>,
    meters: RelayMeters,
    handed: Arc<Handed>,
    /// Why copies that a transmit ring has no room for count as sent.
    ring_drops_unseen: Option<String>,
}

/// The groups whose packets the programs copy that come in by the send interface, and how long such
/// a packet may be. Whoever puts one in holds it meanwhile.
type Handed = Mutex<HashMap<SocketAddr, u32>>;

struct State {
    relay: Relay,
    entrances: Entrances,
    /// The groups that the kernel's programs have, by where they listen.
    taken: HashMap<SocketAddr, Taken>,
    /// Why others are not among them, by their place.
    refused: HashMap<usize, String>,
    handed: Arc<Handed>,
}

/// A group that the kernel's programs have.
struct Taken {
    group: Arc<Group>,
    wanted: Wanted,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("entrances", &self.entrances).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads the programs. They are attached where groups' packets come in, or to these interfaces
    /// alone where some are named, once a relay has started.
    ///
    /// Loading needs more privileges than all that follows: `CAP_NET_ADMIN` and `CAP_BPF`.
    pub fn load(interfaces: &[String]) -> Result<Self, KernelError> {
        if !interfaces.is_empty() {
            let links = Netlink::open().and_then(|mut netlink| netlink.links()).unwrap_or_default();
            let is_there = |name: &String| links.iter().any(|link| link.name == *name);
            if let Some(name) = interfaces.iter().find(|name| !is_there(name)) {
                return Err(KernelError::Interface(name.clone()));
            }
        }
        let relay = Relay::load(&RelaySettings {
            groups: GROUPS_MAX as u32,
            children_of_group: CHILDREN_MAX as u32,
            children: CHILDREN_MAX as u32,
            addresses: ADDRESSES_MAX,
        })?;
        let meters = relay.meters();
        let ring_drops_unseen = relay.driver_drops_unseen().map(ToString::to_string);
        let handed = Arc::<Handed>::default();
        let state = State {
            relay,
            entrances: Entrances::new(interfaces.to_vec()),
            taken: HashMap::new(),
            refused: HashMap::new(),
            handed: Arc::clone(&handed),
        };
        let (state, looking) = (Mutex::new(state), Mutex::new(()));
        Ok(Self { state, looking, meters, handed, ring_drops_unseen })
    }

    pub(crate) fn meters(&self) -> RelayMeters {
        self.meters.clone()
    }

    /// Why copies that a transmit ring has no room for count as sent; `None` where they do not.
    pub(crate) fn ring_drops_unseen(&self) -> Option<String> {
        self.ring_drops_unseen.clone()
    }

    /// Names the interface by which nothing comes in but what the relay puts in.
    pub(crate) fn set_own(&self, index: u32) {
        self.state().entrances.set_own(index);
    }

    /// Has the programs copy a packet of this length to a group, by putting it in by the send
    /// interface. False where they do not have the group, or would leave such a packet to others.
    pub(crate) fn takes(&self, to: SocketAddr, length: u32, put_in: impl FnOnce() -> bool) -> bool {
        let handed = lock(&self.handed);
        handed.get(&to).is_some_and(|length_max| length <= *length_max) && put_in()
    }

    /// For a change, before which come those who look.
    fn state(&self) -> MutexGuard<'_, State> {
        drop(lock(&self.looking));
        lock(&self.state)
    }

    /// What the programs have at present. Changes wait meanwhile.
    pub(crate) fn look(&self) -> Look<'_> {
        let looking = lock(&self.looking);
        Look { state: lock(&self.state), _looking: looking }
    }

    /// Has the programs do what the table says, by the ways that there are. Who looks meanwhile
    /// waits for one group at most.
    pub(crate) fn follow(&self, table: &Table, ways: &Ways) {
        let (gone, wanted) = self.state().compare(table, ways);
        // What goes makes room for what comes.
        for at in gone {
            self.state().let_go(at);
        }
        for (group, wanted) in wanted {
            self.state().take(group, wanted);
        }
        forgive_below(&self.meters, table, MonotonicClock.now().as_ns() as u64);
    }
}

/// The programs' books, as they are while this is held.
pub(crate) struct Look<'a> {
    state: MutexGuard<'a, State>,
    _looking: MutexGuard<'a, ()>,
}

impl Look<'_> {
    /// What the programs counted for a group and its children.
    pub(crate) fn tallies(&self, group: &Group) -> (GroupTally, Vec<ChildTally>) {
        let at = group.spec.listen;
        let (mut of_group, mut all) = (GroupTally::default(), HashMap::new());
        // Another group's, that has listened there before, are none of its own.
        let known = self.state.taken.get(&at);
        if known.is_some_and(|taken| Arc::ptr_eq(&taken.group.below, &group.below)) {
            let relay = &self.state.relay;
            of_group = relay.group_counts(at).as_ref().map(tally_of_group).unwrap_or_default();
            all.extend(relay.child_counts(at));
        }
        let of = |address| all.get(&address).map(of_child).unwrap_or_default();
        let children = group.children.iter().map(|child| {
            // One that left and came back keeps what was counted before.
            child.below.tally() + of(child.address)
        });
        (group.below.tally() + of_group, children.collect())
    }

    /// Why the programs do not have a group; `None` where they do.
    pub(crate) fn refusal(&self, group: &Group) -> Option<String> {
        if self.has(group) {
            return None;
        }
        let why = self.state.refused.get(&group.place).cloned();
        Some(why.unwrap_or_else(|| "the kernel's programs are about to take it".to_owned()))
    }

    /// Whether the programs have a group or have been refused it, rather than being about to.
    pub(crate) fn is_settled(&self, group: &Group) -> bool {
        self.has(group) || self.state.refused.contains_key(&group.place)
    }

    fn has(&self, group: &Group) -> bool {
        let taken = self.state.taken.get(&group.spec.listen);
        taken.is_some_and(|taken| taken.group.place == group.place)
    }

    /// The interfaces where packets of groups come in.
    pub(crate) fn interfaces(&self) -> Vec<InterfaceListing> {
        self.state.entrances.listing()
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of what is locked here is whole before anything can panic.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Attaches and detaches the programs as the table needs it, and says which groups they are not
    /// to have any more, and which they are to have as they are then.
    fn compare<'a>(
        &mut self,
        table: &'a Table,
        ways: &Ways,
    ) -> (Vec<SocketAddr>, Vec<(&'a Arc<Group>, Wanted)>) {
        self.relay.limit_copies(NonZeroU64::new(copies_ahead_ns(table.copy_rate())));
        self.entrances.follow(&self.relay, table, ways);
        self.refused.clear();
        self.relay.look();
        let mut redirects = HashMap::new();
        let mut takes = |index| *redirects.entry(index).or_insert_with(|| takes_redirects(index));
        let mut wanted = Vec::new();
        for group in table.groups() {
            let entrance = self.entrances.of(group, ways);
            let chosen =
                entrance.and_then(|at| choice::choose(table, group, ways, at.only, &mut takes));
            match chosen {
                Ok(one) => wanted.push((group, one)),
                Err(why) => drop(self.refused.insert(group.place, why)),
            }
        }
        // One that listens at all addresses gives one up before another gets it.
        wanted.sort_by_key(|(group, _)| !group.spec.listen.ip().is_unspecified());
        let stays = |at: &SocketAddr, taken: &Taken| {
            let same = |(group, _): &&(&Arc<Group>, Wanted)| group.spec.listen == *at;
            let group = wanted.iter().find(same).map(|(group, _)| group);
            group.is_some_and(|group| {
                group.place == taken.group.place && Arc::ptr_eq(&group.below, &taken.group.below)
            })
        };
        let gone = self.taken.iter().filter(|(at, taken)| !stays(at, taken)).map(|(at, _)| *at);
        (gone.collect(), wanted)
    }

    /// Leaves a group to the sockets.
    fn let_go(&mut self, at: SocketAddr) {
        let Some(taken) = self.taken.remove(&at) else { return };
        lock(&self.handed).remove(&at);
        // What could not be cleared up behind it is written over when its place is used again.
        if let Ok(gone) = self.relay.remove(at) {
            taken.group.below.settle(&tally_of_group(&gone.counts));
            settle(&taken.group, &gone.children);
        }
    }

    /// Has the programs take a group, or take it over as it is now.
    fn take(&mut self, group: &Arc<Group>, wanted: Wanted) {
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
                let before = self.taken.insert(at, Taken { group, wanted });
                if let Some(before) = before {
                    settle(&before.group, &former);
                }
            }
            Err(error) => {
                // As it is now it is nobody's; the sockets have the present children.
                self.let_go(at);
                self.refused.insert(group.place, told(&error));
            }
        }
    }
}

fn told(error: &RelayError) -> String {
    error.to_string()
}

/// Notes what was counted for children that the programs do not have any more.
fn settle(group: &Group, former: &[(SocketAddr, RelayChildCounts)]) {
    for (address, counts) in former {
        if let Some(child) = group.children.iter().find(|child| child.address == *address) {
            child.below.settle(&of_child(counts));
        }
    }
}

fn of_child(counts: &RelayChildCounts) -> ChildTally {
    let mut dropped = [0; Drop::ALL.len()];
    dropped[Drop::Unresolved as usize] = counts.unresolved;
    dropped[Drop::BufferFull as usize] = counts.driver_full;
    dropped[Drop::Unreachable as usize] = counts.interface_down;
    ChildTally { packets: counts.sent, bytes: counts.bytes, dropped }
}

fn tally_of_group(counts: &RelayGroupCounts) -> GroupTally {
    use horolog_xdp::RelayRefusal as Below;
    let mut refused = [0; Refusal::ALL.len()];
    for (reason, count) in Below::ALL.iter().zip(counts.refused) {
        let reason = match reason {
            Below::Source => Refusal::Source,
            Below::Child => Refusal::Child,
            Below::Oneself => Refusal::Oneself,
            Below::Hops => Refusal::HopLimit,
            Below::Rate => Refusal::Rate,
            Below::FanOut => Refusal::CopyRate,
        };
        refused[reason as usize] = count;
    }
    let packets = counts.packets + counts.refused.iter().sum::<u64>();
    GroupTally { packets, bytes: counts.bytes + counts.refused_bytes, refused }
}
