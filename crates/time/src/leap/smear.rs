//! Leap smear: a clock that runs slightly slower or faster around a leap second instead of
//! stepping. The smear is linear and centred on the leap second, by default from noon to noon UTC,
//! as agreed by the large public servers that smear. Servers with different smears must not be
//! mixed.

use super::{LeapSecond, NS_PER_DAY};
use crate::{Span, Timestamp, Utc};

/// Default length of a smear: from noon before the leap second to noon after it.
pub const SMEAR_DEFAULT: Span = Span::from_ns(NS_PER_DAY);

/// Linear leap smear, centred on the leap second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Smear {
    /// Length in UTC without the leap second: 86,400 s from noon to noon. Longer than a second.
    pub length: Span,
}

/// Reading of a smeared clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmearReading {
    /// Smeared time.
    pub instant: Timestamp<Utc>,
    /// Frequency offset from UTC at that instant, in ppb.
    pub rate_ppb: i64,
    /// True during the smear.
    pub is_smearing: bool,
}

impl Smear {
    /// Returns the reading of the smeared clock at `instant`, which is on the timescale before the
    /// leap.
    #[must_use]
    pub fn reading_at(&self, leap: &LeapSecond, instant: Timestamp<Utc>) -> SmearReading {
        let (start, duration) = self.window(leap);
        let elapsed = (instant - start).as_ns();
        if elapsed < 0 {
            return SmearReading { instant, rate_ppb: 0, is_smearing: false };
        }
        let step = i128::from(leap.step().as_ns());
        if elapsed >= duration.as_ns() {
            return SmearReading {
                instant: instant + leap.step(),
                rate_ppb: 0,
                is_smearing: false,
            };
        }
        let duration_ns = i128::from(duration.as_ns());
        let offset_ns = (step * i128::from(elapsed)).div_euclid(duration_ns);
        let rate_ppb = (step * 1_000_000_000 / duration_ns) as i64;
        SmearReading {
            instant: instant + Span::from_ns(offset_ns as i64),
            rate_ppb,
            is_smearing: true,
        }
    }

    /// Returns the start of the smear and its duration, both on the timescale before the leap: a
    /// second longer than [`Smear::length`] for an inserted leap second, a second shorter for a
    /// deleted one.
    #[must_use]
    pub fn window(&self, leap: &LeapSecond) -> (Timestamp<Utc>, Span) {
        let start = leap.midnight - Span::from_ns(self.length.as_ns() / 2);
        (start, self.length - leap.step())
    }
}

#[cfg(test)]
mod tests {
    use super::super::LeapKind;
    use super::super::tests::MIDNIGHT_2017;
    use super::*;
    use crate::NS_PER_S;
    use proptest::prelude::*;

    const NOON: i64 = MIDNIGHT_2017 - NS_PER_DAY / 2;
    const SMEAR: Smear = Smear { length: SMEAR_DEFAULT };

    fn leap(kind: LeapKind) -> LeapSecond {
        LeapSecond { midnight: Timestamp::from_ns(MIDNIGHT_2017), kind }
    }

    fn shown(kind: LeapKind, after_noon_ns: i64) -> i64 {
        SMEAR.reading_at(&leap(kind), Timestamp::from_ns(NOON + after_noon_ns)).instant.as_ns()
            - NOON
    }

    #[test]
    fn it_goes_from_noon_to_noon() {
        for (kind, seconds) in [(LeapKind::Insert, 86_401), (LeapKind::Delete, 86_399)] {
            assert_eq!(shown(kind, 0), 0);
            assert_eq!(shown(kind, seconds * NS_PER_S), NS_PER_DAY);
            // Half way through it is midnight and half of the second is gone.
            assert_eq!(shown(kind, seconds * NS_PER_S / 2), NS_PER_DAY / 2);
            assert_eq!(shown(kind, -5), -5);
        }
    }

    #[test]
    fn its_rate_is_one_second_in_a_day() {
        let at = |kind| SMEAR.reading_at(&leap(kind), Timestamp::from_ns(MIDNIGHT_2017)).rate_ppb;
        assert_eq!((at(LeapKind::Insert), at(LeapKind::Delete)), (-11_573, 11_574));
    }

    proptest! {
        #[test]
        fn it_never_jumps(at in -NS_PER_DAY..NS_PER_DAY * 2, by in 1..NS_PER_S, insert: bool) {
            let kind = if insert { LeapKind::Insert } else { LeapKind::Delete };
            let moved = shown(kind, at + by) - shown(kind, at);
            prop_assert!((moved - by).abs() <= by / 86_000 + 1, "{moved} in {by}");
        }
    }
}
