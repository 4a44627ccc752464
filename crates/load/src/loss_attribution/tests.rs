//! Loss attribution by counters alone, for any values of them.

use super::*;
use proptest::prelude::*;

fn after(own: u64, udp: u64, unanswered: u64) -> LossAttributionCounts {
    LossAttributionCounts {
        local: Some(InterfacePacketCounts { tx_dropped: own, ..InterfacePacketCounts::default() }),
        is_local_veth: true,
        peer: Some(InterfacePacketCounts::default()),
        udp: Some(UdpCounts { receive_buffer_errors: udp, ..UdpCounts::default() }),
        server: Some(ServerRequestCounts { received: 100, answered: 100 - unanswered }),
        shared_host: false,
        ptp: None,
    }
}

fn lost(lost: u64) -> MissingReplyCounts {
    MissingReplyCounts { lost, ..MissingReplyCounts::default() }
}

#[test]
fn each_counter_has_its_location() {
    let missing = MissingReplyCounts { ring_dropped: 5, late: 4, ..lost(20) };
    let losses = attribute(missing, &after(0, 0, 0), &after(1, 2, 4));
    let expected = [
        (LossLocation::OwnRing, 5),
        (LossLocation::Interface, 1),
        (LossLocation::Socket, 2),
        // Counters of a server that answered less since `before` do not run backwards.
        (LossLocation::Late, 4),
        (LossLocation::Unknown, 8),
    ];
    assert_eq!(losses, BTreeMap::from(expected));
}

#[test]
fn what_was_answered_and_not_valid_is_no_loss_on_the_way() {
    let own = |rx_packets| InterfacePacketCounts { rx_packets, ..InterfacePacketCounts::default() };
    let peer = |packets| InterfacePacketCounts {
        rx_packets: packets,
        tx_packets: packets,
        ..InterfacePacketCounts::default()
    };
    let counters = |mine, theirs| LossAttributionCounts {
        local: Some(own(mine)),
        is_local_veth: true,
        peer: Some(peer(theirs)),
        ..LossAttributionCounts::default()
    };
    let missing = MissingReplyCounts { sent: 100, invalid: 98, arrived: 98, ..lost(100) };
    // XDP took the replies before the interface counted them.
    for arrived in [0, 100] {
        let losses = attribute(missing, &counters(0, 0), &counters(arrived, 100));
        assert_eq!(
            losses,
            BTreeMap::from([(LossLocation::Invalid, 98), (LossLocation::Unknown, 2)])
        );
    }
}

#[test]
fn a_counter_that_was_not_read_claims_nothing() {
    let losses = attribute(lost(9), &LossAttributionCounts::default(), &after(9, 9, 9));
    assert_eq!(losses, BTreeMap::from([(LossLocation::Unknown, 9)]));
}

#[test]
fn what_an_interface_of_its_own_kind_drops_is_the_generator_s() {
    let counters = |tx_dropped| LossAttributionCounts {
        local: Some(InterfacePacketCounts { tx_dropped, ..InterfacePacketCounts::default() }),
        ..LossAttributionCounts::default()
    };
    let losses = attribute(lost(3), &counters(0), &counters(3));
    assert_eq!(losses, BTreeMap::from([(LossLocation::Generator, 3)]));
}

#[test]
fn own_sockets_on_a_shared_host_are_not_the_server_s() {
    let udp = |errors| LossAttributionCounts {
        udp: Some(UdpCounts { receive_buffer_errors: errors, ..UdpCounts::default() }),
        shared_host: true,
        ..LossAttributionCounts::default()
    };
    let losses = attribute(MissingReplyCounts { ring_dropped: 6, ..lost(10) }, &udp(0), &udp(8));
    assert_eq!(
        losses,
        BTreeMap::from([
            (LossLocation::Socket, 2),
            (LossLocation::OwnRing, 6),
            (LossLocation::Unknown, 2)
        ])
    );
}

/// Both ends of a path over NICs and switches, with the packets that each counts.
fn far(own_rx: u64, peer: (u64, u64), server: (u64, u64)) -> LossAttributionCounts {
    LossAttributionCounts {
        local: Some(InterfacePacketCounts {
            rx_packets: own_rx,
            ..InterfacePacketCounts::default()
        }),
        peer: Some(InterfacePacketCounts {
            rx_packets: peer.0,
            tx_packets: peer.1,
            ..InterfacePacketCounts::default()
        }),
        server: Some(ServerRequestCounts { received: server.0, answered: server.1 }),
        ..LossAttributionCounts::default()
    }
}

#[test]
fn packets_sent_by_one_interface_and_received_by_no_other_are_lost_on_the_link() {
    let missing = MissingReplyCounts { sent: 100, received: 70, ..lost(30) };
    // 12 requests and 8 replies did not arrive; the server left 10 unanswered.
    let losses = attribute(missing, &far(0, (0, 0), (0, 0)), &far(70, (88, 78), (88, 78)));
    assert_eq!(losses, BTreeMap::from([(LossLocation::Link, 20), (LossLocation::Server, 10)]));
}

