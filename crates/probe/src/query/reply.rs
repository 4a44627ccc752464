//! Whether a datagram is the reply to a request, from the bytes of both. Pure.
//!
//! The order of the checks is part of the result: the first that fails names the reason.

use horolog_record::InvalidReason;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::{Header, Leap, Mode, STRATUM_UNSYNCHRONISED};

/// What a request carried, by which its reply is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The version.
    pub version: u8,
    /// What a reply in basic mode brings back.
    pub transmit: NtpTimestamp,
    /// What a reply in interleaved mode brings back; `None` where that was not asked for.
    pub receive: Option<NtpTimestamp>,
    /// Whether extension fields may follow the header of a reply.
    pub extended: bool,
}

/// A reply that is right in itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// Whether it is in interleaved mode: its transmit timestamp is that of the reply before.
    pub interleaved: bool,
}

/// What a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// The reply.
    Reply(Reply),
    /// A kiss of death with its code (RFC 5905, section 7.4).
    Kiss([u8; 4]),
    /// No valid reply.
    Invalid(InvalidReason),
}

/// Judges a datagram as the reply to a request.
#[must_use]
pub fn judge(asked: &Asked, payload: &[u8]) -> Judged {
    match check(asked, payload) {
        Ok(judged) => judged,
        Err(reason) => Judged::Invalid(reason),
    }
}

fn check(asked: &Asked, payload: &[u8]) -> Result<Judged, InvalidReason> {
    let (header, rest) = Header::parse(payload).map_err(|_| InvalidReason::Length)?;
    if !rest.is_empty() && !asked.extended {
        return Err(InvalidReason::Length);
    }
    if header.mode != Mode::Server {
        return Err(InvalidReason::Mode);
    }
    if header.version != asked.version {
        return Err(InvalidReason::Version);
    }
    let interleaved = Some(header.origin) == asked.receive;
    if !interleaved && header.origin != asked.transmit {
        return Err(InvalidReason::Origin);
    }
    // Only who saw the request can have sent a kiss that gets here.
    if header.stratum == 0 && header.reference_id.iter().all(u8::is_ascii_graphic) {
        return Ok(Judged::Kiss(header.reference_id));
    }
    if header.stratum == 0 || header.stratum > STRATUM_UNSYNCHRONISED {
        return Err(InvalidReason::Stratum);
    }
    // Leap 3 and stratum 16 say the same thing (RFC 5905, figures 9 and 11).
    let by_stratum = header.stratum == STRATUM_UNSYNCHRONISED;
    if (header.leap == Leap::Unsynchronised) != by_stratum {
        return Err(InvalidReason::Leap);
    }
    let known = ![header.receive, header.transmit].contains(&NtpTimestamp::UNKNOWN);
    let in_order = if interleaved {
        !is_before(header.receive, header.transmit)
    } else {
        !is_before(header.transmit, header.receive)
    };
    if !known || !in_order {
        return Err(InvalidReason::Timestamp);
    }
    Ok(Judged::Reply(Reply { header, interleaved }))
}

/// Whether one timestamp lies before another, across the end of an era as well.
pub(crate) const fn is_before(one: NtpTimestamp, other: NtpTimestamp) -> bool {
    one.to_bits().wrapping_sub(other.to_bits()) >> 63 == 1
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_wire::ntp::HEADER_LEN;
    use proptest::prelude::*;

    use super::*;

    pub(crate) const ASKED: Asked = Asked {
        version: 4,
        transmit: NtpTimestamp::from_bits(0xdead_beef_0000_0001),
        receive: Some(NtpTimestamp::from_bits(0xdead_beef_0000_0002)),
        extended: false,
    };

    pub(crate) fn good() -> Header {
        Header {
            mode: Mode::Server,
            stratum: 1,
            precision: -25,
            reference_id: *b"GPS\0",
            origin: ASKED.transmit,
            receive: NtpTimestamp::from_bits(0xe000_0000_ffff_fff0),
            transmit: NtpTimestamp::from_bits(0xe000_0001_0000_0010),
            ..Header::request(4, NtpTimestamp::UNKNOWN)
        }
    }

    pub(crate) fn bytes(header: &Header) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes);
        bytes
    }

    fn judged(header: &Header) -> Judged {
        judge(&ASKED, &bytes(header))
    }

    #[test]
    fn a_good_reply_is_good() {
        assert_eq!(judged(&good()), Judged::Reply(Reply { header: good(), interleaved: false }));
    }

    #[test]
    fn an_interleaved_reply_is_known_by_what_it_brings_back() {
        let earlier = NtpTimestamp::from_bits(good().receive.to_bits() - (1 << 32));
        let header = Header { origin: ASKED.receive.unwrap(), transmit: earlier, ..good() };
        assert_eq!(judged(&header), Judged::Reply(Reply { header, interleaved: true }));
        let later = Header { transmit: good().transmit, ..header };
        assert_eq!(judged(&later), Judged::Invalid(InvalidReason::Timestamp));
        let basic = Asked { receive: None, ..ASKED };
        assert_eq!(judge(&basic, &bytes(&header)), Judged::Invalid(InvalidReason::Origin));
    }

    #[test]
    fn each_fault_has_its_reason() {
        use InvalidReason::{
            Leap as BadLeap, Mode as BadMode, Origin, Stratum, Timestamp, Version,
        };
        let one_less = NtpTimestamp::from_bits(good().receive.to_bits() - 1);
        let cases = [
            (Header { mode: Mode::Client, ..good() }, BadMode),
            (Header { version: 3, ..good() }, Version),
            (Header { origin: NtpTimestamp::UNKNOWN, ..good() }, Origin),
            (Header { stratum: 0, ..good() }, Stratum),
            (Header { stratum: 17, ..good() }, Stratum),
            (Header { leap: Leap::Unsynchronised, ..good() }, BadLeap),
            (Header { stratum: 16, ..good() }, BadLeap),
            (Header { transmit: NtpTimestamp::UNKNOWN, ..good() }, Timestamp),
            (Header { receive: NtpTimestamp::UNKNOWN, ..good() }, Timestamp),
            (Header { transmit: one_less, ..good() }, Timestamp),
        ];
        for (header, reason) in cases {
            assert_eq!(judged(&header), Judged::Invalid(reason), "{header:?}");
        }
        for length in [0, 47] {
            let short = judge(&ASKED, &bytes(&good())[..length]);
            assert_eq!(short, Judged::Invalid(InvalidReason::Length));
        }
        let longer = [bytes(&good()).as_slice(), &[0; 4]].concat();
        assert_eq!(judge(&ASKED, &longer), Judged::Invalid(InvalidReason::Length));
        assert!(matches!(judge(&Asked { extended: true, ..ASKED }, &longer), Judged::Reply(_)));
    }

    #[test]
    fn an_unsynchronised_server_gives_valid_replies() {
        let header = Header { leap: Leap::Unsynchronised, stratum: 16, ..good() };
        assert!(matches!(judged(&header), Judged::Reply(_)));
    }

    #[test]
    fn a_kiss_counts_only_if_it_answers_the_request() {
        let kiss =
            Header { stratum: 0, reference_id: *b"RATE", leap: Leap::Unsynchronised, ..good() };
        assert_eq!(judged(&kiss), Judged::Kiss(*b"RATE"));
        let stranger = Header { origin: NtpTimestamp::from_bits(1), ..kiss };
        assert_eq!(judged(&stranger), Judged::Invalid(InvalidReason::Origin));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(judge(&ASKED, &payload), Judged::Reply(_)));
        }
    }
}
