//! Kernel statistics of this thread: context switches, run delay, timer slack. Read only.

use std::{fs, io};

use rustix::thread::current_timer_slack;

use crate::descriptor::check;

/// Counts of context switches of this thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ContextSwitches {
    /// Voluntary switches: the thread blocked (`ru_nvcsw`).
    pub voluntary: u64,
    /// Involuntary switches: the thread was preempted or called `sched_yield` (`ru_nivcsw`).
    pub involuntary: u64,
}

impl ContextSwitches {
    /// Returns the counts of this thread since its start (getrusage(2), `RUSAGE_THREAD`).
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn now() -> io::Result<Self> {
        // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: one structure that outlives the call.
        check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) })?;
        Ok(Self { voluntary: usage.ru_nvcsw as u64, involuntary: usage.ru_nivcsw as u64 })
    }

    /// Returns the number of all switches.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// Returns the run delay of this thread in ns: the time for which it was runnable but not running
/// (`/proc/PID/schedstat`; Linux, `Documentation/scheduler/sched-stats.rst`).
///
/// # Errors
///
/// If the kernel does not count it.
pub fn run_delay_ns() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    text.split_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the timer slack of this thread, in nanoseconds (`PR_GET_TIMERSLACK` in prctl(2)).
///
/// # Errors
///
/// None is known.
pub fn timer_slack_ns() -> io::Result<u64> {
    Ok(current_timer_slack()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_sleep_is_a_voluntary_switch() {
        let before = ContextSwitches::now().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        let since = ContextSwitches::now().unwrap().since(before);
        assert!(since.voluntary >= 1 && since.all() >= since.voluntary, "{since:?}");
    }

    #[test]
    fn slack_is_what_was_set() {
        std::thread::spawn(|| {
            crate::affinity::set_timer_slack_ns(12_345).unwrap();
            assert_eq!(timer_slack_ns().unwrap(), 12_345);
        })
        .join()
        .unwrap();
    }
}
