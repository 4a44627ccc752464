//! Conversion of hardware timestamps to the monotonic clock of the system, which is never stepped,
//! from simultaneous readings of both clocks. It reads no clock.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Longest distance from the last reading for a conversion: if a thread is stuck, timestamps must
/// not be converted with an outdated rate.
const REACH: Span = Span::from_ms(4_000);
/// Largest plausible rate between two clocks, in parts per billion; a larger one means that a clock
/// was stepped between two readings.
const RATE_MAX_PPB: i128 = 1_000_000;

/// Simultaneous readings of both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPair {
    /// Clock of the interface, in nanoseconds since its zero.
    pub hardware_ns: i64,
    /// Monotonic clock of the system.
    pub monotonic: Timestamp<Monotonic>,
}

/// Conversion of an interface's timestamps: a line through the last two readings of both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhcConversion {
    anchor: ClockPair,
    /// Rate of the system's clock relative to the interface's, in parts per billion.
    gain_ppb: i64,
}

impl PhcConversion {
    /// Returns a conversion from a first pair: both clocks are assumed to have the same rate.
    #[must_use]
    pub const fn new(first: ClockPair) -> Self {
        Self { anchor: first, gain_ppb: 0 }
    }

    /// Returns the conversion after a further pair. If that does not fit the one before, because
    /// one of the clocks was stepped, the conversion restarts with it.
    #[must_use]
    pub fn follow(self, next: ClockPair) -> Self {
        let hardware = i128::from(next.hardware_ns) - i128::from(self.anchor.hardware_ns);
        let monotonic = i128::from((next.monotonic - self.anchor.monotonic).as_ns());
        if hardware <= 0 {
            return Self::new(next);
        }
        let gain_ppb = (monotonic - hardware) * i128::from(NS_PER_S) / hardware;
        if gain_ppb.abs() > RATE_MAX_PPB {
            return Self::new(next);
        }
        Self { anchor: next, gain_ppb: gain_ppb as i64 }
    }

    /// Returns the instant of a timestamp; `None` if too far from the last reading.
    #[must_use]
    pub fn monotonic_of(&self, hardware_ns: i64) -> Option<Timestamp<Monotonic>> {
        let distance = hardware_ns.checked_sub(self.anchor.hardware_ns)?;
        if distance.unsigned_abs() > REACH.as_ns().unsigned_abs() {
            return None;
        }
        // Within 4 s and a thousandth, the product fits in 64 bits.
        let gained = distance * self.gain_ppb / NS_PER_S;
        Some(self.anchor.monotonic + Span::from_ns(distance + gained))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An interface's clock that is off by so much and gains on the system's.
    struct Simulated {
        offset_ns: i64,
        gain_ppb: i64,
    }

    impl Simulated {
        fn at(&self, ns: i64) -> ClockPair {
            let gained = i128::from(ns) * i128::from(self.gain_ppb) / i128::from(NS_PER_S);
            ClockPair {
                hardware_ns: ns + self.offset_ns + gained as i64,
                monotonic: Timestamp::from_ns(ns),
            }
        }
    }

    const S: i64 = NS_PER_S;

    fn error_ns(conversion: &PhcConversion, clock: &Simulated, ns: i64) -> i64 {
        let crossing = clock.at(ns);
        (conversion.monotonic_of(crossing.hardware_ns).unwrap() - crossing.monotonic).as_ns()
    }

    #[test]
    fn one_crossing_gives_the_offset_and_two_the_rate() {
        let clock = Simulated { offset_ns: 37 * S, gain_ppb: 50_000 };
        let first = PhcConversion::new(clock.at(100 * S));
        assert_eq!(error_ns(&first, &clock, 100 * S), 0);
        assert_eq!(error_ns(&first, &clock, 101 * S), 50_000, "the rate is not known yet");
        let second = first.follow(clock.at(101 * S));
        assert!(error_ns(&second, &clock, 102 * S).abs() <= 2);
        assert!(error_ns(&second, &clock, 100 * S).abs() <= 2, "a packet of before");
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let before = Simulated { offset_ns: 0, gain_ppb: 20_000 };
        let conversion = PhcConversion::new(before.at(S)).follow(before.at(2 * S));
        for offset_ns in [5 * S, -5 * S, 2_000_000] {
            let after = Simulated { offset_ns, gain_ppb: 20_000 };
            let followed = conversion.follow(after.at(3 * S));
            assert_eq!(error_ns(&followed, &after, 3 * S), 0, "{offset_ns}");
            let followed = followed.follow(after.at(4 * S));
            assert!(error_ns(&followed, &after, 5 * S).abs() <= 2, "{offset_ns}");
        }
    }

    #[test]
    fn nothing_is_converted_far_from_a_crossing() {
        let clock = Simulated { offset_ns: 0, gain_ppb: 0 };
        let conversion = PhcConversion::new(clock.at(100 * S));
        for ns in [95 * S, 105 * S, i64::MIN, i64::MAX] {
            assert_eq!(conversion.monotonic_of(ns), None);
        }
    }

    proptest! {
        #[test]
        fn any_two_clocks_are_carried_over(offset_ns in -(1i64 << 60)..1 << 60,
                                           gain_ppb in -900_000i64..900_000,
                                           step in S / 10..3 * S, later in 0..3 * S) {
            let clock = Simulated { offset_ns, gain_ppb };
            let at = 1_000 * S;
            let conversion = PhcConversion::new(clock.at(at)).follow(clock.at(at + step));
            // A reading is whole nanoseconds, so the rate is as good as the readings are apart; it
            // is stored in whole parts per billion, a nanosecond in each second.
            let tolerance = 4 + later / S + 2 * later / step;
            prop_assert!(error_ns(&conversion, &clock, at + step + later).abs() <= tolerance);
        }
    }
}
