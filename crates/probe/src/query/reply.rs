//! Check of a datagram as the reply to a request, from the bytes of both. Pure.
//!
//! The order of the checks is part of the result: the first that fails names the reason.

use horolog_record::InvalidReason;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::{AssociationMode, Header, ReplyStatus};

/// Fields of a request by which its reply is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRequest {
    /// NTP version.
    pub version: u8,
    /// Origin timestamp of a reply in basic mode.
    pub transmit: NtpTimestamp,
    /// Origin timestamp of a reply in interleaved mode; `None` if that was not requested.
    pub receive: Option<NtpTimestamp>,
    /// True if extension fields may follow the header of a reply.
    pub extended: bool,
}

/// Reply that is valid in itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryReply {
    /// Header.
    pub header: Header,
    /// True if it is in interleaved mode: its transmit timestamp is that of the reply before.
    pub interleaved: bool,
}

impl QueryReply {
    /// Returns true if it has the server's timestamps. An unsynchronised server may send none.
    #[must_use]
    pub fn has_times(&self) -> bool {
        ![self.header.receive, self.header.transmit].contains(&NtpTimestamp::UNKNOWN)
    }
}

/// Verdict on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JudgedReply {
    /// Valid reply.
    Reply(QueryReply),
    /// Kiss-o'-Death with its code (RFC 5905, section 7.4).
    Kiss([u8; 4]),
    /// No valid reply.
    Invalid(InvalidReason),
}

/// Judges a datagram as the reply to a request.
#[must_use]
pub fn judge(request: &SentRequest, payload: &[u8]) -> JudgedReply {
    match check(request, payload) {
        Ok(judged) => judged,
        Err(reason) => JudgedReply::Invalid(reason),
    }
}

fn check(request: &SentRequest, payload: &[u8]) -> Result<JudgedReply, InvalidReason> {
    let (header, rest) = Header::parse(payload).map_err(|_| InvalidReason::Length)?;
    if !rest.is_empty() && !request.extended {
        return Err(InvalidReason::Length);
    }
    if header.mode != AssociationMode::Server {
        return Err(InvalidReason::Mode);
    }
    if header.version != request.version {
        return Err(InvalidReason::Version);
    }
    let interleaved = Some(header.origin) == request.receive;
    if !interleaved && header.origin != request.transmit {
        return Err(InvalidReason::Origin);
    }
    let reply = QueryReply { header, interleaved };
    match header.reply_status().ok_or(InvalidReason::Stratum)? {
        // Only a host that saw the request can have sent a kiss that gets here.
        ReplyStatus::Kiss(code) => return Ok(JudgedReply::Kiss(code)),
        // Timestamp 0 stands for an unknown time (RFC 5905, section 6).
        ReplyStatus::Unsynchronised if !reply.has_times() => return Ok(JudgedReply::Reply(reply)),
        ReplyStatus::Unsynchronised | ReplyStatus::Synchronised => {}
    }
    let in_order = if interleaved {
        !is_before(header.receive, header.transmit)
    } else {
        !is_before(header.transmit, header.receive)
    };
    if !reply.has_times() || !in_order {
        return Err(InvalidReason::Timestamp);
    }
    Ok(JudgedReply::Reply(reply))
}