#[test]
fn an_interface_that_does_not_count_arrivals_proves_nothing() {
    let missing = MissingReplyCounts { sent: 100, received: 70, ..lost(30) };
    let losses = attribute(missing, &far(0, (0, 0), (0, 0)), &far(0, (0, 70), (100, 70)));
    assert_eq!(losses, BTreeMap::from([(LossLocation::Server, 30)]));
}

#[test]
fn udp_counters_replace_missing_server_counters() {
    let udp = |in_datagrams, out_datagrams, shared_host| LossAttributionCounts {
        udp: Some(UdpCounts { in_datagrams, out_datagrams, ..UdpCounts::default() }),
        shared_host,
        ..LossAttributionCounts::default()
    };
    let losses = attribute(lost(9), &udp(10, 10, false), &udp(110, 105, false));
    assert_eq!(losses, BTreeMap::from([(LossLocation::Server, 5), (LossLocation::Unknown, 4)]));
    let losses = attribute(lost(9), &udp(10, 10, true), &udp(110, 105, true));
    assert_eq!(
        losses,
        BTreeMap::from([(LossLocation::Unknown, 9)]),
        "the generator's own are among them"
    );
}

/// A master at the other end of a veth that answers no request, and sends 3 unsolicited messages,
/// which no socket receives.
#[test]
fn what_a_master_sends_to_all_is_no_reply() {
    let missing = MissingReplyCounts { sent: 1_000, lost: 1_000, ..MissingReplyCounts::default() };
    let own =
        InterfacePacketCounts { rx_packets: 3, rx_dropped: 3, ..InterfacePacketCounts::default() };
    let peer = InterfacePacketCounts {
        rx_packets: 1_000,
        tx_packets: 3,
        ..InterfacePacketCounts::default()
    };
    let udp = UdpCounts { in_datagrams: 1_000, out_datagrams: 3, ..UdpCounts::default() };
    for transport in [PtpLoadTransport::Udp, PtpLoadTransport::Ethernet] {
        let base = LossAttributionCounts {
            is_local_veth: true,
            ptp: Some(transport),
            ..LossAttributionCounts::default()
        };
        let with = |own, peer, udp| LossAttributionCounts {
            local: Some(own),
            peer: Some(peer),
            udp: Some(udp),
            ..base
        };
        let none = InterfacePacketCounts::default();
        let (before, after) = (with(none, none, UdpCounts::default()), with(own, peer, udp));
        let losses = attribute(missing, &before, &after);
        assert_eq!(losses, BTreeMap::from([(LossLocation::Server, 1_000)]), "{transport:?}");
        // Where it answers all but one request, its unsolicited messages hide no loss.
        let missing =
            MissingReplyCounts { sent: 1_000, received: 999, arrived: 999, lost: 1, ..missing };
        let after = with(
            InterfacePacketCounts { rx_packets: 1_002, ..own },
            InterfacePacketCounts { tx_packets: 1_002, ..peer },
            UdpCounts { out_datagrams: 1_002, ..udp },
        );
        let losses = attribute(missing, &before, &after);
        assert_eq!(losses, BTreeMap::from([(LossLocation::Server, 1)]), "{transport:?}");
    }
}

fn counters() -> impl Strategy<Value = LossAttributionCounts> {
    let number = || prop_oneof![0_u64..100, Just(u64::MAX)];
    let interface = || {
        prop::option::of([number(), number(), number(), number(), number(), number()]).prop_map(
            |numbers| {
                let [rx_packets, tx_packets, tx_dropped, rx_dropped, rx_dropped_at_peer, rx_missed] =
                    numbers?;
                Some(InterfacePacketCounts {
                    rx_packets,
                    tx_packets,
                    tx_dropped,
                    rx_dropped,
                    rx_dropped_at_peer,
                    rx_missed,
                })
            },
        )
    };
    let pair = || prop::option::of((number(), number()));
    (interface(), interface(), pair(), pair(), any::<(bool, bool)>()).prop_map(
        |(own, peer, udp, server, (own_is_veth, shared_host))| LossAttributionCounts {
            local: own,
            is_local_veth: own_is_veth,
            peer,
            udp: udp.map(|(receive_buffer_errors, no_ports)| UdpCounts {
                receive_buffer_errors,
                no_ports,
                ..UdpCounts::default()
            }),
            server: server.map(|(received, answered)| ServerRequestCounts { received, answered }),
            shared_host,
            ptp: own_is_veth.then_some(PtpLoadTransport::Ethernet),
        },
    )
}

proptest! {
    /// Any counters, also contradictory ones.
    #[test]
    fn places_add_up(
        lost in 0_u64..50,
        received in 0_u64..50,
        ring in 0_u64..50,
        before in counters(),
        after in counters(),
    ) {
        let missing =
            MissingReplyCounts {
                sent: lost + received,
                received,
                lost,
                ring_dropped: ring,
                late: lost / 3,
                invalid: lost / 5,
                arrived: received + lost / 5,
            };
        let places = attribute(missing, &before, &after);
        prop_assert_eq!(places.values().sum::<u64>(), lost);
        prop_assert!(places.values().all(|&count| count > 0));
    }
}
