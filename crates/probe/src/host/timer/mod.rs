//! Start latency of a periodic thread, as measured by cyclictest: one thread per core sleeps until
//! an absolute instant, reads the clock, and repeats that one period later.
//!
//! No period is skipped. A thread that is too late for an instant does not wait for it and counts
//! it as missed; its latency still runs from that instant to now. A refused request is a finding;
//! nothing here prints.

mod cycles;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_conditions::{self as conditions, MeasurementConditions, finding};
use horolog_record::{
    BreakLatency, CoreWakeupLatency, Distribution, Finding, FindingCode, HOST_TIMER_SCHEMA, Host,
    HostTimerResult, Severity, ThreadScheduling, TimerMeasurementCost, rfc3339_now,
};
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::{HostError, figures};
use cycles::{CycleSchedule, CycleStats, CycleTimer};
use start::StartBarrier;

/// Time from the readiness of all threads to the first period.
const HEAD_START: Span = Span::from_ms(5);
/// Instants of the trial that measures the loop's own cost.
const TRIAL_CYCLES: u64 = 2_000;
/// Interval between checks of whether the run is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Options of a timer measurement.
#[derive(Clone, Debug)]
pub struct TimerOptions {
    /// Cores; empty for all that this process may run on.
    pub cores: Vec<usize>,
    /// Period.
    pub interval: Duration,
    /// Periods of each core.
    pub cycles: u64,
    /// Real-time priority; `None` for sched-other threads.
    pub priority: Option<u8>,
    /// True to hold off deep idle states.
    pub hold_awake: bool,
    /// Latency that ends the run.
    pub break_above: Option<Duration>,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Timers of the kernel.
struct SystemTimer;

impl CycleTimer for SystemTimer {
    fn now(&mut self) -> Timestamp<Monotonic> {
        MonotonicClock.now()
    }

    fn wait_until(&mut self, due: Timestamp<Monotonic>) {
        sleep_until(due);
    }
}

/// Measures until all periods are over, a latency ends the run, or it is to end.
///
/// # Errors
///
/// If a core is not available or a thread cannot be started.
pub fn run(
    options: TimerOptions,
    progress: &dyn Fn(Duration, Duration),
    is_over: &dyn Fn() -> bool,
) -> Result<HostTimerResult, HostError> {
    let cores = conditions::select_cores(&options.cores)?;
    let started = rfc3339_now();
    let arranged = MeasurementConditions::apply(options.hold_awake);
    let (stop, start) = (AtomicBool::new(false), StartBarrier::default());
    let total = options.interval.saturating_mul(u32::try_from(options.cycles).unwrap_or(u32::MAX));
    let measured: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = cores
            .iter()
            .enumerate()
            .map(|(index, &core)| {
                let (options, start, stop, of) = (&options, &start, &stop, cores.len());
                let work = move || measure(core, options, start, (index, of), stop);
                thread::Builder::new()
                    .name(format!("timer {core}"))
                    .spawn_scoped(scope, work)
                    .map_err(|error| {
                        stop.store(true, Ordering::Relaxed);
                        HostError::Thread { core, error }
                    })
            })
            .collect();
        let running = |thread: &Result<thread::ScopedJoinHandle<'_, _>, _>| {
            thread.as_ref().is_ok_and(|thread| !thread.is_finished())
        };
        let begin = MonotonicClock.now() + HEAD_START;
        let begin = start.when_ready(cores.len(), &stop, HEAD_START).unwrap_or(begin);
        while threads.iter().any(running) {
            thread::sleep(CHECK_INTERVAL);
            let elapsed = (MonotonicClock.now() - begin).as_ns().max(0).unsigned_abs();
            progress(Duration::from_nanos(elapsed).min(total), total);
            if is_over() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let join = |thread: Result<thread::ScopedJoinHandle<'_, _>, _>| {
            thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, HostError>>()
    })?;
    Ok(record(options, started, &arranged, measured))
}

/// Returns the periods of one core. Those of several cores are staggered, so that their instants do
/// not coincide.
fn grid(
    options: &TimerOptions,
    begin: Timestamp<Monotonic>,
    index: usize,
    of: usize,
) -> CycleSchedule {
    let interval_ns = i64::try_from(options.interval.as_nanos()).unwrap_or(i64::MAX);
    let shift_ns = interval_ns / of.max(1) as i64 * index as i64;
    CycleSchedule {
        begin: begin + Span::from_ns(shift_ns),
        interval: Span::from_ns(interval_ns),
        cycles: options.cycles,
        break_above_ns: options.break_above.map(|limit| limit.as_nanos() as u64),
    }
}

