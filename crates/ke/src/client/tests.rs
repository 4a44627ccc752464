//! The client with servers that answer with fixed bytes, and with other servers.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, Stream};

use super::*;
use crate::certificate::read_certificates;
use crate::testing::{TEST_TIMEOUT, TestCertificate, parameters};

const SOON: Duration = Duration::from_millis(300);

fn tls(identity: &TestCertificate, alpn: &[u8]) -> ServerConfig {
    let chain = read_certificates(&identity.certificate()).unwrap();
    let key = PrivateKeyDer::from_pem_file(identity.key()).unwrap();
    let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = if alpn.is_empty() { Vec::new() } else { vec![alpn.to_vec()] };
    config
}

/// Starts a listener, and a thread that runs `work` with the first connection.
fn serve<T: Send + 'static>(
    work: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (at, thread::spawn(move || work(listener.accept().unwrap().0)))
}

/// Starts a server that answers one request with these bytes; its thread returns true if the client
/// sent `close_notify`.
fn answer(config: ServerConfig, response: Vec<u8>) -> (SocketAddr, JoinHandle<bool>) {
    serve(move |mut stream| {
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        let mut tls = Stream::new(&mut tls, &mut stream);
        let has_request = tls.read(&mut [0; 1024]).is_ok_and(|length| length > 0);
        if !has_request || tls.write_all(&response).is_err() {
            return false;
        }
        tls.conn.send_close_notify();
        let _ = tls.flush();
        // An end without close_notify is an error here.
        matches!(tls.read(&mut [0; 1024]), Ok(0))
    })
}

/// Result of a client whose server answers with these bytes.
fn exchange_with_response(response: &[u8]) -> Result<SessionMaterial, NtsKeError> {
    let identity = TestCertificate::new();
    let (at, server) = answer(tls(&identity, ALPN), response.to_vec());
    let client = NtsKeClient::new(&identity.trust(), &[AES_128_GCM_SIV, AES_SIV_CMAC_256]).unwrap();
    let got = client.exchange_keys("localhost", at, TEST_TIMEOUT);
    server.join().unwrap();
    got
}

fn grant(algorithm: u16) -> NegotiatedParameters {
    NegotiatedParameters {
        algorithm,
        cookies: vec![vec![7; 100]],
        ..NegotiatedParameters::default()
    }
}

#[test]
fn a_client_ends_tls_with_close_notify() {
    let identity = TestCertificate::new();
    let response = NtsKeResponse::Negotiated(grant(AES_SIV_CMAC_256)).to_bytes();
    let (at, server) = answer(tls(&identity, ALPN), response);
    let client = NtsKeClient::new(&identity.trust(), &[AES_SIV_CMAC_256]).unwrap();
    let got = client.exchange_keys("localhost", at, TEST_TIMEOUT).unwrap();
    assert_eq!((got.cookies, got.keys_uncertain), (vec![vec![7; 100]], false));
    assert!(server.join().unwrap());
}

#[test]
fn a_response_of_65536_bytes_is_read_and_a_longer_one_is_not() {
    let cookies = |count: usize| {
        let cookies = vec![vec![7; 6548]; count];
        NtsKeResponse::Negotiated(NegotiatedParameters { cookies, ..grant(AES_SIV_CMAC_256) })
            .to_bytes()
    };
    let response = cookies(10);
    assert_eq!(response.len(), RESPONSE_LEN_MAX);
    assert_eq!(exchange_with_response(&response).unwrap().cookies.len(), 10);
    assert!(matches!(exchange_with_response(&cookies(11)), Err(NtsKeError::TooLong)));
}

#[test]
fn keys_of_which_the_context_is_a_guess_are_uncertain_and_the_second_attempt_is_not() {
    let uncertain =
        exchange_with_response(&NtsKeResponse::Negotiated(grant(AES_128_GCM_SIV)).to_bytes())
            .unwrap();
    assert!(uncertain.keys_uncertain);
    let exact = NegotiatedParameters { exact_exporter: true, ..grant(AES_128_GCM_SIV) };
    assert!(
        !exchange_with_response(&NtsKeResponse::Negotiated(exact).to_bytes())
            .unwrap()
            .keys_uncertain
    );
    let identity = TestCertificate::new();
    let client = |algorithms: &[u16]| NtsKeClient::new(&identity.trust(), algorithms).unwrap();
    let second = client(&[AES_128_GCM_SIV, AES_SIV_CMAC_256]).fallback_client();
    assert_eq!(second.request.algorithms, [AES_SIV_CMAC_256]);
    assert!(!second.request.exact_exporter);
    let (at, server) =
        answer(tls(&identity, ALPN), NtsKeResponse::Negotiated(grant(AES_128_GCM_SIV)).to_bytes());
    let only = client(&[AES_128_GCM_SIV]).fallback_client();
    assert!(!only.exchange_keys("localhost", at, TEST_TIMEOUT).unwrap().keys_uncertain);
    server.join().unwrap();
}

