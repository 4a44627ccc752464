//! Reconfiguration of a running server: which changes apply, and which are refused without effect.

use std::net::TcpStream;
use std::sync::Mutex;

use super::*;

/// More than a thread accepts at a time.
const WAITING: usize = 16;

/// A keeper that bakes while the lock can be had.
struct Gate(Arc<Mutex<()>>);

impl CookieProvider for Gate {
    fn algorithms(&self) -> Vec<u16> {
        PlaintextCookieProvider.algorithms()
    }

    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>> {
        let _open = self.0.lock().unwrap();
        PlaintextCookieProvider.cookies(algorithm, c2s, s2c, count)
    }
}

/// Runs an NTS-KE exchange over an open connection.
fn exchange_over(
    mut stream: TcpStream,
    client: &NtsKeClient,
) -> Result<SessionMaterial, NtsKeError> {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut exchange = client.begin("localhost").unwrap();
    loop {
        if let crate::NtsKeExchangeStatus::Done(got) = exchange.advance(&mut stream)? {
            return Ok(*got);
        }
    }
}

#[test]
fn another_configuration_loses_no_connection() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let client = NtsKeClient::new(&identity.trust(), &BOTH).unwrap();
    let first = server.listen_addresses()[0];
    let waiting = TcpStream::connect(first).unwrap();
    await_counters(&server, |counters| counters.open == 1);

    let mut config = identity.config();
    config.listen = vec![loopback(), loopback()];
    config.ntp_port = Some(1123);
    reconfigure(&server, config).unwrap();
    assert_eq!(server.listen_addresses()[0], first, "the socket is kept");

    assert_eq!(exchange_over(waiting, &client).unwrap().port, Some(1123));
    let second = server.listen_addresses()[1];
    assert_eq!(client.exchange_keys("localhost", second, TEST_TIMEOUT).unwrap().port, Some(1123));

    let mut config = identity.config();
    config.listen = vec!["127.0.0.2:0".parse().unwrap()];
    reconfigure(&server, config).unwrap();
    let refused = client.exchange_keys("localhost", first, TEST_TIMEOUT);
    assert!(matches!(refused, Err(NtsKeError::Connection { .. })), "{refused:?}");
    assert!(client.exchange_keys("localhost", server.listen_addresses()[0], TEST_TIMEOUT).is_ok());
}

#[test]
fn what_cannot_be_had_changes_nothing() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let (before, taken) = (server.listen_addresses(), TcpListener::bind(loopback()).unwrap());
    let mut config = identity.config();
    config.listen.push(taken.local_addr().unwrap());
    let refused = reconfigure(&server, config.clone());
    assert!(matches!(refused, Err(NtsKeError::Listen { .. })), "{refused:?}");
    assert_eq!(server.listen_addresses(), before);
    assert!(matches!(
        NtsKeServer::start(config, Arc::new(PlaintextCookieProvider)),
        Err(NtsKeError::Listen { address, .. }) if address == taken.local_addr().unwrap()
    ));
    for wrong in ["", "two words", "ümlaut"] {
        let config = NtsKeConfig { ntp_server: Some(wrong.into()), ..identity.config() };
        assert!(matches!(reconfigure(&server, config), Err(NtsKeError::Configuration(_))));
    }
    let mut config = identity.config();
    config.listen = vec![SocketAddr::new([0, 0, 0, 0].into(), before[0].port())];
    assert!(
        matches!(reconfigure(&server, config), Err(NtsKeError::Overlap(_, of)) if of == before[0])
    );
    assert_eq!(server.listen_addresses(), before);
    assert!(exchange(&server, &identity).is_ok());
}

#[test]
fn those_who_wait_at_an_address_that_goes_are_served() {
    let identity = TestCertificate::new();
    let gate = Arc::new(Mutex::new(()));
    let config = NtsKeConfig { threads: 1, ..identity.config() };
    let server = NtsKeServer::start(config, Arc::new(Gate(Arc::clone(&gate)))).unwrap();
    let client = NtsKeClient::new(&identity.trust(), &BOTH).unwrap();
    let at = server.listen_addresses()[0];
    thread::scope(|scope| {
        let closed = gate.lock().unwrap();
        let first = scope.spawn(|| client.exchange_keys("localhost", at, TEST_TIMEOUT));
        await_counters(&server, |counters| counters.open == 1);
        let waiting = [(); WAITING].map(|()| TcpStream::connect(at).unwrap());
        let mut config = identity.config();
        config.listen = vec!["127.0.0.2:0".parse().unwrap()];
        let prepared = server.prepare(config).unwrap();
        let changing = scope.spawn(|| server.apply(prepared));
        while server.listen_addresses()[0] == at {
            thread::sleep(Duration::from_millis(1));
        }
        drop(closed);
        changing.join().unwrap();
        for stream in waiting {
            exchange_over(stream, &client).unwrap();
        }
        first.join().unwrap().unwrap();
    });
    await_counters(&server, |counters| counters.established == WAITING as u64 + 1);
    assert!(TcpStream::connect(at).is_err());
}

#[test]
fn what_is_prepared_is_nothing_until_it_is_applied() {
    let (identity, other) = (TestCertificate::new(), TestCertificate::new());
    let server = identity.serve();
    let (listens, facts) = (server.listen_addresses(), server.certificate_info());
    let mut config = other.config();
    let free = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    config.listen = vec![free];
    config.limits.connections = 1;
    drop(server.prepare(config.clone()).unwrap());
    assert_eq!((server.listen_addresses(), server.certificate_info()), (listens, facts));
    assert!(exchange(&server, &identity).is_ok());
    assert!(TcpStream::connect(free).is_err(), "the new socket is closed");
    reconfigure(&server, config).unwrap();
    // The limit is one connection, and the server learns of a client's end later than the client.
    await_counters(&server, |counters| counters.open == 0);
    assert!(matches!(exchange(&server, &identity), Err(NtsKeError::Tls(_))), "of another file");
    await_counters(&server, |counters| counters.open == 0);
    assert!(exchange(&server, &other).is_ok());
}

#[test]
fn other_limits_hold_from_then_on() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let at = server.listen_addresses()[0];
    let guests = [(); 2].map(|()| TcpStream::connect(at).unwrap());
    await_counters(&server, |counters| counters.open == 2);
    let mut config = identity.config();
    config.limits.connections_per_prefix = 1;
    reconfigure(&server, config).unwrap();
    assert!(exchange(&server, &identity).is_err());
    let counters = server.counts();
    assert_eq!((counters.refused_concurrent, counters.open), (1, 2), "the guests may stay");
    drop(guests);
    await_counters(&server, |counters| counters.open == 0);
    assert!(exchange(&server, &identity).is_ok());
}
