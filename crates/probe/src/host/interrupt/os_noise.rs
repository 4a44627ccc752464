//! OS noise, measured by a thread that reads the clock in a busy loop: a gap between two readings
//! means that the core was taken from it. Context switches show whether another thread ran in the
//! gap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use horolog_conditions as conditions;
use horolog_record::{Distribution, OsNoise, OsNoiseGap, OsNoiseGapSummary};
use horolog_stats::Histogram;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::thread_usage::{ContextSwitches, run_delay_ns};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::counters::CoreInterruptionCounts;
use crate::host::{MeasuringThreadError, figures};

/// Number of longest gaps that are reported individually.
const LONGEST_GAPS_MAX: usize = 10;
/// Clock readings between two checks of whether the run is to end.
const READINGS_PER_CHECK: u32 = 256;

/// Clock, context switches and end condition of a spinning thread; a trait for tests.
trait SpinEnvironment {
    fn now(&mut self) -> Timestamp<Monotonic>;
    /// Returns the number of context switches of this thread so far.
    fn switches(&mut self) -> u64;
    fn is_over(&mut self) -> bool;
}

struct CoreSpinEnvironment<'a> {
    end: Timestamp<Monotonic>,
    stop: &'a AtomicBool,
}

impl SpinEnvironment for CoreSpinEnvironment<'_> {
    #[inline]
    fn now(&mut self) -> Timestamp<Monotonic> {
        ClockMonotonic.now()
    }

    fn switches(&mut self) -> u64 {
        // Does not fail in practice; 0 attributes no gap to a thread.
        ContextSwitches::now().map_or(0, ContextSwitches::all)
    }

    fn is_over(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.now() >= self.end
    }
}

/// Gaps found by a spinning thread.
#[derive(Debug)]
struct NoiseGaps {
    duration_ns: u64,
    lengths: Histogram,
    by_threads: OsNoiseGapSummary,
    by_others: OsNoiseGapSummary,
    longest: Vec<OsNoiseGap>,
}

impl NoiseGaps {
    /// Spins until the end of the run and records gaps longer than `threshold_ns`.
    fn spin(environment: &mut impl SpinEnvironment, threshold_ns: u64) -> Self {
        let mut gaps = Self {
            duration_ns: 0,
            lengths: Histogram::new(),
            by_threads: OsNoiseGapSummary::default(),
            by_others: OsNoiseGapSummary::default(),
            longest: Vec::with_capacity(LONGEST_GAPS_MAX + 1),
        };
        let mut switches = environment.switches();
        let begun = environment.now();
        let mut last = begun;
        while !environment.is_over() {
            // The first reading includes the time of that check, in which a gap may occur too.
            for _ in 0..READINGS_PER_CHECK {
                let now = environment.now();
                let length_ns = (now - last).as_ns().unsigned_abs();
                if length_ns > threshold_ns {
                    let after = environment.switches();
                    gaps.add(OsNoiseGap {
                        at_s: (last - begun).as_ns() as f64 / 1e9,
                        length_ns,
                        by_threads: after > switches,
                    });
                    switches = after;
                    // The time of reading the context switches belongs to no gap.
                    last = environment.now();
                } else {
                    last = now;
                }
            }
        }
        gaps.duration_ns = (last - begun).as_ns().unsigned_abs();
        gaps
    }

    fn add(&mut self, gap: OsNoiseGap) {
        self.lengths.record(gap.length_ns);
        let part = if gap.by_threads { &mut self.by_threads } else { &mut self.by_others };
        part.gaps += 1;
        part.total_ns += gap.length_ns;
        part.max_ns = part.max_ns.max(gap.length_ns);
        let index = self.longest.partition_point(|one| one.length_ns >= gap.length_ns);
        if index < LONGEST_GAPS_MAX {
            self.longest.insert(index, gap);
            self.longest.truncate(LONGEST_GAPS_MAX);
        }
    }

    fn combined_summary(&self) -> OsNoiseGapSummary {
        let (one, other) = (self.by_threads, self.by_others);
        OsNoiseGapSummary {
            gaps: one.gaps + other.gaps,
            total_ns: one.total_ns + other.total_ns,
            max_ns: one.max_ns.max(other.max_ns),
        }
    }
}

