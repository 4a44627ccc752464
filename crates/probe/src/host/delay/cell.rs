//! Waits of one function with one delay, and their stats.

use std::io;
use std::time::Duration;

use horolog_record::{DelayMeasurement, Distribution, WaitFunction};
use horolog_stats::Histogram;
use horolog_sys::posix_clock::PosixClockId;

/// Stats of the waits of one function at one delay.
#[derive(Debug)]
pub(super) struct DelayStats {
    requested_ns: u64,
    overshoots: Histogram,
    early: u64,
    early_max_ns: u64,
    processor_ns: u64,
    error: Option<String>,
}

impl DelayStats {
    pub(super) fn new(requested: Duration) -> Self {
        Self {
            requested_ns: saturating_ns(requested),
            overshoots: Histogram::new(),
            early: 0,
            early_max_ns: 0,
            processor_ns: 0,
            error: None,
        }
    }

    /// Waits once and adds the wait; returns false if the function failed and no further wait is
    /// useful. A wait that a signal interrupted is not counted.
    pub(super) fn wait_once(&mut self, wait: &mut dyn FnMut(Duration) -> io::Result<()>) -> bool {
        let cpu_before_ns = thread_time_ns();
        let begun = now_ns();
        let waited = wait(Duration::from_nanos(self.requested_ns));
        let took_ns = now_ns().saturating_sub(begun);
        match waited {
            Ok(()) => {
                self.add_wait(took_ns);
                self.processor_ns += thread_time_ns().saturating_sub(cpu_before_ns);
                true
            }
            // Interrupted by a signal from outside: not counted.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => {
                self.error = Some(error.to_string());
                false
            }
        }
    }

    /// Adds a wait that took `took_ns`.
    pub(super) fn add_wait(&mut self, took_ns: u64) {
        self.overshoots.record(took_ns.saturating_sub(self.requested_ns));
        if took_ns < self.requested_ns {
            self.early += 1;
            self.early_max_ns = self.early_max_ns.max(self.requested_ns - took_ns);
        }
    }

    /// Records the error because of which nothing can be measured.
    pub(super) fn set_error(&mut self, error: &io::Error) {
        self.error = Some(error.to_string());
    }

    pub(super) const fn is_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Returns the requested delay in whole seconds.
    pub(super) fn requested_s(&self) -> u32 {
        u32::try_from(self.requested_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }

    pub(super) fn into_measurement(
        self,
        function: WaitFunction,
        setting: usize,
    ) -> DelayMeasurement {
        let count = self.overshoots.count();
        let is_own_thread = function != WaitFunction::AlarmPause && count > 0;
        DelayMeasurement {
            function,
            setting,
            requested_ns: self.requested_ns,
            early: self.early,
            early_max_ns: self.early_max_ns,
            overshoot_ns: Distribution::from_histogram(&self.overshoots),
            processor_ns: is_own_thread.then(|| self.processor_ns as f64 / count as f64),
            error: self.error,
        }
    }
}

/// Returns the median duration of an empty wait, the cost of the measurement itself, in ns.
pub(super) fn empty_wait_cost_ns() -> u64 {
    let mut costs: Vec<_> = (0..1_001)
        .map(|_| {
            let begun = now_ns();
            now_ns().saturating_sub(begun)
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// Returns `CLOCK_MONOTONIC` in ns; 0 if it cannot be read.
pub(super) fn now_ns() -> u64 {
    PosixClockId::MONOTONIC.now_ns().ok().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

/// Returns the CPU time of this thread in ns; 0 if it cannot be read.
pub(super) fn thread_time_ns() -> u64 {
    PosixClockId::THREAD_TIME.now_ns().ok().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

pub(super) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait is real, the extra is known.
    #[test]
    fn a_known_extra_delay_is_found() {
        const EXTRA: Duration = Duration::from_millis(3);
        let (mut plain, mut late) = (DelayStats::new(SHORT), DelayStats::new(SHORT));
        for _ in 0..20 {
            assert!(plain.wait_once(&mut |delay| {
                std::thread::sleep(delay);
                Ok(())
            }));
            assert!(late.wait_once(&mut |delay| {
                std::thread::sleep(delay + EXTRA);
                Ok(())
            }));
        }
        let cell = |account: DelayStats| account.into_measurement(WaitFunction::Nanosleep, 0);
        let (plain, late) = (cell(plain), cell(late));
        let (plain, late) = (plain.overshoot_ns.unwrap(), late.overshoot_ns.unwrap());
        assert!(late.min >= saturating_ns(EXTRA), "{late:?}");
        assert!(
            late.p50 >= plain.min + saturating_ns(EXTRA) / 2 && plain.count == 20,
            "{plain:?} {late:?}"
        );
    }

    const SHORT: Duration = Duration::from_micros(100);

    #[test]
    fn a_wait_that_ends_early_is_counted_as_early() {
        let mut account = DelayStats::new(Duration::from_secs(1));
        assert!(account.wait_once(&mut |_| Ok(())));
        account.add_wait(1_000_000_250);
        let cell = account.into_measurement(WaitFunction::Select, 2);
        let overshoot = cell.overshoot_ns.unwrap();
        assert_eq!((cell.early, overshoot.min, overshoot.max), (1, 0, 250));
        assert!(cell.early_max_ns > 900_000_000, "{}", cell.early_max_ns);
    }

    #[test]
    fn an_error_ends_it_and_a_signal_does_not() {
        let mut account = DelayStats::new(SHORT);
        assert!(account.wait_once(&mut |_| Err(io::ErrorKind::Interrupted.into())));
        assert!(!account.wait_once(&mut |_| Err(io::ErrorKind::Unsupported.into())));
        let cell = account.into_measurement(WaitFunction::IoUring, 0);
        assert!(cell.overshoot_ns.is_none() && cell.processor_ns.is_none());
        assert!(cell.error.is_some());
    }

    #[test]
    fn a_wait_that_spins_is_detected_by_its_processor_time() {
        const SPIN: Duration = Duration::from_millis(2);
        let (mut sleeping, mut spinning) = (DelayStats::new(SPIN), DelayStats::new(SPIN));
        for _ in 0..5 {
            sleeping.wait_once(&mut |delay| {
                std::thread::sleep(delay);
                Ok(())
            });
            spinning.wait_once(&mut |delay| {
                let begun = std::time::Instant::now();
                while begun.elapsed() < delay {
                    std::hint::spin_loop();
                }
                Ok(())
            });
        }
        let cost = |account: DelayStats| {
            account.into_measurement(WaitFunction::Poll, 0).processor_ns.unwrap()
        };
        let (sleeping, spinning) = (cost(sleeping), cost(spinning));
        assert!(spinning > 3.0 * sleeping, "{spinning} {sleeping}");
    }
}
