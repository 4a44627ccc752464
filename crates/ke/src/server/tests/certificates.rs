//! Certificates that cannot be used, and those that are exchanged under way.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use rcgen::{KeyPair, date_time_ymd};

use super::*;
use crate::testing::parameters;

/// Why a server does not start with what the files hold.
fn refusal(identity: &TestCertificate) -> NtsKeError {
    NtsKeServer::start(identity.config(), Arc::new(PlaintextCookieProvider)).unwrap_err()
}

fn spoil(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
}

#[test]
fn files_that_are_not_there_or_hold_nothing() {
    let identity = TestCertificate::new();
    fs::remove_file(identity.key()).unwrap();
    let message = refusal(&identity).to_string();
    assert!(message.starts_with("cannot read key") && message.contains("key.pem"), "{message}");
    assert!(!message.contains("permissions"), "{message}");
    fs::create_dir(identity.key()).unwrap();
    assert!(matches!(refusal(&identity), NtsKeError::Unreadable { what: "private key", .. }));
    fs::remove_dir(identity.key()).unwrap();
    spoil(&identity.key(), "no key\n");
    assert!(matches!(refusal(&identity), NtsKeError::NoPemItems { what: "private key", .. }));
    spoil(&identity.certificate(), "no certificate\n");
    assert!(matches!(refusal(&identity), NtsKeError::NoPemItems { what: "certificate", .. }));
    fs::remove_file(identity.certificate()).unwrap();
    assert!(matches!(refusal(&identity), NtsKeError::Unreadable { what: "certificate", .. }));
}

#[test]
fn files_that_are_damaged() {
    let identity = TestCertificate::new();
    let (certificate, key) = (identity.certificate(), identity.key());
    let sound = fs::read_to_string(&certificate).unwrap();
    spoil(&certificate, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    assert!(matches!(refusal(&identity), NtsKeError::InvalidFile { what: "certificate", .. }));
    spoil(&certificate, &sound[..sound.len() / 2]);
    assert!(matches!(refusal(&identity), NtsKeError::InvalidFile { what: "certificate", .. }));
    spoil(&certificate, &sound);
    spoil(&key, "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n");
    assert!(matches!(refusal(&identity), NtsKeError::InvalidFile { what: "private key", .. }));
}

#[test]
fn a_key_of_another_certificate() {
    let identity = TestCertificate::new();
    spoil(&identity.key(), &KeyPair::generate().unwrap().serialize_pem());
    let error = refusal(&identity);
    assert!(matches!(error, NtsKeError::KeyMismatch { .. }), "{error}");
}

#[test]
fn an_expired_certificate_is_refused_and_one_of_tomorrow_is_not() {
    let identity = TestCertificate::new();
    let key = KeyPair::generate().unwrap();
    let mut expired = parameters();
    expired.not_before = date_time_ymd(2001, 1, 1);
    expired.not_after = date_time_ymd(2002, 1, 1);
    identity.write(&expired, &key);
    let message = refusal(&identity).to_string();
    assert!(message.contains("expired at 2002-01-01T00:00:00Z"), "{message}");

    let mut early = parameters();
    early.not_before = date_time_ymd(2999, 1, 1);
    early.not_after = date_time_ymd(3000, 1, 1);
    identity.write(&early, &key);
    let server = identity.serve();
    assert!(server.certificate_info().not_before > SystemTime::now());
}

#[test]
fn another_certificate_under_traffic_disturbs_no_client() {
    let (identity, trusted) = (TestCertificate::new(), TestCertificate::new());
    fs::copy(identity.certificate(), trusted.certificate()).unwrap();
    let server = identity.serve();
    let mut chain = fs::read_to_string(identity.certificate()).unwrap();
    identity.renew();
    chain += &fs::read_to_string(identity.certificate()).unwrap();
    spoil(&trusted.certificate(), &chain);
    // Both the certificate that is served and the one to come.
    let client = NtsKeClient::new(&trusted.trust(), &BOTH).unwrap();
    let at = server.listen_addresses()[0];
    let (stop, exchanges) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    client.exchange_keys("localhost", at, TEST_TIMEOUT).unwrap();
                    exchanges.fetch_add(1, Relaxed);
                }
            });
        }
        let await_some_more = || {
            let target = exchanges.load(Relaxed) + 10;
            let deadline = Instant::now() + TEST_TIMEOUT;
            while exchanges.load(Relaxed) < target && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        };
        await_some_more();
        reconfigure(&server, identity.config()).unwrap();
        await_some_more();
        stop.store(true, Relaxed);
    });
    assert!(exchanges.load(Relaxed) >= 20);
    assert!(exchange(&server, &identity).is_ok(), "the new one is served");
}

#[test]
fn a_reload_that_fails_keeps_the_last_good_one() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let trust = identity.trust();
    let facts = server.certificate_info();
    spoil(&identity.certificate(), "");
    assert!(matches!(reconfigure(&server, identity.config()), Err(NtsKeError::NoPemItems { .. })));
    assert_eq!(server.certificate_info(), facts);
    assert!(
        exchange_keys("localhost", server.listen_addresses()[0], &trust, &BOTH, TEST_TIMEOUT)
            .is_ok()
    );
}

#[test]
fn without_an_authority_the_message_names_the_option() {
    let message = crate::TrustAnchors::from_pem_file(None).unwrap_err().to_string();
    assert!(message.contains("--ca"), "{message}");
}
