//! Precision of a clock as defined by NTP: the smallest step between readings, in log2 seconds (RFC
//! 5905, section 7.3). It is unrelated to accuracy.

use crate::{Clock, NS_PER_S, Timescale};

/// Number of readings: enough that at least one is not delayed by an interrupt or a cold cache.
const READINGS: usize = 1_000;

/// Reads the clock repeatedly and returns the smallest positive step between two readings, in log2
/// seconds, rounded up. If all readings are equal, the precision is that of their unit, a
/// nanosecond: -30.
#[must_use]
pub fn measure_precision<S: Timescale>(clock: &impl Clock<S>) -> i8 {
    let mut smallest_ns = i64::MAX;
    let mut last = clock.now();
    for _ in 0..READINGS {
        let now = clock.now();
        let step_ns = (now - last).as_ns();
        if step_ns > 0 {
            smallest_ns = smallest_ns.min(step_ns);
        }
        last = now;
    }
    log2_seconds(if smallest_ns == i64::MAX { 1 } else { smallest_ns })
}

/// Returns log2 of a step of at least 1 ns, in seconds, rounded up.
fn log2_seconds(step_ns: i64) -> i8 {
    let reaches = |exponent: i8| {
        let step = i128::from(step_ns);
        let second = i128::from(NS_PER_S);
        if exponent < 0 { step << -exponent <= second } else { step <= second << exponent }
    };
    (-30..=33).find(|exponent| reaches(*exponent)).unwrap_or(33)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::{Monotonic, Span, Timestamp};

    use super::*;

    #[test]
    fn rounds_up_to_a_power_of_two() {
        assert_eq!(log2_seconds(1), -29);
        assert_eq!(log2_seconds(29), -25);
        assert_eq!(log2_seconds(30), -24);
        assert_eq!(log2_seconds(59), -24);
        assert_eq!(log2_seconds(60), -23);
        assert_eq!(log2_seconds(NS_PER_S), 0);
        assert_eq!(log2_seconds(NS_PER_S + 1), 1);
    }

    /// Steps of 40 ns, every tenth of them a long one.
    struct Stepping(Cell<i64>);

    impl Clock<Monotonic> for Stepping {
        fn now(&self) -> Timestamp<Monotonic> {
            let reading = self.0.get();
            self.0.set(reading + 1);
            Timestamp::from_ns(0) + Span::from_ns(reading * 40 + reading / 10 * 5_000)
        }
    }

    #[test]
    fn takes_the_smallest_step() {
        assert_eq!(measure_precision(&Stepping(Cell::new(0))), log2_seconds(40));
    }

    #[test]
    fn a_clock_that_stands_still_does_not_hang() {
        assert_eq!(measure_precision::<Monotonic>(&crate::SimulatedClock::new(7)), -29);
    }
}
