//! The question that a request carries: the 64 bits of an NTP transmit timestamp hold the intended
//! send instant and a sequence number, and the server echoes them back as the origin timestamp. So
//! the generator keeps no state for each request. RFC 5905 lets a client put any value there; the
//! key makes it look like noise to the server, and replies to another run look like noise to us.
//!
//! A request in interleaved mode carries the same bits a second time, as its receive timestamp,
//! with the lowest one flipped: a basic reply echoes the one and an interleaved reply the other
//! (RFC 9769, section 2), so the reply alone tells which it is.
//!
//! The in-kernel engine computes the same expressions in BPF.

use horolog_time::{Monotonic, Span, Timestamp};

/// Bits of the intended instant that a token holds: nanoseconds modulo 2^36, 68.7 s.
pub const TIME_BITS: u32 = 36;

/// Bits of the sequence number that a token holds.
pub const SEQUENCE_BITS: u32 = 27;

/// Where the time begins in a token: above the sequence number and the lowest bit, which says which
/// of a request's two timestamps it is.
const TIME_SHIFT: u32 = SEQUENCE_BITS + 1;

const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// What a request asked: which one it was, and when it should have been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The instant of the schedule.
    pub intended: Timestamp<Monotonic>,
    /// The sequence number within its lane, below 2^[`SEQUENCE_BITS`].
    pub sequence: u32,
}

/// Which of a request's timestamps a reply brought back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Echoed {
    /// The transmit timestamp: a reply in basic mode.
    Transmit,
    /// The receive timestamp: a reply in interleaved mode.
    Receive,
}

/// Turns questions into transmit timestamps and origin timestamps back into questions.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    key: u64,
    run_start: Timestamp<Monotonic>,
}

impl Token {
    /// Tokens of one run: `key` is its random key, and nothing was asked before `run_start`.
    #[must_use]
    pub const fn new(key: u64, run_start: Timestamp<Monotonic>) -> Self {
        Self { key, run_start }
    }

    /// The random key of the run.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// The instant before which nothing was asked.
    #[must_use]
    pub const fn run_start(&self) -> Timestamp<Monotonic> {
        self.run_start
    }

    /// The 64 bits of the transmit timestamp.
    #[must_use]
    pub const fn encode(&self, question: Question) -> u64 {
        let time = question.intended.as_ns() as u64 & TIME_MASK;
        self.key ^ (time << TIME_SHIFT) ^ ((question.sequence as u64 & SEQUENCE_MASK) << 1)
    }

    /// The 64 bits of the receive timestamp of a request in interleaved mode whose transmit
    /// timestamp has these: never the same ones, as the mode demands.
    #[must_use]
    pub const fn receive_of(transmit: u64) -> u64 {
        transmit ^ 1
    }

    /// The sequence number in a token's bits.
    #[must_use]
    pub const fn sequence(&self, bits: u64) -> u32 {
        ((bits ^ self.key) >> 1 & SEQUENCE_MASK) as u32
    }

    /// The question behind an origin timestamp that came at `now`, and which timestamp of the
    /// request it was: the latest intended instant not after `now` whose low bits match. `None`
    /// where that lies before the start of the run, so that it is not one of ours.
    #[must_use]
    pub fn decode(&self, bits: u64, now: Timestamp<Monotonic>) -> Option<(Question, Echoed)> {
        let plain = bits ^ self.key;
        let age = (now.as_ns() as u64).wrapping_sub(plain >> TIME_SHIFT) & TIME_MASK;
        let intended = now - Span::from_ns(age.cast_signed());
        let sequence = (plain >> 1 & SEQUENCE_MASK) as u32;
        let echoed = if plain & 1 == 0 { Echoed::Transmit } else { Echoed::Receive };
        (intended >= self.run_start).then_some((Question { intended, sequence }, echoed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000_000);

    #[test]
    fn a_reply_to_an_earlier_run_is_not_ours() {
        let question = Question { intended: START + Span::from_ns(1000), sequence: 7 };
        let now = START + Span::from_ns(900_000);
        let earlier = Token::new(0x1234_5678_9abc_def0, START);
        let bits = earlier.encode(question);
        assert_eq!(earlier.decode(bits, now), Some((question, Echoed::Transmit)));
        assert_eq!(Token::new(0xfedc_ba98_7654_3210, START).decode(bits, now), None);
    }

    #[test]
    fn an_instant_in_the_future_is_not_ours() {
        let token = Token::new(99, START);
        let now = START + Span::from_ns(500);
        let bits = token.encode(Question { intended: now + Span::from_ns(1), sequence: 0 });
        assert_eq!(token.decode(bits, now), None);
    }

    #[test]
    fn a_question_older_than_the_reach_is_taken_for_a_younger_one() {
        let token = Token::new(3, Timestamp::from_ns(0));
        let intended = START;
        let reach = 1_i64 << TIME_BITS;
        let bits = token.encode(Question { intended, sequence: 1 });
        let at = |age| token.decode(bits, intended + Span::from_ns(age)).unwrap().0.intended;
        assert_eq!(at(reach - 1), intended);
        assert_eq!(at(reach), intended + Span::from_ns(reach));
    }

    proptest! {
        /// Also where the 36 bits of time wrap between sending and receiving, and over all
        /// sequence numbers.
        #[test]
        fn round_trips(
            key: u64,
            intended in START.as_ns()..i64::MAX / 2,
            age in 0i64..1 << TIME_BITS,
            sequence in 0u32..1 << SEQUENCE_BITS,
        ) {
            let token = Token::new(key, START);
            let question = Question { intended: Timestamp::from_ns(intended), sequence };
            let now = question.intended + Span::from_ns(age);
            let transmit = token.encode(question);
            let receive = Token::receive_of(transmit);
            prop_assert_ne!(transmit, receive);
            prop_assert_eq!(token.decode(transmit, now), Some((question, Echoed::Transmit)));
            prop_assert_eq!(token.decode(receive, now), Some((question, Echoed::Receive)));
        }
    }
}
