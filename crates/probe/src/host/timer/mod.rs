//! Start latency of a periodic thread, as measured by cyclictest: one thread per core sleeps until
//! an absolute instant, reads the clock, and repeats this every period.
//!
//! No period is skipped: a thread that is late for an instant does not wait but counts it as
//! missed, and its latency counts from that instant.

mod cycles;
mod start;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_conditions::{self as conditions, HostConditionsGuard, finding};
use horolog_record::{
    CoreWakeupLatency, Distribution, Finding, FindingCode, HOST_TIMER_SCHEMA, Host,
    HostTimerResult, LatencyAboveThreshold, Severity, ThreadScheduling, TimerMeasurementCost,
    rfc3339_now,
};
use horolog_sys::clock::{ClockMonotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, TimeGrid, Timestamp};

use super::{MeasuringThreadError, figures};
use cycles::{WakeupClock, WakeupSchedule, WakeupStats};
use start::StartBarrier;

/// Time from when all threads are ready to the first period.
const START_LEAD: Span = Span::from_ms(5);
/// Number of cycles in the measurement of the loop's own cost.
const COST_CYCLES: u64 = 2_000;
/// Interval between checks of whether the run is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Options of a timer measurement.
#[derive(Clone, Debug)]
pub struct HostTimerOptions {
    /// Cores; empty for all that this process may run on.
    pub cores: Vec<usize>,
    /// Period with which each thread wakes up.
    pub interval: Duration,
    /// Periods of each core.
    pub cycles: u64,
    /// Real-time priority; `None` for sched-other threads.
    pub priority: Option<u8>,
    /// True to hold off deep idle states.
    pub hold_awake: bool,
    /// Latency above which the run ends; `None` for no limit.
    pub break_above: Option<Duration>,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// System clock and absolute sleep.
struct SystemWakeupClock;

impl WakeupClock for SystemWakeupClock {
    fn now(&mut self) -> Timestamp<Monotonic> {
        ClockMonotonic.now()
    }

    fn wait_until(&mut self, due: Timestamp<Monotonic>) {
        sleep_until(due);
    }
}

/// Measures until all periods are done, a latency exceeds the limit, or `is_over` returns true;
/// calls `progress` with the elapsed and the total time.
///
/// # Errors
///
/// If a core is not available or a thread cannot be started.
pub fn run(
    options: HostTimerOptions,
    progress: &dyn Fn(Duration, Duration),
    is_over: &dyn Fn() -> bool,
) -> Result<HostTimerResult, MeasuringThreadError> {
    let cores = conditions::select_cores(&options.cores)?;
    let started = rfc3339_now();
    let conditions_guard = HostConditionsGuard::apply(options.hold_awake);
    let (stop, start) = (AtomicBool::new(false), StartBarrier::default());
    let total = options.interval.saturating_mul(u32::try_from(options.cycles).unwrap_or(u32::MAX));
    let measured: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = cores
            .iter()
            .enumerate()
            .map(|(index, &core)| {
                let (options, start, stop, core_count) = (&options, &start, &stop, cores.len());
                let work = move || measure_core(core, options, start, (index, core_count), stop);
                thread::Builder::new()
                    .name(format!("timer {core}"))
                    .spawn_scoped(scope, work)
                    .map_err(|error| {
                        stop.store(true, Ordering::Relaxed);
                        MeasuringThreadError::Thread { core, error }
                    })
            })
            .collect();
        let running = |thread: &Result<thread::ScopedJoinHandle<'_, _>, _>| {
            thread.as_ref().is_ok_and(|thread| !thread.is_finished())
        };
        let begin = ClockMonotonic.now() + START_LEAD;
        let begin = start.start_when_ready(cores.len(), &stop, START_LEAD).unwrap_or(begin);
        while threads.iter().any(running) {
            thread::sleep(CHECK_INTERVAL);
            let elapsed = (ClockMonotonic.now() - begin).as_ns().max(0).unsigned_abs();
            progress(Duration::from_nanos(elapsed).min(total), total);
            if is_over() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let join = |thread: Result<thread::ScopedJoinHandle<'_, _>, _>| {
            thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, MeasuringThreadError>>()
    })?;
    Ok(timer_result(options, started, &conditions_guard, measured))
}

