//! A relay on the loopback interface, by each engine.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use horolog_sys::socket::DatagramSocket;

use crate::control::{
    ControlClientError, ControlRefusalClass, ControlRequest, ControlServer, request,
};
use crate::{Relay, RelayListing, SocketEngineKind};

use super::{group, spec};

const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
const ENGINES: [SocketEngineKind; 2] = [SocketEngineKind::Send, SocketEngineKind::Sendmmsg];

fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// An address at which no socket listens on present.
fn free() -> SocketAddr {
    receiver().1
}

fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

/// The state once the last child's copies are counted, which is slightly after their arrival.
fn settled(relay: &Relay, packets: u64) -> RelayListing {
    let begun = Instant::now();
    loop {
        let listing = relay.listing();
        let last = listing.groups[0].children.last().map(|child| child.packets);
        if last == Some(packets) || begun.elapsed() > RECEIVE_TIMEOUT {
            return listing;
        }
    }
}

#[test]
fn copies_come_in_order_while_others_come_and_go() {
    for engine in ENGINES {
        let receivers: Vec<_> = (0..3).map(|_| receiver()).collect();
        let at = free();
        let first = receivers[0].1.to_string();
        let relay = Relay::start(&spec(vec![group("g", &at.to_string(), &[&first])]), engine, None)
            .unwrap();
        let source = UdpSocket::bind("127.0.0.1:0").unwrap();
        for round in 0..20_u8 {
            let children: Vec<_> = receivers[1..].iter().map(|(_, at)| *at).collect();
            let change = if round % 2 == 0 {
                ControlRequest::AddChildren { group: "g".into(), children }
            } else {
                ControlRequest::RemoveChildren { group: "g".into(), children }
            };
            relay.change(|spec| change.edit(spec)).unwrap();
            for number in 0..50_u8 {
                source.send_to(&[round, number], at).unwrap();
            }
            let here = if round % 2 == 0 { &receivers[..] } else { &receivers[..1] };
            for (socket, _) in here {
                for number in 0..50 {
                    assert_eq!(next(socket), [round, number], "{engine:?}");
                }
            }
        }
        let listing = settled(&relay, 1_000);
        let group = &listing.groups[0];
        assert_eq!((group.packets, group.bytes, &group.refused), (1_000, 2_000, &[].into()));
        assert_eq!(group.children.len(), 1);
        assert_eq!((group.children[0].packets, group.children[0].bytes), (1_000, 2_000));
        for (socket, _) in &receivers {
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 8]).is_err(), "one too many");
        }
    }
}

#[test]
fn child_that_cannot_be_sent_to_does_not_delay_others() {
    for engine in ENGINES {
        let (socket, child) = receiver();
        let at = free();
        // The broadcast address of the loopback network is forbidden to plain sockets.
        let children = ["127.255.255.255:9", &child.to_string()];
        let relay = Relay::start(&spec(vec![group("g", &at.to_string(), &children)]), engine, None)
            .unwrap();
        let source = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..100 {
            source.send_to(&[number], at).unwrap();
        }
        for number in 0..100 {
            assert_eq!(next(&socket), [number]);
        }
        let listing = settled(&relay, 100);
        let [bad, good] = &listing.groups[0].children[..] else { panic!("{listing:?}") };
        assert_eq!((bad.packets, good.packets), (0, 100));
        assert_eq!(bad.dropped, [("forbidden".to_owned(), 100)].into(), "{engine:?}");
    }
}

#[test]
fn a_change_that_cannot_be_made_changes_nothing() {
    let at = free();
    let relay =
        Relay::start(&spec(vec![group("g", &at.to_string(), &[])]), SocketEngineKind::Send, None)
            .unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let before = relay.listing().table;
    let listen = taken.local_addr().unwrap().to_string();
    let error = relay
        .change(|spec| {
            spec.groups.push(group("h", &listen, &[]));
            Ok(())
        })
        .unwrap_err();
    assert!(error.to_string().contains("group 'h': cannot listen"), "{error}");
    assert_eq!(relay.listing().table, before);
    assert_eq!(relay.listing().changes_refused, 1);
    drop(taken);
    for _ in 0..3 {
        // A group that went leaves its address at once.
        let added = ControlRequest::AddGroup { group: group("h", &listen, &[]) };
        relay.change(|spec| added.edit(spec)).unwrap();
        let removed = ControlRequest::RemoveGroup { group: "h".into() };
        relay.change(|spec| removed.edit(spec)).unwrap();
    }
}

