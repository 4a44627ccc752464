//! Verification that a datagram from the target is a valid reply to a request of this run, from its
//! bytes alone. Duplicates and timeouts are handled by [`crate::request_tracker`].
//!
//! The order of the checks is part of the result: the first check that fails names the reason. The
//! XDP engine checks in the same order, except that for a sequence number not yet used in this
//! trial it compares the client, whereas this code detects that the request was not sent.

use horolog_record::InvalidReplyReason;
use horolog_time::{Monotonic, NtpTimestamp, Timestamp};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, ReplyStatus};

use crate::token::{EchoedTimestamp, RequestId, RequestTokenCodec, TIME_BITS};

/// Reply that is valid by its own bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerifiedReply {
    /// Request that the reply echoes.
    pub request: RequestId,
    /// Mode of the reply.
    pub mode: ReplyMode,
    /// Server's receive timestamp. The client's next request in interleaved mode refers to it.
    pub receive: NtpTimestamp,
    /// Server's transmit timestamp: of this reply in basic mode, of the previous one in interleaved
    /// mode.
    pub transmit: NtpTimestamp,
    /// True if the server reports itself as unsynchronised.
    pub unsynchronised: bool,
}

/// NTP mode of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    /// Basic mode: receive and transmit timestamp belong to this exchange.
    Basic {
        /// Response time in ns (transmit minus receive); `None` if an unsynchronised server sends
        /// no timestamps.
        response_ns: Option<u64>,
    },
    /// Interleaved mode: the transmit timestamp is that of an earlier reply, so this reply's
    /// response time is unknown.
    Interleaved,
}

/// Verifier of replies: the values that it compares them with.
#[derive(Clone, Copy, Debug)]
pub struct ReplyVerifier {
    /// Codec that recognises the requests of this run.
    pub token: RequestTokenCodec,
    /// Version of the requests, 1 to 4.
    pub version: u8,
    /// True if requests are in interleaved mode, which allows interleaved replies.
    pub interleaved: bool,
    /// True if a trailer may follow the header; `check_request` verifies it.
    pub extended: bool,
}

impl ReplyVerifier {
    /// Returns the verifier of replies to plain requests of version 4 in basic mode.
    #[must_use]
    pub const fn plain(token: RequestTokenCodec) -> Self {
        Self { token, version: 4, interleaved: false, extended: false }
    }

    /// Verifies a UDP payload that arrived not later than `now`. `check_request` checks that the
    /// request was sent ([`InvalidReplyReason::Origin`]), that its client received the reply
    /// ([`InvalidReplyReason::Client`]), and the trailer if there may be one.
    pub fn verify(
        &self,
        payload: &[u8],
        now: Timestamp<Monotonic>,
        check_request: impl FnOnce(RequestId) -> Result<(), InvalidReplyReason>,
    ) -> Result<VerifiedReply, InvalidReplyReason> {
        let (header, rest) = Header::parse(payload).map_err(|_| InvalidReplyReason::Length)?;
        if !rest.is_empty() && !self.extended {
            return Err(InvalidReplyReason::Length);
        }
        if header.mode != AssociationMode::Server {
            return Err(InvalidReplyReason::Mode);
        }
        if header.version != self.version {
            return Err(InvalidReplyReason::Version);
        }
        let decoded = self.token.decode(header.origin.to_bits(), now);
        let (request, echoed) = decoded.ok_or(InvalidReplyReason::Origin)?;
        if echoed == EchoedTimestamp::Receive && !self.interleaved {
            return Err(InvalidReplyReason::Origin);
        }
        check_request(request)?;
        let unsynchronised = is_unsynchronised(&header)?;
        // A timestamp of 0 means unknown (RFC 5905, section 6), which is valid for an
        // unsynchronised server.
        let known = ![header.receive, header.transmit].contains(&NtpTimestamp::UNKNOWN);
        let has_times = known || !unsynchronised;
        let mode = match echoed {
            EchoedTimestamp::Transmit if !has_times => Some(ReplyMode::Basic { response_ns: None }),
            EchoedTimestamp::Transmit => response_ns(header.receive, header.transmit)
                .map(|ns| ReplyMode::Basic { response_ns: Some(ns) }),
            EchoedTimestamp::Receive => {
                (!has_times || is_of_earlier_reply(&header)).then_some(ReplyMode::Interleaved)
            }
        };
        let mode = mode.ok_or(InvalidReplyReason::Timestamp)?;
        let Header { receive, transmit, .. } = header;
        Ok(VerifiedReply { request, mode, receive, transmit, unsynchronised })
    }
}

