//! Accuracy of the wait functions of Linux. Short delays are measured one at a time, alternating
//! between the functions, so that all are measured under the same conditions; long ones, which use
//! no CPU, concurrently. Each setting (policy, timer slack) applies only to threads or children
//! that end with it.

mod cell;
mod claims;
mod evidence;
mod findings;
mod interrupted;

use std::io;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use horolog_record::{
    DelayMeasurement, DelaySetting, HOST_DELAY_SCHEMA, Host, HostDelayResult, SchedulingPolicy,
    TimerSlackSetting, WaitFunction, rfc3339_now,
};
use horolog_sys::affinity::{RealTimeSchedulingOutcome, set_timer_slack_ns, try_real_time};
use horolog_sys::alarm::{AlarmChildScheduling, alarm_and_pause};
use horolog_sys::delay::{DelayFunction, Delayer};
use horolog_sys::posix_clock::timer_slack_ns;

use super::clock::tick;
use cell::{DelayStats, saturating_ns};
use evidence::DelayEvidence;

/// Delay from which measurements run concurrently.
const CONCURRENT_DELAY_MIN: Duration = Duration::from_millis(5);
/// Approximate total time of the waits of one function with one delay, and their minimum number.
const WAITS_TIME: Duration = Duration::from_secs(1);
const SAMPLES_MIN: u64 = 3;
/// Real-time priority above all sched-other threads and below the kernel's own threads at 50 and
/// more.
const PRIORITY: i32 = 40;
const MINIMAL_SLACK_NS: u32 = 1;

/// Options of a delay measurement.
#[derive(Clone, Debug)]
pub struct HostDelayOptions {
    /// Wait functions to measure.
    pub functions: Vec<WaitFunction>,
    /// Delays to request.
    pub delays: Vec<Duration>,
    /// Maximum number of waits per function and delay; fewer for long delays.
    pub samples: u64,
    /// Scheduling policies under which to measure.
    pub policies: Vec<SchedulingPolicy>,
    /// Timer slacks with which to measure.
    pub slacks: Vec<TimerSlackSetting>,
    /// True to test common claims, which takes two more seconds.
    pub claims: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

impl HostDelayOptions {
    /// Returns true if any of the functions supports any of the delays.
    #[must_use]
    pub fn has_possible_wait(&self) -> bool {
        self.functions
            .iter()
            .any(|kind| self.delays.iter().any(|delay| supports_delay(*kind, *delay)))
    }
}

/// Returns true if the delay is a nonzero multiple of the function's unit.
fn supports_delay(kind: WaitFunction, delay: Duration) -> bool {
    let delay_ns = saturating_ns(delay);
    delay_ns > 0 && delay_ns.is_multiple_of(kind.unit_ns())
}

/// Callback that returns true if a run is to end.
pub type RunEndCondition<'a> = &'a (dyn Fn() -> bool + Sync);

/// Measures all settings until `is_over` returns true; calls `report_step` with a description of
/// each step.
pub fn measure(
    options: HostDelayOptions,
    report_step: &dyn Fn(&str),
    is_over: RunEndCondition<'_>,
) -> HostDelayResult {
    let started = rfc3339_now();
    let mut evidence = options.claims.then(|| {
        report_step("testing common claims");
        DelayEvidence::collect()
    });
    let mut settings = delay_settings(&options);
    let all = settings.len();
    let mut cells = Vec::new();
    for (index, setting) in settings.iter_mut().enumerate() {
        if is_over() {
            break;
        }
        report_step(&format!("waiting, setting {} of {all}", index + 1));
        match scheduling_error(setting) {
            Some(error) => setting.error = Some(error.to_string()),
            None => cells.extend(measure_setting(&options, index, setting, is_over)),
        }
    }
    let interrupted = if options.claims && !is_over() {
        interrupted::measure_strategies()
    } else {
        Ok(Vec::new())
    };
    let mut result = HostDelayResult {
        schema: HOST_DELAY_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        tick: tick::measure_tick(),
        own_cost_ns: cell::empty_wait_cost_ns(),
        settings,
        cells,
        interrupted: interrupted.unwrap_or_default(),
        claims: Vec::new(),
        limits: Vec::new(),
        findings: Vec::new(),
    };
    if let Some(evidence) = &mut evidence {
        evidence.finish();
        result.claims = claims::all_claims(&result, evidence);
    }
    result.findings = findings::all_findings(&result, is_over());
    result
}

fn delay_settings(options: &HostDelayOptions) -> Vec<DelaySetting> {
    let slack_ns = |slack| match slack {
        TimerSlackSetting::Default => timer_slack_ns(),
        TimerSlackSetting::Minimal => Some(MINIMAL_SLACK_NS.into()),
    };
    let of = |policy: &SchedulingPolicy| {
        let policy = *policy;
        let with =
            move |slack| DelaySetting { policy, slack, slack_ns: slack_ns(slack), error: None };
        options.slacks.iter().map(move |slack| with(*slack))
    };
    options.policies.iter().flat_map(of).collect()
}

/// Sets the timer slack and scheduling policy of this thread.
fn apply(setting: &DelaySetting) -> io::Result<()> {
    if setting.slack == TimerSlackSetting::Minimal {
        set_timer_slack_ns(MINIMAL_SLACK_NS)?;
    }
    match setting.policy {
        SchedulingPolicy::Other => Ok(()),
        SchedulingPolicy::Fifo => match try_real_time(PRIORITY) {
            RealTimeSchedulingOutcome::RealTime => Ok(()),
            RealTimeSchedulingOutcome::Unchanged(error) => Err(error),
        },
    }
}

/// Returns the error with which a setting is refused, tried on a thread; `None` if it is permitted.
fn scheduling_error(setting: &DelaySetting) -> Option<io::Error> {
    let thread_failed = || Err(io::ErrorKind::Other.into());
    thread::scope(|scope| scope.spawn(|| apply(setting)).join().unwrap_or_else(|_| thread_failed()))
        .err()
}

/// Measures all functions with all delays under one setting.
fn measure_setting(
    options: &HostDelayOptions,
    index: usize,
    setting: &DelaySetting,
    is_over: RunEndCondition<'_>,
) -> Vec<DelayMeasurement> {
    let all = options.delays.iter().flat_map(|delay| {
        let possible = options.functions.iter().filter(|kind| supports_delay(**kind, *delay));
        possible.map(|kind| (*kind, *delay))
    });
    let (long, short): (Vec<_>, Vec<_>) =
        all.partition(|(_, delay)| *delay >= CONCURRENT_DELAY_MIN);
    let mut cells = thread::scope(|scope| {
        let one_by_one = scope.spawn(|| measure_in_turn(options, index, setting, &short, is_over));
        one_by_one.join().unwrap_or_default()
    });
    let at_once = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for pair in &long {
            scope.spawn(|| {
                let cell = measure_in_turn(options, index, setting, &[*pair], is_over);
                at_once.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(cell);
            });
            // Staggered, so that they do not all end at the same instant.
            thread::sleep(Duration::from_micros(700));
        }
    });
    cells.extend(at_once.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    cells.sort_by_key(|cell| {
        (options.functions.iter().position(|kind| *kind == cell.function), cell.requested_ns)
    });
    cells
}