/// All packets of a source that were relayed to one child.
fn relayed(source: &UdpSocket, at: SocketAddr, child: &UdpSocket, round: u8) {
    for number in 0..20_u8 {
        source.send_to(&[round, number], at).unwrap();
        assert_eq!(next(child), [round, number]);
    }
}

#[test]
fn a_group_may_listen_at_more_or_less_than_before() {
    let (socket, child) = receiver();
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (at, child) = (free(), child.to_string());
    let any = SocketAddr::from(([0, 0, 0, 0], at.port())).to_string();
    let one = at.to_string();
    let relay =
        Relay::start(&spec(vec![group("g", &any, &[&child])]), SocketEngineKind::Send, None)
            .unwrap();
    for (round, listen) in [&one, &any, &one].into_iter().enumerate() {
        relay
            .change(|spec| {
                spec.groups[0].listen = listen.parse().unwrap();
                Ok(())
            })
            .unwrap();
        relayed(&source, at, &socket, round as u8);
        // No other socket can bind it, whatever it would share.
        let other = DatagramSocket::udp(at).unwrap();
        other.set_reuse_address(true).unwrap();
        assert_eq!(other.bind(at).unwrap_err().kind(), ErrorKind::AddrInUse, "{listen}");
    }
    drop(relay);
    assert!(UdpSocket::bind(at).is_ok());
}

#[test]
fn one_group_listens_at_an_address_and_another_at_all_others() {
    let children = [receiver(), receiver()];
    let [first, second] = [0, 1].map(|at: usize| children[at].1.to_string());
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = free();
    let all = group("all", &format!("0.0.0.0:{}", at.port()), &[&first]);
    let one = group("one", &at.to_string(), &[&second]);
    for groups in [vec![all.clone(), one.clone()], vec![one, all]] {
        let relay = Relay::start(&spec(groups), SocketEngineKind::Sendmmsg, None).unwrap();
        relayed(&source, at, &children[1].0, 1);
        let elsewhere = SocketAddr::from(([127, 0, 0, 2], at.port()));
        relayed(&source, elsewhere, &children[0].0, 2);
        let counted = relay.listing().groups.iter().map(|group| group.packets).sum::<u64>();
        assert_eq!(counted, 40);
    }
}

#[test]
fn an_address_that_another_program_has_a_part_of_is_refused() {
    let (at, child) = (free(), free().to_string());
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], at.port()));
    let other = UdpSocket::bind(elsewhere).unwrap();
    let one = group("g", &at.to_string(), &[&child]);
    let relay = Relay::start(&spec(vec![one]), SocketEngineKind::Send, None).unwrap();
    let widen = || {
        relay.change(|spec| {
            spec.groups[0].listen = SocketAddr::from(([0, 0, 0, 0], at.port()));
            Ok(())
        })
    };
    let error = widen().unwrap_err().to_string();
    assert!(error.contains("cannot listen on 0.0.0.0"), "{error}");
    drop(other);
    widen().unwrap();
}

#[test]
fn the_control_socket_changes_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let at = free();
    let table = spec(vec![group("g", &at.to_string(), &[])]);
    let relay = Relay::start(&table, SocketEngineKind::Sendmmsg, None).unwrap();
    let _control = ControlServer::start(&path, Arc::new(relay)).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let add = |child: &str| ControlRequest::AddChildren {
        group: "g".into(),
        children: vec![child.parse().unwrap()],
    };
    assert!(request(&path, &add("127.0.0.1:9")).unwrap().is_none());
    let listing = request(&path, &ControlRequest::List).unwrap().unwrap();
    assert_eq!(listing.table.groups[0].children, ["127.0.0.1:9".parse().unwrap()]);
    let refused = request(&path, &add("203.0.113.1:9")).unwrap_err();
    let ControlClientError::Refused(reason, ControlRefusalClass::Request) = refused else {
        panic!("{refused}")
    };
    assert!(reason.contains("destinations"), "{reason}");
}
