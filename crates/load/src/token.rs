//! Request token: the 64 bits of an NTP transmit timestamp hold the intended send time and a
//! sequence number. The server echoes them as origin timestamp, so the generator keeps no state per
//! request. RFC 5905 allows any value there. The key makes tokens look random to the server, and
//! replies to other runs look random here.
//!
//! A request in interleaved mode carries the same bits again as its receive timestamp, with the
//! lowest bit flipped. A basic reply echoes the transmit timestamp, an interleaved reply the
//! receive timestamp (RFC 9769, section 2), so the reply alone determines its mode.
//!
//! The XDP engine computes tokens in the same way.

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

/// Timestamp of the request that a reply echoes as its origin timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EchoedTimestamp {
    /// The transmit timestamp: a reply in basic mode.
    Transmit,
    /// The receive timestamp: a reply in interleaved mode.
    Receive,
}

/// Codec of request tokens: encodes requests as transmit timestamps and decodes origin timestamps.
#[derive(Clone, Copy, Debug)]
pub struct RequestTokenCodec {
    key: u64,
    run_start: Timestamp<Monotonic>,
}

impl RequestTokenCodec {
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

    /// Returns the token of a request: the 64 bits of its transmit timestamp.
    #[must_use]
    pub const fn encode(&self, request: RequestId) -> u64 {
        let time = request.intended.as_ns() as u64 & TIME_MASK;
        self.key ^ (time << TIME_SHIFT) ^ ((request.sequence as u64 & SEQUENCE_MASK) << 1)
    }

    /// Returns the receive timestamp of a request in interleaved mode with this transmit timestamp.
    /// RFC 9769 requires that the two differ.
    #[must_use]
    pub const fn interleaved_receive(transmit: u64) -> u64 {
        transmit ^ 1
    }

    /// Returns the sequence number in a token's bits.
    #[must_use]
    pub const fn sequence(&self, bits: u64) -> u32 {
        ((bits ^ self.key) >> 1 & SEQUENCE_MASK) as u32
    }

    /// Decodes an origin timestamp received at `now`: returns the request and which of its
    /// timestamps was echoed. The intended send time is the latest instant not after `now` whose
    /// low 36 bits match. `None` if it is before the start of the run, so that the token belongs to
    /// another run.
    #[must_use]
    pub fn decode(
        &self,
        bits: u64,
        now: Timestamp<Monotonic>,
    ) -> Option<(RequestId, EchoedTimestamp)> {
        let decoded = bits ^ self.key;
        let age = (now.as_ns() as u64).wrapping_sub(decoded >> TIME_SHIFT) & TIME_MASK;
        let intended = now - Span::from_ns(age.cast_signed());
        let sequence = (decoded >> 1 & SEQUENCE_MASK) as u32;
        let echoed =
            if decoded & 1 == 0 { EchoedTimestamp::Transmit } else { EchoedTimestamp::Receive };
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
        let earlier = RequestTokenCodec::new(0x1234_5678_9abc_def0, START);
        let bits = earlier.encode(question);
        assert_eq!(earlier.decode(bits, now), Some((question, EchoedTimestamp::Transmit)));
        assert_eq!(RequestTokenCodec::new(0xfedc_ba98_7654_3210, START).decode(bits, now), None);
    }

    #[test]
    fn an_instant_in_the_future_is_not_ours() {
        let token = RequestTokenCodec::new(99, START);
        let now = START + Span::from_ns(500);
        let bits = token.encode(RequestId { intended: now + Span::from_ns(1), sequence: 0 });
        assert_eq!(token.decode(bits, now), None);
    }

    #[test]
    fn a_question_older_than_the_reach_is_taken_for_a_younger_one() {
        let token = RequestTokenCodec::new(3, Timestamp::from_ns(0));
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
            let token = RequestTokenCodec::new(key, START);
            let question = RequestId { intended: Timestamp::from_ns(intended), sequence };
            let now = question.intended + Span::from_ns(age);
            let transmit = token.encode(question);
            let receive = RequestTokenCodec::interleaved_receive(transmit);
            prop_assert_ne!(transmit, receive);
            prop_assert_eq!(token.decode(transmit, now), Some((question, EchoedTimestamp::Transmit)));
            prop_assert_eq!(token.decode(receive, now), Some((question, EchoedTimestamp::Receive)));
        }
    }
}
