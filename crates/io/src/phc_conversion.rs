//! Conversion of PHC timestamps to the system's monotonic clock, which is never stepped, by a line
//! through simultaneous readings of both clocks; and the choice between the timestamps of a packet,
//! of which those of a PHC are converted. No clock is read here.

use std::sync::Arc;

use arc_swap::ArcSwap;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::batch::{BatchPacket, HardwareTimestamp};
use crate::interface_phc::InterfacePhc;

/// Largest distance of a timestamp from the last reading of the clocks: if the comparing thread is
/// stuck, timestamps must not be converted by an outdated rate.
const CONVERSION_DISTANCE_MAX: Span = Span::from_ms(4_000);
/// Largest plausible frequency difference of the two clocks, in ppb; a larger one means that a
/// clock was stepped between two readings.
const RATE_MAX_PPB: i128 = 1_000_000;

/// Simultaneous readings of a PHC and the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrossTimestamp {
    /// PHC reading, in ns since the PHC's epoch.
    pub hardware_ns: i64,
    /// Reading of the monotonic clock.
    pub monotonic: Timestamp<Monotonic>,
}

/// Conversion of the timestamps of a PHC: a line through the last two cross timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhcConversion {
    anchor: CrossTimestamp,
    /// Relative frequency of the monotonic clock minus that of the PHC, in ppb; positive if the
    /// monotonic clock is faster.
    frequency_difference_ppb: i64,
}

impl PhcConversion {
    /// Returns a conversion that starts from a first pair of readings and assumes equal
    /// frequencies.
    #[must_use]
    pub const fn new(first: CrossTimestamp) -> Self {
        Self { anchor: first, frequency_difference_ppb: 0 }
    }

    /// Returns the conversion after a further pair of readings. If the PHC has not advanced or the
    /// implied frequency difference is implausible, because a clock was stepped, the conversion
    /// restarts with that pair.
    #[must_use]
    pub fn updated_with(self, next: CrossTimestamp) -> Self {
        let hardware = i128::from(next.hardware_ns) - i128::from(self.anchor.hardware_ns);
        let monotonic = i128::from((next.monotonic - self.anchor.monotonic).as_ns());
        if hardware <= 0 {
            return Self::new(next);
        }
        let frequency_difference_ppb = (monotonic - hardware) * i128::from(NS_PER_S) / hardware;
        if frequency_difference_ppb.abs() > RATE_MAX_PPB {
            return Self::new(next);
        }
        Self { anchor: next, frequency_difference_ppb: frequency_difference_ppb as i64 }
    }

    /// Converts a PHC timestamp; `None` if it is more than 4 s from the last readings.
    #[must_use]
    #[inline]
    pub fn monotonic_of(&self, hardware_ns: i64) -> Option<Timestamp<Monotonic>> {
        let distance = hardware_ns.checked_sub(self.anchor.hardware_ns)?;
        if distance.unsigned_abs() > CONVERSION_DISTANCE_MAX.as_ns().unsigned_abs() {
            return None;
        }
        // The distance is at most 4 s and the difference at most 0.1%, so the product fits 64 bits.
        let correction = distance * self.frequency_difference_ppb / NS_PER_S;
        Some(self.anchor.monotonic + Span::from_ns(distance + correction))
    }
}

/// Conversions of PHC timestamps, by interface index; one thread publishes them and others read
/// them.
#[derive(Debug, Default)]
pub struct PhcConversions(ArcSwap<Vec<(u32, PhcConversion)>>);

impl PhcConversions {
    /// Replaces the conversions by those of these PHCs.
    pub fn publish(&self, compared: &[InterfacePhc]) {
        let known = compared.iter().map(|one| (one.index(), one.conversion())).collect();
        self.0.store(Arc::new(known));
    }