/// Runs the thread of one core.
fn measure(
    core: usize,
    options: &TimerOptions,
    start: &StartBarrier,
    (index, of): (usize, usize),
    stop: &AtomicBool,
) -> Result<(CoreWakeupLatency, Option<BreakLatency>), HostError> {
    let scheduling = conditions::apply_to_thread(core, options.priority);
    let scheduling = scheduling.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
    let cost = cost();
    let Some(begin) = start.wait(stop) else {
        return Ok((unmeasured(core, scheduling, cost), None));
    };
    let grid = grid(options, begin, index, of);
    let cycles = CycleStats::run(&grid, &mut SystemTimer, stop);
    let broken = cycles.broken.map(|broken| BreakLatency { core, ..broken });
    let core = CoreWakeupLatency {
        core,
        scheduling,
        cost,
        missed: cycles.missed,
        latency_ns: Distribution::from_recorder(&cycles.latencies),
        series: cycles.series(&grid),
    };
    Ok((core, broken))
}

/// Returns the cost of the measurement itself on this thread's core.
fn cost() -> TimerMeasurementCost {
    let past = MonotonicClock.now();
    let all_past = CycleSchedule {
        begin: past - Span::from_ms(1_000),
        interval: Span::from_ns(1),
        cycles: TRIAL_CYCLES,
        break_above_ns: None,
    };
    let begun = MonotonicClock.now();
    CycleStats::run(&all_past, &mut SystemTimer, &AtomicBool::new(false));
    let taken_ns = (MonotonicClock.now() - begun).as_ns().unsigned_abs();
    TimerMeasurementCost {
        clock_ns: figures::clock_ns(),
        cycle_ns: taken_ns / TRIAL_CYCLES,
        past_ns: figures::median_of_calls(|| sleep_until(past)),
    }
}

/// Returns the result of a core whose thread was stopped before the first period.
const fn unmeasured(
    core: usize,
    scheduling: ThreadScheduling,
    cost: TimerMeasurementCost,
) -> CoreWakeupLatency {
    CoreWakeupLatency { core, scheduling, cost, missed: 0, latency_ns: None, series: Vec::new() }
}

fn record(
    options: TimerOptions,
    started: String,
    arranged: &MeasurementConditions,
    measured: Vec<(CoreWakeupLatency, Option<BreakLatency>)>,
) -> HostTimerResult {
    let broken = measured.iter().filter_map(|(_, broken)| *broken);
    let broken_by = broken.reduce(|one, other| if other.at_s < one.at_s { other } else { one });
    let mut result = HostTimerResult {
        schema: HOST_TIMER_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        conditions: arranged.record(),
        interval_ns: options.interval.as_nanos() as u64,
        planned: options.cycles,
        cores: measured.into_iter().map(|(core, _)| core).collect(),
        break_above_ns: options.break_above.map(|limit| limit.as_nanos() as u64),
        limit_exceeded: broken_by,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    result.findings = findings(&result);
    result
}

/// Returns the findings of a run, from its record alone.
fn findings(result: &HostTimerResult) -> Vec<Finding> {
    let scheduling: Vec<_> = result.cores.iter().map(|core| &core.scheduling).collect();
    let mut findings = conditions::findings(&result.conditions, &scheduling);
    let measured = |core: &CoreWakeupLatency| core.latency_ns.as_ref().map_or(0, |one| one.count);
    let missed: u64 = result.cores.iter().map(|core| core.missed).sum();
    let cycles: u64 = result.cores.iter().map(measured).sum();
    let (were, them) = if missed == 1 { ("was", "it") } else { ("were", "them") };
    if missed > 0 {
        findings.push(finding(
            FindingCode::PeriodsMissed,
            Severity::Warning,
            format!(
                "Of {cycles} periods {missed} {were} over before their thread waited for {them}; \
                 their lateness is included."
            ),
            "Find what occupied the core with 'horolog host interrupt'.",
        ));
    }
    if let Some(broken) = result.limit_exceeded {
        findings.push(finding(
            FindingCode::LatencyAboveBreak,
            Severity::Error,
            format!(
                "Core {} woke up {} late in its period {}, {:.6} s into the run, which ended it.",
                broken.core,
                figures::time(broken.latency_ns),
                broken.cycle,
                broken.at_s
            ),
            "Check what ran at that time.",
        ));
    } else if result.cores.iter().any(|core| measured(core) < result.planned) {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Note,
            format!("The run was interrupted after {cycles} periods of all cores."),
            "",
        ));
    }
    findings
}