/// Length of a plain request and of its reply, in bytes.
pub const PAYLOAD_LEN: usize = HEADER_LEN;

/// Returns true if the server reports itself as unsynchronised; refuses kiss-o'-death replies.
fn is_unsynchronised(header: &Header) -> Result<bool, InvalidReplyReason> {
    match header.reply_status().ok_or(InvalidReplyReason::Stratum)? {
        ReplyStatus::Synchronised => Ok(false),
        ReplyStatus::Unsynchronised => Ok(true),
        ReplyStatus::Kiss(code) => Err(match &code {
            b"RATE" => InvalidReplyReason::KissRate,
            b"DENY" => InvalidReplyReason::KissDeny,
            b"RSTR" => InvalidReplyReason::KissRstr,
            _ => InvalidReplyReason::KissOther,
        }),
    }
}

/// Returns the response time in ns, transmit minus receive timestamp; `None` if the transmit
/// timestamp is 0 or the difference is negative or above the range of a token.
pub(crate) fn response_ns(receive: NtpTimestamp, transmit: NtpTimestamp) -> Option<u64> {
    if transmit == NtpTimestamp::UNKNOWN {
        return None;
    }
    // Compares all 64 bits, because rounding to ns would hide a difference of less than 1 ns below
    // 0.
    let backwards = transmit.to_bits().wrapping_sub(receive.to_bits()) >> 63 == 1;
    let ns = transmit.since(receive).as_ns();
    u64::try_from(ns).ok().filter(|&ns| !backwards && ns < 1 << TIME_BITS)
}

