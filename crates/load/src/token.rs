//! Request token: the 64 bits of an NTP transmit timestamp hold the intended send time and a
//! sequence number, and the server echoes them as the origin timestamp. So the generator keeps no
//! state for each request. RFC 5905 lets a client put any value there; the key makes it look random
//! to the server, and makes replies to another run look random here.
//!
//! A request in interleaved mode carries the same bits a second time, as its receive timestamp,
//! with the lowest one flipped: a basic reply echoes the one and an interleaved reply the other
//! (RFC 9769, section 2), so the reply alone determines its mode.
//!
//! The in-kernel engine computes the same expressions in BPF.

use horolog_time::{Monotonic, Span, Timestamp};

/// Bits of the intended send time in a token: nanoseconds modulo 2^36, 68.7 s.
pub const TIME_BITS: u32 = 36;

/// Bits of the sequence number in a token.
pub const SEQUENCE_BITS: u32 = 27;

/// Position of the time in a token: above the sequence number and the lowest bit, which
/// distinguishes a request's two timestamps.
const TIME_SHIFT: u32 = SEQUENCE_BITS + 1;

const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// Identity of a request: its intended send time and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestId {
    /// Intended send time.
    pub intended: Timestamp<Monotonic>,
    /// Sequence number within its lane, below 2^[`SEQUENCE_BITS`].
    pub sequence: u32,
}

/// Timestamp of a request that a reply echoed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EchoedTimestamp {
    /// The transmit timestamp: a reply in basic mode.
    Transmit,
    /// The receive timestamp: a reply in interleaved mode.
    Receive,
}

/// Encodes requests as transmit timestamps, and decodes origin timestamps to requests.
#[derive(Clone, Copy, Debug)]
pub struct TokenCodec {
    key: u64,
    run_start: Timestamp<Monotonic>,
}

impl TokenCodec {
    /// Creates the codec of one run: `key` is its random key, and nothing was sent before
    /// `run_start`.
    #[must_use]
    pub const fn new(key: u64, run_start: Timestamp<Monotonic>) -> Self {
        Self { key, run_start }
    }

    /// Returns the random key of the run.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// Returns the instant before which nothing was sent.
    #[must_use]
    pub const fn run_start(&self) -> Timestamp<Monotonic> {
        self.run_start
    }

    /// Returns the 64 bits of the transmit timestamp.
    #[must_use]
    pub const fn encode(&self, question: RequestId) -> u64 {
        let time = question.intended.as_ns() as u64 & TIME_MASK;
        self.key ^ (time << TIME_SHIFT) ^ ((question.sequence as u64 & SEQUENCE_MASK) << 1)
    }

    /// Returns the 64 bits of the receive timestamp of a request in interleaved mode with this
    /// transmit timestamp: never the same ones, as the mode demands.
    #[must_use]
    pub const fn receive_of(transmit: u64) -> u64 {
        transmit ^ 1
    }

    /// Returns the sequence number in a token's bits.
    #[must_use]
    pub const fn sequence(&self, bits: u64) -> u32 {
        ((bits ^ self.key) >> 1 & SEQUENCE_MASK) as u32
    }

    /// Decodes an origin timestamp that was received at `now`: returns the request and the echoed
    /// timestamp. The time is the latest intended send time not after `now` whose low bits match.
    /// `None` if that lies before the start of the run, so that the token belongs to another run.
    #[must_use]
    pub fn decode(
        &self,
        bits: u64,
        now: Timestamp<Monotonic>,
    ) -> Option<(RequestId, EchoedTimestamp)> {
        let plain = bits ^ self.key;
        let age = (now.as_ns() as u64).wrapping_sub(plain >> TIME_SHIFT) & TIME_MASK;
        let intended = now - Span::from_ns(age.cast_signed());
        let sequence = (plain >> 1 & SEQUENCE_MASK) as u32;
        let echoed =
            if plain & 1 == 0 { EchoedTimestamp::Transmit } else { EchoedTimestamp::Receive };
        (intended >= self.run_start).then_some((RequestId { intended, sequence }, echoed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000_000);

    #[test]
    fn a_reply_to_an_earlier_run_is_not_ours() {
        let question = RequestId { intended: START + Span::from_ns(1000), sequence: 7 };
        let now = START + Span::from_ns(900_000);
        let earlier = TokenCodec::new(0x1234_5678_9abc_def0, START);
        let bits = earlier.encode(question);
        assert_eq!(earlier.decode(bits, now), Some((question, EchoedTimestamp::Transmit)));
        assert_eq!(TokenCodec::new(0xfedc_ba98_7654_3210, START).decode(bits, now), None);
    }

    #[test]
    fn an_instant_in_the_future_is_not_ours() {
        let token = TokenCodec::new(99, START);
        let now = START + Span::from_ns(500);
        let bits = token.encode(RequestId { intended: now + Span::from_ns(1), sequence: 0 });
        assert_eq!(token.decode(bits, now), None);
    }

    #[test]
    fn a_question_older_than_the_reach_is_taken_for_a_younger_one() {
        let token = TokenCodec::new(3, Timestamp::from_ns(0));
        let intended = START;
        let reach = 1_i64 << TIME_BITS;
        let bits = token.encode(RequestId { intended, sequence: 1 });
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
            let token = TokenCodec::new(key, START);
            let question = RequestId { intended: Timestamp::from_ns(intended), sequence };
            let now = question.intended + Span::from_ns(age);
            let transmit = token.encode(question);
            let receive = TokenCodec::receive_of(transmit);
            prop_assert_ne!(transmit, receive);
            prop_assert_eq!(token.decode(transmit, now), Some((question, EchoedTimestamp::Transmit)));
            prop_assert_eq!(token.decode(receive, now), Some((question, EchoedTimestamp::Receive)));
        }
    }
}
