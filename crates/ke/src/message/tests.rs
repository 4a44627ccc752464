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

fn request(records: &[&[u8]]) -> Result<NtsKeRequest, NtsKeErrorCode> {
    NtsKeRequest::parse(&records.concat())
}

fn response(records: &[&[u8]]) -> Result<NtsKeResponse, BadResponse> {
    NtsKeResponse::parse(&records.concat())
}

#[test]
fn the_smallest_request() {
    let parsed = request(&[NEXT, AEAD, END]).unwrap();
    let expected = NtsKeRequest { ntpv4: true, algorithms: vec![15], exact_exporter: false };
    assert_eq!(parsed, expected);
    assert_eq!(parsed.to_bytes(), [NEXT, AEAD, END].concat());
    assert_eq!(request(&[AEAD, NEXT, END]), Ok(expected), "in any order");
}

#[test]
fn what_a_request_may_not_be() {
    let bad: [(&str, &[&[u8]]); 16] = [
        ("two ends", &[NEXT, AEAD, END, END]),
        ("empty", &[]),
        ("without an end", &[NEXT, AEAD]),
        ("without a protocol", &[AEAD, END]),
        ("without algorithms", &[NEXT, END]),
        ("two lists of protocols", &[NEXT, NEXT, AEAD, END]),
        ("two lists of algorithms", &[NEXT, AEAD, AEAD, END]),
        ("bytes behind the end", &[NEXT, AEAD, END, &[0]]),
        ("an end with a body", &[NEXT, AEAD, &[0x80, 0, 0, 1, 0]]),
        ("an empty list of protocols", &[&[0x80, 1, 0, 0], AEAD, END]),
        ("half a protocol", &[&[0x80, 1, 0, 1, 0], AEAD, END]),
        ("half an algorithm", &[NEXT, &[0x80, 4, 0, 3, 0, 15, 0], END]),
        ("no algorithm in the list", &[NEXT, &[0x80, 4, 0, 0], END]),
        ("an error", &[NEXT, AEAD, &[0x80, 2, 0, 2, 0, 0], END]),
        ("a warning", &[NEXT, AEAD, &[0x80, 3, 0, 2, 0, 0], END]),
        ("a cookie", &[NEXT, AEAD, COOKIE, END]),
    ];
    for (why, records) in bad {
        assert_eq!(request(records), Err(NtsKeErrorCode::BadRequest), "{why}");
    }
}

/// A server need not follow such a wish, nor refuse one that is malformed.
#[test]
fn a_wish_for_a_server_is_left_aside() {
    let wishes: [&[u8]; 4] =
        [&[0, 6, 0, 1, 0x80], &[0x80, 6, 0, 0], &[0, 7, 0, 1, 123], &[0, 7, 0, 0]];
    let plain = request(&[NEXT, AEAD, END]);
    for wish in wishes {
        assert_eq!(request(&[NEXT, wish, AEAD, END]), plain, "{wish:?}");
    }
}

/// Senders must set the critical bit; receivers need not refuse records without it.
#[test]
fn the_critical_bit_of_known_records_decides_nothing() {
    let bare: [&[u8]; 4] = [&[0, 1, 0, 2, 0, 0], &[0, 4, 0, 2, 0, 15], COOKIE, &[0, 0, 0, 0]];
    let parsed = request(&[bare[0], bare[1], bare[3]]);
    assert_eq!(parsed, request(&[NEXT, AEAD, END]));
    assert!(parsed.is_ok());
    assert_eq!(response(&bare), response(&[NEXT, AEAD, COOKIE, END]));
    assert!(response(&bare).is_ok());
}

#[test]
fn unknown_records_are_passed_over_unless_critical() {
    let unknown: &[u8] = &[0x20, 0, 0, 1, 9];
    assert!(request(&[unknown, NEXT, unknown, AEAD, END]).is_ok());
    let critical: &[u8] = &[0xa0, 0, 0, 1, 9];
    let refused = request(&[NEXT, AEAD, critical, END]);
    assert_eq!(refused, Err(NtsKeErrorCode::UnrecognizedCritical));
    let refused = response(&[NEXT, AEAD, COOKIE, critical, END]);
    assert_eq!(refused, Err(BadResponse::UnrecognizedCritical(0x2000)));
}

