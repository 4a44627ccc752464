//! Instants and spans in whole nanoseconds. A [`Timestamp`] carries its timescale in its type, so
//! the difference of a monotonic and a UTC instant does not compile. Converting between timescales
//! takes a clock or a [`crate::Timebase`].

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Add, Neg, Sub};
use core::time::Duration;

use crate::NS_PER_S;

/// Timescale: the epoch of instants and the rate of their seconds.
pub trait Timescale: Copy + Eq + Ord + fmt::Debug {
    /// Name of the timescale in debug output.
    const NAME: &'static str;
}

/// UTC as shown by the kernel's `CLOCK_REALTIME`: nanoseconds since 1970-01-01T00:00:00Z without
/// leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utc;

/// Monotonic time of the kernel (`CLOCK_MONOTONIC`): nanoseconds since boot, slewed like UTC but
/// never stepped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Monotonic;

impl Timescale for Utc {
    const NAME: &'static str = "UTC";
}

impl Timescale for Monotonic {
    const NAME: &'static str = "monotonic";
}

/// Instant on the timescale `S`, in nanoseconds since its epoch; the range is 292 years either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp<S: Timescale> {
    ns: i64,
    scale: PhantomData<S>,
}

impl<S: Timescale> Timestamp<S> {
    /// Returns the instant `ns` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self { ns, scale: PhantomData }
    }

    /// Returns the instant of a `timespec`: whole seconds, and nanoseconds within the second.
    /// Values out of range saturate.
    #[must_use]
    pub const fn from_timespec(seconds: i64, nanoseconds: i64) -> Self {
        Self::from_ns(seconds.saturating_mul(NS_PER_S).saturating_add(nanoseconds))
    }

    /// Returns the nanoseconds since the epoch.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.ns
    }

    /// Returns the whole seconds since the epoch, rounded down, and the nanoseconds within the
    /// second (0 to 999,999,999).
    #[must_use]
    pub const fn to_timespec(self) -> (i64, u32) {
        (self.ns.div_euclid(NS_PER_S), self.ns.rem_euclid(NS_PER_S) as u32)
    }
}

impl<S: Timescale> fmt::Debug for Timestamp<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanoseconds) = self.to_timespec();
        write!(f, "{seconds}.{nanoseconds:09} {}", S::NAME)
    }
}

impl<S: Timescale> Sub for Timestamp<S> {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        Span::from_ns(self.ns.saturating_sub(earlier.ns))
    }
}

impl<S: Timescale> Add<Span> for Timestamp<S> {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self::from_ns(self.ns.saturating_add(span.as_ns()))
    }
}

impl<S: Timescale> Sub<Span> for Timestamp<S> {
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self::from_ns(self.ns.saturating_sub(span.as_ns()))
    }
}

/// Signed duration in nanoseconds, such as the difference of two instants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Span(i64);

impl Span {
    /// Span of zero length.
    pub const ZERO: Self = Self(0);

    /// Returns a span of `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// Returns a span of `ms` milliseconds; saturates.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns the length in nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// Returns the length in seconds, rounded to the nearest double.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / NS_PER_S as f64
    }
}

impl Add for Span {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Span {
    #[inline]
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// Formats the span in the largest of the units s, ms, µs and ns in which it is at least 1. With a
/// precision, the number is rounded to that many decimals. The alternate form (`{:#}`), such as
/// `1.5us`, is the notation that [`Span`] is parsed from.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, ns) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let units =
            if f.alternate() { ["s", "ms", "us", "ns"] } else { [" s", " ms", " µs", " ns"] };
        let (one, unit) = [1_000_000_000_u64, 1_000_000, 1_000]
            .into_iter()
            .zip(units)
            .find(|(one, _)| ns >= *one)
            .unwrap_or((1, units[3]));
        if let Some(decimals) = f.precision() {
            let number = ns as f64 / one as f64;
            return write!(f, "{sign}{number:.decimals$}{unit}");
        }
        let decimals = one.ilog10() as usize;
        let rest = format!("{:0decimals$}", ns % one);
        match rest.trim_end_matches('0') {
            "" => write!(f, "{sign}{}{unit}", ns / one),
            rest => write!(f, "{sign}{}.{rest}{unit}", ns / one),
        }
    }
}

impl Neg for Span {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_instant_before_the_epoch_has_nanoseconds_that_count_forwards() {
        assert_eq!(Timestamp::<Utc>::from_ns(-1).to_timespec(), (-1, 999_999_999));
        assert_eq!(format!("{:?}", Timestamp::<Utc>::from_ns(1_500_000_000)), "1.500000000 UTC");
    }

    #[test]
    fn a_span_is_shown_with_its_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (7, "7 ns"),
            (-1_500, "-1.5 µs"),
            (10_000_000, "10 ms"),
            (980_000_001, "980.000001 ms"),
            (1_000_000_000, "1 s"),
            (-3_000_000_000, "-3 s"),
            (86_400_000_000_100, "86400.0000001 s"),
            (i64::MIN, "-9223372036.854775808 s"),
        ] {
            assert_eq!(Span::from_ns(ns).to_string(), text);
            let notation = text.replace(' ', "").replace('µ', "u");
            assert_eq!(format!("{:#}", Span::from_ns(ns)), notation);
        }
        assert_eq!(format!("{:.1}", Span::from_ns(-12_345_678)), "-12.3 ms");
        assert_eq!(Span::from(Duration::from_millis(1_500)).to_string(), "1.5 s");
        assert_eq!(Span::from(Duration::MAX), Span::from_ns(i64::MAX));
    }

    proptest! {
        #[test]
        fn timespec_round_trips(ns: i64) {
            let instant = Timestamp::<Monotonic>::from_ns(ns);
            let (seconds, nanoseconds) = instant.to_timespec();
            // The lowest second of the range cannot be multiplied out again.
            prop_assume!(seconds > i64::MIN / NS_PER_S);
            prop_assert_eq!(Timestamp::from_timespec(seconds, i64::from(nanoseconds)), instant);
        }

        #[test]
        fn adding_a_difference_gives_the_later_instant(a in -(1i64 << 61)..1 << 61, b in -(1i64 << 61)..1 << 61) {
            let (a, b) = (Timestamp::<Utc>::from_ns(a), Timestamp::<Utc>::from_ns(b));
            prop_assert_eq!(a + (b - a), b);
            prop_assert_eq!(b - (b - a), a);
        }
    }
}
