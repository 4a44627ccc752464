//! Offset and delay of an exchange from its four timestamps (RFC 5905, section 8). Pure.
//!
//! Offset and delay are equations (6) and (7) of Liu, Wu and Wang 2020
//! (doi:10.13875/j.issn.1674-0637.2020-01-0018-11):
//!
//! ```text
//! θ = ((T2 − T1) + (T3 − T4)) / 2        (6)
//! δ = (T4 − T1) − (T3 − T2)              (7)
//! ```
//!
//! The equations assume equal delays in both directions. Otherwise the offset is wrong by at most
//! half the delay.

use horolog_time::{NtpTimestamp, Span, Timestamp, Utc};

/// Frequency tolerance between two clocks, in parts per million (RFC 5905, section 7.2, PHI).
pub(super) const FREQUENCY_TOLERANCE_PPM: u64 = 15;

/// Offset and delay of one exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetAndDelay {
    /// T2 in UTC, in the era nearest to T1.
    pub t2: Timestamp<Utc>,
    /// T3 in UTC, in the era nearest to T1.
    pub t3: Timestamp<Utc>,
    /// Server's clock minus local clock: equation (6).
    pub offset: Span,
    /// Round-trip delay without the server's processing time: equation (7). Negative if a clock was
    /// stepped during the exchange or the server's timestamps are wrong.
    pub delay: Span,
    /// Error bound of the timestamps, in ns.
    pub dispersion_ns: u64,
}

/// Precisions of the timestamps of an exchange at both ends, and the error of their conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeTimestampPrecisions {
    /// Precision stated by the server, log2 of seconds.
    pub server: i8,
    /// Precision of this host, log2 of seconds.
    pub local: i8,
    /// Error of the conversion of this host's timestamps from another clock.
    pub conversion: Span,
}

/// Computes offset and delay from T1 and T4 of the local clock and T2 and T3 of the server.
#[must_use]
pub fn offset_and_delay(
    t1: Timestamp<Utc>,
    [t2, t3]: [NtpTimestamp; 2],
    t4: Timestamp<Utc>,
    precision: &ExchangeTimestampPrecisions,
) -> OffsetAndDelay {
    let (t2, t3) = (t2.to_utc(t1), t3.to_utc(t1));
    let elapsed = t4 - t1;
    OffsetAndDelay {
        t2,
        t3,
        offset: Span::from_ns(i64::midpoint((t2 - t1).as_ns(), (t3 - t4).as_ns())),
        delay: elapsed - (t3 - t2),
        dispersion_ns: dispersion_ns(elapsed, precision),
    }
}

/// Returns the dispersion ε in ns: both precisions, the conversion error, and the possible drift
/// between the clocks during the exchange (RFC 5905, section 8).
fn dispersion_ns(elapsed: Span, precision: &ExchangeTimestampPrecisions) -> u64 {
    let drift_ns = drift_max_ns(elapsed.as_ns().unsigned_abs());
    [
        precision_ns(precision.server),
        precision_ns(precision.local),
        precision.conversion.as_ns().unsigned_abs(),
    ]
    .into_iter()
    .fold(drift_ns, u64::saturating_add)
}

/// Returns the maximum drift between two clocks in `span_ns` at [`FREQUENCY_TOLERANCE_PPM`], in ns,
/// rounded up.
pub(super) fn drift_max_ns(span_ns: u64) -> u64 {
    let (millions, rest) = (span_ns / 1_000_000, span_ns % 1_000_000);
    millions * FREQUENCY_TOLERANCE_PPM + (rest * FREQUENCY_TOLERANCE_PPM).div_ceil(1_000_000)
}

