//! Detection of pulses that arrive every second. A pulse is regular if others arrived one and two
//! seconds before it; line noise does not produce such a pattern.

use std::collections::VecDeque;

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Maximum number of retained pulses: more than arrive within [`AGE_MAX`] at 10 Hz.
const PULSES_MAX: usize = 64;
const AGE_MAX: Span = Span::from_ns(4 * NS_PER_S);
/// Number of preceding seconds in each of which a pulse must have arrived.
const SECONDS_BEFORE: i64 = 2;

/// Instants of the pulses of the last [`AGE_MAX`].
#[derive(Clone, Default, Debug)]
pub(crate) struct RecentPulses {
    recent: VecDeque<Timestamp<Monotonic>>,
}

impl RecentPulses {
    /// Adds a pulse, which must be later than all previous ones.
    pub(crate) fn add_pulse(&mut self, at: Timestamp<Monotonic>) {
        if self.recent.len() == PULSES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        self.recent.retain(|pulse| at - *pulse <= AGE_MAX);
    }

    /// Discards pulses at or after `at`: time does not run backwards, so their instants were wrong.
    pub(crate) fn forget_from(&mut self, at: Timestamp<Monotonic>) {
        self.recent.retain(|pulse| *pulse < at);
    }

    pub(crate) fn latest(&self) -> Option<Timestamp<Monotonic>> {
        self.recent.back().copied()
    }

    /// Returns true if pulses arrived one and two seconds before `at`.
    pub(crate) fn is_regular(&self, at: Timestamp<Monotonic>, tolerance: Span) -> bool {
        (1..=SECONDS_BEFORE).all(|seconds| {
            let expected = at - Span::from_ns(seconds * NS_PER_S);
            let slack = tolerance.as_ns() * seconds;
            self.recent.iter().any(|pulse| (*pulse - expected).as_ns().abs() <= slack)
        })
    }

    /// Returns the regular pulses in the second that ends with `at`.
    pub(crate) fn regular_pulses(
        &self,
        at: Timestamp<Monotonic>,
        tolerance: Span,
    ) -> impl DoubleEndedIterator<Item = Timestamp<Monotonic>> {
        let begin = at - Span::from_ns(NS_PER_S) + tolerance;
        let within = move |pulse: &Timestamp<Monotonic>| *pulse > begin && *pulse <= at;
        let pulses = self.recent.iter().copied().filter(within);
        pulses.filter(move |pulse| self.is_regular(*pulse, tolerance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(ms * 1_000_000)
    }

    fn regular(pulses: &[i64], at: i64) -> Vec<i64> {
        let mut grid = RecentPulses::default();
        for pulse in pulses {
            grid.add_pulse(ms(*pulse));
        }
        let found = grid.regular_pulses(ms(at), Span::from_ms(1));
        found.map(|pulse| pulse.as_ns() / 1_000_000).collect()
    }

    #[test]
    fn only_what_comes_every_second_is_regular() {
        assert_eq!(regular(&[0, 1_000, 1_300, 2_000, 2_700, 3_000], 3_500), [3_000]);
        assert_eq!(regular(&[0, 1_000, 3_000], 3_500), [] as [i64; 0]);
        assert_eq!(regular(&[0, 1_003, 2_000], 2_500), [] as [i64; 0]);
    }

    #[test]
    fn all_of_several_in_a_second_are_found() {
        let two: Vec<_> = (0..9).map(|count| count * 500).collect();
        assert_eq!(regular(&two, 4_000), [3_500, 4_000]);
        let five: Vec<_> = (0..20).map(|count| count * 200).collect();
        assert_eq!(regular(&five, 3_800).len(), 5);
    }

    #[test]
    fn a_storm_of_pulses_takes_no_more_memory() {
        let mut grid = RecentPulses::default();
        (0..10_000).for_each(|count| grid.add_pulse(ms(count)));
        assert_eq!(grid.recent.len(), PULSES_MAX);
    }
}