/// Returns true if the transmit timestamp can be that of an earlier reply: not 0, and not after the
/// receipt of this request.
const fn is_of_earlier_reply(header: &Header) -> bool {
    let (receive, transmit) = (header.receive.to_bits(), header.transmit.to_bits());
    transmit != 0 && receive.wrapping_sub(transmit) >> 63 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_time::Span;
    use horolog_wire::ntp::LeapIndicator;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(1_000_000_000);
    const QUESTION: RequestId = RequestId { intended: START, sequence: 5 };

    fn expected() -> ReplyVerifier {
        let token = RequestTokenCodec::new(0xdead_beef_1234_5678, START);
        ReplyVerifier { token, version: 4, interleaved: false, extended: false }
    }

    fn good() -> Header {
        let receive = NtpTimestamp::from_bits(0xe000_0000_ffff_ffff);
        Header {
            mode: AssociationMode::Server,
            stratum: 2,
            origin: NtpTimestamp::from_bits(expected().token.encode(QUESTION)),
            receive,
            transmit: receive.wrapping_add(Span::from_ns(2_000)),
            ..Header::request(4, NtpTimestamp::UNKNOWN)
        }
    }

    fn kiss(code: [u8; 4]) -> Header {
        let (receive, transmit) = (NtpTimestamp::UNKNOWN, NtpTimestamp::UNKNOWN);
        Header { stratum: 0, reference_id: code, receive, transmit, ..good() }
    }

    /// The reply to a request whose receive timestamp the server brought back.
    fn interleaved() -> Header {
        let origin = RequestTokenCodec::interleaved_receive(good().origin.to_bits());
        let earlier = NtpTimestamp::from_bits(good().receive.to_bits() - (64 << 32));
        Header { origin: NtpTimestamp::from_bits(origin), transmit: earlier, ..good() }
    }

    fn verify(header: &Header) -> Result<VerifiedReply, InvalidReplyReason> {
        verify_as(expected(), header)
    }

    fn verify_as(
        expected: ReplyVerifier,
        header: &Header,
    ) -> Result<VerifiedReply, InvalidReplyReason> {
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes);
        expected.verify(&bytes, START + Span::from_ns(50_000), |question| {
            if question.sequence == 5 { Ok(()) } else { Err(InvalidReplyReason::Client) }
        })
    }

    #[test]
    fn a_good_reply_is_good() {
        let reply = verify(&good()).unwrap();
        assert_eq!((reply.request, reply.unsynchronised), (QUESTION, false));
        assert_eq!(reply.mode, ReplyMode::Basic { response_ns: Some(2_000) });
        assert_eq!(reply.receive, good().receive);
    }

    #[test]
    fn each_fault_has_its_reason() {
        use InvalidReplyReason::{KissDeny, KissOther, KissRate, KissRstr, Mode as BadMode};
        use InvalidReplyReason::{Origin, Stratum, Version};
        let token = expected().token;
        let other = token.encode(RequestId { sequence: 6, ..QUESTION });
        let cases = [
            (Header { mode: AssociationMode::Client, ..good() }, BadMode),
            (Header { version: 3, ..good() }, Version),
            (Header { origin: NtpTimestamp::from_bits(1), ..good() }, Origin),
            (
                Header { origin: NtpTimestamp::from_bits(other), ..good() },
                InvalidReplyReason::Client,
            ),
            (Header { stratum: 17, ..good() }, Stratum),
            (kiss(*b"RATE"), KissRate),
            (kiss(*b"DENY"), KissDeny),
            (kiss(*b"RSTR"), KissRstr),
            (kiss(*b"NKEY"), KissOther),
            (Header { origin: NtpTimestamp::from_bits(1), ..kiss(*b"DENY") }, Origin),
            (Header { transmit: NtpTimestamp::UNKNOWN, ..good() }, InvalidReplyReason::Timestamp),
        ];
        for (header, reason) in cases {
            assert_eq!(verify(&header), Err(reason), "{header:?}");
        }
    }

    #[test]
    fn timestamps_may_be_equal_but_not_run_backwards() {
        let same = Header { transmit: good().receive, ..good() };
        assert_eq!(verify(&same).unwrap().mode, ReplyMode::Basic { response_ns: Some(0) });
        let one_unit = NtpTimestamp::from_bits(good().receive.to_bits() - 1);
        let backwards = Header { transmit: one_unit, ..good() };
        assert_eq!(verify(&backwards), Err(InvalidReplyReason::Timestamp));
        let minutes = good().receive.wrapping_add(Span::from_ns(1 << TIME_BITS));
        let slow = Header { transmit: minutes, ..good() };
        assert_eq!(verify(&slow), Err(InvalidReplyReason::Timestamp));
    }

    #[test]
    fn an_interleaved_reply_is_valid_only_where_it_was_requested() {
        assert_eq!(verify(&interleaved()), Err(InvalidReplyReason::Origin));
        let expectation = ReplyVerifier { interleaved: true, ..expected() };
        let reply = verify_as(expectation, &interleaved()).unwrap();
        assert_eq!((reply.request, reply.mode), (QUESTION, ReplyMode::Interleaved));
        let basic = verify_as(expectation, &good()).unwrap();
        assert_eq!(basic.mode, ReplyMode::Basic { response_ns: Some(2_000) });
    }

    #[test]
    fn an_interleaved_reply_carries_the_transmit_time_of_an_earlier_one() {
        let expectation = ReplyVerifier { interleaved: true, ..expected() };
        let same = Header { transmit: interleaved().receive, ..interleaved() };
        assert!(verify_as(expectation, &same).is_ok());
        let later = same.transmit.wrapping_add(Span::from_ns(1));
        for transmit in [later, NtpTimestamp::UNKNOWN] {
            let header = Header { transmit, ..interleaved() };
            assert_eq!(verify_as(expectation, &header), Err(InvalidReplyReason::Timestamp));
        }
    }

    #[test]
    fn an_unsynchronised_server_gives_valid_replies() {
        let expectation = ReplyVerifier { interleaved: true, ..expected() };
        for header in [good(), interleaved()] {
            for (leap, stratum) in [(3, 0), (3, 2), (3, 16), (0, 16), (0, 0)] {
                let header = Header { leap: LeapIndicator::from_bits(leap), stratum, ..header };
                assert!(verify_as(expectation, &header).unwrap().unsynchronised, "{header:?}");
            }
        }
    }

    #[test]
    fn an_unsynchronised_server_may_have_no_time() {
        let expectation = ReplyVerifier { interleaved: true, ..expected() };
        for header in [good(), interleaved()] {
            for (receive, transmit) in [(true, false), (false, true), (false, false)] {
                let of = |known, time| if known { time } else { NtpTimestamp::UNKNOWN };
                let header = Header {
                    stratum: 0,
                    receive: of(receive, header.receive),
                    transmit: of(transmit, header.transmit),
                    ..header
                };
                let answer = verify_as(expectation, &header).unwrap().mode;
                let basic = ReplyMode::Basic { response_ns: None };
                assert!([basic, ReplyMode::Interleaved].contains(&answer), "{answer:?}");
            }
        }
        let backwards = Header { stratum: 0, transmit: NtpTimestamp::from_bits(1), ..good() };
        assert_eq!(verify(&backwards), Err(InvalidReplyReason::Timestamp));
    }

    #[test]
    fn the_length_is_the_request_s() {
        let mut bytes = [0; HEADER_LEN + 4];
        good().emit(&mut bytes);
        for length in [0, 47, 49, 52] {
            let result = expected().verify(&bytes[..length], START, |_| Ok(()));
            assert_eq!(result, Err(InvalidReplyReason::Length), "{length}");
        }
    }
}
