//! Time base: NTP time as a linear function of the monotonic clock, with one anchor, one rate, and
//! at most one step for a leap second during its validity. The BPF program evaluates the same
//! expression on the same numbers (`bpf/clock.h`), so both engines of the server serve the same
//! time.

use crate::{Monotonic, NtpTimestamp, Timestamp};

/// Number of fractional bits of [`Timebase::rate`].
pub const RATE_SHIFT: u32 = 29;

/// Rate without drift: 2^32 NTP units per 10^9 ns, scaled by 2^[`RATE_SHIFT`] and rounded to the
/// nearest integer, with an error of 0.09 ppb.
pub const NOMINAL_RATE: u32 = 2_305_843_009;

/// Value of [`Timebase::step_at`] without a step: never.
pub const NO_STEP: Timestamp<Monotonic> = Timestamp::from_ns(i64::MAX);

/// NTP time as a linear function of monotonic time with at most one step, valid until an expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timebase {
    /// Anchor on the monotonic clock.
    pub anchor: Timestamp<Monotonic>,
    /// NTP time at the anchor, without the step even if the anchor lies after it.
    pub ntp_at_anchor: NtpTimestamp,
    /// NTP units (2^-32 s) per monotonic nanosecond, scaled by 2^[`RATE_SHIFT`].
    pub rate: u32,
    /// Expiry: instant from which no time may be derived from this time base.
    pub expires: Timestamp<Monotonic>,
    /// Instant from which `step` is added; [`NO_STEP`] if there is no step.
    pub step_at: Timestamp<Monotonic>,
    /// Step in NTP units (2^-32 s): minus 2^32 if a leap second is inserted.
    pub step: i64,
}

impl Timebase {
    /// Returns the rate of a clock with a frequency offset of `ppb` from the monotonic clock,
    /// clamped to between 0 and 86% above nominal.
    #[must_use]
    pub const fn rate_with_drift(ppb: i64) -> u32 {
        let change = (NOMINAL_RATE as i128 * ppb as i128) / 1_000_000_000;
        let rate = NOMINAL_RATE as i128 + change;
        if rate < 0 {
            0
        } else if rate > u32::MAX as i128 {
            u32::MAX
        } else {
            rate as u32
        }
    }

    /// Returns NTP time at `instant`, which may lie before the anchor; `None` from the expiry on.
    /// Correct within 4 s of the anchor, which the expiry ensures: there the product fits 64 bits,
    /// as in the BPF program.
    #[must_use]
    pub const fn ntp_at(&self, instant: Timestamp<Monotonic>) -> Option<NtpTimestamp> {
        if instant.as_ns() >= self.expires.as_ns() {
            return None;
        }
        let distance = instant.as_ns() - self.anchor.as_ns();
        let units = (distance.unsigned_abs() as u128 * self.rate as u128) >> RATE_SHIFT;
        let step = if instant.as_ns() >= self.step_at.as_ns() { self.step } else { 0 };
        let anchor = self.ntp_at_anchor.to_bits().wrapping_add_signed(step);
        let bits = if distance < 0 {
            anchor.wrapping_sub(units as u64)
        } else {
            anchor.wrapping_add(units as u64)
        };
        Some(NtpTimestamp::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;
    use proptest::prelude::*;

    fn base(rate: u32) -> Timebase {
        Timebase {
            anchor: Timestamp::from_ns(1_000_000_000_000),
            ntp_at_anchor: NtpTimestamp::from_bits(0xe000_0000_1234_5678),
            rate,
            expires: Timestamp::from_ns(1_001_000_000_000),
            step_at: NO_STEP,
            step: 0,
        }
    }

    #[test]
    fn a_step_is_made_at_its_instant_and_not_before() {
        for (step_s, distance_ms) in [(-1i64, 300), (1, 300), (-1, -300), (1, 0)] {
            let plain = base(NOMINAL_RATE);
            let step_at = plain.anchor + Span::from_ms(distance_ms);
            let base = Timebase { step_at, step: step_s << 32, ..plain };
            let moved =
                |instant| base.ntp_at(instant).unwrap().since(plain.ntp_at(instant).unwrap());
            assert_eq!(moved(step_at - Span::from_ns(1)), Span::ZERO);
            assert_eq!(moved(step_at), Span::from_ns(step_s * 1_000_000_000));
            assert_eq!(moved(step_at + Span::from_ms(200)), moved(step_at));
        }
    }

    #[test]
    fn an_expired_time_base_gives_no_time() {
        let base = base(NOMINAL_RATE);
        assert!(base.ntp_at(base.expires - Span::from_ns(1)).is_some());
        assert!(base.ntp_at(base.expires).is_none());
    }

    #[test]
    fn drift_of_a_thousand_ppb_gains_a_microsecond_in_a_second() {
        let base = base(Timebase::rate_with_drift(1000));
        let later = base.anchor + Span::from_ns(999_999_999);
        let gained = base.ntp_at(later).unwrap().since(base.ntp_at_anchor);
        assert!((gained.as_ns() - 1_000_000_999).abs() <= 2, "{gained:?}");
    }

    #[test]
    fn rates_saturate() {
        assert_eq!(Timebase::rate_with_drift(0), NOMINAL_RATE);
        assert_eq!(Timebase::rate_with_drift(-2_000_000_000), 0);
        assert_eq!(Timebase::rate_with_drift(i64::MAX), u32::MAX);
    }

    proptest! {
        #[test]
        fn stays_within_a_nanosecond_of_the_exact_time(distance in -1_000_000_000i64..999_999_999) {
            let base = base(NOMINAL_RATE);
            let read = base.ntp_at(base.anchor + Span::from_ns(distance)).unwrap();
            prop_assert!((read.since(base.ntp_at_anchor).as_ns() - distance).abs() <= 1);
        }
    }
}
