//! Validation of a datagram as the reply to a request. Pure.
//!
//! The first check that fails determines the reason, so their order is part of the result.

use horolog_record::InvalidReplyReason;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::{AssociationMode, Header, ReplyStatus};

/// Fields of a request that identify its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyMatchFields {
    /// NTP version of the request.
    pub version: u8,
    /// Transmit field, the origin timestamp of a reply in basic mode.
    pub transmit: NtpTimestamp,
    /// Receive field, the origin timestamp of a reply in interleaved mode; `None` if that mode was
    /// not requested.
    pub receive: Option<NtpTimestamp>,
    /// True if extension fields may follow the header of a reply.
    pub allows_extensions: bool,
}

/// Valid reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryReply {
    /// Header of the reply.
    pub header: Header,
    /// True in interleaved mode: the transmit timestamp is that of the previous reply.
    pub interleaved: bool,
}

impl QueryReply {
    /// Returns true if receive and transmit timestamps are set; an unsynchronised server may leave
    /// them 0.
    #[must_use]
    pub fn has_server_timestamps(&self) -> bool {
        ![self.header.receive, self.header.transmit].contains(&NtpTimestamp::UNKNOWN)
    }
}

/// Verdict on a datagram as the reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyVerdict {
    /// Valid reply.
    Reply(QueryReply),
    /// Kiss-o'-Death with its code (RFC 5905, section 7.4).
    Kiss([u8; 4]),
    /// No valid reply, with the reason.
    Invalid(InvalidReplyReason),
}

/// Validates a datagram as the reply to a request.
#[must_use]
pub fn judge_reply(request: &ReplyMatchFields, payload: &[u8]) -> ReplyVerdict {
    match check_reply(request, payload) {
        Ok(judged) => judged,
        Err(reason) => ReplyVerdict::Invalid(reason),
    }
}

fn check_reply(
    request: &ReplyMatchFields,
    payload: &[u8],
) -> Result<ReplyVerdict, InvalidReplyReason> {
    let (header, rest) = Header::parse(payload).map_err(|_| InvalidReplyReason::Length)?;
    if !rest.is_empty() && !request.allows_extensions {
        return Err(InvalidReplyReason::Length);
    }
    if header.mode != AssociationMode::Server {
        return Err(InvalidReplyReason::Mode);
    }
    if header.version != request.version {
        return Err(InvalidReplyReason::Version);
    }
    let interleaved = Some(header.origin) == request.receive;
    if !interleaved && header.origin != request.transmit {
        return Err(InvalidReplyReason::Origin);
    }
    let reply = QueryReply { header, interleaved };
    match header.reply_status().ok_or(InvalidReplyReason::Stratum)? {
        // The origin timestamp matched, so the sender of this kiss has seen the request.
        ReplyStatus::Kiss(code) => return Ok(ReplyVerdict::Kiss(code)),
        // Timestamp 0 stands for an unknown time (RFC 5905, section 6).
        ReplyStatus::Unsynchronised if !reply.has_server_timestamps() => {
            return Ok(ReplyVerdict::Reply(reply));
        }
        ReplyStatus::Unsynchronised | ReplyStatus::Synchronised => {}
    }
    let in_order = if interleaved {
        !is_before(header.receive, header.transmit)
    } else {
        !is_before(header.transmit, header.receive)
    };
    if !reply.has_server_timestamps() || !in_order {
        return Err(InvalidReplyReason::Timestamp);
    }
    Ok(ReplyVerdict::Reply(reply))
}

/// Returns true if `one` is earlier than `other`, across the era boundary too.
pub(crate) const fn is_before(one: NtpTimestamp, other: NtpTimestamp) -> bool {
    one.to_bits().wrapping_sub(other.to_bits()) >> 63 == 1
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_wire::ntp::{HEADER_LEN, LeapIndicator};
    use proptest::prelude::*;

    use super::*;

    pub(crate) const SENT_REQUEST: ReplyMatchFields = ReplyMatchFields {
        version: 4,
        transmit: NtpTimestamp::from_bits(0xdead_beef_0000_0001),
        receive: Some(NtpTimestamp::from_bits(0xdead_beef_0000_0002)),
        allows_extensions: false,
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

    fn judged(header: &Header) -> ReplyVerdict {
        judge_reply(&SENT_REQUEST, &bytes(header))
    }

    #[test]
    fn a_good_reply_is_good() {
        assert_eq!(
            judged(&good()),
            ReplyVerdict::Reply(QueryReply { header: good(), interleaved: false })
        );
    }

    #[test]
    fn an_interleaved_reply_is_known_by_what_it_brings_back() {
        let earlier = NtpTimestamp::from_bits(good().receive.to_bits() - (1 << 32));
        let header = Header { origin: SENT_REQUEST.receive.unwrap(), transmit: earlier, ..good() };
        assert_eq!(judged(&header), ReplyVerdict::Reply(QueryReply { header, interleaved: true }));
        let later = Header { transmit: good().transmit, ..header };
        assert_eq!(judged(&later), ReplyVerdict::Invalid(InvalidReplyReason::Timestamp));
        let basic = ReplyMatchFields { receive: None, ..SENT_REQUEST };
        assert_eq!(
            judge_reply(&basic, &bytes(&header)),
            ReplyVerdict::Invalid(InvalidReplyReason::Origin)
        );
    }

    #[test]
    fn each_fault_has_its_reason() {
        use InvalidReplyReason::{Mode as BadMode, Origin, Stratum, Timestamp, Version};
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
            assert_eq!(judged(&header), ReplyVerdict::Invalid(reason), "{header:?}");
        }
        for length in [0, 47] {
            let short = judge_reply(&SENT_REQUEST, &bytes(&good())[..length]);
            assert_eq!(short, ReplyVerdict::Invalid(InvalidReplyReason::Length));
        }
        let longer = [bytes(&good()).as_slice(), &[0; 4]].concat();
        assert_eq!(
            judge_reply(&SENT_REQUEST, &longer),
            ReplyVerdict::Invalid(InvalidReplyReason::Length)
        );
        assert!(matches!(
            judge_reply(&ReplyMatchFields { allows_extensions: true, ..SENT_REQUEST }, &longer),
            ReplyVerdict::Reply(_)
        ));
    }

    #[test]
    fn an_unsynchronised_server_gives_valid_replies() {
        for (leap, stratum) in [(3, 0), (3, 2), (3, 16), (0, 16), (0, 0)] {
            let header = Header { leap: LeapIndicator::from_bits(leap), stratum, ..good() };
            assert!(
                matches!(judged(&header), ReplyVerdict::Reply(reply) if reply.has_server_timestamps())
            );
            let header = Header { receive: NtpTimestamp::UNKNOWN, ..header };
            assert!(
                matches!(judged(&header), ReplyVerdict::Reply(reply) if !reply.has_server_timestamps())
            );
        }
        for id in [*b"INIT", *b"STEP"] {
            let header = Header { stratum: 0, reference_id: id, ..good() };
            assert!(matches!(judged(&header), ReplyVerdict::Reply(_)), "not synchronised yet");
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
        assert_eq!(judged(&kiss), ReplyVerdict::Kiss(*b"RATE"));
        let stranger = Header { origin: NtpTimestamp::from_bits(1), ..kiss };
        assert_eq!(judged(&stranger), ReplyVerdict::Invalid(InvalidReplyReason::Origin));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(judge_reply(&SENT_REQUEST, &payload), ReplyVerdict::Reply(_)));
        }
    }
}
