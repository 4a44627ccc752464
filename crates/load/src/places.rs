//! Where requests and replies were lost: which counters were read on either side, what they gained
//! during a trial, and which share of the loss each of them accounts for. A place is named only on
//! the evidence of a counter; what no counter explains stays unknown.

use std::collections::BTreeMap;

use horolog_record::Place;

/// What an interface counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InterfaceCounters {
    /// Packets that it dropped on their way out.
    pub tx_dropped: u64,
    /// Packets that came and were dropped for want of room, in the driver or behind it.
    pub rx_dropped: u64,
    /// The part of `rx_dropped` that the other end of a veth counts as its own `tx_dropped` too.
    pub rx_dropped_at_peer: u64,
    /// Packets that the hardware had no room for.
    pub rx_missed: u64,
}

/// What UDP counted in a network namespace (`/proc/net/snmp`, `/proc/net/snmp6`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UdpCounters {
    /// Datagrams that a full socket buffer had no room for.
    pub receive_buffer_errors: u64,
    /// Datagrams for ports on which nobody listened.
    pub no_ports: u64,
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
    /// The other end of that interface, where it is a veth and both ends are on this machine.
    pub peer: Option<InterfaceCounters>,
    /// UDP where the server runs.
    pub udp: Option<UdpCounters>,
    /// The server itself.
    pub server: Option<ServerCounters>,
    /// The server runs in the same network namespace as the generator, so that `udp` counts the
    /// generator's own sockets as well.
    pub shared_host: bool,
}

/// How many replies are missing, and what the generator itself knows of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Missing {
    /// Requests without a valid reply in time.
    pub lost: u64,
    /// Packets that the generator's own rings or sockets had no room for.
    pub ring_dropped: u64,
    /// Valid replies that came too late, to some of the requests that are lost.
    pub late: u64,
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
        // What a veth drops on its way out, the other end had no room for; any other interface
        // drops it for reasons of its own.
        let place = if peer.is_some() { Place::Interface } else { Place::Generator };
        evidence.push((place, own.tx_dropped));
    }
    if let Some(peer) = peer {
        evidence.push((Place::Interface, peer.rx_dropped.saturating_sub(peer.rx_dropped_at_peer)));
    }
    let own_ring = if before.shared_host { missing.ring_dropped } else { 0 };
    if let Some(udp) = gained(before.udp, after.udp, UdpCounters::since) {
        evidence.push((Place::Socket, udp.receive_buffer_errors.saturating_sub(own_ring)));
        evidence.push((Place::Server, udp.no_ports));
    }
    if let Some(server) = gained(before.server, after.server, ServerCounters::since) {
        evidence.push((Place::Server, server.received.saturating_sub(server.answered)));
    }
    if let Some(peer) = peer {
        evidence.push((Place::OwnRing, peer.tx_dropped));
    }
    if let Some(own) = own {
        let own_side = own.rx_dropped.saturating_sub(own.rx_dropped_at_peer) + own.rx_missed;
        evidence.push((Place::OwnRing, own_side));
    }
    evidence.push((Place::OwnRing, missing.ring_dropped));
    evidence.push((Place::Late, missing.late));
    evidence
}

fn gained<T>(before: Option<T>, after: Option<T>, since: fn(T, &T) -> T) -> Option<T> {
    Some(since(after?, &before?))
}

impl InterfaceCounters {
    fn since(self, before: &Self) -> Self {
        Self {
            tx_dropped: self.tx_dropped.saturating_sub(before.tx_dropped),
            rx_dropped: self.rx_dropped.saturating_sub(before.rx_dropped),
            rx_dropped_at_peer: self.rx_dropped_at_peer.saturating_sub(before.rx_dropped_at_peer),
            rx_missed: self.rx_missed.saturating_sub(before.rx_missed),
        }
    }
}

impl UdpCounters {
    fn since(self, before: &Self) -> Self {
        let errors = self.receive_buffer_errors.saturating_sub(before.receive_buffer_errors);
        Self {
            receive_buffer_errors: errors,
            no_ports: self.no_ports.saturating_sub(before.no_ports),
        }
    }

    /// Reads IPv4's counters from the text of `/proc/net/snmp`: a line of names and a line of
    /// numbers for each protocol.
    #[must_use]
    pub fn parse_snmp(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let find = |wanted: &str| {
            let mut pairs = names.split_whitespace().zip(numbers.split_whitespace());
            pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
        };
        Some(Self { receive_buffer_errors: find("RcvbufErrors")?, no_ports: find("NoPorts")? })
    }