/// Returns 2^`log2_seconds` s in ns, rounded up; saturates, since a server may state any value.
fn precision_ns(log2_seconds: i8) -> u64 {
    (f64::from(log2_seconds).exp2() * 1e9).ceil() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXACT: ExchangeTimestampPrecisions =
        ExchangeTimestampPrecisions { server: -30, local: -30, conversion: Span::ZERO };
    const NOON: i64 = 1_700_000_000_000_000_000;

    fn utc(ns: i64) -> Timestamp<Utc> {
        Timestamp::from_ns(NOON + ns)
    }

    fn ntp(ns: i64) -> NtpTimestamp {
        // In the middle of its unit, so that the conversion back rounds to the same nanosecond.
        NtpTimestamp::from_bits(NtpTimestamp::from_utc(utc(ns)).to_bits() + 2)
    }

    #[test]
    fn an_exchange_by_hand() {
        // 40 µs there, 5 µs at the server, 40 µs back; the server is 250 µs ahead.
        let measured = offset_and_delay(utc(0), [ntp(290_000), ntp(295_000)], utc(85_000), &EXACT);
        assert_eq!(measured.offset, Span::from_ns(250_000));
        assert_eq!(measured.delay, Span::from_ns(80_000));
        // Two precisions of a nanosecond, and 15 ppm of 85 µs.
        assert_eq!(measured.dispersion_ns, 1 + 1 + 1 + 1);
        assert_eq!((measured.t3 - measured.t2).as_ns(), 5_000);
    }

    #[test]
    fn a_server_of_another_era_is_near() {
        let before = Timestamp::from_ns(2_085_978_495_999_999_000);
        let [t2, t3] = [500, 1_500].map(|ns| NtpTimestamp::from_utc(before + Span::from_ns(ns)));
        assert!(t2.to_bits() > t3.to_bits(), "the era ends between them");
        let measured = offset_and_delay(before, [t2, t3], before + Span::from_ns(2_000), &EXACT);
        assert!(measured.offset.as_ns().abs() <= 1, "{measured:?}");
        assert!((measured.delay.as_ns() - 1_000).abs() <= 1, "{measured:?}");
    }

    #[test]
    fn dispersion_is_what_rfc_5905_adds_up() {
        let absurd =
            ExchangeTimestampPrecisions { server: 127, local: 127, conversion: Span::ZERO };
        assert_eq!(dispersion_ns(Span::from_ms(1), &absurd), u64::MAX);
        let precision =
            ExchangeTimestampPrecisions { server: -20, local: -25, conversion: Span::from_ns(100) };
        // 954 ns (2^-20 s), 30 ns (2^-25 s), 100 ns, and 15 ppm of a second.
        assert_eq!(dispersion_ns(Span::from_ms(1_000), &precision), 954 + 30 + 100 + 15_000);
    }

    #[test]
    fn whatever_a_server_states_is_taken() {
        for server in [i8::MIN, -1, 0, 62, i8::MAX] {
            let precision = ExchangeTimestampPrecisions { server, ..EXACT };
            let far = [NtpTimestamp::from_bits(u64::MAX / 2), NtpTimestamp::UNKNOWN];
            let _ = offset_and_delay(utc(i64::MIN / 2 - NOON), far, utc(0), &precision);
            assert!(dispersion_ns(Span::from_ns(i64::MIN), &precision) > 0);
        }
    }

    proptest! {
        /// The truth lies within half the delay, however unequal the ways are.
        #[test]
        fn the_offset_is_off_by_half_the_delay_at_most(
            ahead in -1_000_000_000_000_i64..1_000_000_000_000, there in 0_i64..1_000_000_000,
            at_server in 0_i64..1_000_000, back in 0_i64..1_000_000_000,
        ) {
            let t2 = there + ahead;
            let t4 = there + at_server + back;
            let measured = offset_and_delay(utc(0), [ntp(t2), ntp(t2 + at_server)], utc(t4), &EXACT);
            prop_assert!((measured.delay.as_ns() - there - back).abs() <= 2, "{:?}", measured);
            let off = (measured.offset.as_ns() - ahead).unsigned_abs();
            let bound = measured.delay.as_ns().unsigned_abs() / 2 + measured.dispersion_ns;
            prop_assert!(off <= bound + 1, "{} off, bound {}", off, bound);
            // It is half the difference of the two ways.
            prop_assert!(off.abs_diff((there - back).unsigned_abs() / 2) <= 2);
        }

        #[test]
        fn any_timestamps_are_measured(
            t1: i64, t2: u64, t3: u64, t4: i64, server: i8, own: i8, conversion: i64,
        ) {
            let precision = ExchangeTimestampPrecisions { server, local: own, conversion: Span::from_ns(conversion) };
            let server = [t2, t3].map(NtpTimestamp::from_bits);
            let _ = offset_and_delay(Timestamp::from_ns(t1), server, Timestamp::from_ns(t4), &precision);
        }
    }
}
