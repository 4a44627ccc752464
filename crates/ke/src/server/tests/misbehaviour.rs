//! Clients that speak something else, or NTS-KE wrongly.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::*;
use crate::message::{REQUEST_LEN_MAX, Response};

/// Sends bytes as a request over TLS with these protocols, and returns what comes back.
fn say(
    server: &KeServer,
    identity: &Identity,
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
    let mut stream = TcpStream::connect(server.listen()[0])?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut whole = rustls::Stream::new(&mut tls, &mut stream);
    whole.write_all(request)?;
    let mut response = Vec::new();
    whole.read_to_end(&mut response)?;
    Ok(response)
}

#[test]
fn errors_are_answered() {
    let identity = Identity::new();
    let server = identity.serve();
    let refused = |request: &[u8]| {
        Response::parse(&say(&server, &identity, &[ALPN], request).unwrap()).unwrap()
    };
    let end = [0x80, 0, 0, 0];
    assert_eq!(refused(&end), Response::Error(1));
    assert_eq!(refused(&[&[0xff, 0xff, 0, 0][..], &end].concat()), Response::Error(0));
    // Records without end.
    assert_eq!(refused(&[0x10, 0, 0, 0].repeat(REQUEST_LEN_MAX / 4 + 1)), Response::Error(1));
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!(counters, KeCounters { accepted: 3, bad_request: 3, ..KeCounters::default() });
}

#[test]
fn only_ntske_is_spoken() {
    let identity = Identity::new();
    let server = identity.serve();
    let request =
        crate::message::Request { ntpv4: true, algorithms: BOTH.to_vec(), ..<_>::default() };
    let request = request.to_bytes();
    assert!(say(&server, &identity, &[b"http/1.1"], &request).is_err());
    assert_eq!(say(&server, &identity, &[], &request).unwrap(), b"");
    assert!(!say(&server, &identity, &[b"http/1.1", ALPN], &request).unwrap().is_empty());
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!((counters.not_ntske, counters.established), (2, 1));
}

#[test]
fn what_is_not_tls_is_closed() {
    let identity = Identity::new();
    let server = identity.serve();
    let mut stream = TcpStream::connect(server.listen()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // At most an alert comes back.
    assert!(answer.len() < 18 && !answer.starts_with(b"HTTP"), "{answer:?}");
    await_counters(&server, |counters| counters.handshake_failed == 1);
}

#[test]
fn one_that_goes_away_is_forgotten() {
    let identity = Identity::new();
    let server = identity.serve();
    drop(TcpStream::connect(server.listen()[0]).unwrap());
    await_counters(&server, |counters| counters.broken == 1 && counters.open == 0);
}