#[test]
fn a_wish_for_a_server_and_a_port_is_allowed() {
    let wish: &[u8] = &[0x80, 6, 0, 3, b'a', b'.', b'b', 0x80, 7, 0, 2, 0, 123];
    assert!(request(&[NEXT, AEAD, wish, END]).is_ok());
    assert_eq!(request(&[NEXT, AEAD, wish, wish, END]), Err(NtsKeErrorCode::BadRequest));
}

#[test]
fn another_protocol_needs_no_algorithm() {
    let parsed = request(&[&[0x80, 1, 0, 2, 0, 1], END]).unwrap();
    assert_eq!(parsed.negotiate(&[15]), Err(NegotiationFailure::Protocol));
    let bytes = NtsKeResponse::NothingInCommon(NegotiationFailure::Protocol).to_bytes();
    assert_eq!(bytes, [&[0x80, 1, 0, 0][..], END].concat());
}

#[test]
fn the_servers_favourite_is_agreed_on() {
    let offer = |algorithms: &[u16], exact_exporter| NtsKeRequest {
        ntpv4: true,
        algorithms: algorithms.to_vec(),
        exact_exporter,
    };
    let agreed = |algorithm| Ok(NegotiatedAlgorithm { algorithm, context: algorithm });
    assert_eq!(offer(&[15, 30], true).negotiate(&[30, 15]), agreed(30));
    assert_eq!(offer(&[30, 15], true).negotiate(&[15, 30]), agreed(15));
    assert_eq!(
        offer(&[15, 30], false).negotiate(&[30, 15]),
        agreed(15),
        "its exporter is in doubt"
    );
    assert_eq!(offer(&[30], false).negotiate(&[30, 15]), agreed(30), "as the standard has it");
    assert_eq!(offer(&[17], true).negotiate(&[30, 15]), Err(NegotiationFailure::Algorithm));
    let bytes = NtsKeResponse::NothingInCommon(NegotiationFailure::Algorithm).to_bytes();
    assert_eq!(bytes, [NEXT, &[0x80, 4, 0, 0], END].concat());
}

#[test]
fn the_smallest_response() {
    let grant = NegotiatedParameters {
        algorithm: 15,
        cookies: vec![vec![7, 7]],
        ..NegotiatedParameters::default()
    };
    let granted = NtsKeResponse::Negotiated(grant);
    assert_eq!(response(&[NEXT, AEAD, COOKIE, END]), Ok(granted.clone()));
    assert_eq!(granted.to_bytes(), [NEXT, AEAD, COOKIE, END].concat());
}

#[test]
fn what_a_response_may_not_be() {
    let bad: [(&str, &[&[u8]]); 10] = [
        ("is truncated", &[]),
        ("Next Protocol record is missing", &[AEAD, COOKIE, END]),
        ("AEAD Algorithm record is missing", &[NEXT, COOKIE, END]),
        ("no cookie", &[NEXT, AEAD, END]),
        ("wrong length", &[NEXT, AEAD, &[0, 5, 0, 0], END]),
        ("more than one AEAD", &[NEXT, &[0x80, 4, 0, 4, 0, 15, 0, 30], COOKIE, END]),
        ("occurs twice", &[NEXT, AEAD, AEAD, COOKIE, END]),
        ("data after", &[NEXT, AEAD, COOKIE, END, END]),
        ("wrong length", &[NEXT, AEAD, COOKIE, &[0x80, 0, 0, 1, 0]]),
        ("NTP port is 0", &[NEXT, AEAD, &[0x80, 7, 0, 2, 0, 0], COOKIE, END]),
    ];
    for (why, records) in bad {
        let message = response(records).unwrap_err().to_string();
        assert!(message.contains(why), "{why}: {message}");
    }
    let warned = response(&[NEXT, AEAD, COOKIE, &[0x80, 3, 0, 2, 0, 9], END]);
    assert_eq!(warned, Err(BadResponse::Warning(9)));
}