#[test]
fn each_failure_has_its_own_message_and_hint() {
    let good = NtsKeResponse::Negotiated(grant(AES_SIV_CMAC_256)).to_bytes();
    let refused = |code| NtsKeResponse::Error(code).to_bytes();
    let failures = [
        exchange_with_response(&refused(0)),
        exchange_with_response(&refused(1)),
        exchange_with_response(&refused(2)),
        exchange_with_response(&refused(9)),
        exchange_with_response(
            &NtsKeResponse::NothingInCommon(NegotiationFailure::Protocol).to_bytes(),
        ),
        exchange_with_response(
            &NtsKeResponse::NothingInCommon(NegotiationFailure::Algorithm).to_bytes(),
        ),
        exchange_with_response(&NtsKeResponse::Negotiated(grant(17)).to_bytes()),
        exchange_with_response(
            &NtsKeResponse::Negotiated(NegotiatedParameters { cookies: Vec::new(), ..grant(15) })
                .to_bytes(),
        ),
        exchange_with_response(
            &NtsKeResponse::Negotiated(NegotiatedParameters { port: Some(0), ..grant(15) })
                .to_bytes(),
        ),
        exchange_with_response(&[&[0xc0, 1, 0, 0][..], &good].concat()),
        exchange_with_response(&[&[0x80, 3, 0, 2, 0, 9][..], &good].concat()),
        exchange_with_response(&[&[0, 0, 0, 1, 0][..], &good].concat()),
        exchange_with_response(&good[..good.len() - 4]),
        exchange_with_response(&[]),
        exchange_with_response(&vec![0x10; RESPONSE_LEN_MAX + 1]),
        with_certificate("127.0.0.2", 2000..4000),
        with_certificate("localhost", 2000..2001),
        with_certificate("localhost", 3000..4000),
        of_stranger("another"),
        of_stranger(""),
        with_alpn(b"http/1.1"),
        with_alpn(b""),
        plain(b"HTTP/1.1 400 Bad Request\r\n\r\n", true),
        // A fatal alert protocol_version; and nothing at all, closed or not.
        plain(&[21, 3, 3, 0, 2, 2, 70], true),
        plain(&[21, 3, 3, 0, 2, 2, 112], true),
        plain(b"", true),
        plain(b"", false),
        with_closed_port(),
    ];
    let mut messages = BTreeSet::new();
    for (number, failure) in failures.into_iter().enumerate() {
        let error = failure.unwrap_err();
        let (words, hint) = (error.to_string(), error.hint());
        assert!(!words.contains('\n') && !hint.is_empty() && hint != "see the message", "{words}");
        let about_certificate = words.contains("certificate");
        assert!(about_certificate || !hint.contains("certificate") || words.contains("host name"));
        assert!(messages.insert(words.clone()), "{number}: {words} is said twice");
    }
    let one_has = |part: &str| messages.iter().any(|words| words.contains(part));
    for part in [
        "expired at 2001-01-01",
        "not valid before 3000-01-01",
        "is for 127.0.0.2, not for localhost",
        "not from a trusted authority",
        "does not match the trusted authority",
        "does not support TLS 1.3",
        "does not use TLS",
        "connection refused",
    ] {
        assert!(one_has(part), "{part}: {messages:#?}");
    }
}

fn exchange(
    identity: &TestCertificate,
    trust: &TrustAnchors,
    alpn: &[u8],
) -> Result<SessionMaterial, NtsKeError> {
    let response = NtsKeResponse::Negotiated(grant(AES_SIV_CMAC_256)).to_bytes();
    let (at, server) = answer(tls(identity, alpn), response);
    let got = exchange_keys("localhost", at, trust, &[AES_SIV_CMAC_256], TEST_TIMEOUT);
    server.join().unwrap();
    got
}

fn with_certificate(
    name: &str,
    years: std::ops::Range<i32>,
) -> Result<SessionMaterial, NtsKeError> {
    let identity = TestCertificate::new();
    let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(years.start, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(years.end, 1, 1);
    identity.write(&parameters, &KeyPair::generate().unwrap());
    exchange(&identity, &identity.trust(), ALPN)
}

/// Of an authority that is not trusted, whose name is that of a trusted one or another.
fn of_stranger(name: &str) -> Result<SessionMaterial, NtsKeError> {
    let (identity, trusted) = (TestCertificate::new(), TestCertificate::new());
    let mut parameters = parameters();
    if !name.is_empty() {
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    }
    identity.write(&parameters, &KeyPair::generate().unwrap());
    exchange(&identity, &trusted.trust(), ALPN)
}

fn with_alpn(alpn: &[u8]) -> Result<SessionMaterial, NtsKeError> {
    let identity = TestCertificate::new();
    exchange(&identity, &identity.trust(), alpn)
}

/// Result of a client whose server sends these bytes without TLS, and then closes or does not.
fn plain(bytes: &'static [u8], closes: bool) -> Result<SessionMaterial, NtsKeError> {
    let (at, _server) = serve(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(bytes).unwrap();
        // The other end sees no end as long as this one is open.
        (!closes).then_some(stream)
    });
    let timeout = if closes { TEST_TIMEOUT } else { SOON };
    let trust = TestCertificate::new().trust();
    exchange_keys("localhost", at, &trust, &[AES_SIV_CMAC_256], timeout)
}

fn with_closed_port() -> Result<SessionMaterial, NtsKeError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    exchange_keys(
        "localhost",
        at,
        &TestCertificate::new().trust(),
        &[AES_SIV_CMAC_256],
        TEST_TIMEOUT,
    )
}

#[test]
fn what_is_waited_for_is_named() {
    let identity = TestCertificate::new();
    let config = tls(&identity, ALPN);
    let (at, server) = serve(move |mut stream| {
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        let mut tls = Stream::new(&mut tls, &mut stream);
        let _ = tls.read(&mut [0; 1024]);
        let _ = tls.write_all(&[0x80, 1, 0]);
        let _ = tls.flush();
        // Until the client has had enough.
        let _ = tls.read(&mut [0; 1024]);
    });
    let got = exchange_keys("localhost", at, &identity.trust(), &[AES_SIV_CMAC_256], SOON);
    assert!(
        matches!(got, Err(NtsKeError::TimedOut { phase: NtsKeExchangePhase::PartialResponse, .. })),
        "{got:?}"
    );
    server.join().unwrap();
}
