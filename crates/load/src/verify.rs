//! Whether a datagram from the target is a valid reply to a question of ours, decided from its
//! bytes alone. Whether it is the first reply and came in time is for [`crate::account`].
//!
//! The order of the checks is part of the result: the first that fails names the reason. The
//! in-kernel engine checks in the same order; it holds a number that was not asked yet in this
//! trial against its client, where this one knows that nobody has asked it.

use horolog_record::InvalidReason;
use horolog_time::{Monotonic, NtpTimestamp, Timestamp};
use horolog_wire::ntp::{HEADER_LEN, Header, Leap, Mode, STRATUM_UNSYNCHRONISED};

use crate::token::{Echoed, Question, TIME_BITS, Token};

/// A reply that is right in itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// What it answers.
    pub question: Question,
    /// Which mode the server answered in.
    pub answer: Answer,
    /// The server's receive timestamp, by which a request in interleaved mode refers to this reply.
    pub receive: NtpTimestamp,
    /// The server's transmit timestamp: of this reply in basic mode, else of the one before.
    pub transmit: NtpTimestamp,
    /// Whether the server says that it is not synchronised (leap 3 with stratum 16).
    pub unsynchronised: bool,
}

/// In which of NTP's modes a server answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// In basic mode: the server's transmit less its receive timestamp is its response time, in ns.
    Basic {
        /// That time.
        response_ns: u64,
    },
    /// In interleaved mode: the transmit timestamp is that of an earlier reply, so it says nothing
    /// of how long this one took.
    Interleaved,
}

/// What replies are held against.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Recognises the questions of this run.
    pub token: Token,
    /// The version of the requests, 1 to 4.
    pub version: u8,
    /// Whether requests are in interleaved mode, so that replies may be.
    pub interleaved: bool,
    /// Whether extension fields may follow the header; what stands in them is for `asked` to say.
    pub extended: bool,
}

impl Expected {
    /// Checks a UDP payload that came before `now`. `asked` says for a question whether it was
    /// really asked ([`InvalidReason::Origin`]) and by the client to which the reply came
    /// ([`InvalidReason::Client`]), and judges what follows the header where something may.
    pub fn verify(
        &self,
        payload: &[u8],
        now: Timestamp<Monotonic>,
        asked: impl FnOnce(Question) -> Result<(), InvalidReason>,
    ) -> Result<Reply, InvalidReason> {
        let (header, rest) = Header::parse(payload).map_err(|_| InvalidReason::Length)?;
        if !rest.is_empty() && !self.extended {
            return Err(InvalidReason::Length);
        }
        if header.mode != Mode::Server {
            return Err(InvalidReason::Mode);
        }
        if header.version != self.version {
            return Err(InvalidReason::Version);
        }
        let decoded = self.token.decode(header.origin.to_bits(), now);
        let (question, echoed) = decoded.ok_or(InvalidReason::Origin)?;
        if echoed == Echoed::Receive && !self.interleaved {
            return Err(InvalidReason::Origin);
        }
        asked(question)?;
        let unsynchronised = synchronisation(&header)?;
        let answer = match echoed {
            Echoed::Transmit => response_ns(header.receive, header.transmit)
                .map(|response_ns| Answer::Basic { response_ns }),
            Echoed::Receive => is_of_earlier_reply(&header).then_some(Answer::Interleaved),
        };
        let answer = answer.ok_or(InvalidReason::Timestamp)?;
        let Header { receive, transmit, .. } = header;
        Ok(Reply { question, answer, receive, transmit, unsynchronised })
    }
}

/// Length of a plain request and of its reply, in bytes.
pub const PAYLOAD_LEN: usize = HEADER_LEN;

/// Whether the server says that it is unsynchronised. Leap 3 and stratum 16 say the same thing
/// (RFC 5905, figures 9 and 11), so one without the other is a contradiction.
fn synchronisation(header: &Header) -> Result<bool, InvalidReason> {
    if header.stratum == 0 || header.stratum > STRATUM_UNSYNCHRONISED {
        return Err(InvalidReason::Stratum);
    }
    let by_leap = header.leap == Leap::Unsynchronised;
    let by_stratum = header.stratum == STRATUM_UNSYNCHRONISED;
    if by_leap == by_stratum { Ok(by_leap) } else { Err(InvalidReason::Leap) }
}

/// Transmit less receive timestamp of one reply, to the nearest ns, where both are known and that
/// is a time that a server can have taken.
pub(crate) fn response_ns(receive: NtpTimestamp, transmit: NtpTimestamp) -> Option<u64> {
    if transmit == NtpTimestamp::UNKNOWN {
        return None;
    }
    // Rounding to nanoseconds must not hide a timestamp that runs backwards by less than one.
    let backwards = transmit.to_bits().wrapping_sub(receive.to_bits()) >> 63 == 1;
    let ns = transmit.since(receive).as_ns();
    u64::try_from(ns).ok().filter(|&ns| !backwards && ns < 1 << TIME_BITS)
}

