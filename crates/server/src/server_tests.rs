//! Tests of whole servers on the loopback interface, which needs no privilege.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use horolog_sys::clock::ClockRealtime;
use horolog_time::{Clock, NtpTimestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator};

use super::*;
use crate::config::{ClockTrust, ConfigError, SocketSharingMode};
use crate::operation::status;
use crate::reply::decide::IgnoreReason;

fn config(address: &str) -> ServerConfig {
    ServerConfig {
        listen: vec![address.parse().unwrap()],
        // A test must not attach anything to this machine's interfaces.
        engine: EngineSelection::Socket,
        threads: 3,
        trust: ClockTrust::Local,
        stratum: 1,
        ..ServerConfig::default()
    }
}

fn client(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// The address by which a server that listens on a wildcard is reached.
fn on_loopback(listen: SocketAddr) -> SocketAddr {
    let loopback: std::net::IpAddr =
        if listen.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(loopback, listen.port())
}

fn exchange(client: &UdpSocket, origin: u64) -> Header {
    let mut packet = [0; HEADER_LEN];
    Header::request(4, NtpTimestamp::from_bits(origin)).emit(&mut packet);
    client.send(&packet).unwrap();
    let mut answer = [0; 2 * HEADER_LEN];
    let length = client.recv(&mut answer).unwrap();
    assert_eq!(length, HEADER_LEN);
    let (header, _) = Header::parse(&answer).unwrap();
    assert_eq!((header.mode, header.origin.to_bits()), (AssociationMode::Server, origin));
    header
}

/// Asks a hundred times from many ports, so that every thread gets its share.
fn exercise(server: &Server) {
    for (origin, listen) in (1..).zip(server.listen()) {
        let before = NtpTimestamp::from_utc(ClockRealtime.now());
        for port in 0..50 {
            let client = client(on_loopback(listen));
            let reply = exchange(&client, origin << 32 | port);
            let again = exchange(&client, origin << 32 | port | 1 << 20);
            assert!(reply.receive.since(before) > -Span::from_ns(1_000), "T2 before the request");
            assert!(reply.transmit.since(reply.receive) > Span::ZERO, "T3 before T2");
            assert!(again.receive.since(reply.transmit) > -Span::from_ns(1_000), "T2 before T3");
            assert!(reply.reference.since(reply.transmit) <= Span::ZERO);
            assert_eq!((reply.stratum, &reply.reference_id), (1, b"LOCL"));
        }
        let after = NtpTimestamp::from_utc(ClockRealtime.now());
        let last = exchange(&client(on_loopback(listen)), 1);
        assert!((last.transmit.since(after)).as_ns().abs() < 100_000_000, "not the system's time");
    }
}

fn answers_correctly(config: &ServerConfig) {
    let server = Server::start(config).unwrap();
    exercise(&server);
    let client = client(on_loopback(server.listen()[0]));
    client.send(&[0x26; HEADER_LEN]).unwrap();
    client.send(&[0x23; HEADER_LEN + 1]).unwrap();
    exchange(&client, 9);
    assert!(!server.has_died());
    let stopping = Instant::now();
    let totals = server.stop().counters;
    assert!(stopping.elapsed() < Duration::from_secs(1), "{:?}", stopping.elapsed());
    assert_eq!(totals.answered, 101 * config.listen.len() as u64 + 1);
    assert_eq!(totals.received, totals.answered + totals.ignored.total());
    assert_eq!(
        (
            totals.ignored.count_of(IgnoreReason::ModeControl),
            totals.ignored.count_of(IgnoreReason::Length)
        ),
        (1, 1)
    );
    assert_eq!((totals.dropped, totals.refused, totals.expired), (0, 0, 0));
}

#[test]
fn a_socket_for_each_thread_answers() {
    answers_correctly(&config("127.0.0.1:0"));
    answers_correctly(&ServerConfig { steer_by_cpu: true, ..config("[::1]:0") });
}

#[test]
fn threads_that_share_a_socket_answer() {
    answers_correctly(&ServerConfig {
        dispatch: SocketSharingMode::SharedLock,
        ..config("127.0.0.1:0")
    });
}

#[test]
fn wildcards_of_both_families_answer_side_by_side() {
    let listen = ["0.0.0.0:0", "[::]:0"].map(|text| text.parse().unwrap()).to_vec();
    answers_correctly(&ServerConfig { listen, ..config("0.0.0.0:0") });
}

#[test]
fn a_wildcard_replies_from_the_address_of_the_request() {
    let server = Server::start(&config("0.0.0.0:0")).unwrap();
    // A connected client takes replies from nowhere else.
    let target = SocketAddr::new([127, 1, 2, 3].into(), server.listen()[0].port());
    exchange(&client(target), 1);
}

#[test]
fn many_threads_stop_within_a_second() {
    for dispatch in [SocketSharingMode::PerThread, SocketSharingMode::SharedLock] {
        let server =
            Server::start(&ServerConfig { dispatch, threads: 24, ..config("127.0.0.1:0") })
                .unwrap();
        let stopping = Instant::now();
        server.stop();
        assert!(
            stopping.elapsed() < Duration::from_secs(1),
            "{dispatch:?} {:?}",
            stopping.elapsed()
        );
    }
}

#[test]
fn a_port_in_use_is_refused_even_by_a_server_that_shares_it() {
    let first = Server::start(&config("127.0.0.1:0")).unwrap();
    let address = first.listen()[0].to_string();
    for threads in [1, 2] {
        let second = Server::start(&ServerConfig { threads, ..config(&address) });
        let message = second.unwrap_err().to_string();
        let port = first.listen()[0].port();
        let expected = format!(
            "address {address} is in use by another process (ss -ulpn 'sport = :{port}' names it); \
             choose another with --listen"
        );
        assert_eq!(message, expected);
    }
    first.stop();
    Server::start(&config(&address)).unwrap().stop();
}

#[test]
fn an_address_of_another_host_is_refused() {
    let error = Server::start(&config("192.0.2.1:0")).unwrap_err();
    assert!(
        matches!(error, StartError::Listen(horolog_io::UdpDeviceError::NotLocal(_))),
        "{error}"
    );
}

#[test]
fn a_wrong_configuration_is_refused() {
    let error = Server::start(&ServerConfig { stratum: 0, ..config("127.0.0.1:0") }).unwrap_err();
    assert!(matches!(error, StartError::Config(ConfigError::Stratum(0))));
}

#[test]
fn test_offset_and_drift_move_both_timestamps() {
    let test_offset = Span::from_ns(-3_600_000_000_000);
    let test_drift_ppb = 100_000_000;
    let server =
        Server::start(&ServerConfig { test_offset, test_drift_ppb, ..config("127.0.0.1:0") })
            .unwrap();
    let client = client(server.listen()[0]);
    let measure = || {
        let before = ClockRealtime.now();
        let reply = exchange(&client, 1);
        assert!(reply.transmit.since(reply.receive) < Span::from_ms(100));
        (reply.receive.since(NtpTimestamp::from_utc(before)) - test_offset, before)
    };
    let (first_error, first) = measure();
    thread::sleep(Duration::from_millis(300));
    let (last_error, last) = measure();
    let gained = (last_error - first_error).as_ns() - (last - first).as_ns() / 10;
    assert!(gained.abs() < 20_000_000, "{first_error:?} {last_error:?}");
}

#[test]
fn an_unsynchronised_server_reports_it() {
    let leap = Some(LeapIndicator::Unsynchronised);
    let server = Server::start(&ServerConfig { leap, ..config("127.0.0.1:0") }).unwrap();
    let reply = exchange(&client(server.listen()[0]), 1);
    assert_eq!((reply.leap, reply.stratum), (LeapIndicator::Unsynchronised, 0));
    assert_eq!((reply.reference_id, reply.reference), ([0; 4], NtpTimestamp::UNKNOWN));
    assert_eq!(server.status().stratum, 16);
}

#[test]
fn status_is_answered_over_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.sock");
    let status_socket = Some(path.clone());
    let server = Server::start(&ServerConfig { status_socket, ..config("127.0.0.1:0") }).unwrap();
    exchange(&client(server.listen()[0]), 1);
    // The thread counts a batch after it has sent it.
    let fetched = || status::fetch_status(&path).unwrap();
    while fetched().counters.answered == 0 {}
    let fetched = fetched();
    assert_eq!((fetched.counters.answered, fetched.listen), (1, server.listen()));
    assert_eq!((fetched.stratum, fetched.threads), (1, 3));
    assert!(fetched.clock.page_updates > 0 && fetched.resident_bytes > Some(0));
    assert!(status::fetch(&path).unwrap().starts_with("{\"schema\":\"horolog.status/2\",\"pid\":"));
    server.stop();
    assert!(!path.exists());
}

#[test]
fn health_requests_do_not_count_clients() {
    let server = Server::start(&config("127.0.0.1:0")).unwrap();
    let whole = || -> ServerStatus { panic!("all clients were counted") };
    let code = |path| metrics::respond(path, || server.status(), whole).code;
    assert_eq!((code("/healthz"), code("/elsewhere")), (200, 404));
    assert!(server.status().clients.is_none());
}
