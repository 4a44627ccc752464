//! Loss attribution: counters read at both ends, their increase during a trial, and the losses that
//! each explains. A loss location is named only if a counter proves it; other losses remain
//! unknown.

use std::collections::BTreeMap;

pub use horolog_counters::UdpCounts;
use horolog_record::LossLocation;

use crate::ptp::PtpLoadTransport;
use crate::request_tracker::TrialCounts;

/// Packet counts of an interface at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InterfacePacketCounts {
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
pub struct ServerRequestCounts {
    /// Requests received.
    pub received: u64,
    /// Replies sent.
    pub answered: u64,
}

/// Counts at both ends at one instant; `None` where they could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LossAttributionCounts {
    /// Interface that sends the requests.
    pub local: Option<InterfacePacketCounts>,
    /// True if that interface is a veth: its egress drops are then packets that did not fit into
    /// the peer's ring.
    pub is_local_veth: bool,
    /// Interface that receives the requests at the server.
    pub peer: Option<InterfacePacketCounts>,
    /// UDP counters of the server's network namespace.
    pub udp: Option<UdpCounts>,
    /// Counters of the server itself.
    pub server: Option<ServerRequestCounts>,
    /// True if server and generator share a network namespace, so that `udp` includes the
    /// generator's sockets.
    pub shared_host: bool,
    /// PTP transport, for PTP requests. A master also sends unsolicited multicast messages.
    pub ptp: Option<PtpLoadTransport>,
}

/// Missing replies of a trial, and the generator's own counts that explain some of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MissingReplyCounts {
    /// Requests sent.
    pub sent: u64,
    /// Replies received in time.
    pub received: u64,
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// Replies dropped for lack of room by the generator's rings or sockets.
    pub ring_dropped: u64,
    /// Valid replies after the timeout, which belong to lost requests.
    pub late: u64,
    /// Invalid replies, which belong to lost requests.
    pub invalid: u64,
    /// Replies in time, late, duplicate and invalid ones, those to requests of earlier trials
    /// included.
    pub arrived: u64,
}

