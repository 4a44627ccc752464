//! Sources of instants: the [`Clock`] trait, and a simulated clock for tests and replays. The
//! clocks of the running system are with the other system calls, in `horolog-sys`.

use core::sync::atomic::{AtomicI64, Ordering};

use crate::{NS_PER_S, Span, Timescale, Timestamp};

/// Clock on the timescale `S`.
pub trait Clock<S: Timescale> {
    /// Returns the present instant.
    fn now(&self) -> Timestamp<S>;
}

/// Simulated clock, which only [`SimulatedClock::advance`] moves.
#[derive(Debug)]
pub struct SimulatedClock {
    now_ns: AtomicI64,
}

impl SimulatedClock {
    /// Creates a clock that shows the instant `ns` nanoseconds after the epoch of its timescale.
    #[must_use]
    pub const fn new(ns: i64) -> Self {
        Self { now_ns: AtomicI64::new(ns) }
    }

    /// Moves the clock by `span`, backwards if it is negative.
    pub fn advance(&self, span: Span) {
        self.now_ns.fetch_add(span.as_ns(), Ordering::SeqCst);
    }
}

impl<S: Timescale> Clock<S> for SimulatedClock {
    fn now(&self) -> Timestamp<S> {
        Timestamp::from_ns(self.now_ns.load(Ordering::SeqCst))
    }
}

/// Number of readings in [`measure_precision`]: enough that at least one is not delayed by an
/// interrupt or a cold cache.
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

    use super::*;
    use crate::{Monotonic, Span, Timestamp};

    #[test]
    fn moves_only_when_advanced() {
        let clock = SimulatedClock::new(5);
        let start: Timestamp<Monotonic> = clock.now();
        assert_eq!(clock.now(), start);
        clock.advance(Span::from_ns(7));
        assert_eq!(clock.now() - start, Span::from_ns(7));
    }

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
