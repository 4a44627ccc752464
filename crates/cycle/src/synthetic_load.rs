//! Built-in load: a chain of dependent arithmetic operations over 4 KiB, in units of equal
//! duration, and the calibration of a unit on this core.

use std::hint::black_box;

use horolog_sys::clock::ClockMonotonic;
use horolog_time::Clock;

use crate::task::ComputeAmount;

/// Number of words that a unit processes: 4 KiB, which fit into the L1 cache of any processor.
const LOAD_WORDS: usize = 512;
/// Shortest duration of a calibration trial, in ns: long compared to a clock reading, and short
/// enough to fit between two disturbances.
const TRIAL_MIN_NS: u64 = 100_000;
/// Number of calibration trials. The fastest one counts, since the others were disturbed.
const TRIALS: usize = 200;

/// Working set of the load, which each unit reads and writes once.
#[derive(Debug)]
pub(crate) struct SyntheticLoad {
    words: Box<[u64; LOAD_WORDS]>,
}

impl Default for SyntheticLoad {
    fn default() -> Self {
        let mut words = Box::new([0; LOAD_WORDS]);
        for (word, seed) in words.iter_mut().zip(1_u64..) {
            *word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        Self { words }
    }
}

impl SyntheticLoad {
    /// Runs this number of units.
    #[inline]
    pub(crate) fn run(&mut self, units: u64) {
        for _ in 0..units {
            let mut state = self.words[LOAD_WORDS - 1];
            for word in self.words.iter_mut() {
                // Each operation depends on the previous one, so no processor can execute them in
                // parallel and the duration of a unit is that of the chain.
                state = (state ^ *word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
                *word = state;
            }
            black_box(&mut self.words);
        }
    }

    /// Returns the undisturbed duration of a unit on the core of this thread, in ns: the fastest of
    /// several trials.
    pub(crate) fn calibrate(&mut self) -> f64 {
        let mut units = 16;
        let mut fastest = f64::INFINITY;
        let mut trials = 0;
        while trials < TRIALS {
            let begun = ClockMonotonic.now();
            self.run(units);
            let taken_ns = (ClockMonotonic.now() - begun).as_ns().unsigned_abs();
            if taken_ns < TRIAL_MIN_NS {
                units *= 2;
                continue;
            }
            fastest = fastest.min(taken_ns as f64 / units as f64);
            trials += 1;
        }
        fastest
    }
}

/// Returns the number of units of a computation on a core on which one unit takes `unit_ns`.
#[must_use]
pub(crate) fn units_of(compute: ComputeAmount, unit_ns: f64) -> u64 {
    match compute {
        ComputeAmount::Units(units) => units,
        ComputeAmount::Ns(0) => 0,
        // A computation is at least one unit.
        ComputeAmount::Ns(ns) => ((ns as f64 / unit_ns).round() as u64).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_many_units_leave_other_numbers_and_take_longer_than_none() {
        let mut load = SyntheticLoad::default();
        load.run(1);
        let one = load.words.clone();
        load.run(1);
        assert_ne!(one, load.words);
        let mut together = SyntheticLoad::default();
        together.run(2);
        assert_eq!(together.words, load.words);
        assert!(load.calibrate() > 0.0);
    }

    #[test]
    fn a_time_becomes_units() {
        assert_eq!(units_of(ComputeAmount::Ns(1_000_000), 500.0), 2_000);
        assert_eq!(units_of(ComputeAmount::Ns(1), 500.0), 1);
        assert_eq!(units_of(ComputeAmount::Ns(0), 500.0), 0);
        assert_eq!(units_of(ComputeAmount::Units(7), 500.0), 7);
    }
}