/// Whether the transmit timestamp can be that of a reply before this request: it is known and not
/// after the receive timestamp. How long ago it was is for the client's polling to say.
const fn is_of_earlier_reply(header: &Header) -> bool {
    let (receive, transmit) = (header.receive.to_bits(), header.transmit.to_bits());
    transmit != 0 && receive.wrapping_sub(transmit) >> 63 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_time::Span;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(1_000_000_000);
    const QUESTION: Question = Question { intended: START, sequence: 5 };

    fn expected() -> Expected {
        let token = Token::new(0xdead_beef_1234_5678, START);
        Expected { token, version: 4, interleaved: false, extended: false }
    }

    fn good() -> Header {
        let receive = NtpTimestamp::from_bits(0xe000_0000_ffff_ffff);
        Header {
            mode: Mode::Server,
            stratum: 2,
            origin: NtpTimestamp::from_bits(expected().token.encode(QUESTION)),
            receive,
            transmit: receive.wrapping_add(Span::from_ns(2_000)),
            ..Header::request(4, NtpTimestamp::UNKNOWN)
        }
    }

    /// The reply to a request whose receive timestamp the server brought back.
    fn interleaved() -> Header {
        let origin = Token::receive_of(good().origin.to_bits());
        let earlier = NtpTimestamp::from_bits(good().receive.to_bits() - (64 << 32));
        Header { origin: NtpTimestamp::from_bits(origin), transmit: earlier, ..good() }
    }

    fn verify(header: &Header) -> Result<Reply, InvalidReason> {
        verify_as(expected(), header)
    }

    fn verify_as(expected: Expected, header: &Header) -> Result<Reply, InvalidReason> {
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes);
        expected.verify(&bytes, START + Span::from_ns(50_000), |question| {
            if question.sequence == 5 { Ok(()) } else { Err(InvalidReason::Client) }
        })
    }

    #[test]
    fn a_good_reply_is_good() {
        let reply = verify(&good()).unwrap();
        assert_eq!((reply.question, reply.unsynchronised), (QUESTION, false));
        assert_eq!(reply.answer, Answer::Basic { response_ns: 2_000 });
        assert_eq!(reply.receive, good().receive);
    }

    #[test]
    fn each_fault_has_its_reason() {
        use InvalidReason::{Leap as BadLeap, Mode as BadMode, Origin, Stratum, Version};
        let token = expected().token;
        let other = token.encode(Question { sequence: 6, ..QUESTION });
        let cases = [
            (Header { mode: Mode::Client, ..good() }, BadMode),
            (Header { version: 3, ..good() }, Version),
            (Header { origin: NtpTimestamp::from_bits(1), ..good() }, Origin),
            (Header { origin: NtpTimestamp::from_bits(other), ..good() }, InvalidReason::Client),
            (Header { stratum: 0, ..good() }, Stratum),
            (Header { stratum: 17, ..good() }, Stratum),
            (Header { leap: Leap::Unsynchronised, ..good() }, BadLeap),
            (Header { stratum: 16, ..good() }, BadLeap),
            (Header { transmit: NtpTimestamp::UNKNOWN, ..good() }, InvalidReason::Timestamp),
        ];
        for (header, reason) in cases {
            assert_eq!(verify(&header), Err(reason), "{header:?}");
        }
    }

    #[test]
    fn timestamps_may_be_equal_but_not_run_backwards() {
        let same = Header { transmit: good().receive, ..good() };
        assert_eq!(verify(&same).unwrap().answer, Answer::Basic { response_ns: 0 });
        let one_unit = NtpTimestamp::from_bits(good().receive.to_bits() - 1);
        let backwards = Header { transmit: one_unit, ..good() };
        assert_eq!(verify(&backwards), Err(InvalidReason::Timestamp));
        let minutes = good().receive.wrapping_add(Span::from_ns(1 << TIME_BITS));
        let slow = Header { transmit: minutes, ..good() };
        assert_eq!(verify(&slow), Err(InvalidReason::Timestamp));
    }

    #[test]
    fn an_interleaved_reply_is_one_only_where_it_was_asked_for() {
        assert_eq!(verify(&interleaved()), Err(InvalidReason::Origin));
        let asked = Expected { interleaved: true, ..expected() };
        let reply = verify_as(asked, &interleaved()).unwrap();
        assert_eq!((reply.question, reply.answer), (QUESTION, Answer::Interleaved));
        let basic = verify_as(asked, &good()).unwrap();
        assert_eq!(basic.answer, Answer::Basic { response_ns: 2_000 });
    }

    #[test]
    fn an_interleaved_reply_tells_when_an_earlier_one_left() {
        let asked = Expected { interleaved: true, ..expected() };
        let same = Header { transmit: interleaved().receive, ..interleaved() };
        assert!(verify_as(asked, &same).is_ok());
        let later = same.transmit.wrapping_add(Span::from_ns(1));
        for transmit in [later, NtpTimestamp::UNKNOWN] {
            let header = Header { transmit, ..interleaved() };
            assert_eq!(verify_as(asked, &header), Err(InvalidReason::Timestamp));
        }
    }

    #[test]
    fn an_unsynchronised_server_gives_valid_replies() {
        let header = Header { leap: Leap::Unsynchronised, stratum: 16, ..good() };
        assert!(verify(&header).unwrap().unsynchronised);
    }

    #[test]
    fn the_length_is_the_request_s() {
        let mut bytes = [0; HEADER_LEN + 4];
        good().emit(&mut bytes);
        for length in [0, 47, 49, 52] {
            let result = expected().verify(&bytes[..length], START, |_| Ok(()));
            assert_eq!(result, Err(InvalidReason::Length), "{length}");
        }
    }
}
