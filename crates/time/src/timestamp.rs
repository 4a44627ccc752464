//! Instants and spans in whole nanoseconds. An [`Timestamp`] carries its timescale in the type, so
//! subtracting a monotonic instant from a UTC one does not compile. No conversion between
//! timescales stands here: that takes a clock or a [`crate::Timebase`].

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Add, Neg, Sub};

use crate::NS_PER_S;

/// A timescale: what the zero of an instant is and how its seconds run.
pub trait Timescale: Copy + Eq + Ord + fmt::Debug {
    /// Its name in messages.
    const NAME: &'static str;
}

/// Coordinated Universal Time as the kernel's `CLOCK_REALTIME` shows it: nanoseconds since
/// 1970-01-01T00:00:00Z without counting leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utc;

/// The kernel's `CLOCK_MONOTONIC`: nanoseconds since boot, slewed like UTC but never stepped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Monotonic;

impl Timescale for Utc {
    const NAME: &'static str = "UTC";
}

impl Timescale for Monotonic {
    const NAME: &'static str = "monotonic";
}

/// An instant on the timescale `S`, in nanoseconds since that scale's zero. It reaches 292 years
/// either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp<S: Timescale> {
    ns: i64,
    scale: PhantomData<S>,
}

impl<S: Timescale> Timestamp<S> {
    /// The instant `ns` nanoseconds after the scale's zero.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self { ns, scale: PhantomData }
    }

    /// The instant of a `timespec`: whole seconds and nanoseconds within the second. Values past
    /// the reach of 292 years saturate.
    #[must_use]
    pub const fn from_timespec(seconds: i64, nanoseconds: i64) -> Self {
        Self::from_ns(seconds.saturating_mul(NS_PER_S).saturating_add(nanoseconds))
    }

    /// Nanoseconds since the scale's zero.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.ns
    }

    /// Whole seconds since the scale's zero, rounded towards the past, and the nanoseconds
    /// (0 to 999,999,999) that follow them.
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

/// A signed difference of two instants, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Span(i64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// A span of `ms` milliseconds; saturates.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Its length in nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// Its length in seconds, rounded to the nearest double.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / NS_PER_S as f64
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Span {
    type Output = Self;

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
