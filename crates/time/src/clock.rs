//! Sources of instants: the [`Clock`] trait, and a simulated clock for tests and replays. The
//! clocks of the running system are with the other system calls, in `horolog-sys`.

use core::sync::atomic::{AtomicI64, Ordering};

use crate::{Span, Timescale, Timestamp};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Monotonic;

    #[test]
    fn moves_only_when_advanced() {
        let clock = SimulatedClock::new(5);
        let start: Timestamp<Monotonic> = clock.now();
        assert_eq!(clock.now(), start);
        clock.advance(Span::from_ns(7));
        assert_eq!(clock.now() - start, Span::from_ns(7));
    }
}
