//! Measuring loop: waits for each instant of a periodic schedule and records the start latency. The
//! timer is a parameter, so that tests can simulate latencies.

use std::sync::atomic::{AtomicBool, Ordering};

use horolog_record::{LatencyAboveThreshold, TimerIntervalMaximum};
use horolog_stats::Histogram;
use horolog_time::{Monotonic, TimeGrid, Timestamp};

/// Maximum number of slices in the time series of a run.
const SLICES_MAX: u64 = 400;

/// Periodic schedule of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct WakeupSchedule {
    /// Instants that the thread waits for.
    pub(super) grid: TimeGrid<Monotonic>,
    /// Number of instants.
    pub(super) cycles: u64,
    /// Latency in ns above which the run ends; `None` for no limit.
    pub(super) break_above_ns: Option<u64>,
}

impl WakeupSchedule {
    fn offset_s(&self, cycle: u64) -> f64 {
        (self.grid.instant(cycle) - self.grid.start).as_ns() as f64 / 1e9
    }

    /// Returns the number of cycles per slice of the time series.
    const fn cycles_per_slice(&self) -> u64 {
        let whole = self.cycles.div_ceil(SLICES_MAX);
        if whole == 0 { 1 } else { whole }
    }
}

/// Clock that can wait for an instant; a trait for tests.
pub(super) trait WakeupClock {
    /// Returns the present instant.
    fn now(&mut self) -> Timestamp<Monotonic>;
    /// Waits until `due`; may return early.
    fn wait_until(&mut self, due: Timestamp<Monotonic>);
}

/// Start latencies of one thread, and the number of instants that it missed.
#[derive(Debug)]
pub(super) struct WakeupStats {
    /// Latencies from each instant to the clock reading after it, in ns.
    pub(super) latencies: Histogram,
    /// Instants that had passed before the thread began to wait for them; their latency is recorded
    /// too.
    pub(super) missed: u64,
    /// Latency that ended the run; the caller fills in the core.
    pub(super) break_latency: Option<LatencyAboveThreshold>,
    slice_max_ns: Vec<u64>,
}

