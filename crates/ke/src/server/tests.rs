//! The listener on loopback, with this crate's own client and with misbehaving clients.

mod certificates;
mod changes;
mod limits;
mod misbehaviour;

use super::*;
use crate::testing::{PlaintextCookieProvider, TEST_TIMEOUT, TestCertificate, cookie, loopback};
use crate::{NtsKeClient, SessionMaterial, exchange_keys};

const BOTH: [u16; 2] = [crate::AES_SIV_CMAC_256, crate::AES_128_GCM_SIV];

fn exchange(
    server: &NtsKeServer,
    identity: &TestCertificate,
) -> Result<SessionMaterial, NtsKeError> {
    exchange_keys("localhost", server.listen_addresses()[0], &identity.trust(), &BOTH, TEST_TIMEOUT)
}

/// Has a server change to another configuration, or leaves it as it is.
fn reconfigure(server: &NtsKeServer, config: NtsKeConfig) -> Result<(), NtsKeError> {
    server.prepare(config).map(|prepared| server.apply(prepared))
}

/// Waits until the counters are as they should become.
fn await_counters(server: &NtsKeServer, ready: impl Fn(&NtsKeCounts) -> bool) -> NtsKeCounts {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let counters = server.counts();
        if ready(&counters) {
            return counters;
        }
        assert!(Instant::now() < deadline, "{counters:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn both_sides_have_the_same_keys() {
    let identity = TestCertificate::new();
    let mut config = identity.config();
    config.ntp_server = Some("time.example".into());
    config.ntp_port = Some(1123);
    let server = NtsKeServer::start(config, Arc::new(PlaintextCookieProvider)).unwrap();
    for algorithm in BOTH {
        let client = NtsKeClient::new(&identity.trust(), &[algorithm]).unwrap();
        let got =
            client.exchange_keys("localhost", server.listen_addresses()[0], TEST_TIMEOUT).unwrap();
        assert_eq!(got.algorithm, algorithm);
        assert_eq!(Some(got.c2s.len()), crate::key_len(algorithm));
        assert_ne!(got.c2s, got.s2c);
        let expected: Vec<_> =
            (0..8).map(|number| cookie(algorithm, &got.c2s, &got.s2c, number)).collect();
        assert_eq!(got.cookies, expected);
        assert_eq!((got.server.as_deref(), got.port), (Some("time.example"), Some(1123)));
        assert!(!format!("{got:?}").contains("c2s"), "a key is shown");
    }
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!(counters, NtsKeCounts { accepted: 2, established: 2, ..NtsKeCounts::default() });
}

#[test]
fn each_session_has_keys_of_its_own() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let client = NtsKeClient::new(&identity.trust(), &BOTH).unwrap();
    let mut keys: Vec<_> = (0..4)
        .map(|_| {
            client.exchange_keys("127.0.0.1", server.listen_addresses()[0], TEST_TIMEOUT).unwrap()
        })
        .flat_map(|got| [got.c2s.to_vec(), got.s2c.to_vec()])
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 8);
}

#[test]
fn the_server_must_be_who_it_should_be() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let at = server.listen_addresses()[0];
    let exchange_with =
        |target: &str, trust| exchange_keys(target, at, &trust, &BOTH, TEST_TIMEOUT);
    assert!(matches!(exchange_with("other.example", identity.trust()), Err(NtsKeError::Tls(_))));
    assert!(matches!(exchange_with("127.0.0.2", identity.trust()), Err(NtsKeError::Tls(_))));
    assert!(matches!(
        exchange_with("localhost", TestCertificate::new().trust()),
        Err(NtsKeError::Tls(_))
    ));
    assert!(matches!(
        exchange_with("not a name", identity.trust()),
        Err(NtsKeError::InvalidName(_))
    ));
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!(
        counters,
        NtsKeCounts { accepted: 3, handshake_failed: 3, ..NtsKeCounts::default() }
    );
}

#[test]
fn no_common_algorithm_is_reported() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let got = exchange_keys(
        "localhost",
        server.listen_addresses()[0],
        &identity.trust(),
        &[17],
        TEST_TIMEOUT,
    );
    assert!(matches!(got, Err(NtsKeError::NoAlgorithm)), "{got:?}");
    await_counters(&server, |counters| counters.nothing_in_common == 1);
    let none = NtsKeClient::new(&identity.trust(), &[]);
    assert!(matches!(none, Err(NtsKeError::Configuration(_))));
}

#[test]
fn a_keeper_without_cookies_is_an_internal_error() {
    struct Bare;
    impl CookieProvider for Bare {
        fn algorithms(&self) -> Vec<u16> {
            BOTH.to_vec()
        }
        fn cookies(&self, _: u16, _: &[u8], _: &[u8], _: usize) -> Vec<Vec<u8>> {
            Vec::new()
        }
    }
    let identity = TestCertificate::new();
    let server = NtsKeServer::start(identity.config(), Arc::new(Bare)).unwrap();
    let got = exchange(&server, &identity);
    assert!(matches!(got, Err(NtsKeError::Refused { code: 2 })), "{got:?}");
    await_counters(&server, |counters| counters.internal_error == 1);
}