/// Measures the OS noise of one core in the calling thread, with `SCHED_OTHER`.
pub(super) fn measure(
    core: usize,
    spin: Duration,
    threshold: Duration,
    stop: &AtomicBool,
) -> Result<OsNoise, MeasuringThreadError> {
    conditions::apply_to_thread(core, None)?;
    let turn_ns = figures::clock_read_cost_ns();
    let threshold_ns = threshold.as_nanos() as u64;
    let before = (run_delay_ns().ok(), CoreInterruptionCounts::read(core));
    let end = ClockMonotonic.now() + Span::from_ns(spin.as_nanos() as i64);
    let gaps = NoiseGaps::spin(&mut CoreSpinEnvironment { end, stop }, threshold_ns);
    let after = (run_delay_ns().ok(), CoreInterruptionCounts::read(core));
    let since = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    Ok(OsNoise {
        core,
        duration_ns: gaps.duration_ns,
        turn_ns,
        threshold_ns,
        all: gaps.combined_summary(),
        by_threads: gaps.by_threads,
        by_others: gaps.by_others,
        gap_ns: Distribution::from_histogram(&gaps.lengths),
        longest: gaps.longest,
        run_delay_ns: since(before.0, after.0),
        steal_ns: since(before.1.steal_ns, after.1.steal_ns),
        interrupts: since(before.1.interrupts, after.1.interrupts),
        system_management: since(
            before.1.system_management_interrupts,
            after.1.system_management_interrupts,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop of 50 ns a turn, with gaps of these lengths at these turns, some of which are
    /// switches.
    struct Simulated {
        now_ns: i64,
        turn: u64,
        gaps: Vec<(u64, i64, bool)>,
        switches: u64,
    }

    impl SpinEnvironment for Simulated {
        fn now(&mut self) -> Timestamp<Monotonic> {
            self.turn += 1;
            self.now_ns += 50;
            for &(turn, length_ns, is_switch) in &self.gaps {
                if turn == self.turn {
                    self.now_ns += length_ns;
                    self.switches += u64::from(is_switch);
                }
            }
            Timestamp::from_ns(self.now_ns)
        }

        fn switches(&mut self) -> u64 {
            self.switches
        }

        fn is_over(&mut self) -> bool {
            self.turn > 10_000
        }
    }

    fn find(gaps: &[(u64, i64, bool)]) -> NoiseGaps {
        let mut here = Simulated { now_ns: 0, turn: 0, gaps: gaps.to_vec(), switches: 7 };
        NoiseGaps::spin(&mut here, 1_000)
    }

    #[test]
    fn gaps_are_found_and_attributed() {
        let gaps = find(&[(100, 2_000_000, true), (500, 3_000, false), (501, 900, false)]);
        assert_eq!((gaps.by_threads.gaps, gaps.by_threads.total_ns), (1, 2_000_050));
        assert_eq!((gaps.by_others.gaps, gaps.by_others.max_ns), (1, 3_050));
        assert_eq!((gaps.combined_summary().gaps, gaps.lengths.count()), (2, 2));
        assert!(gaps.longest[0].by_threads && !gaps.longest[1].by_threads);
        assert!((gaps.longest[0].at_s - 4.9e-6).abs() < 1e-12, "{:?}", gaps.longest[0]);
    }

    #[test]
    fn the_longest_gaps_are_stored_and_all_are_counted() {
        let gaps: Vec<_> = (1..100).map(|at| (at * 50, at as i64 * 10_000, false)).collect();
        let found = find(&gaps);
        assert_eq!(found.combined_summary().gaps, 99);
        let longest: Vec<_> = found.longest.iter().map(|gap| gap.length_ns).collect();
        assert_eq!(longest.len(), LONGEST_GAPS_MAX);
        assert_eq!((longest[0], longest[9]), (990_050, 900_050));
    }

    #[test]
    fn a_quiet_core_has_none() {
        let gaps = find(&[]);
        assert!(gaps.combined_summary() == OsNoiseGapSummary::default() && gaps.longest.is_empty());
        assert!(gaps.duration_ns > 400_000, "{}", gaps.duration_ns);
    }
}
