//! Evidence for the claims beyond the measured delays: effect of sleep functions on alarms, usleep
//! above one second, nanosleep with an invalid time, clock steps, timer interrupts. Trials that
//! could disturb this process run in a child.

use std::fs;
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::alarm::{PendingAlarmEffect, sleep_with_pending_alarm, usleep_with_pending_alarm};
use horolog_sys::delay::{nanosleep_with_invalid_time, usleep};
use horolog_sys::posix_clock::posix_version;
use horolog_sys::thread_usage::ContextSwitches;

use super::cell::thread_time_ns;
use crate::host::clock::posix::steps_of_system_clock;
use crate::host::clock::tick::jiffies;

/// Delay above the former limit of usleep(3), one second.
const ABOVE_LIMIT: Duration = Duration::from_millis(1_200);
/// Duration of the loop over a failing nanosleep.
const FAILING_LOOP_TIME: Duration = Duration::from_millis(10);

/// Observations; `None` for one that was not possible.
#[derive(Debug, Default)]
pub(super) struct DelayEvidence {
    /// Smallest steps of `CLOCK_REALTIME` and gettimeofday(2), in ns.
    pub(super) step_ns: Option<u64>,
    pub(super) gettimeofday_step_ns: Option<u64>,
    /// Interrupts on line 0 per second.
    pub(super) irq_0_per_s: Option<f64>,
    /// Increments of jiffies per second.
    pub(super) jiffies_per_s: Option<f64>,
    /// Number of real-time clocks, and true if one of them set the system clock at boot.
    pub(super) rtcs: usize,
    pub(super) is_set_by_rtc: bool,
    pub(super) sleep_alarm_interaction: Option<PendingAlarmEffect>,
    pub(super) usleep_alarm_interaction: Option<PendingAlarmEffect>,
    pub(super) usleep_above_limit: Option<LongUsleepResult>,
    pub(super) invalid_sleep_loop: Option<FailingSleepLoopResult>,
    pub(super) posix_version: Option<u32>,
    pub(super) initial_counts: Option<TickCounts>,
}

/// Behaviour of usleep(3) above a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LongUsleepResult {
    pub(super) requested: Duration,
    pub(super) duration: Duration,
    pub(super) error: Option<String>,
}

/// Result of a loop around a nanosleep call that fails immediately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FailingSleepLoopResult {
    pub(super) calls: u64,
    pub(super) time: Duration,
    /// Share of the time for which the CPU was used.
    pub(super) processor_share: f64,
    /// Voluntary context switches: how often the thread really slept.
    pub(super) voluntary_switches: u64,
}

/// Tick and interrupt counters at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickCounts {
    taken_at: Instant,
    irq_0: Option<u64>,
    jiffies: Option<u64>,
}

impl DelayEvidence {
    /// Reads the initial counters and runs the trials, in a little more than one second.
    pub(super) fn collect() -> Self {
        let begun = TickCounts::read();
        let sleep: JoinHandle<io::Result<PendingAlarmEffect>> =
            thread::spawn(sleep_with_pending_alarm);
        let long_usleep = thread::spawn(usleep_above_limit);
        let usleep_alarm_interaction = usleep_with_pending_alarm().ok();
        let [step_ns, gettimeofday_step_ns] = steps_of_system_clock();
        let no_time = loop_invalid_sleep();
        let (rtcs, is_set_by_rtc) = count_rtcs(Path::new("/sys/class/rtc"));
        Self {
            step_ns,
            gettimeofday_step_ns,
            rtcs,
            is_set_by_rtc,
            sleep_alarm_interaction: sleep.join().ok().and_then(Result::ok),
            usleep_alarm_interaction,
            usleep_above_limit: long_usleep.join().ok(),
            invalid_sleep_loop: Some(no_time),
            posix_version: posix_version(),
            initial_counts: Some(begun),
            ..Self::default()
        }
    }

    /// Computes the counter rates since [`DelayEvidence::collect`].
    pub(super) fn finish(&mut self) {
        let (Some(begun), now) = (self.initial_counts, TickCounts::read()) else { return };
        let seconds = (now.taken_at - begun.taken_at).as_secs_f64();
        let rate = |before: Option<u64>, after: Option<u64>| {
            Some(after?.saturating_sub(before?) as f64 / seconds).filter(|rate| rate.is_finite())
        };
        self.irq_0_per_s = rate(begun.irq_0, now.irq_0);
        self.jiffies_per_s = rate(begun.jiffies, now.jiffies);
    }
}

impl TickCounts {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let interrupts = read("/proc/interrupts");
        let timers = read("/proc/timer_list");
        Self {
            taken_at: Instant::now(),
            irq_0: parse_irq_0(&interrupts),
            jiffies: jiffies(&timers),
        }
    }
}

/// Returns the number of interrupts on line 0, summed over all cores; 0 if the line has no handler,
/// `None` if the text is empty or a count is invalid.
fn parse_irq_0(interrupts: &str) -> Option<u64> {
    let cores = interrupts.lines().next()?.split_whitespace().count();
    let line = interrupts.lines().skip(1).find_map(|line| line.trim_start().strip_prefix("0:"));
    let count = |line: &str| {
        let counts = line.split_whitespace().take(cores);
        counts.map(|word| word.parse::<u64>().ok()).sum()
    };
    line.map_or(Some(0), count)
}

fn count_rtcs(directory: &Path) -> (usize, bool) {
    let listed = fs::read_dir(directory).into_iter().flatten();
    let paths: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let sets = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("hctosys")).is_ok_and(|text| text.trim() == "1")
    };
    (paths.len(), paths.iter().any(sets))
}

fn usleep_above_limit() -> LongUsleepResult {
    let begun = Instant::now();
    let error = usleep(ABOVE_LIMIT.as_micros() as u64).err().map(|error| error.to_string());
    LongUsleepResult { requested: ABOVE_LIMIT, duration: begun.elapsed(), error }
}

fn loop_invalid_sleep() -> FailingSleepLoopResult {
    let (begun, processor) = (Instant::now(), thread_time_ns());
    let before = ContextSwitches::now().unwrap_or_default();
    let mut calls = 0;
    while begun.elapsed() < FAILING_LOOP_TIME {
        // Like a program that ignores the return value.
        let _ = nanosleep_with_invalid_time();
        calls += 1;
    }
    let time = begun.elapsed();
    let used = thread_time_ns().saturating_sub(processor) as f64;
    let sleeps = ContextSwitches::now().unwrap_or_default().since(before).voluntary;
    FailingSleepLoopResult {
        calls,
        time,
        processor_share: used / time.as_nanos() as f64,
        voluntary_switches: sleeps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_s_interrupts_are_counted_on_all_cores() {
        let text = "           CPU0       CPU1\n  0:         40          2   IO-APIC    2-edge  timer\n\
                    LOC:     100     200   Local timer interrupts\n";
        assert_eq!(parse_irq_0(text), Some(42));
        assert_eq!(parse_irq_0("   CPU0\n  1:   5  x\n"), Some(0));
        assert_eq!(parse_irq_0(""), None);
    }

    #[test]
    fn a_loop_over_a_failing_call_is_made_of_many() {
        let outcome = loop_invalid_sleep();
        assert!(
            outcome.calls > 100
                && outcome.time >= FAILING_LOOP_TIME
                && outcome.voluntary_switches == 0,
            "{outcome:?}"
        );
    }

    #[test]
    fn a_machine_without_the_directory_has_none() {
        assert_eq!(count_rtcs(Path::new("/nowhere/at/all")), (0, false));
    }
}
