//! Fixed-point time formats of NTP (RFC 5905, section 6) and their conversions. Timestamps wrap
//! every 136 years, so a conversion to UTC takes a pivot that determines the era.

use core::fmt;

use crate::{NS_PER_S, Span, Timestamp, Utc};

/// Seconds from 1900-01-01T00:00:00Z, the NTP prime epoch, to 1970-01-01T00:00:00Z
/// (RFC 5905, figure 4).
pub const UNIX_EPOCH_IN_NTP_SECONDS: u32 = 2_208_988_800;

/// NTP timestamp of 64 bits: unsigned seconds since the start of an era in the upper 32 bits, the
/// fraction in units of 2^-32 s (233 ps) in the lower 32 (RFC 5905, section 6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NtpTimestamp(u64);

impl NtpTimestamp {
    /// Value for "unknown" in every header field (RFC 5905, section 6).
    pub const UNKNOWN: Self = Self(0);

    /// Creates a timestamp from the 64 bits in a packet, read as a big-endian number.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the 64 bits of a packet, to be written as a big-endian number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Converts a UTC instant; the fraction is rounded down, and the era is dropped.
    #[must_use]
    pub const fn from_utc(instant: Timestamp<Utc>) -> Self {
        let (seconds, nanoseconds) = instant.to_timespec();
        let seconds = (seconds as u32).wrapping_add(UNIX_EPOCH_IN_NTP_SECONDS);
        let fraction = ((nanoseconds as u64) << 32) / NS_PER_S as u64;
        Self(((seconds as u64) << 32) | fraction)
    }

    /// Returns the UTC instant that this timestamp represents, in the era that brings it nearest to
    /// `pivot` (within 68 years), rounded to the nearest nanosecond.
    #[must_use]
    pub const fn to_utc(self, pivot: Timestamp<Utc>) -> Timestamp<Utc> {
        let difference = self.since(Self::from_utc(pivot));
        // Converting the pivot loses up to 232 ps, so the difference is taken from the converted
        // value.
        Timestamp::from_ns(pivot.as_ns().saturating_add(difference.as_ns()))
    }

    /// Returns the signed time from `earlier` to this timestamp, rounded to the nearest nanosecond.
    /// The two must be within 68 years of each other.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        let difference = self.0.wrapping_sub(earlier.0).cast_signed() as i128;
        let half = 1_i128 << 31;
        Span::from_ns(((difference * NS_PER_S as i128 + half) >> 32) as i64)
    }

    /// Returns this timestamp plus `span`, modulo the era, rounded down to 2^-32 s.
    #[must_use]
    pub const fn wrapping_add(self, span: Span) -> Self {
        let units = ((span.as_ns() as i128) << 32).div_euclid(NS_PER_S as i128);
        Self(self.0.wrapping_add(units as u64))
    }
}

impl fmt::Debug for NtpTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{:08x}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// NTP short format of 32 bits: unsigned seconds in the upper 16 bits, the fraction in units of
/// 2^-16 s (15 µs) in the lower 16 (RFC 5905, section 6). Root delay and dispersion use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NtpShort(u32);

impl NtpShort {
    /// Creates a value from the 32 bits in a packet, read as a big-endian number.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the 32 bits of a packet, to be written as a big-endian number.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Converts a span. The result is rounded up, because a dispersion must not be understated, and
    /// clamped to between 0 and 65,536 s - 2^-16 s.
    #[must_use]
    pub const fn from_span(span: Span) -> Self {
        if span.as_ns() <= 0 {
            return Self(0);
        }
        let units = ((span.as_ns() as i128) << 16) + (NS_PER_S as i128 - 1);
        let units = units / NS_PER_S as i128;
        if units > u32::MAX as i128 { Self(u32::MAX) } else { Self(units as u32) }
    }

    /// Converts the value to a span, rounded down to a nanosecond.
    #[must_use]
    pub const fn to_span(self) -> Span {
        Span::from_ns(((self.0 as i128 * NS_PER_S as i128) >> 16) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Dates from RFC 5905, figure 4, and the two seconds on either side of era 1.
    #[test]
    fn known_dates() {
        let ntp = |seconds| NtpTimestamp::from_utc(Timestamp::from_timespec(seconds, 0)).0 >> 32;
        assert_eq!(ntp(0), 2_208_988_800);
        assert_eq!(ntp(63_072_000), 2_272_060_800); // 1972-01-01
        assert_eq!(ntp(2_085_978_495), 0xffff_ffff); // 2036-02-07T06:28:15Z
        assert_eq!(ntp(2_085_978_496), 0);
    }

    #[test]
    fn half_a_second_is_half_the_fraction() {
        let half = NtpTimestamp::from_utc(Timestamp::from_ns(500_000_000));
        assert_eq!(half.to_bits() & 0xffff_ffff, 0x8000_0000);
    }

    #[test]
    fn era_follows_the_pivot() {
        let first_of_era_1 = Timestamp::<Utc>::from_timespec(2_085_978_496, 7);
        let day_before = first_of_era_1 - Span::from_ns(86_400 * NS_PER_S);
        assert_eq!(NtpTimestamp::from_utc(first_of_era_1).to_utc(day_before), first_of_era_1);
    }

    #[test]
    fn short_format_never_understates() {
        assert_eq!(NtpShort::from_span(Span::from_ns(1)).to_bits(), 1);
        assert_eq!(NtpShort::from_span(Span::from_ns(-5)).to_bits(), 0);
        assert_eq!(NtpShort::from_span(Span::from_ns(NS_PER_S)).to_bits(), 0x1_0000);
        assert_eq!(NtpShort::from_span(Span::from_ns(i64::MAX)).to_bits(), u32::MAX);
    }

    proptest! {
        #[test]
        fn utc_round_trips_within_a_nanosecond(ns in 0i64..4_000_000_000_000_000_000, off in -1_000_000_000_000i64..1_000_000_000_000) {
            let instant = Timestamp::<Utc>::from_ns(ns);
            let back = NtpTimestamp::from_utc(instant).to_utc(instant + Span::from_ns(off));
            prop_assert!((back - instant).as_ns().abs() <= 1);
        }

        #[test]
        fn since_undoes_wrapping_add(bits: u64, ns in -1_000_000_000_000_000i64..1_000_000_000_000_000) {
            let start = NtpTimestamp::from_bits(bits);
            prop_assert_eq!(start.wrapping_add(Span::from_ns(ns)).since(start), Span::from_ns(ns));
        }

        #[test]
        fn short_format_round_trips(bits: u32) {
            let back = NtpShort::from_span(NtpShort::from_bits(bits).to_span());
            prop_assert!(back.to_bits() == bits);
        }
    }
}
