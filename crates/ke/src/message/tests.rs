//! Requests and responses against the rules of RFC 8915, section 4.

use super::*;
use crate::records::message_len;
use proptest::prelude::*;

/// Next protocol `NTPv4`.
const NEXT: &[u8] = &[0x80, 1, 0, 2, 0, 0];
/// AES-SIV-CMAC-256.
const AEAD: &[u8] = &[0x80, 4, 0, 2, 0, 15];
const END: &[u8] = &[0x80, 0, 0, 0];
/// A cookie of two bytes.
const COOKIE: &[u8] = &[0, 5, 0, 2, 7, 7];

fn request(records: &[&[u8]]) -> Result<Request, RequestError> {
    Request::parse(&records.concat())
}

fn response(records: &[&[u8]]) -> Result<Response, BadResponse> {
    Response::parse(&records.concat())
}

#[test]
fn the_smallest_request() {
    let asked = request(&[NEXT, AEAD, END]).unwrap();
    let expected = Request { ntpv4: true, algorithms: vec![15], exact_exporter: false };
    assert_eq!(asked, expected);
    assert_eq!(asked.to_bytes(), [NEXT, AEAD, END].concat());
    assert_eq!(request(&[AEAD, NEXT, END]), Ok(expected), "in any order");
}

#[test]
fn what_a_request_may_not_be() {
    let bad: [(&str, &[&[u8]]); 18] = [
        ("empty", &[]),
        ("without an end", &[NEXT, AEAD]),
        ("without a protocol", &[AEAD, END]),
        ("without algorithms", &[NEXT, END]),
        ("two lists of protocols", &[NEXT, NEXT, AEAD, END]),
        ("two lists of algorithms", &[NEXT, AEAD, AEAD, END]),
        ("bytes behind the end", &[NEXT, AEAD, END, &[0]]),
        ("an end with a body", &[NEXT, AEAD, &[0x80, 0, 0, 1, 0]]),
        ("an end that is not critical", &[NEXT, AEAD, &[0, 0, 0, 0]]),
        ("a protocol that is not critical", &[&[0, 1, 0, 2, 0, 0], AEAD, END]),
        ("half a protocol", &[&[0x80, 1, 0, 1, 0], AEAD, END]),
        ("half an algorithm", &[NEXT, &[0x80, 4, 0, 3, 0, 15, 0], END]),
        ("no algorithm in the list", &[NEXT, &[0x80, 4, 0, 0], END]),
        ("an error", &[NEXT, AEAD, &[0x80, 2, 0, 2, 0, 0], END]),
        ("a warning", &[NEXT, AEAD, &[0x80, 3, 0, 2, 0, 0], END]),
        ("a cookie", &[NEXT, AEAD, COOKIE, END]),
        ("a server that is no text", &[NEXT, AEAD, &[0, 6, 0, 1, 0x80], END]),
        ("a port of one byte", &[NEXT, AEAD, &[0, 7, 0, 1, 123], END]),
    ];
    for (why, records) in bad {
        assert_eq!(request(records), Err(RequestError::BadRequest), "{why}");
    }
}

#[test]
fn unknown_records_are_passed_over_unless_critical() {
    let unknown: &[u8] = &[0x20, 0, 0, 1, 9];
    assert!(request(&[unknown, NEXT, unknown, AEAD, END]).is_ok());
    let critical: &[u8] = &[0xa0, 0, 0, 1, 9];
    let refused = request(&[NEXT, AEAD, critical, END]);
    assert_eq!(refused, Err(RequestError::UnrecognizedCritical));
    let refused = response(&[NEXT, AEAD, COOKIE, critical, END]);
    assert_eq!(refused, Err(BadResponse::UnrecognizedCritical(0x2000)));
}

#[test]
fn a_wish_for_a_server_and_a_port_is_allowed() {
    let wish: &[u8] = &[0x80, 6, 0, 3, b'a', b'.', b'b', 0x80, 7, 0, 2, 0, 123];
    assert!(request(&[NEXT, AEAD, wish, END]).is_ok());
    assert_eq!(request(&[NEXT, AEAD, wish, wish, END]), Err(RequestError::BadRequest));
}

#[test]
fn another_protocol_needs_no_algorithm() {
    let asked = request(&[&[0x80, 1, 0, 2, 0, 1], END]).unwrap();
    assert_eq!(asked.agree(&[15]), Err(Disagreement::Protocol));
    let said = Response::Disagreed(Disagreement::Protocol).to_bytes();
    assert_eq!(said, [&[0x80, 1, 0, 0][..], END].concat());
}