impl WakeupStats {
    /// Runs through the schedule until its end, a latency above the limit, which sets `stop`, or
    /// until `stop` is set.
    pub(super) fn run(
        schedule: &WakeupSchedule,
        timer: &mut impl WakeupClock,
        stop: &AtomicBool,
    ) -> Self {
        let cycles_per_slice = schedule.cycles_per_slice();
        // All memory is allocated before the first instant.
        let mut cycles = Self {
            latencies: Histogram::new(),
            missed: 0,
            break_latency: None,
            slice_max_ns: vec![
                0;
                usize::try_from(schedule.cycles.div_ceil(cycles_per_slice))
                    .unwrap_or(0)
            ],
        };
        for cycle in 0..schedule.cycles {
            let due = schedule.grid.instant(cycle);
            let mut now = timer.now();
            if now >= due {
                cycles.missed += 1;
            }
            while now < due {
                timer.wait_until(due);
                now = timer.now();
            }
            let latency_ns = (now - due).as_ns().unsigned_abs();
            cycles.latencies.record(latency_ns);
            let largest = &mut cycles.slice_max_ns[(cycle / cycles_per_slice) as usize];
            *largest = (*largest).max(latency_ns);
            if schedule.break_above_ns.is_some_and(|limit| latency_ns > limit) {
                stop.store(true, Ordering::Relaxed);
                let at_s = schedule.offset_s(cycle);
                cycles.break_latency =
                    Some(LatencyAboveThreshold { core: 0, cycle, at_s, latency_ns });
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        cycles
    }

    /// Returns the maximum latency of each slice that was started.
    pub(super) fn slice_maxima(&self, grid: &WakeupSchedule) -> Vec<TimerIntervalMaximum> {
        let stretch = grid.cycles_per_slice();
        let begun = self.latencies.count().div_ceil(stretch);
        let largest = self.slice_max_ns.iter().take(usize::try_from(begun).unwrap_or(0));
        (0..)
            .zip(largest)
            .map(|(index, &max_ns)| TimerIntervalMaximum {
                at_s: grid.offset_s(index * stretch),
                max_ns,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;

    use super::*;

    /// A clock on which each wait ends so much late, in turn.
    struct Late {
        now_ns: i64,
        by_ns: Vec<i64>,
        waits: usize,
    }

    impl WakeupClock for Late {
        fn now(&mut self) -> Timestamp<Monotonic> {
            Timestamp::from_ns(self.now_ns)
        }

        fn wait_until(&mut self, due: Timestamp<Monotonic>) {
            self.now_ns = due.as_ns() + self.by_ns[self.waits % self.by_ns.len()];
            self.waits += 1;
        }
    }

    fn grid(cycles: u64, break_above_ns: Option<u64>) -> WakeupSchedule {
        let (start, interval) = (Timestamp::from_ns(1_000_000), Span::from_ns(1_000));
        WakeupSchedule { grid: TimeGrid { start, interval }, cycles, break_above_ns }
    }

    fn run(
        late_ns: &[i64],
        cycles: u64,
        break_above_ns: Option<u64>,
    ) -> (WakeupStats, usize, bool) {
        let stop = AtomicBool::new(false);
        let mut waiter = Late { now_ns: 0, by_ns: late_ns.to_vec(), waits: 0 };
        let cycles = WakeupStats::run(&grid(cycles, break_above_ns), &mut waiter, &stop);
        (cycles, waiter.waits, stop.into_inner())
    }

    #[test]
    fn a_latency_counts_from_its_instant() {
        let (cycles, waits, stopped) = run(&[7, 11], 10, None);
        let latencies = cycles.latencies;
        assert_eq!((latencies.count(), latencies.min(), latencies.max()), (10, Some(7), Some(11)));
        assert_eq!((cycles.missed, waits, stopped), (0, 10, false));
    }

    /// One wake-up that is 3.5 periods late: three more instants pass meanwhile, and each of them
    /// is late by what is left of it. None is skipped, as no request of a client would be.
    #[test]
    fn periods_that_pass_meanwhile_are_missed_and_measured() {
        let (cycles, waits, _) = run(&[3_500, 0, 0, 0, 0, 0, 0, 0], 5, None);
        assert_eq!((cycles.missed, cycles.latencies.count(), waits), (3, 5, 2));
        assert_eq!(cycles.latencies.sum(), 3_500 + 2_500 + 1_500 + 500);
        assert_eq!(cycles.latencies.max(), Some(3_500));
    }

    #[test]
    fn a_wait_that_ends_early_is_gone_on_with() {
        let (cycles, waits, _) = run(&[-400, 5], 4, None);
        assert_eq!((cycles.latencies.count(), waits), (4, 8));
        assert_eq!((cycles.latencies.min(), cycles.missed), (Some(5), 0));
    }

    #[test]
    fn a_latency_above_the_bound_ends_the_run() {
        let (cycles, _, stopped) = run(&[1, 1, 900, 1], 1_000, Some(899));
        let broken = cycles.break_latency.unwrap();
        assert_eq!((broken.cycle, broken.latency_ns, stopped), (2, 900, true));
        assert_eq!(cycles.latencies.count(), 3);
        assert!((broken.at_s - 2e-6).abs() < 1e-15);
        assert!(
            run(&[900], 10, Some(900)).0.break_latency.is_none(),
            "the bound itself is allowed"
        );
    }

    #[test]
    fn stretches_keep_the_largest_of_all_cycles() {
        let (cycles, ..) = run(&[1, 2, 3, 4, 5, 6, 999], 7 * 400, None);
        let series = cycles.slice_maxima(&grid(7 * 400, None));
        assert_eq!(series.len(), 400);
        assert!(series.iter().all(|stretch| stretch.max_ns == 999));
        assert!((series[1].at_s - 7e-6).abs() < 1e-15, "{:?}", series[1]);
        let ended = run(&[1_000, 0], 1_000, Some(999)).0;
        assert_eq!(ended.slice_maxima(&grid(1_000, None)).len(), 1);
    }
}