/// Returns the schedule of one core. Those of several cores are staggered, so that their instants
/// do not coincide.
fn core_schedule(
    options: &HostTimerOptions,
    begin: Timestamp<Monotonic>,
    index: usize,
    core_count: usize,
) -> WakeupSchedule {
    let interval_ns = i64::try_from(options.interval.as_nanos()).unwrap_or(i64::MAX);
    let shift_ns = interval_ns / core_count.max(1) as i64 * index as i64;
    WakeupSchedule {
        grid: TimeGrid {
            start: begin + Span::from_ns(shift_ns),
            interval: Span::from_ns(interval_ns),
        },
        cycles: options.cycles,
        break_above_ns: options.break_above.map(|limit| limit.as_nanos() as u64),
    }
}

/// Measures one core in the calling thread.
fn measure_core(
    core: usize,
    options: &HostTimerOptions,
    start: &StartBarrier,
    (index, core_count): (usize, usize),
    stop: &AtomicBool,
) -> Result<(CoreWakeupLatency, Option<LatencyAboveThreshold>), MeasuringThreadError> {
    let scheduling = conditions::apply_to_thread(core, options.priority);
    let scheduling = scheduling.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
    let cost = measurement_cost();
    let Some(begin) = start.wait_for_start(stop) else {
        return Ok((empty_result(core, scheduling, cost), None));
    };
    let schedule = core_schedule(options, begin, index, core_count);
    let cycles = WakeupStats::run(&schedule, &mut SystemWakeupClock, stop);
    let break_latency = cycles.break_latency.map(|broken| LatencyAboveThreshold { core, ..broken });
    let core = CoreWakeupLatency {
        core,
        scheduling,
        cost,
        missed: cycles.missed,
        latency_ns: Distribution::from_histogram(&cycles.latencies),
        series: cycles.slice_maxima(&schedule),
    };
    Ok((core, break_latency))
}

/// Returns the cost of the measurement itself on this core.
fn measurement_cost() -> TimerMeasurementCost {
    let past = ClockMonotonic.now();
    let all_past = WakeupSchedule {
        grid: TimeGrid { start: past - Span::from_ms(1_000), interval: Span::from_ns(1) },
        cycles: COST_CYCLES,
        break_above_ns: None,
    };
    let begun = ClockMonotonic.now();
    WakeupStats::run(&all_past, &mut SystemWakeupClock, &AtomicBool::new(false));
    let elapsed_ns = (ClockMonotonic.now() - begun).as_ns().unsigned_abs();
    TimerMeasurementCost {
        clock_ns: figures::clock_read_cost_ns(),
        cycle_ns: elapsed_ns / COST_CYCLES,
        past_ns: figures::median_of_calls(|| sleep_until(past)),
    }
}

/// Returns the result of a core that was stopped before the first period.
const fn empty_result(
    core: usize,
    scheduling: ThreadScheduling,
    cost: TimerMeasurementCost,
) -> CoreWakeupLatency {
    CoreWakeupLatency { core, scheduling, cost, missed: 0, latency_ns: None, series: Vec::new() }
}

fn timer_result(
    options: HostTimerOptions,
    started: String,
    arranged: &HostConditionsGuard,
    measured: Vec<(CoreWakeupLatency, Option<LatencyAboveThreshold>)>,
) -> HostTimerResult {
    let break_latencies = measured.iter().filter_map(|(_, broken)| *broken);
    let broken_by =
        break_latencies.reduce(|one, other| if other.at_s < one.at_s { other } else { one });
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
    result.findings = timer_findings(&result);
    result
}

/// Returns the findings of `host timer`, from its record alone.
fn timer_findings(result: &HostTimerResult) -> Vec<Finding> {
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
                figures::format_time(broken.latency_ns),
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
