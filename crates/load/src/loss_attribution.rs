//! Loss attribution: counters that were read on either side, their increase during a trial, and the
//! share of the loss that each of them accounts for. A loss location is named only on the evidence
//! of a counter; losses that no counter explains stay unknown.

use std::collections::BTreeMap;

pub use horolog_counters::UdpCounters;
use horolog_record::LossLocation;

use crate::ptp::PtpLoadTransport;
use crate::request_tracker::TrialCounts;

/// Counters of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InterfaceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped on egress.
    pub tx_dropped: u64,
    /// Packets received and dropped for lack of room, in the driver or above it.
    pub rx_dropped: u64,
    /// Part of `rx_dropped` that the other end of a veth counts as its own `tx_dropped` too.
    pub rx_dropped_at_peer: u64,
    /// Packets dropped by the hardware for lack of room.
    pub rx_missed: u64,
}

/// Counters of the server itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerCounters {
    /// Requests received.
    pub received: u64,
    /// Replies sent.
    pub answered: u64,
}

/// All counters that could be read at one instant; the others are absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Interface that requests leave by.
    pub local: Option<InterfaceCounters>,
    /// The interface is one end of a veth: its egress drops are packets that the other end had no
    /// room for.
    pub own_is_veth: bool,
    /// Interface that the server receives by.
    pub peer: Option<InterfaceCounters>,
    /// UDP counters of the server's network namespace.
    pub udp: Option<UdpCounters>,
    /// Counters of the server itself.
    pub server: Option<ServerCounters>,
    /// The server runs in the same network namespace as the generator, so that `udp` counts the
    /// generator's own sockets as well.
    pub shared_host: bool,
    /// PTP transport, if the requests are PTP. A master also sends unsolicited messages to all.
    pub ptp: Option<PtpLoadTransport>,
}

/// Missing replies, and the generator's own counts of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MissingReplies {
    /// Requests sent.
    pub sent: u64,
    /// Replies received in time.
    pub received: u64,
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// Packets that the generator's own rings or sockets had no room for.
    pub ring_dropped: u64,
    /// Valid replies that arrived too late, to some of the lost requests.
    pub late: u64,
    /// Invalid replies, to some of the lost requests.
    pub invalid: u64,
    /// All replies received, counted or not.
    pub arrived: u64,
}

impl MissingReplies {
    /// Returns the missing replies of these counts.
    #[must_use]
    pub fn of(counts: &TrialCounts) -> Self {
        let invalid = counts.invalid.iter().sum();
        Self {
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost(),
            ring_dropped: counts.ring_dropped,
            late: counts.late.saturating_sub(counts.late_earlier),
            invalid,
            arrived: counts.received + counts.late + counts.duplicate + invalid,
        }
    }
}

/// Attributes the missing replies of a trial to loss locations, by the increase of the counters
/// from `before` to `after`. The counts add up to `missing.lost`. Counters include other traffic;
/// so locations are filled in the order of the round trip until all missing replies are attributed.
#[must_use]
pub fn attribute(
    missing: MissingReplies,
    before: &Counters,
    after: &Counters,
) -> BTreeMap<LossLocation, u64> {
    let mut left = missing.lost;
    let mut losses = BTreeMap::new();
    for (location, count) in evidence(missing, before, after) {
        let count = count.min(left);
        if count > 0 {
            *losses.entry(location).or_insert(0) += count;
            left -= count;
        }
    }
    if left > 0 {
        losses.insert(LossLocation::Unknown, left);
    }
    losses
}

