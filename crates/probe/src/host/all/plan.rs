//! Options of each part, scaled so that all of them take about the requested time. Pure.

use std::time::Duration;

use horolog_record::{SchedulingPolicy, TimerHandlerKind, TimerSlackSetting, WaitFunction};

use super::HostAllOptions;
use crate::host::clock::HostClockOptions;
use crate::host::delay::HostDelayOptions;
use crate::host::interrupt::HostInterruptOptions;
use crate::host::switch::{HostSwitchOptions, TURNS_MAX};
use crate::host::timer::HostTimerOptions;

/// Total time for which each part uses the defaults of its own command.
const DEFAULT_TOTAL: Duration = Duration::from_mins(1);
/// Minimum total time for long delays and the claims about delays.
const CLAIMS_TIME_MIN: Duration = Duration::from_secs(30);
/// Longest measured delay if the total time is below [`CLAIMS_TIME_MIN`].
const SHORT_DELAY_MAX: Duration = Duration::from_millis(10);
/// Period of the wake-ups of `host timer`.
const INTERVAL: Duration = Duration::from_millis(1);

/// Requested delays; the long ones only if there is time.
const DELAYS: [Duration; 7] = [
    Duration::from_micros(1),
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

/// Scales a count for [`DEFAULT_TOTAL`] to the total time; at least 1.
fn scaled(default_count: u64, time: Duration) -> u64 {
    let share = u128::from(default_count) * time.as_nanos() / DEFAULT_TOTAL.as_nanos();
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

fn scaled_time(default_time: Duration, time: Duration) -> Duration {
    Duration::from_nanos(scaled(default_time.as_nanos() as u64, time))
}

pub(super) fn clock_options(options: &HostAllOptions) -> HostClockOptions {
    HostClockOptions {
        time: scaled_time(Duration::from_secs(2), options.time),
        command: options.command.clone(),
    }
}

pub(super) fn delay_options(options: &HostAllOptions) -> HostDelayOptions {
    let claims = options.time >= CLAIMS_TIME_MIN;
    let is_possible = |delay: &Duration| claims || *delay <= SHORT_DELAY_MAX;
    HostDelayOptions {
        functions: WaitFunction::ALL.to_vec(),
        delays: DELAYS.into_iter().filter(is_possible).collect(),
        samples: scaled(100, options.time).max(3),
        policies: vec![SchedulingPolicy::Other, SchedulingPolicy::Fifo],
        slacks: vec![TimerSlackSetting::Default, TimerSlackSetting::Minimal],
        claims,
        command: options.command.clone(),
    }
}

pub(super) fn timer_options(options: &HostAllOptions) -> HostTimerOptions {
    let time = scaled_time(Duration::from_secs(10), options.time);
    let cycles = (time.as_nanos() / INTERVAL.as_nanos()).max(1);
    HostTimerOptions {
        cores: Vec::new(),
        interval: INTERVAL,
        cycles: u64::try_from(cycles).unwrap_or(u64::MAX),
        priority: options.priority,
        hold_awake: options.hold_awake,
        break_above: None,
        command: options.command.clone(),
    }
}

pub(super) fn switch_options(options: &HostAllOptions) -> HostSwitchOptions {
    HostSwitchOptions {
        cores: Vec::new(),
        turns: scaled(5_000, options.time).clamp(100, TURNS_MAX),
        repetitions: 5,
        priority: options.priority,
        hold_awake: options.hold_awake,
        command: options.command.clone(),
    }
}

pub(super) fn interrupt_options(options: &HostAllOptions) -> HostInterruptOptions {
    HostInterruptOptions {
        cores: Vec::new(),
        kinds: vec![TimerHandlerKind::Kernel, TimerHandlerKind::Signal, TimerHandlerKind::Timerfd],
        expiries: scaled(1_000, options.time),
        repetitions: 5,
        distance: (Duration::from_micros(50), Duration::from_micros(950)),
        spin: scaled_time(Duration::from_secs(5), options.time),
        threshold: Duration::from_micros(2),
        priority: options.priority,
        hold_awake: options.hold_awake,
        command: options.command.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(time: Duration) -> HostAllOptions {
        HostAllOptions {
            time,
            parts: Vec::new(),
            priority: Some(80),
            hold_awake: true,
            command: Vec::new(),
        }
    }

    #[test]
    fn a_minute_is_what_the_parts_take_by_themselves() {
        let usual = options(DEFAULT_TOTAL);
        assert_eq!(clock_options(&usual).time, Duration::from_secs(2));
        assert_eq!(timer_options(&usual).cycles, 10_000);
        assert_eq!(switch_options(&usual).turns, 5_000);
        let handlers = interrupt_options(&usual);
        assert_eq!((handlers.expiries, handlers.spin), (1_000, Duration::from_secs(5)));
        let delays = delay_options(&usual);
        assert_eq!((delays.samples, delays.claims, delays.delays.len()), (100, true, 7));
    }

    #[test]
    fn another_time_is_in_proportion() {
        let short = options(Duration::from_secs(6));
        assert_eq!(
            (timer_options(&short).cycles, interrupt_options(&short).expiries),
            (1_000, 100)
        );
        let delays = delay_options(&short);
        assert_eq!((delays.samples, delays.claims, delays.delays.len()), (10, false, 5));
        assert!(delays.delays.iter().all(|delay| *delay <= SHORT_DELAY_MAX));
        let long = options(Duration::from_hours(1));
        assert_eq!(
            (timer_options(&long).cycles, switch_options(&long).turns),
            (600_000, TURNS_MAX)
        );
    }
}