/// Returns true if one timestamp is before another, also across the end of an era.
pub(crate) const fn is_before(one: NtpTimestamp, other: NtpTimestamp) -> bool {
    one.to_bits().wrapping_sub(other.to_bits()) >> 63 == 1
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_wire::ntp::{HEADER_LEN, LeapIndicator};
    use proptest::prelude::*;

    use super::*;

    pub(crate) const SENT_REQUEST: SentRequest = SentRequest {
        version: 4,
        transmit: NtpTimestamp::from_bits(0xdead_beef_0000_0001),
        receive: Some(NtpTimestamp::from_bits(0xdead_beef_0000_0002)),
        extended: false,
    };

    pub(crate) fn good() -> Header {
        Header {
            mode: AssociationMode::Server,
            stratum: 1,
            precision: -25,
            reference_id: *b"GPS\0",
            origin: SENT_REQUEST.transmit,
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

    fn judged(header: &Header) -> JudgedReply {
        judge(&SENT_REQUEST, &bytes(header))
    }

    #[test]
    fn a_good_reply_is_good() {
        assert_eq!(
            judged(&good()),
            JudgedReply::Reply(QueryReply { header: good(), interleaved: false })
        );
    }

    #[test]
    fn an_interleaved_reply_is_known_by_what_it_brings_back() {
        let earlier = NtpTimestamp::from_bits(good().receive.to_bits() - (1 << 32));
        let header = Header { origin: SENT_REQUEST.receive.unwrap(), transmit: earlier, ..good() };
        assert_eq!(judged(&header), JudgedReply::Reply(QueryReply { header, interleaved: true }));
        let later = Header { transmit: good().transmit, ..header };
        assert_eq!(judged(&later), JudgedReply::Invalid(InvalidReason::Timestamp));
        let basic = SentRequest { receive: None, ..SENT_REQUEST };
        assert_eq!(judge(&basic, &bytes(&header)), JudgedReply::Invalid(InvalidReason::Origin));
    }

    #[test]
    fn each_fault_has_its_reason() {
        use InvalidReason::{Mode as BadMode, Origin, Stratum, Timestamp, Version};
        let one_less = NtpTimestamp::from_bits(good().receive.to_bits() - 1);
        let cases = [
            (Header { mode: AssociationMode::Client, ..good() }, BadMode),
            (Header { version: 3, ..good() }, Version),
            (Header { origin: NtpTimestamp::UNKNOWN, ..good() }, Origin),
            (Header { stratum: 17, ..good() }, Stratum),
            (Header { transmit: NtpTimestamp::UNKNOWN, ..good() }, Timestamp),
            (Header { receive: NtpTimestamp::UNKNOWN, ..good() }, Timestamp),
            (Header { transmit: one_less, ..good() }, Timestamp),
        ];
        for (header, reason) in cases {
            assert_eq!(judged(&header), JudgedReply::Invalid(reason), "{header:?}");
        }
        for length in [0, 47] {
            let short = judge(&SENT_REQUEST, &bytes(&good())[..length]);
            assert_eq!(short, JudgedReply::Invalid(InvalidReason::Length));
        }
        let longer = [bytes(&good()).as_slice(), &[0; 4]].concat();
        assert_eq!(judge(&SENT_REQUEST, &longer), JudgedReply::Invalid(InvalidReason::Length));
        assert!(matches!(
            judge(&SentRequest { extended: true, ..SENT_REQUEST }, &longer),
            JudgedReply::Reply(_)
        ));
    }

    #[test]
    fn an_unsynchronised_server_gives_valid_replies() {
        for (leap, stratum) in [(3, 0), (3, 2), (3, 16), (0, 16), (0, 0)] {
            let header = Header { leap: LeapIndicator::from_bits(leap), stratum, ..good() };
            assert!(matches!(judged(&header), JudgedReply::Reply(reply) if reply.has_times()));
            let header = Header { receive: NtpTimestamp::UNKNOWN, ..header };
            assert!(matches!(judged(&header), JudgedReply::Reply(reply) if !reply.has_times()));
        }
        for id in [*b"INIT", *b"STEP"] {
            let header = Header { stratum: 0, reference_id: id, ..good() };
            assert!(matches!(judged(&header), JudgedReply::Reply(_)), "not synchronised yet");
        }
    }

    #[test]
    fn a_kiss_counts_only_if_it_answers_the_request() {
        let kiss = Header {
            stratum: 0,
            reference_id: *b"RATE",
            leap: LeapIndicator::Unsynchronised,
            ..good()
        };
        assert_eq!(judged(&kiss), JudgedReply::Kiss(*b"RATE"));
        let stranger = Header { origin: NtpTimestamp::from_bits(1), ..kiss };
        assert_eq!(judged(&stranger), JudgedReply::Invalid(InvalidReason::Origin));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(judge(&SENT_REQUEST, &payload), JudgedReply::Reply(_)));
        }
    }
}
