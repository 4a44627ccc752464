//! Leap smear: instead of a jump, a clock that runs slightly slower or faster for a day around the
//! leap, so that its clients never see one. It is linear and centred on the leap, from noon to noon
//! UTC by default, as agreed by the large public servers that smear: two different smears cannot be
//! mixed.

use super::{LeapSecond, NS_PER_DAY};
use crate::{Span, Timestamp, Utc};

/// Default length, from noon before the leap to noon after it.
pub const SMEAR_DEFAULT: Span = Span::from_ns(NS_PER_DAY);

/// Smear of a certain length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Smear {
    /// Length as counted by UTC, without the leap second: 86,400 s from noon to noon. Longer than a
    /// second.
    pub length: Span,
}

/// Reading of a smeared clock at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Smeared {
    /// Smeared time.
    pub instant: Timestamp<Utc>,
    /// Rate above that of UTC at that instant, in parts per billion.
    pub rate_ppb: i64,
    /// True if the instant lies within the smear.
    pub smearing: bool,
}

impl Smear {
    /// Returns the reading of the smeared clock at `instant` on the scale before the leap.
    #[must_use]
    pub fn at(&self, leap: &LeapSecond, instant: Timestamp<Utc>) -> Smeared {
        let (start, lasts) = self.window(leap);
        let into = (instant - start).as_ns();
        if into < 0 {
            return Smeared { instant, rate_ppb: 0, smearing: false };
        }
        let step = i128::from(leap.step().as_ns());
        if into >= lasts.as_ns() {
            return Smeared { instant: instant + leap.step(), rate_ppb: 0, smearing: false };
        }
        let lasts = i128::from(lasts.as_ns());
        let moved = (step * i128::from(into)).div_euclid(lasts);
        let rate_ppb = (step * 1_000_000_000 / lasts) as i64;
        Smeared { instant: instant + Span::from_ns(moved as i64), rate_ppb, smearing: true }
    }

    /// Returns its start on the scale before the leap, and its duration there: a second longer than
    /// its length if one is inserted.
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
        SMEAR.at(&leap(kind), Timestamp::from_ns(NOON + after_noon_ns)).instant.as_ns() - NOON
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
        let at = |kind| SMEAR.at(&leap(kind), Timestamp::from_ns(MIDNIGHT_2017)).rate_ppb;
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
