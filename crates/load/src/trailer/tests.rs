//! Trailers of hand-made requests, and replies with the same trailer, another one, or none.

use super::*;

const REQUEST: RequestClaimedByReply =
    RequestClaimedByReply { client: 0, sequence: 0, transmit: 7 };

fn keys() -> Arc<KeyTable> {
    let text = b"1 SHA256 HEX:00112233\n2 AES128 HEX:000102030405060708090a0b0c0d0e0f";
    Arc::new(KeyFile::parse(text).keys)
}

fn tail(fields: &[&str], key: Option<u32>, version: u8) -> RequestTrailer {
    let fields = fields.iter().map(|field| field.parse().unwrap()).collect();
    RequestTrailer::Fixed(TrailerTemplate::new(
        &TrailerOptions { fields, mac: key.map(|id| (keys(), id)) },
        version,
    ))
}

#[test]
fn a_request_has_the_configured_trailer() {
    for (fields, key, version, len) in [
        (&["1:00"][..], None, 4, 48 + 28),
        (&["1:00", "2:00"][..], None, 4, 48 + 16 + 28),
        (&["1:00"][..], Some(1), 4, 48 + 16 + 4 + 20),
        (&[][..], Some(1), 4, 48 + 4 + 20),
        (&[][..], Some(1), 3, 48 + 4 + 32),
        (&[][..], Some(2), 4, 48 + 4 + 16),
    ] {
        let mut tail = tail(fields, key, version);
        assert_eq!(tail.request_len_max(), len);
        let request = tail.build_request(0, RequestTimestamps::basic(0x0102_0304_0506_0708), None);
        assert_eq!((request.len(), &request[40..48]), (len, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        let authentic = keys().verify(request).map(|authentic| authentic.key.id());
        assert_eq!(authentic.ok(), key, "each request has a MAC of its own");
        assert!(!tail.has_nts(0));
    }
}

/// The last field is longer if no MAC follows it.
#[test]
fn fields_are_padded_to_what_is_allowed() {
    let timestamps = RequestTimestamps::basic(1);
    let mut both = tail(&["1:ff", "0x2005"], None, 4);
    let trailer = &both.build_request(0, timestamps, None)[HEADER_LEN..];
    let (first, last) = trailer.split_at(16);
    assert_eq!(first, [&[0, 1, 0, 16, 0xff_u8][..], &[0; 11]].concat());
    assert_eq!(last, [&[0x20, 5, 0, 28_u8][..], &[0; 24]].concat());
    let mut with_mac = tail(&["1:ff"], Some(1), 4);
    assert_eq!(&with_mac.build_request(0, timestamps, None)[HEADER_LEN..][..16], first);
}

#[test]
fn a_reply_has_a_mac_of_the_same_key() {
    let mut tail = tail(&[], Some(2), 4);
    let mut reply = tail.build_request(0, RequestTimestamps::basic(1), None).to_vec();
    assert_eq!(tail.verify(REQUEST, &reply), Ok(()));
    assert_eq!(tail.verify(REQUEST, &reply[..HEADER_LEN]), Err(InvalidReplyReason::Mac));
    reply[9] ^= 1;
    assert_eq!(tail.verify(REQUEST, &reply), Err(InvalidReplyReason::Mac));
    let keys = keys();
    let mut other = vec![0; 48 + 4 + 20];
    keys.get(1).unwrap().append_mac(20, &mut other, 48);
    assert!(keys.verify(&other).is_ok());
    assert_eq!(
        tail.verify(REQUEST, &other),
        Err(InvalidReplyReason::Length),
        "longer than its request"
    );
    let mut tail = self::tail(&["9:00"], Some(2), 4);
    assert_eq!(tail.verify(REQUEST, &other), Err(InvalidReplyReason::Mac), "of another key");
}

#[test]
fn a_reply_may_have_fields_where_the_request_had_some() {
    let mut tail = tail(&["1:00"], None, 4);
    let request = tail.build_request(0, RequestTimestamps::basic(1), None).to_vec();
    assert_eq!(tail.verify(REQUEST, &request), Ok(()));
    assert_eq!(tail.verify(REQUEST, &request[..HEADER_LEN]), Ok(()));
    assert_eq!(tail.verify(REQUEST, &request[..HEADER_LEN + 9]), Err(InvalidReplyReason::Length));
    let longer = [&request[..], &[0; 4]].concat();
    assert_eq!(tail.verify(REQUEST, &longer), Err(InvalidReplyReason::Length));
}
