//! Where requests and replies were lost: which counters were read on either side, what they gained
//! during a trial, and which share of the loss each of them accounts for. A place is named only on
//! the evidence of a counter; what no counter explains stays unknown.

use std::collections::BTreeMap;

pub use horolog_counters::UdpCounters;
use horolog_record::Place;

use crate::account::TrialCounts;
use crate::ptp::Transport;

/// What an interface counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InterfaceCounters {
    /// Packets that it took in.
    pub rx_packets: u64,
    /// Packets that it sent.
    pub tx_packets: u64,
    /// Packets that it dropped on their way out.
    pub tx_dropped: u64,
    /// Packets that came and were dropped for want of room, in the driver or behind it.
    pub rx_dropped: u64,
    /// The part of `rx_dropped` that the other end of a veth counts as its own `tx_dropped` too.
    pub rx_dropped_at_peer: u64,
    /// Packets that the hardware had no room for.
    pub rx_missed: u64,
}

/// What a server counted itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerCounters {
    /// Requests that it received.
    pub received: u64,
    /// Replies that it sent.
    pub answered: u64,
}

/// All counters that could be read at one instant; what could not is absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// The interface that requests leave by.
    pub own: Option<InterfaceCounters>,
    /// The interface is one end of a veth: what it drops on its way out, the other end had no room
    /// for.
    pub own_is_veth: bool,
    /// The interface that the server receives by.
    pub peer: Option<InterfaceCounters>,
    /// UDP where the server runs.
    pub udp: Option<UdpCounters>,
    /// The server itself.
    pub server: Option<ServerCounters>,
    /// The server runs in the same network namespace as the generator, so that `udp` counts the
    /// generator's own sockets as well.
    pub shared_host: bool,
    /// PTP is asked for, over this. A master sends to all as well, which answers nobody.
    pub ptp: Option<Transport>,
}

/// How many replies are missing, and what the generator itself knows of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Missing {
    /// Requests that left.
    pub sent: u64,
    /// Replies that came in time.
    pub received: u64,
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// Packets that the generator's own rings or sockets had no room for.
    pub ring_dropped: u64,
    /// Valid replies that came too late, to some of the requests that are lost.
    pub late: u64,
    /// Everything that came and was a reply, whether it counts or not.
    pub arrived: u64,
}

impl Missing {
    /// What is missing of these counts.
    #[must_use]
    pub fn of(counts: &TrialCounts) -> Self {
        Self {
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost(),
            ring_dropped: counts.ring_dropped,
            late: counts.late.saturating_sub(counts.late_earlier),
            arrived: counts.received
                + counts.late
                + counts.duplicate
                + counts.invalid.iter().sum::<u64>(),
        }
    }
}

/// Assigns the missing replies of a trial to places, by what the counters gained from `before` to
/// `after`. The counts add up to `missing.lost`. Counters count other traffic as well; so places
/// are filled in the order of the way there and back until nothing is missing any more.
#[must_use]
pub fn assign(missing: Missing, before: &Counters, after: &Counters) -> BTreeMap<Place, u64> {
    let mut left = missing.lost;
    let mut places = BTreeMap::new();
    for (place, count) in evidence(missing, before, after) {
        let count = count.min(left);
        if count > 0 {
            *places.entry(place).or_insert(0) += count;
            left -= count;
        }
    }
    if left > 0 {
        places.insert(Place::Unknown, left);
    }
    places
}