    /// Reads IPv6's counters from the text of `/proc/net/snmp6`: a name and a number on each line.
    #[must_use]
    pub fn parse_snmp6(text: &str) -> Option<Self> {
        let find = |wanted: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
            pairs.find(|(name, _)| *name == wanted)?.1.trim().parse().ok()
        };
        Some(Self {
            receive_buffer_errors: find("Udp6RcvbufErrors")?,
            no_ports: find("Udp6NoPorts")?,
        })
    }
}

impl ServerCounters {
    fn since(self, before: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            answered: self.answered.saturating_sub(before.answered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
        Udp: 100 3 7 90 5 0\nUdpLite: InDatagrams\nUdpLite: 0\n";
    const SNMP6: &str =
        "Ip6InReceives                   \t17\nUdp6NoPorts \t4\nUdp6RcvbufErrors   \t9\n";

    #[test]
    fn kernel_texts_are_read() {
        let v4 = UdpCounters { receive_buffer_errors: 5, no_ports: 3 };
        assert_eq!(UdpCounters::parse_snmp(SNMP), Some(v4));
        let v6 = UdpCounters { receive_buffer_errors: 9, no_ports: 4 };
        assert_eq!(UdpCounters::parse_snmp6(SNMP6), Some(v6));
        assert_eq!(UdpCounters::parse_snmp("Udp: InDatagrams\nUdp: x\n"), None);
        assert_eq!(UdpCounters::parse_snmp6(""), None);
    }

    fn after(own: u64, udp: u64, unanswered: u64) -> Counters {
        Counters {
            own: Some(InterfaceCounters { tx_dropped: own, ..InterfaceCounters::default() }),
            peer: Some(InterfaceCounters::default()),
            udp: Some(UdpCounters { receive_buffer_errors: udp, no_ports: 0 }),
            server: Some(ServerCounters { received: 100, answered: 100 - unanswered }),
            shared_host: false,
        }
    }

    #[test]
    fn each_counter_has_its_place() {
        let missing = Missing { lost: 20, ring_dropped: 5, late: 4 };
        let places = assign(missing, &after(0, 0, 0), &after(1, 2, 4));
        let expected = [
            (Place::OwnRing, 5),
            (Place::Interface, 1),
            (Place::Socket, 2),
            // Counters of a server that answered less since `before` do not run backwards.
            (Place::Late, 4),
            (Place::Unknown, 8),
        ];
        assert_eq!(places, BTreeMap::from(expected));
    }

    #[test]
    fn a_counter_that_was_not_read_claims_nothing() {
        let missing = Missing { lost: 9, ..Missing::default() };
        let places = assign(missing, &Counters::default(), &after(9, 9, 9));
        assert_eq!(places, BTreeMap::from([(Place::Unknown, 9)]));
    }

    #[test]
    fn without_a_peer_the_own_interface_is_the_generator_s() {
        let counters = |tx_dropped| Counters {
            own: Some(InterfaceCounters { tx_dropped, ..InterfaceCounters::default() }),
            ..Counters::default()
        };
        let missing = Missing { lost: 3, ..Missing::default() };
        let places = assign(missing, &counters(0), &counters(3));
        assert_eq!(places, BTreeMap::from([(Place::Generator, 3)]));
    }

    #[test]
    fn own_sockets_on_a_shared_host_are_not_the_server_s() {
        let udp = |errors| Counters {
            udp: Some(UdpCounters { receive_buffer_errors: errors, no_ports: 0 }),
            shared_host: true,
            ..Counters::default()
        };
        let places = assign(Missing { lost: 10, ring_dropped: 6, late: 0 }, &udp(0), &udp(8));
        assert_eq!(
            places,
            BTreeMap::from([(Place::Socket, 2), (Place::OwnRing, 6), (Place::Unknown, 2)])
        );
    }

    proptest! {
        #[test]
        fn places_add_up(lost in 0u64..50, ring in 0u64..50, own in 0u64..50, udp in 0u64..50, server in 0u64..50) {
            let places = assign(Missing { lost, ring_dropped: ring, late: lost / 3 }, &after(0, 0, 0), &after(own, udp, server));
            prop_assert_eq!(places.values().sum::<u64>(), lost);
        }
    }
}