#[test]
fn the_servers_favourite_is_agreed_on() {
    let asked = |algorithms: &[u16], exact_exporter| Request {
        ntpv4: true,
        algorithms: algorithms.to_vec(),
        exact_exporter,
    };
    let agreed = |algorithm| Ok(Agreed { algorithm, context: algorithm });
    assert_eq!(asked(&[15, 30], true).agree(&[30, 15]), agreed(30));
    assert_eq!(asked(&[30, 15], true).agree(&[15, 30]), agreed(15));
    assert_eq!(asked(&[15, 30], false).agree(&[30, 15]), agreed(15), "its exporter is in doubt");
    assert_eq!(asked(&[30], false).agree(&[30, 15]), agreed(30), "as the standard has it");
    assert_eq!(asked(&[17], true).agree(&[30, 15]), Err(Disagreement::Algorithm));
    let said = Response::Disagreed(Disagreement::Algorithm).to_bytes();
    assert_eq!(said, [NEXT, &[0x80, 4, 0, 0], END].concat());
}

#[test]
fn the_smallest_response() {
    let grant = Grant { algorithm: 15, cookies: vec![vec![7, 7]], ..Grant::default() };
    let said = Response::Granted(grant);
    assert_eq!(response(&[NEXT, AEAD, COOKIE, END]), Ok(said.clone()));
    assert_eq!(said.to_bytes(), [NEXT, AEAD, COOKIE, END].concat());
}

#[test]
fn what_a_response_may_not_be() {
    let bad: [(&str, &[&[u8]]); 9] = [
        ("empty", &[]),
        ("without a protocol", &[AEAD, COOKIE, END]),
        ("without an algorithm", &[NEXT, COOKIE, END]),
        ("without a cookie", &[NEXT, AEAD, END]),
        ("with an empty cookie", &[NEXT, AEAD, &[0, 5, 0, 0], END]),
        ("two algorithms", &[NEXT, &[0x80, 4, 0, 4, 0, 15, 0, 30], COOKIE, END]),
        ("two lists of algorithms", &[NEXT, AEAD, AEAD, COOKIE, END]),
        ("bytes behind the end", &[NEXT, AEAD, COOKIE, END, END]),
        ("an end with a body", &[NEXT, AEAD, COOKIE, &[0x80, 0, 0, 1, 0]]),
    ];
    for (why, records) in bad {
        assert_eq!(response(records), Err(BadResponse::Malformed), "{why}");
    }
    let warned = response(&[NEXT, AEAD, COOKIE, &[0x80, 3, 0, 2, 0, 9], END]);
    assert_eq!(warned, Err(BadResponse::Warning(9)));
}

#[test]
fn an_error_stands_alone() {
    assert_eq!(response(&[&[0x80, 2, 0, 2, 0, 1], END]), Ok(Response::Error(1)));
    let said = Response::Error(RequestError::UnrecognizedCritical as u16).to_bytes();
    assert_eq!(said, [&[0x80, 2, 0, 2, 0, 0][..], END].concat());
}

fn grants() -> impl Strategy<Value = Grant> {
    let cookie = prop::collection::vec(any::<u8>(), 1..300);
    let cookies = prop::collection::vec(cookie, 1..10);
    let server = prop::option::of("[a-z0-9.:-]{1,255}");
    (any::<u16>(), any::<bool>(), server, any::<Option<u16>>(), cookies).prop_map(
        |(algorithm, exact_exporter, server, port, cookies)| Grant {
            algorithm,
            exact_exporter,
            server,
            port,
            cookies,
        },
    )
}

proptest! {
    #[test]
    fn requests_come_back(
        ntpv4: bool, algorithms in prop::collection::vec(any::<u16>(), 1..20), exact_exporter: bool,
    ) {
        let asked = Request { ntpv4, algorithms, exact_exporter };
        let bytes = asked.to_bytes();
        prop_assert_eq!(message_len(&bytes), Some(bytes.len()));
        // An empty list of protocols is a response's, not a request's.
        let expected = if ntpv4 { Ok(asked) } else { Err(RequestError::BadRequest) };
        prop_assert_eq!(Request::parse(&bytes), expected);
    }

    #[test]
    fn grants_come_back(grant in grants()) {
        let said = Response::Granted(grant);
        prop_assert_eq!(Response::parse(&said.to_bytes()), Ok(said));
    }
}