fn evidence(missing: Missing, before: &Counters, after: &Counters) -> Vec<(Place, u64)> {
    let mut evidence = Vec::new();
    let own = gained(before.own, after.own, InterfaceCounters::since);
    let peer = gained(before.peer, after.peer, InterfaceCounters::since);
    if let Some(own) = own {
        let place = if before.own_is_veth { Place::Interface } else { Place::Generator };
        evidence.push((place, own.tx_dropped));
    }
    if let (Some(own), Some(peer)) = (own, peer) {
        let left = missing.sent.saturating_sub(own.tx_dropped);
        evidence.push((Place::Link, between(left, peer.came(), missing)));
    }
    if let Some(peer) = peer {
        evidence.push((Place::Interface, peer.without_room()));
    }
    let own_ring = if before.shared_host { missing.ring_dropped } else { 0 };
    let is_udp = before.ptp != Some(Transport::Ethernet);
    let udp = gained(before.udp, after.udp, udp_since).filter(|_| is_udp);
    let unasked = own.map_or(0, |own| unasked(&own, before, missing));
    if let Some(udp) = udp {
        evidence.push((Place::Socket, udp.receive_buffer_errors.saturating_sub(own_ring)));
        evidence.push((Place::Server, udp.no_ports));
    }
    let server = gained(before.server, after.server, ServerCounters::since).or_else(|| {
        let of_udp = udp.filter(|_| !before.shared_host).map(ServerCounters::of_udp);
        let of_frames =
            peer.filter(|_| !is_udp && before.own_is_veth).map(ServerCounters::of_frames);
        of_udp.or(of_frames).map(|server| server.but_for(unasked))
    });
    if let Some(server) = server {
        evidence.push((Place::Server, server.received.saturating_sub(server.answered)));
    }
    if let Some(peer) = peer {
        // Its end of a veth; any other interface drops for reasons of its own.
        let place = if before.own_is_veth { Place::OwnRing } else { Place::Server };
        evidence.push((place, peer.tx_dropped));
    }
    if let (Some(own), Some(peer)) = (own, peer) {
        let left = peer.tx_packets.saturating_sub(unasked);
        let left = left.min(server.map_or(u64::MAX, |server| server.answered));
        let came = own.came().saturating_sub(unasked);
        evidence.push((Place::Link, between(left, came, missing)));
    }
    if let Some(own) = own {
        evidence.push((Place::OwnRing, own.without_room().saturating_sub(unasked)));
    }
    evidence.push((Place::OwnRing, missing.ring_dropped));
    evidence.push((Place::Late, missing.late));
    evidence
}

/// Packets that came from a PTP master and answer nobody: its Announce, Sync and `Follow_Up` to all
/// and to those who have a contract. Whatever comes over a veth is the other end's, so they are
/// those that were no replies; over another interface nobody can say whose packets came.
fn unasked(own: &InterfaceCounters, before: &Counters, missing: Missing) -> u64 {
    if before.ptp.is_none() || !before.own_is_veth {
        return 0;
    }
    own.rx_packets.saturating_sub(missing.arrived.saturating_add(missing.ring_dropped))
}

/// Packets that left one interface and did not come to the other. Both count other traffic as well,
/// so it is the least that can have been lost. An interface that counts fewer packets than replies
/// came about does not count all of them, as some do not what XDP takes; it proves nothing.
const fn between(left: u64, came: u64, missing: Missing) -> u64 {
    let known = missing.received.saturating_add(missing.late);
    if came < known { 0 } else { left.saturating_sub(came) }
}

fn gained<T>(before: Option<T>, after: Option<T>, since: fn(T, &T) -> T) -> Option<T> {
    Some(since(after?, &before?))
}

impl InterfaceCounters {
    /// Packets that came to the interface, those included that it had no room for.
    const fn came(&self) -> u64 {
        self.rx_packets.saturating_add(self.without_room())
    }

    /// Packets that came and found no room.
    const fn without_room(&self) -> u64 {
        self.rx_dropped.saturating_sub(self.rx_dropped_at_peer).saturating_add(self.rx_missed)
    }

    fn since(self, before: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets.saturating_sub(before.rx_packets),
            tx_packets: self.tx_packets.saturating_sub(before.tx_packets),
            tx_dropped: self.tx_dropped.saturating_sub(before.tx_dropped),
            rx_dropped: self.rx_dropped.saturating_sub(before.rx_dropped),
            rx_dropped_at_peer: self.rx_dropped_at_peer.saturating_sub(before.rx_dropped_at_peer),
            rx_missed: self.rx_missed.saturating_sub(before.rx_missed),
        }
    }
}

/// What UDP counted meanwhile, as far as it tells of losses.
fn udp_since(after: UdpCounters, before: &UdpCounters) -> UdpCounters {
    let errors = after.receive_buffer_errors.saturating_sub(before.receive_buffer_errors);
    UdpCounters {
        receive_buffer_errors: errors,
        no_ports: after.no_ports.saturating_sub(before.no_ports),
        in_datagrams: after.in_datagrams.saturating_sub(before.in_datagrams),
        out_datagrams: after.out_datagrams.saturating_sub(before.out_datagrams),
        ..UdpCounters::default()
    }
}

impl ServerCounters {
    /// What UDP counts of a server that tells nothing itself: what programs took and what they
    /// sent.
    const fn of_udp(udp: UdpCounters) -> Self {
        Self { received: udp.in_datagrams, answered: udp.out_datagrams }
    }

    /// What an interface counts of a server over Ethernet that tells nothing itself.
    const fn of_frames(interface: InterfaceCounters) -> Self {
        Self { received: interface.came(), answered: interface.tx_packets }
    }

    /// The same where so much of what was sent answered nobody.
    const fn but_for(self, unasked: u64) -> Self {
        Self { answered: self.answered.saturating_sub(unasked), ..self }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            answered: self.answered.saturating_sub(before.answered),
        }
    }
}

#[cfg(test)]
mod tests;
