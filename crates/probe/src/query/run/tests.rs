//! What is refused before anything is sent, and a query over loopback.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};

use horolog_record::FindingCode;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use super::*;

fn options(targets: &[&str]) -> QueryOptions {
    QueryOptions::new(targets.iter().map(|target| target.parse().unwrap()).collect())
}

fn refused(options: QueryOptions) -> QueryError {
    match PreparedQuery::prepare(options) {
        Err(error) => error,
        Ok(_) => panic!("it was accepted"),
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let local = || options(&["127.0.0.1"]);
    let hour = Duration::from_hours(2);
    for (options, usage) in [
        (options(&[]), true),
        (options(&["127.0.0.1"; TARGETS_MAX + 1]), true),
        (QueryOptions { count: 0, ..local() }, true),
        (QueryOptions { interval: Some(Duration::ZERO), ..local() }, true),
        (QueryOptions { interval: Some(hour), ..local() }, true),
        (QueryOptions { timeout: hour, ..local() }, true),
        (QueryOptions { version: 5, ..local() }, true),
        (QueryOptions { version: 0, ..local() }, true),
        (options(&["224.0.1.1"]), true),
        (options(&["no-such-name.invalid"]), false),
    ] {
        let error = refused(options);
        assert_eq!(error.is_usage_error(), usage, "{error}");
    }
}

#[test]
fn a_public_server_is_not_polled_too_often() {
    let public = |count, interval_ms: Option<u64>| QueryOptions {
        count,
        interval: interval_ms.map(Duration::from_millis),
        ..options(&["10.0.0.1", "192.5.41.40"])
    };
    for (count, interval_ms) in [(8, 999), (9, 15_999), (10_000, 1_000)] {
        let error = refused(public(count, Some(interval_ms)));
        assert!(matches!(error, QueryError::IntervalTooShort(_)), "{error}");
    }
    let interval = |options| PreparedQuery::prepare(options).unwrap().interval();
    assert_eq!(interval(public(8, None)), INTERVAL_POLITE);
    assert_eq!(interval(public(9, None)), INTERVAL_LONG);
    let owned = QueryOptions { i_own_this_target: true, ..public(10_000, Some(1)) };
    assert_eq!(interval(owned), Duration::from_millis(1));
    assert_eq!(interval(options(&["10.0.0.1"])), INTERVAL_PRIVATE);
}

/// A server on loopback that is ahead by this much and answers so many requests.
fn serve(ahead: Span, requests: u32) -> (SocketAddr, thread::JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let address = socket.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let mut buffer = [0; 100];
        for _ in 0..requests {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            let now = NtpTimestamp::from_utc(SystemQueryClock.utc() + ahead);
            let (request, _) = Header::parse(&buffer[..length]).unwrap();
            let reply = Header {
                mode: AssociationMode::Server,
                stratum: 2,
                precision: -25,
                reference_id: [192, 0, 2, 9],
                origin: request.transmit,
                receive: now,
                transmit: now,
                ..request
            };
            let mut bytes = [0; HEADER_LEN];
            reply.emit(&mut bytes);
            socket.send_to(&bytes, from).unwrap();
        }
    });
    (address, thread)
}

#[test]
fn two_servers_side_by_side_are_as_far_apart_as_they_are() {
    let (first, one) = serve(Span::from_ms(7), 5);
    let (second, other) = serve(Span::from_ms(-3), 5);
    let unbound = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let names = [first, second, unbound].map(|address| address.to_string());
    let names: Vec<_> = names.iter().map(String::as_str).chain(["no-such-name.invalid"]).collect();
    let interval = Some(Duration::from_millis(20));
    let query =
        PreparedQuery::prepare(QueryOptions { count: 5, interval, ..options(&names) }).unwrap();
    let progress = AtomicU64::new(0);
    let one_more = || {
        progress.fetch_add(1, Ordering::Relaxed);
    };
    let result = query.run(&one_more, &|| false);
    one.join().unwrap();
    other.join().unwrap();
    assert_eq!(progress.load(Ordering::Relaxed), 15, "the unknown name is not asked");
    for (server, ahead_ns) in result.servers.iter().zip([7_000_000_i64, -3_000_000]) {
        assert_eq!((server.counts.sent, server.counts.received), (5, 5), "{server:?}");
        let best = server.best.unwrap();
        let off = best.offset_ns.abs_diff(ahead_ns);
        assert!(off <= best.bound_ns, "{off} off: {best:?}");
        assert_eq!(server.server_state.as_ref().unwrap().reference_id, "192.0.2.9");
        assert_eq!(server.offset_ns.unwrap().count, 5);
    }
    let difference = result.differences[0];
    assert!((difference.offset_ns.abs_diff(10_000_000)) <= difference.bound_ns, "{difference:?}");
    assert!(difference.contradiction);
    let closed = &result.servers[2];
    assert!(closed.counts.unreachable > 0 && closed.best.is_none(), "{closed:?}");
    let unknown = result.servers[3].ended.as_ref().unwrap();
    assert_eq!(unknown.reason, QueryEndReason::Unresolved);
    let codes: Vec<_> = result.findings.iter().map(|finding| finding.code).collect();
    assert!(
        codes.contains(&FindingCode::NoReplies) && codes.contains(&FindingCode::ServersDisagree)
    );
}