fn evidence(
    missing: MissingReplies,
    before: &Counters,
    after: &Counters,
) -> Vec<(LossLocation, u64)> {
    let mut evidence = Vec::new();
    let own = gained(before.local, after.local, InterfaceCounters::since);
    let peer = gained(before.peer, after.peer, InterfaceCounters::since);
    if let Some(own) = own {
        let location =
            if before.own_is_veth { LossLocation::Interface } else { LossLocation::Generator };
        evidence.push((location, own.tx_dropped));
    }
    if let (Some(own), Some(peer)) = (own, peer) {
        let left = missing.sent.saturating_sub(own.tx_dropped);
        evidence.push((LossLocation::Link, between(left, peer.arrived_packets(), missing)));
    }
    if let Some(peer) = peer {
        evidence.push((LossLocation::Interface, peer.without_room()));
    }
    let own_ring = if before.shared_host { missing.ring_dropped } else { 0 };
    let is_udp = before.ptp != Some(PtpLoadTransport::Ethernet);
    let udp = gained(before.udp, after.udp, udp_since).filter(|_| is_udp);
    let unasked = own.map_or(0, |own| unasked(&own, before, missing));
    if let Some(udp) = udp {
        evidence.push((LossLocation::Socket, udp.receive_buffer_errors.saturating_sub(own_ring)));
        evidence.push((LossLocation::Server, udp.no_ports));
    }
    let server = gained(before.server, after.server, ServerCounters::since).or_else(|| {
        let of_udp = udp.filter(|_| !before.shared_host).map(ServerCounters::of_udp);
        let of_frames =
            peer.filter(|_| !is_udp && before.own_is_veth).map(ServerCounters::of_frames);
        of_udp.or(of_frames).map(|server| server.but_for(unasked))
    });
    if let Some(server) = server {
        evidence.push((LossLocation::Server, server.received.saturating_sub(server.answered)));
    }
    if let Some(peer) = peer {
        // The local end of a veth; any other interface drops for reasons of its own.
        let location =
            if before.own_is_veth { LossLocation::OwnRing } else { LossLocation::Server };
        evidence.push((location, peer.tx_dropped));
    }
    if let (Some(own), Some(peer)) = (own, peer) {
        let left = peer.tx_packets.saturating_sub(unasked);
        let left = left.min(server.map_or(u64::MAX, |server| server.answered));
        let arrived = own.arrived_packets().saturating_sub(unasked);
        evidence.push((LossLocation::Link, between(left, arrived, missing)));
    }
    if let Some(own) = own {
        evidence.push((LossLocation::OwnRing, own.without_room().saturating_sub(unasked)));
    }
    evidence.push((LossLocation::OwnRing, missing.ring_dropped));
    evidence.push((LossLocation::Late, missing.late));
    evidence.push((LossLocation::Invalid, missing.invalid));
    evidence
}

/// Returns the unsolicited packets received from a PTP master: its Announce, Sync and `Follow_Up`
/// to the group and to clients with a unicast grant. On a veth all packets come from the other end,
/// so these are the ones that were not replies; on another interface the sender is unknown.
fn unasked(own: &InterfaceCounters, before: &Counters, missing: MissingReplies) -> u64 {
    if before.ptp.is_none() || !before.own_is_veth {
        return 0;
    }
    own.rx_packets.saturating_sub(missing.arrived.saturating_add(missing.ring_dropped))
}

/// Returns the packets that left one interface and did not reach the other. Both count other
/// traffic as well, so it is a lower bound of the loss. An interface that counts fewer packets than
/// replies arrived does not count all of them, as some omit those that XDP takes; it proves
/// nothing.
const fn between(left: u64, arrived: u64, missing: MissingReplies) -> u64 {
    let known = missing.received.saturating_add(missing.late).saturating_add(missing.invalid);
    if arrived < known { 0 } else { left.saturating_sub(arrived) }
}

fn gained<T>(before: Option<T>, after: Option<T>, since: fn(T, &T) -> T) -> Option<T> {
    Some(since(after?, &before?))
}

impl InterfaceCounters {
    /// Returns the packets that reached the interface, including those that it had no room for.
    const fn arrived_packets(&self) -> u64 {
        self.rx_packets.saturating_add(self.without_room())
    }

    /// Returns the packets that arrived and were dropped for lack of room.
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

/// Returns the increase of the UDP counters that show losses.
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
    /// Returns the UDP counts of a server that reports none itself: datagrams that programs
    /// received and sent.
    const fn of_udp(udp: UdpCounters) -> Self {
        Self { received: udp.in_datagrams, answered: udp.out_datagrams }
    }

    /// Returns the interface counts of a server over Ethernet that reports none itself.
    const fn of_frames(interface: InterfaceCounters) -> Self {
        Self { received: interface.arrived_packets(), answered: interface.tx_packets }
    }

    /// Returns the same without `unasked` unsolicited packets that were sent.
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
