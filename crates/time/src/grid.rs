//! Instants at equal intervals from a start. They are computed from their index, so a sender or
//! poller that is late neither shifts nor accumulates an error.

use crate::{Span, Timescale, Timestamp};

/// Instants `start` + n × `interval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeGrid<S: Timescale> {
    /// Instant of index 0.
    pub start: Timestamp<S>,
    /// Interval between two instants, above 0.
    pub interval: Span,
}

impl<S: Timescale> TimeGrid<S> {
    /// Returns the instant of an index; saturates.
    #[inline]
    #[must_use]
    pub fn instant(&self, index: u64) -> Timestamp<S> {
        let count = i64::try_from(index).unwrap_or(i64::MAX);
        self.start + Span::from_ns(self.interval.as_ns().saturating_mul(count))
    }

    /// Returns the index of the first instant that is not before `now`.
    #[must_use]
    pub fn index_from(&self, now: Timestamp<S>) -> u64 {
        let elapsed = u64::try_from((now - self.start).as_ns()).unwrap_or(0);
        elapsed.div_ceil(self.interval.as_ns().max(1).unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Monotonic;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(1_000);

    #[test]
    fn instants_beyond_the_range_saturate() {
        let grid = TimeGrid { start: START, interval: Span::from_ns(i64::MAX / 2) };
        assert_eq!(grid.instant(1).as_ns(), i64::MAX / 2 + 1_000);
        assert_eq!(grid.instant(u64::MAX).as_ns(), i64::MAX);
        let instant = TimeGrid { start: START, interval: Span::from_ns(10) }.index_from(START);
        assert_eq!(instant, 0);
    }

    proptest! {
        #[test]
        fn the_next_instant_is_at_most_an_interval_away(
            interval in 1..1_000_000_000_i64, now in -10_000..1_000_000_000_000_i64,
        ) {
            let (grid, now) =
                (TimeGrid { start: START, interval: Span::from_ns(interval) }, Timestamp::from_ns(now));
            let index = grid.index_from(now);
            prop_assert!(grid.instant(index) >= now);
            prop_assert!(index == 0 || grid.instant(index - 1) < now);
        }
    }
}