/// Returns the number of waits for a delay: as many as fit into [`WAITS_TIME`], at least
/// [`SAMPLES_MIN`], but never more than the options permit.
fn sample_count(options: &HostDelayOptions, delay: Duration) -> u64 {
    let fitting = WAITS_TIME.as_nanos() / delay.as_nanos().max(1);
    u64::try_from(fitting).unwrap_or(u64::MAX).max(SAMPLES_MIN).min(options.samples)
}

/// Measures pairs of function and delay in this thread; the functions with the same delay alternate
/// wait by wait.
fn measure_in_turn(
    options: &HostDelayOptions,
    index: usize,
    setting: &DelaySetting,
    pairs: &[(WaitFunction, Duration)],
    is_over: RunEndCondition<'_>,
) -> Vec<DelayMeasurement> {
    let applied = apply(setting);
    let mut cells = Vec::new();
    for group in pairs.chunk_by(|one, next| one.1 == next.1) {
        let Some((_, delay)) = group.first().copied() else { continue };
        let mut running: Vec<_> = group
            .iter()
            .map(|(kind, _)| {
                let mut stats = DelayStats::new(delay);
                let method = match &applied {
                    Ok(()) => WaitInThreadOrChild::open(*kind, setting),
                    Err(error) => Err(io::Error::from(error.kind())),
                };
                let method = method.map_err(|error| stats.set_error(&error)).ok();
                (*kind, stats, method)
            })
            .collect();
        for _ in 0..sample_count(options, delay) {
            for (_, stats, method) in &mut running {
                if let Some(open) = method
                    && !open.wait_once(stats)
                {
                    *method = None;
                }
            }
            if is_over() {
                break;
            }
        }
        cells.extend(
            running.into_iter().map(|(kind, stats, _)| stats.into_measurement(kind, index)),
        );
    }
    cells
}

