//! Clients that speak something else, or NTS-KE wrongly.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::*;
use crate::message::{NtsKeResponse, REQUEST_LEN_MAX};

/// Sends bytes as a request over TLS with these protocols, and returns the response.
fn send_request(
    server: &NtsKeServer,
    identity: &TestCertificate,
    protocols: &[&[u8]],
    request: &[u8],
) -> io::Result<Vec<u8>> {
    let mut config =
        rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(identity.trust().roots)
            .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(server.listen_addresses()[0])?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    let mut whole = rustls::Stream::new(&mut tls, &mut stream);
    whole.write_all(request)?;
    let mut response = Vec::new();
    whole.read_to_end(&mut response)?;
    Ok(response)
}

#[test]
fn errors_are_answered() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let refused = |request: &[u8]| {
        NtsKeResponse::parse(&send_request(&server, &identity, &[ALPN], request).unwrap()).unwrap()
    };
    let end = [0x80, 0, 0, 0];
    assert_eq!(refused(&end), NtsKeResponse::Error(1));
    assert_eq!(refused(&[&[0xff, 0xff, 0, 0][..], &end].concat()), NtsKeResponse::Error(0));
    // Records without end.
    assert_eq!(refused(&[0x10, 0, 0, 0].repeat(REQUEST_LEN_MAX / 4 + 1)), NtsKeResponse::Error(1));
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!(counters, NtsKeCounts { accepted: 3, bad_request: 3, ..NtsKeCounts::default() });
}

/// Records that other clients send, and the code of the error that answers them, if one does. A
/// server refuses only what RFC 8915 has it refuse.
#[test]
fn requests_of_other_clients_are_judged_by_the_standard() {
    const NP: &str = "800100020000";
    const AEAD: &str = "00040002000f";
    const EOM: &str = "80000000";
    let identity = TestCertificate::new();
    let server = identity.serve();
    let cases = [
        ([NP, "80040002000f", EOM, ""], None),
        ([NP, "00040006001e0011000f", "04000000", EOM], None),
        ([NP, AEAD, "00000000", ""], None),
        (["000100020000", AEAD, EOM, ""], None),
        (["80040002000f", NP, EOM, ""], None),
        ([NP, AEAD, "4001000568656c6c6f", EOM], None),
        ([NP, AEAD, "0006000c74696d652e6578616d706c6500070002007b", EOM], None),
        ([NP, AEAD, "c001000568656c6c6f", EOM], Some(0)),
        ([NP, NP, AEAD, EOM], Some(1)),
        ([NP, AEAD, EOM, EOM], Some(1)),
        ([AEAD, EOM, "", ""], Some(1)),
        ([NP, EOM, "", ""], Some(1)),
        ([NP, "00040003000f00", EOM, ""], Some(1)),
        ([NP, AEAD, "800000020000", ""], Some(1)),
    ];
    for (records, code) in cases {
        let response =
            send_request(&server, &identity, &[ALPN], &bytes(&records.concat())).unwrap();
        match (NtsKeResponse::parse(&response).unwrap(), code) {
            (NtsKeResponse::Negotiated(grant), None) => {
                assert_eq!(grant.cookies.len(), 8, "{records:?}");
            }
            (parsed, code) => {
                assert_eq!(Some(parsed), code.map(NtsKeResponse::Error), "{records:?}");
            }
        }
    }
    // Nothing in common is no error.
    for (records, expected) in [
        (["800100022710", AEAD, EOM], [NP.replace("00020000", "0000").as_str(), EOM].concat()),
        ([NP, "800400022710", EOM], [NP, "80040000", EOM].concat()),
    ] {
        let response =
            send_request(&server, &identity, &[ALPN], &bytes(&records.concat())).unwrap();
        assert_eq!(response, bytes(&expected), "{records:?}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn a_request_of_the_largest_size_is_read_and_a_longer_one_is_refused() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let of = |len: usize| {
        let [head, end] = [bytes("80010002000080040002000f64010000"), bytes("80000000")];
        let body = len - head.len() - end.len();
        let mut request = [&head[..], &vec![0; body], &end].concat();
        let at = head.len() - 2;
        request[at..at + 2].copy_from_slice(&(body as u16).to_be_bytes());
        NtsKeResponse::parse(&send_request(&server, &identity, &[ALPN], &request).unwrap()).unwrap()
    };
    assert!(matches!(of(1024), NtsKeResponse::Negotiated(_)));
    assert!(matches!(of(REQUEST_LEN_MAX), NtsKeResponse::Negotiated(_)));
    assert_eq!(of(REQUEST_LEN_MAX + 1), NtsKeResponse::Error(1));
}

/// RFC 8915, section 4.1.3: also a client that does not end its request learns why it got nothing.
#[test]
fn a_request_without_end_is_refused_when_its_time_is_over() {
    let identity = TestCertificate::new();
    let mut config = identity.config();
    config.limits.timeout = Duration::from_millis(300);
    let server = NtsKeServer::start(config, Arc::new(PlaintextCookieProvider)).unwrap();
    let response =
        send_request(&server, &identity, &[ALPN], &bytes("80010002000080040002000f")).unwrap();
    assert_eq!(NtsKeResponse::parse(&response), Ok(NtsKeResponse::Error(1)));
    await_counters(&server, |counters| counters.timed_out == 1);
}

#[test]
fn only_ntske_is_spoken() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let request =
        crate::message::NtsKeRequest { ntpv4: true, algorithms: BOTH.to_vec(), ..<_>::default() };
    let request = request.to_bytes();
    assert!(send_request(&server, &identity, &[b"http/1.1"], &request).is_err());
    assert_eq!(send_request(&server, &identity, &[], &request).unwrap(), b"");
    assert!(!send_request(&server, &identity, &[b"http/1.1", ALPN], &request).unwrap().is_empty());
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!((counters.not_ntske, counters.established), (2, 1));
}

#[test]
fn what_is_not_tls_is_closed() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let mut stream = TcpStream::connect(server.listen_addresses()[0]).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // At most an alert comes back.
    assert!(answer.len() < 18 && !answer.starts_with(b"HTTP"), "{answer:?}");
    await_counters(&server, |counters| counters.handshake_failed == 1);
}

#[test]
fn one_that_goes_away_is_forgotten() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    drop(TcpStream::connect(server.listen_addresses()[0]).unwrap());
    await_counters(&server, |counters| counters.broken == 1 && counters.open == 0);
}
