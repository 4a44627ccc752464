//! Clients of the control socket: oversized, idle and concurrent requests.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::control::{
    ControlClientError, ControlRefusalClass, ControlRequest, ControlServer, request,
};
use crate::{Relay, SocketEngineKind};

use super::{group, spec};

/// A relay with a group `g`, and the path of its control socket.
struct ControlledRelay {
    path: PathBuf,
    _control: ControlServer,
    _directory: TempDir,
}

fn controlled_relay() -> ControlledRelay {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let at = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let table = spec(vec![group("g", &at.to_string(), &[])]);
    let relay = Relay::start(&table, SocketEngineKind::Sendmmsg, None).unwrap();
    let control = ControlServer::start(&path, Arc::new(relay)).unwrap();
    ControlledRelay { path, _control: control, _directory: directory }
}

fn children(count: u16) -> Vec<SocketAddr> {
    (1..=count).map(|port| SocketAddr::from(([192, 0, 2, 2], port))).collect()
}

#[test]
fn oversized_request_is_refused_with_the_limit() {
    let relay = controlled_relay();
    // As a client does it, whose words fill the socket's buffers several times over.
    let much = ControlRequest::AddChildren { group: "g".into(), children: children(60_000) };
    assert!(much.to_line().len() > 1 << 20);
    let refused = request(&relay.path, &much).unwrap_err();
    let ControlClientError::Refused(reason, ControlRefusalClass::Request) = refused else {
        panic!("{refused}")
    };
    assert!(reason.contains("131072 bytes"), "{reason}");
    // And a byte more than may be, of what would be a request.
    for (more, words) in [(0, "Listing"), (1, "131072 bytes")] {
        let mut line = vec![b' '; (128 << 10) - ControlRequest::List.to_line().len() + 1 + more];
        line.extend(ControlRequest::List.to_line().bytes());
        let mut stream = UnixStream::connect(&relay.path).unwrap();
        stream.write_all(&line).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(&words.to_lowercase()), "{more}: {answer}");
    }
    // The largest table's children are not too much.
    let most = ControlRequest::AddChildren { group: "g".into(), children: children(1_024) };
    request(&relay.path, &most).unwrap();
}

#[test]
fn idle_clients_do_not_delay_others() {
    let relay = controlled_relay();
    let idle: Vec<_> = (0..20).map(|_| UnixStream::connect(&relay.path).unwrap()).collect();
    let mut half = UnixStream::connect(&relay.path).unwrap();
    half.write_all(b"{\"do\":").unwrap();
    let begun = Instant::now();
    assert!(request(&relay.path, &ControlRequest::List).unwrap().is_some());
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    // They are hung up on, in time.
    for mut stream in idle.into_iter().chain([half]) {
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn concurrent_requests_are_all_answered() {
    let relay = controlled_relay();
    let children = children(100);
    thread::scope(|scope| {
        let one = |child: &SocketAddr| {
            let add = ControlRequest::AddChildren { group: "g".into(), children: vec![*child] };
            let path = &relay.path;
            scope.spawn(move || request(path, &add).map(drop))
        };
        let all: Vec<_> = children.iter().map(one).collect();
        for client in all {
            client.join().unwrap().unwrap();
        }
    });
    let listing = request(&relay.path, &ControlRequest::List).unwrap().unwrap();
    let mut taken = listing.table.groups[0].children.clone();
    taken.sort_unstable();
    assert_eq!(taken, children);
}