/// Implementation of a wait: in this thread, or in a child for `alarm` and `pause`.
enum WaitInThreadOrChild {
    InThread(Delayer),
    InChild(AlarmChildScheduling),
}

impl WaitInThreadOrChild {
    fn open(kind: WaitFunction, setting: &DelaySetting) -> io::Result<Self> {
        let function = match kind {
            WaitFunction::AlarmPause => {
                let is_real_time = setting.policy == SchedulingPolicy::Fifo;
                let is_minimal = setting.slack == TimerSlackSetting::Minimal;
                return Ok(Self::InChild(AlarmChildScheduling {
                    slack_ns: is_minimal.then_some(MINIMAL_SLACK_NS),
                    real_time_priority: is_real_time.then_some(PRIORITY),
                }));
            }
            WaitFunction::Sleep => DelayFunction::Sleep,
            WaitFunction::Usleep => DelayFunction::Usleep,
            WaitFunction::Nanosleep => DelayFunction::Nanosleep,
            WaitFunction::ClockNanosleep => DelayFunction::ClockNanosleep,
            WaitFunction::ClockNanosleepAbsolute => DelayFunction::ClockNanosleepAbsolute,
            WaitFunction::Select => DelayFunction::Select,
            WaitFunction::Poll => DelayFunction::Poll,
            WaitFunction::EpollWait => DelayFunction::EpollWait,
            WaitFunction::EpollPwait2 => DelayFunction::EpollPwait2,
            WaitFunction::Timerfd => DelayFunction::Timerfd,
            WaitFunction::IoUring => DelayFunction::IoUring,
        };
        Delayer::open(function).map(Self::InThread)
    }

    /// Waits once and adds the wait; returns false if no further wait is useful.
    fn wait_once(&mut self, stats: &mut DelayStats) -> bool {
        match self {
            Self::InThread(delayer) => stats.wait_once(&mut |delay| delayer.wait(delay)),
            Self::InChild(settings) => {
                let seconds = stats.requested_s();
                match alarm_and_pause(seconds, *settings) {
                    Ok(took_ns) => stats.add_wait(took_ns),
                    Err(error) => stats.set_error(&error),
                }
                !stats.is_failed()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> HostDelayOptions {
        HostDelayOptions {
            functions: WaitFunction::ALL.to_vec(),
            delays: [50, 1_000, 6_000].map(Duration::from_micros).to_vec(),
            samples: 4,
            policies: vec![SchedulingPolicy::Other],
            slacks: vec![TimerSlackSetting::Default, TimerSlackSetting::Minimal],
            claims: false,
            command: Vec::new(),
        }
    }

    #[test]
    fn each_function_waits_for_the_delays_that_it_supports() {
        let result = measure(options(), &|_| (), &|| false);
        let of = |kind| result.cells.iter().filter(|cell| cell.function == kind).count();
        assert_eq!(
            (of(WaitFunction::Sleep), of(WaitFunction::Poll), of(WaitFunction::Usleep)),
            (0, 4, 6)
        );
        for cell in result.cells.iter().filter(|cell| cell.error.is_none()) {
            let overshoot = cell.overshoot_ns.as_ref().unwrap();
            // What a signal ends is not counted, and other tests send some.
            assert!(cell.early == 0 && (2..=4).contains(&overshoot.count), "{cell:?}");
        }
        assert_eq!(result.settings.len(), 2);
        assert!(result.claims.is_empty() && result.interrupted.is_empty());
    }

    #[test]
    fn a_run_that_is_to_end_does() {
        let delays = vec![Duration::from_millis(10)];
        let long = HostDelayOptions { samples: 1_000_000, delays, ..options() };
        let result = measure(long, &|_| (), &|| true);
        assert!(
            result.findings.iter().any(|one| one.code == horolog_record::FindingCode::Interrupted)
        );
    }

    #[test]
    fn what_no_function_can_wait_for_is_known_before() {
        let of = |kind, delay| HostDelayOptions {
            functions: vec![kind],
            delays: vec![delay],
            ..options()
        };
        assert!(!of(WaitFunction::Sleep, Duration::from_millis(1_500)).has_possible_wait());
        assert!(of(WaitFunction::Sleep, Duration::from_secs(2)).has_possible_wait());
        assert!(!of(WaitFunction::Poll, Duration::from_micros(10)).has_possible_wait());
    }

    #[test]
    fn long_delays_have_fewer_samples_and_never_none() {
        let options = HostDelayOptions { samples: 100, ..options() };
        let of = |ms| sample_count(&options, Duration::from_millis(ms));
        assert_eq!((of(1), of(100), of(10_000)), (100, 10, 3));
    }
}
