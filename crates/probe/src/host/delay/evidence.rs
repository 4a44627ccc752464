//! Evidence for common claims in addition to the measured delays: small trials of what a function
//! does to alarms, above a second, and with an invalid time; steps of clocks; the timer interrupt.
//! Trials that could disturb this process run in a child.

use std::fs;
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::alarm::{AlarmInteraction, sleep_with_pending_alarm, usleep_with_pending_alarm};
use horolog_sys::delay::{nanosleep_with_invalid_time, usleep};
use horolog_sys::posix_clock::posix_version;
use horolog_sys::thread_usage::ContextSwitches;

use super::cell::thread_time_ns;
use crate::host::clock::posix::steps_of_system_clock;
use crate::host::clock::tick::jiffies;

/// Delay above the old limit of usleep.
const ABOVE_LIMIT: Duration = Duration::from_millis(1_200);
/// Observation time of a loop over a failing call.
const LOOP_TIME: Duration = Duration::from_millis(10);

/// Observations; absent if not possible.
#[derive(Debug, Default)]
pub(super) struct DelayEvidence {
    /// Smallest steps of `CLOCK_REALTIME` and gettimeofday(2), in ns.
    pub(super) step_ns: Option<u64>,
    pub(super) gettimeofday_step_ns: Option<u64>,
    /// Interrupts on line 0 per second.
    pub(super) irq_0_per_s: Option<f64>,
    /// Ticks counted per second.
    pub(super) jiffies_per_s: Option<f64>,
    /// Number of real-time clocks, and the one that set the system clock, if any.
    pub(super) rtcs: usize,
    pub(super) is_set_by_rtc: bool,
    pub(super) sleep_alarm_interaction: Option<AlarmInteraction>,
    pub(super) usleep_alarm_interaction: Option<AlarmInteraction>,
    pub(super) usleep_above_limit: Option<AboveLimit>,
    pub(super) no_time: Option<BusyLoop>,
    pub(super) posix_version: Option<u32>,
    pub(super) begun: Option<TickCounts>,
}

/// Behaviour of usleep(3) above a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AboveLimit {
    pub(super) requested: Duration,
    pub(super) duration: Duration,
    pub(super) error: Option<String>,
}

/// Loop around a call that fails at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BusyLoop {
    pub(super) calls: u64,
    pub(super) time: Duration,
    /// Share of the time for which the CPU was used.
    pub(super) processor_share: f64,
    /// Number of times that the thread gave up its core to wait.
    pub(super) sleeps: u64,
}

/// Counts from the beginning to the end of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickCounts {
    at: Instant,
    irq_0: Option<u64>,
    jiffies: Option<u64>,
}

impl DelayEvidence {
    /// Runs the trials; takes somewhat more than a second.
    pub(super) fn begin() -> Self {
        let begun = TickCounts::now();
        let sleep: JoinHandle<io::Result<AlarmInteraction>> =
            thread::spawn(sleep_with_pending_alarm);
        let beyond = thread::spawn(usleep_above_limit);
        let usleep_alarm_interaction = usleep_with_pending_alarm().ok();
        let [step_ns, gettimeofday_step_ns] = steps_of_system_clock();
        let no_time = loop_of_no_time();
        let (rtcs, is_set_by_rtc) = rtcs(Path::new("/sys/class/rtc"));
        Self {
            step_ns,
            gettimeofday_step_ns,
            rtcs,
            is_set_by_rtc,
            sleep_alarm_interaction: sleep.join().ok().and_then(Result::ok),
            usleep_alarm_interaction,
            usleep_above_limit: beyond.join().ok(),
            no_time: Some(no_time),
            posix_version: posix_version(),
            begun: Some(begun),
            ..Self::default()
        }
    }

    /// Adds the counts since the beginning.
    pub(super) fn end(&mut self) {
        let (Some(begun), now) = (self.begun, TickCounts::now()) else { return };
        let seconds = (now.at - begun.at).as_secs_f64();
        let rate = |before: Option<u64>, after: Option<u64>| {
            Some(after?.saturating_sub(before?) as f64 / seconds).filter(|rate| rate.is_finite())
        };
        self.irq_0_per_s = rate(begun.irq_0, now.irq_0);
        self.jiffies_per_s = rate(begun.jiffies, now.jiffies);
    }
}

impl TickCounts {
    fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let interrupts = read("/proc/interrupts");
        let timers = read("/proc/timer_list");
        Self { at: Instant::now(), irq_0: irq_0(&interrupts), jiffies: jiffies(&timers) }
    }
}

/// Returns the interrupts on line 0 of all cores; 0 if that line has no handler.
fn irq_0(interrupts: &str) -> Option<u64> {
    let cores = interrupts.lines().next()?.split_whitespace().count();
    let line = interrupts.lines().skip(1).find_map(|line| line.trim_start().strip_prefix("0:"));
    let count = |line: &str| {
        let counts = line.split_whitespace().take(cores);
        counts.map(|word| word.parse::<u64>().ok()).sum()
    };
    line.map_or(Some(0), count)
}

fn rtcs(directory: &Path) -> (usize, bool) {
    let listed = fs::read_dir(directory).into_iter().flatten();
    let paths: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let sets = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("hctosys")).is_ok_and(|text| text.trim() == "1")
    };
    (paths.len(), paths.iter().any(sets))
}

fn usleep_above_limit() -> AboveLimit {
    let begun = Instant::now();
    let error = usleep(ABOVE_LIMIT.as_micros() as u64).err().map(|error| error.to_string());
    AboveLimit { requested: ABOVE_LIMIT, duration: begun.elapsed(), error }
}

fn loop_of_no_time() -> BusyLoop {
    let (begun, processor) = (Instant::now(), thread_time_ns());
    let before = ContextSwitches::now().unwrap_or_default();
    let mut calls = 0;
    while begun.elapsed() < LOOP_TIME {
        // As in a program that ignores the return value.
        let _ = nanosleep_with_invalid_time();
        calls += 1;
    }
    let time = begun.elapsed();
    let used = thread_time_ns().saturating_sub(processor) as f64;
    let sleeps = ContextSwitches::now().unwrap_or_default().since(before).voluntary;
    BusyLoop { calls, time, processor_share: used / time.as_nanos() as f64, sleeps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_s_interrupts_are_counted_on_all_cores() {
        let text = "           CPU0       CPU1\n  0:         40          2   IO-APIC    2-edge  timer\n\
                    LOC:     100     200   Local timer interrupts\n";
        assert_eq!(irq_0(text), Some(42));
        assert_eq!(irq_0("   CPU0\n  1:   5  x\n"), Some(0));
        assert_eq!(irq_0(""), None);
    }

    #[test]
    fn a_loop_over_a_failing_call_is_made_of_many() {
        let outcome = loop_of_no_time();
        assert!(
            outcome.calls > 100 && outcome.time >= LOOP_TIME && outcome.sleeps == 0,
            "{outcome:?}"
        );
    }

    #[test]
    fn a_machine_without_the_directory_has_none() {
        assert_eq!(rtcs(Path::new("/nowhere/at/all")), (0, false));
    }
}