impl MissingReplyCounts {
    /// Returns the missing replies of these counts.
    #[must_use]
    pub fn from_counts(counts: &TrialCounts) -> Self {
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
    missing: MissingReplyCounts,
    before: &LossAttributionCounts,
    after: &LossAttributionCounts,
) -> BTreeMap<LossLocation, u64> {
    let mut unattributed = missing.lost;
    let mut losses = BTreeMap::new();
    for (location, count) in evidence(missing, before, after) {
        let count = count.min(unattributed);
        if count > 0 {
            *losses.entry(location).or_insert(0) += count;
            unattributed -= count;
        }
    }
    if unattributed > 0 {
        losses.insert(LossLocation::Unknown, unattributed);
    }
    losses
}

fn evidence(
    missing: MissingReplyCounts,
    before: &LossAttributionCounts,
    after: &LossAttributionCounts,
) -> Vec<(LossLocation, u64)> {
    let mut evidence = Vec::new();
    let local = increase(before.local, after.local, InterfacePacketCounts::since);
    let peer = increase(before.peer, after.peer, InterfacePacketCounts::since);
    if let Some(local) = local {
        let location =
            if before.is_local_veth { LossLocation::Interface } else { LossLocation::Generator };
        evidence.push((location, local.tx_dropped));
    }
    if let (Some(local), Some(peer)) = (local, peer) {
        let sent = missing.sent.saturating_sub(local.tx_dropped);
        evidence.push((LossLocation::Link, link_loss_min(sent, peer.arrived_packets(), missing)));
    }
    if let Some(peer) = peer {
        evidence.push((LossLocation::Interface, peer.dropped_for_room()));
    }
    let local_ring_drops = if before.shared_host { missing.ring_dropped } else { 0 };
    let is_udp = before.ptp != Some(PtpLoadTransport::Ethernet);
    let udp = increase(before.udp, after.udp, udp_since).filter(|_| is_udp);
    let unsolicited = local.map_or(0, |local| unsolicited_packets(&local, before, missing));
    if let Some(udp) = udp {
        evidence.push((
            LossLocation::Socket,
            udp.receive_buffer_errors.saturating_sub(local_ring_drops),
        ));
        evidence.push((LossLocation::Server, udp.no_ports));
    }
    let server = increase(before.server, after.server, ServerRequestCounts::since).or_else(|| {
        let of_udp = udp.filter(|_| !before.shared_host).map(ServerRequestCounts::from_udp);
        let of_frames = peer
            .filter(|_| !is_udp && before.is_local_veth)
            .map(ServerRequestCounts::from_interface);
        of_udp.or(of_frames).map(|server| server.without_unsolicited(unsolicited))
    });
    if let Some(server) = server {
        evidence.push((LossLocation::Server, server.received.saturating_sub(server.answered)));
    }
    if let Some(peer) = peer {
        // For a veth, a drop at the peer's egress is lack of room in the local ring.
        let location =
            if before.is_local_veth { LossLocation::OwnRing } else { LossLocation::Server };
        evidence.push((location, peer.tx_dropped));
    }
    if let (Some(local), Some(peer)) = (local, peer) {
        let sent = peer.tx_packets.saturating_sub(unsolicited);
        let sent = sent.min(server.map_or(u64::MAX, |server| server.answered));
        let arrived = local.arrived_packets().saturating_sub(unsolicited);
        evidence.push((LossLocation::Link, link_loss_min(sent, arrived, missing)));
    }
    if let Some(local) = local {
        evidence
            .push((LossLocation::OwnRing, local.dropped_for_room().saturating_sub(unsolicited)));
    }
    evidence.push((LossLocation::OwnRing, missing.ring_dropped));
    evidence.push((LossLocation::Late, missing.late));
    evidence.push((LossLocation::Invalid, missing.invalid));
    evidence
}

/// Returns the unsolicited packets received from a PTP master: its Announce, Sync and `Follow_Up`
/// to the group and to clients with a unicast grant. On a veth all packets come from the other end,
/// so these are the ones that were not replies; on another interface the sender is unknown.
fn unsolicited_packets(
    local: &InterfacePacketCounts,
    before: &LossAttributionCounts,
    missing: MissingReplyCounts,
) -> u64 {
    if before.ptp.is_none() || !before.is_local_veth {
        return 0;
    }
    local.rx_packets.saturating_sub(missing.arrived.saturating_add(missing.ring_dropped))
}

/// Returns a lower bound of the packets lost between two interfaces: `sent` by one minus `arrived`
/// at the other. Both include other traffic. Returns 0 if the receiver counted fewer packets than
/// replies arrived: such drivers do not count packets that XDP handles.
const fn link_loss_min(sent: u64, arrived: u64, missing: MissingReplyCounts) -> u64 {
    let replies = missing.received.saturating_add(missing.late).saturating_add(missing.invalid);
    if arrived < replies { 0 } else { sent.saturating_sub(arrived) }
}

fn increase<T>(before: Option<T>, after: Option<T>, since: fn(T, &T) -> T) -> Option<T> {
    Some(since(after?, &before?))
}

impl InterfacePacketCounts {
    /// Returns the packets that reached the interface, dropped ones included.
    const fn arrived_packets(&self) -> u64 {
        self.rx_packets.saturating_add(self.dropped_for_room())
    }

    /// Returns the received packets that were dropped for lack of room, without those that the peer
    /// end of a veth counts.
    const fn dropped_for_room(&self) -> u64 {
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

/// Returns the increase of the UDP counters that [`attribute`] uses; the others are 0.
fn udp_since(after: UdpCounts, before: &UdpCounts) -> UdpCounts {
    let errors = after.receive_buffer_errors.saturating_sub(before.receive_buffer_errors);
    UdpCounts {
        receive_buffer_errors: errors,
        no_ports: after.no_ports.saturating_sub(before.no_ports),
        in_datagrams: after.in_datagrams.saturating_sub(before.in_datagrams),
        out_datagrams: after.out_datagrams.saturating_sub(before.out_datagrams),
        ..UdpCounts::default()
    }
}

impl ServerRequestCounts {
    /// Returns the UDP datagrams received and sent in the server's namespace, for a server without
    /// counters of its own.
    const fn from_udp(udp: UdpCounts) -> Self {
        Self { received: udp.in_datagrams, answered: udp.out_datagrams }
    }

    /// Returns the frames received and sent by the interface, for a server over Ethernet without
    /// counters of its own.
    const fn from_interface(interface: InterfacePacketCounts) -> Self {
        Self { received: interface.arrived_packets(), answered: interface.tx_packets }
    }

    /// Subtracts `unsolicited` packets from the replies sent.
    const fn without_unsolicited(self, unsolicited: u64) -> Self {
        Self { answered: self.answered.saturating_sub(unsolicited), ..self }
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
