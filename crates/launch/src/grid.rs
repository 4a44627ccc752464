//! Instants of a run: one, or one per period from the first on. Pure.

/// Series of instants in ns since 1970 on their timescale, with the position in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InstantGrid {
    first_ns: i64,
    every_ns: Option<i64>,
    /// Index of the next instant, counted from the first.
    index: i64,
}

impl InstantGrid {
    /// Creates a series. A period of 0 or less counts as none. Instants of a periodic series before
    /// `now_ns` are skipped.
    pub(crate) fn new(first_ns: i64, every_ns: Option<i64>, now_ns: i64) -> Self {
        let mut grid = Self { first_ns, every_ns: every_ns.filter(|every| *every > 0), index: 0 };
        grid.skip_to(now_ns);
        grid
    }

    /// Returns the next instant; `None` after a single instant, and beyond the range of the clock.
    pub(crate) fn next_instant(&self) -> Option<i64> {
        match self.every_ns {
            None => (self.index == 0).then_some(self.first_ns),
            Some(every_ns) => self.first_ns.checked_add(self.index.checked_mul(every_ns)?),
        }
    }

    /// Advances past the current instant to the first one from `now_ns` on. Returns the number of
    /// past instants that were skipped.
    pub(crate) fn advance(&mut self, now_ns: i64) -> u64 {
        self.index = self.index.saturating_add(1);
        self.skip_to(now_ns)
    }

    fn skip_to(&mut self, now_ns: i64) -> u64 {
        let (Some(every_ns), Some(instant)) = (self.every_ns, self.next_instant()) else {
            return 0;
        };
        let behind_ns = now_ns.saturating_sub(instant);
        if behind_ns <= 0 {
            return 0;
        }
        // Rounded up: the resulting instant is not before now.
        let skipped = behind_ns / every_ns + i64::from(behind_ns % every_ns != 0);
        self.index = self.index.saturating_add(skipped);
        skipped.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_instant_is_met_once_also_when_it_is_past() {
        let mut grid = InstantGrid::new(100, None, 500);
        assert_eq!(grid.next_instant(), Some(100));
        assert_eq!((grid.advance(600), grid.next_instant()), (0, None));
    }

    #[test]
    fn a_series_goes_on_from_the_present() {
        let mut grid = InstantGrid::new(100, Some(10), 95);
        assert_eq!(grid.next_instant(), Some(100));
        assert_eq!((grid.advance(101), grid.next_instant()), (0, Some(110)));
        // It took until after 130, and 120 and 130 are missed.
        assert_eq!((grid.advance(131), grid.next_instant()), (2, Some(140)));
        assert_eq!((grid.advance(150), grid.next_instant()), (0, Some(150)));
        assert_eq!(InstantGrid::new(100, Some(10), 121).next_instant(), Some(130));
        // A clock that was set back is waited for.
        assert_eq!((grid.advance(20), grid.next_instant()), (0, Some(160)));
    }

    proptest! {
        #[test]
        fn instants_are_on_the_grid_in_order_and_all_accounted_for(
            first in -1_000_000..1_000_000_i64,
            every in 1..1_000_i64,
            steps in prop::collection::vec(0..5_000_i64, 1..30),
        ) {
            let mut now = first;
            let mut grid = InstantGrid::new(first, Some(every), now);
            let (mut met, mut missed) = (0_i64, 0_i64);
            for step in steps {
                let instant = grid.next_instant().unwrap();
                prop_assert!(instant >= now && instant - now <= every);
                prop_assert_eq!(instant, first + (met + missed) * every);
                met += 1;
                now = instant + step;
                missed += grid.advance(now) as i64;
            }
        }
    }
}