#[test]
fn the_server_for_ntp_is_an_address_or_a_name() {
    let named = |text: &[u8]| {
        let head = [0x80, 6, 0, text.len() as u8];
        match response(&[NEXT, AEAD, &head, text, COOKIE, END]) {
            Ok(NtsKeResponse::Negotiated(grant)) => Ok(grant.server.unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    for (text, expected) in [
        ("::1", "::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("192.0.2.1", "192.0.2.1"),
        ("localhost.", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ] {
        assert_eq!(named(text.as_bytes()).as_deref(), Ok(expected));
        assert_eq!(is_ntp_server(text), text == expected, "{text}");
    }
    let bad: [&[u8]; 12] = [
        b"a..",
        b"",
        b".",
        b"fe80::1%1",
        b"[fe80::1%eth0]",
        b"localhost\0",
        b"a b",
        b"a:123",
        b"1.2.3",
        b"0x7f.1:",
        "b\u{fc}cher.example".as_bytes(),
        b"\x1b[2J",
    ];
    for text in bad {
        let message = named(text).unwrap_err();
        assert!(
            message.contains("neither") && message.bytes().all(|byte| !byte.is_ascii_control()),
            "{message}"
        );
    }
}

#[test]
fn a_response_of_many_or_long_records_is_read() {
    let cookie = |len: usize| {
        let mut bytes = Vec::new();
        append_record(&mut bytes, false, kind::NEW_COOKIE, &vec![7; len]);
        bytes
    };
    for (count, len) in [(1, 100), (64, 100), (8, 1400), (8, 7000)] {
        let cookies = cookie(len).repeat(count);
        let Ok(NtsKeResponse::Negotiated(grant)) = response(&[NEXT, AEAD, &cookies, END]) else {
            panic!("{count} cookies of {len} bytes");
        };
        assert_eq!((grant.cookies.len(), grant.cookies[0].len()), (count, len));
    }
    let mut padding = Vec::new();
    append_record(&mut padding, false, 0x4001, &vec![0; 20_000]);
    assert!(response(&[NEXT, AEAD, COOKIE, &padding, END]).is_ok());
}

#[test]
fn an_error_stands_alone() {
    assert_eq!(response(&[&[0x80, 2, 0, 2, 0, 1], END]), Ok(NtsKeResponse::Error(1)));
    let bytes = NtsKeResponse::Error(NtsKeErrorCode::UnrecognizedCritical as u16).to_bytes();
    assert_eq!(bytes, [&[0x80, 2, 0, 2, 0, 0][..], END].concat());
}

fn grants() -> impl Strategy<Value = NegotiatedParameters> {
    let cookie = prop::collection::vec(any::<u8>(), 1..300);
    let cookies = prop::collection::vec(cookie, 1..10);
    let server = prop::option::of(
        "[a-z][a-z0-9-]{0,30}(\\.[a-z]{1,20}){0,4}|192\\.0\\.2\\.[1-9]|2001:db8::[1-9a-f]",
    );
    (any::<u16>(), any::<bool>(), server, prop::option::of(1_u16..), cookies).prop_map(
        |(algorithm, exact_exporter, server, port, cookies)| NegotiatedParameters {
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
        let asked = NtsKeRequest { ntpv4, algorithms, exact_exporter };
        let bytes = asked.to_bytes();
        prop_assert_eq!(message_len(&bytes), Some(bytes.len()));
        // An empty list of protocols is a response's, not a request's.
        let expected = if ntpv4 { Ok(asked) } else { Err(NtsKeErrorCode::BadRequest) };
        prop_assert_eq!(NtsKeRequest::parse(&bytes), expected);
    }

    #[test]
    fn grants_come_back(grant in grants()) {
        let said = NtsKeResponse::Negotiated(grant);
        prop_assert_eq!(NtsKeResponse::parse(&said.to_bytes()), Ok(said));
    }
}
