//! What becomes of packets.

use std::net::SocketAddr;

use crate::{
    CopyDrop, LocalAddresses, PacketCopies, PacketRefusal, ReceivedPacket, RelayRateLimiter,
    RoutingTable, decide,
};

use super::{group, spec};

fn table() -> RoutingTable {
    let groups = vec![
        group("one", "192.0.2.1:5000", &["192.0.2.2:5000", "192.0.2.6:6000"]),
        group("many", "239.1.2.3:5000", &["192.0.2.2:7000"]),
        group("any", "0.0.0.0:5001", &["192.0.2.2:5001"]),
        group("v6", "[2001:db8::1]:5000", &["[2001:db8::2]:5000"]),
    ];
    RoutingTable::new(&spec(groups), None).unwrap()
}

fn packet(source: &str, destination: &str) -> ReceivedPacket {
    let destination: SocketAddr = destination.parse().unwrap();
    let to_group = destination.ip().is_multicast();
    let source = source.parse().unwrap();
    ReceivedPacket { source, destination, to_group, hop_limit: Some(64), payload_len: 100 }
}

fn own() -> LocalAddresses {
    ["192.0.2.1", "198.51.100.1", "2001:db8::1"].iter().map(|ip| ip.parse().unwrap()).collect()
}

fn decided<'a>(
    table: &'a RoutingTable,
    packet: &ReceivedPacket,
) -> Result<PacketCopies<'a>, PacketRefusal> {
    decide(table, &own(), &mut RelayRateLimiter::default(), packet, 1)
}

#[test]
fn each_child_of_the_group_gets_a_copy() {
    let table = table();
    for (source, destination, children) in [
        ("198.51.100.9:40000", "192.0.2.1:5000", &["192.0.2.2:5000", "192.0.2.6:6000"][..]),
        ("198.51.100.9:40000", "239.1.2.3:5000", &["192.0.2.2:7000"]),
        ("198.51.100.9:40000", "192.0.2.77:5001", &["192.0.2.2:5001"]),
        ("[2001:db8::9]:40000", "[2001:db8::1]:5000", &["[2001:db8::2]:5000"]),
    ] {
        let copies = decided(&table, &packet(source, destination)).unwrap();
        let got: Vec<_> = copies
            .children()
            .map(|(child, admitted)| {
                assert_eq!(admitted, Ok(()));
                child.address.to_string()
            })
            .collect();
        assert_eq!(got, children);
    }
}

#[test]
fn what_is_refused_has_a_reason() {
    let table = table();
    for (source, destination, refusal) in [
        ("198.51.100.9:1", "192.0.2.1:5002", PacketRefusal::Destination),
        ("198.51.100.9:1", "239.1.2.4:5000", PacketRefusal::Destination),
        ("203.0.113.9:1", "192.0.2.1:5000", PacketRefusal::Source),
        ("198.51.100.1:5000", "192.0.2.1:5000", PacketRefusal::Relay),
        ("198.51.100.1:5001", "239.1.2.3:5000", PacketRefusal::Relay),
        ("127.0.0.1:5000", "192.0.2.1:5000", PacketRefusal::Relay),
        ("[2001:db8::2]:5000", "[2001:db8::1]:5000", PacketRefusal::Child),
    ] {
        let found = decided(&table, &packet(source, destination)).unwrap_err();
        assert_eq!(found, refusal, "{source} to {destination}");
    }
    let stray = ReceivedPacket { to_group: true, ..packet("198.51.100.9:1", "192.0.2.1:5001") };
    assert_eq!(
        decided(&table, &stray).unwrap_err(),
        PacketRefusal::Destination,
        "a group at a wildcard"
    );
    // The same host may send from another port, also this one.
    assert!(decided(&table, &packet("198.51.100.1:40000", "192.0.2.1:5000")).is_ok());
    assert!(decided(&table, &packet("[2001:db8::2]:5001", "[2001:db8::1]:5000")).is_ok());
}

#[test]
fn a_copy_goes_one_hop_less_far() {
    let table = table();
    let limit = |hop_limit, destination| {
        let packet = ReceivedPacket { hop_limit, ..packet("198.51.100.9:40000", destination) };
        decided(&table, &packet).map(|copies| copies.hop_limit)
    };
    assert_eq!(limit(Some(20), "192.0.2.1:5000"), Ok(19));
    assert_eq!(limit(Some(255), "192.0.2.1:5000"), Ok(32));
    assert_eq!(limit(Some(2), "192.0.2.1:5000"), Ok(1));
    for dead in [Some(1), Some(0), None] {
        assert_eq!(limit(dead, "192.0.2.1:5000"), Err(PacketRefusal::HopLimit));
    }
    assert_eq!(limit(Some(1), "239.1.2.3:5000"), Ok(32), "a new way begins");
}

#[test]
fn rates_are_limited() {
    let mut wanted = spec(vec![group("one", "192.0.2.1:5000", &["192.0.2.2:5000"])]);
    wanted.groups[0].rate = 1;
    let table = RoutingTable::new(&wanted, None).unwrap();
    let mut limits = RelayRateLimiter::default();
    let packet = packet("198.51.100.9:40000", "192.0.2.1:5000");
    let mut at = |now_ns| decide(&table, &own(), &mut limits, &packet, now_ns).map(drop);
    assert_eq!((at(0), at(1)), (Ok(()), Err(PacketRefusal::Rate)));
    assert_eq!(at(1_000_000_001), Ok(()));

    wanted.groups[0].rate = 1_000_000;
    wanted.copy_rate = 1;
    let table = RoutingTable::new(&wanted, None).unwrap();
    let mut limits = RelayRateLimiter::default();
    let passed = (0..5_000)
        .filter(|now_ns| decide(&table, &own(), &mut limits, &packet, *now_ns).is_ok())
        .count();
    assert_eq!(passed, crate::CHILDREN_MAX, "a burst, and no more in the next second");
    let last = decide(&table, &own(), &mut limits, &packet, 5_000).unwrap_err();
    assert_eq!(last, PacketRefusal::CopyRate);
}

#[test]
fn a_child_s_own_hindrances_are_its_own() {
    let mut whole =
        spec(vec![group("one", "192.0.2.1:5000", &["192.0.2.2:5000", "192.0.2.3:5000"])]);
    let fragmenting = RoutingTable::new(&whole, None).unwrap();
    whole.groups[0].fragment = false;
    let table = RoutingTable::new(&whole, Some(&fragmenting)).unwrap();
    let group = &table.groups()[0];
    group.children[0].set_mtu(127);
    let packet = packet("198.51.100.9:40000", "192.0.2.1:5000");
    let copies = decided(&fragmenting, &packet).unwrap();
    assert!(copies.children().all(|(_, outcome)| outcome.is_ok()), "fragments fit everywhere");
    group.children[1].set_unreachable(true);
    let copies = decided(&table, &packet).unwrap();
    let outcomes = || copies.children().map(|(_, outcome)| outcome).collect::<Vec<_>>();
    assert_eq!(outcomes(), [Err(CopyDrop::TooLarge), Err(CopyDrop::Unresolved)]);
    group.children[0].set_mtu(128);
    group.children[1].allow_trial_copy();
    assert_eq!(outcomes(), [Ok(()), Ok(())]);
    assert_eq!(outcomes(), [Ok(()), Err(CopyDrop::Unresolved)], "one trial is one copy");
}