    /// Converts a hardware timestamp to the monotonic clock; `None` without a recent comparison of
    /// its PHC.
    #[must_use]
    #[inline]
    pub fn monotonic_of(&self, time: HardwareTimestamp) -> Option<Timestamp<Monotonic>> {
        let known = self.0.load();
        let (_, conversion) = known.iter().find(|(interface, _)| *interface == time.interface)?;
        conversion.monotonic_of(time.ns)
    }

    /// Returns the best timestamp of a packet, and its source: the hardware timestamp if it can be
    /// converted, otherwise the kernel's, which `of_kernel` converts. `None` without any timestamp.
    #[must_use]
    pub fn best_timestamp<A>(
        &self,
        packet: &BatchPacket<'_, A>,
        of_kernel: impl FnOnce(Timestamp<Utc>) -> Timestamp<Monotonic>,
    ) -> Option<(Timestamp<Monotonic>, PacketTimestampSource)> {
        match packet.hardware.and_then(|time| self.monotonic_of(time)) {
            Some(instant) => Some((instant, PacketTimestampSource::Hardware)),
            None => packet
                .received_at
                .map(|instant| (of_kernel(instant), PacketTimestampSource::Kernel)),
        }
    }
}

/// Source of the timestamp of a packet: kernel or NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketTimestampSource {
    /// Kernel, by the system clock.
    Kernel,
    /// NIC, by its PHC.
    Hardware,
}

impl PacketTimestampSource {
    /// Returns `kernel` or `hardware`, according to this source.
    #[must_use]
    pub fn choose<T>(self, kernel: T, hardware: T) -> T {
        match self {
            Self::Kernel => kernel,
            Self::Hardware => hardware,
        }
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
        fn at(&self, ns: i64) -> CrossTimestamp {
            let gained = i128::from(ns) * i128::from(self.gain_ppb) / i128::from(NS_PER_S);
            CrossTimestamp {
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
        let second = first.updated_with(clock.at(101 * S));
        assert!(error_ns(&second, &clock, 102 * S).abs() <= 2);
        assert!(error_ns(&second, &clock, 100 * S).abs() <= 2, "a packet of before");
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let before = Simulated { offset_ns: 0, gain_ppb: 20_000 };
        let conversion = PhcConversion::new(before.at(S)).updated_with(before.at(2 * S));
        for offset_ns in [5 * S, -5 * S, 2_000_000] {
            let after = Simulated { offset_ns, gain_ppb: 20_000 };
            let followed = conversion.updated_with(after.at(3 * S));
            assert_eq!(error_ns(&followed, &after, 3 * S), 0, "{offset_ns}");
            let followed = followed.updated_with(after.at(4 * S));
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

    #[test]
    fn a_timestamp_is_converted_by_its_own_interface() {
        let monotonic = Timestamp::from_ns(1_000);
        let at = |hardware_ns| PhcConversion::new(CrossTimestamp { hardware_ns, monotonic });
        let conversions = PhcConversions(ArcSwap::from_pointee(vec![(3, at(50)), (7, at(90))]));
        let time = |interface| conversions.monotonic_of(HardwareTimestamp { interface, ns: 90 });
        assert_eq!(time(3), Some(Timestamp::from_ns(1_040)));
        assert_eq!(time(7), Some(Timestamp::from_ns(1_000)));
        assert_eq!(time(4), None);
    }

    proptest! {
        #[test]
        fn any_two_clocks_are_carried_over(offset_ns in -(1i64 << 60)..1 << 60,
                                           gain_ppb in -900_000i64..900_000,
                                           step in S / 10..3 * S, later in 0..3 * S) {
            let clock = Simulated { offset_ns, gain_ppb };
            let at = 1_000 * S;
            let conversion = PhcConversion::new(clock.at(at)).updated_with(clock.at(at + step));
            // A reading is whole nanoseconds, so the rate is as good as the readings are apart; it
            // is stored in whole parts per billion, a nanosecond in each second.
            let tolerance = 4 + later / S + 2 * later / step;
            prop_assert!(error_ns(&conversion, &clock, at + step + later).abs() <= tolerance);
        }
    }
}
