//! Latency of timer handlers in the kernel and in user space, and OS noise: time taken from a
//! thread that spins on a core, as oslat measures it.
//!
//! Handlers run in real-time threads if permitted. The spinning thread always has `SCHED_OTHER`: a
//! real-time one would be throttled, and would itself take the core from other threads.

mod counters;
mod findings;
mod handlers;
mod os_noise;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use horolog_conditions::{self as conditions, HostConditionsGuard};
use horolog_record::{
    HOST_INTERRUPT_SCHEMA, Host, HostInterruptResult, OsNoise, TimerHandlerKind,
    TimerHandlerLatency, rfc3339_now,
};

use super::{MeasuringThreadError, figures};

pub(super) use findings::noise_finding;

const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Options of an interrupt measurement.
#[derive(Clone, Debug)]
pub struct HostInterruptOptions {
    /// Cores; empty for all that this process may run on.
    pub cores: Vec<usize>,
    /// Handler kinds to measure.
    pub kinds: Vec<TimerHandlerKind>,
    /// Timer expiries per repetition.
    pub expiries: u64,
    /// Repetitions of each kind.
    pub repetitions: usize,
    /// Range of the random time from a handler to the next expiry.
    pub distance: (Duration, Duration),
    /// Duration of the OS noise measurement; zero for none.
    pub spin: Duration,
    /// Gap between two clock readings of the spinning thread above which it counts as OS noise.
    pub threshold: Duration,
    /// Real-time priority of the handlers' threads; `None` for sched-other threads.
    pub priority: Option<u8>,
    /// True to hold off deep idle states.
    pub hold_awake: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Measures the handlers, kind by kind on all cores concurrently, then OS noise, until `is_over`
/// returns true; calls `progress` with the name of each step.
///
/// # Errors
///
/// If a core is not available or a thread cannot be started.
pub fn run(
    options: HostInterruptOptions,
    progress: &dyn Fn(&str),
    is_over: &dyn Fn() -> bool,
) -> Result<HostInterruptResult, MeasuringThreadError> {
    let cores = conditions::select_cores(&options.cores)?;
    let started = rfc3339_now();
    let conditions_guard = HostConditionsGuard::apply(options.hold_awake);
    let stop = AtomicBool::new(false);
    let clock_ns = figures::clock_read_cost_ns();
    let mut handlers: Vec<TimerHandlerLatency> = Vec::new();
    for &kind in &options.kinds {
        progress(handlers::handler_name(kind));
        let of_kind = run_on_cores(&cores, &stop, is_over, |core| {
            handlers::measure(&options, core, kind, &stop)
        })?;
        handlers.extend(of_kind);
    }
    let mut os_noise: Vec<OsNoise> = Vec::new();
    if !options.spin.is_zero() && !stop.load(Ordering::Relaxed) {
        progress("OS noise");
        os_noise = run_on_cores(&cores, &stop, is_over, |core| {
            os_noise::measure(core, options.spin, options.threshold, &stop)
        })?;
    }
    let mut result = HostInterruptResult {
        schema: HOST_INTERRUPT_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        conditions: conditions_guard.record(),
        expiries: options.expiries,
        distance_min_ns: options.distance.0.as_nanos() as u64,
        distance_max_ns: options.distance.1.as_nanos() as u64,
        clock_ns,
        handlers,
        os_noise,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    result.findings = findings::all_findings(&result, stop.load(Ordering::Relaxed));
    Ok(result)
}

/// Runs `work` on each core concurrently, in a thread each, and returns the results in the order of
/// `cores`, or the first error; sets `stop` when `is_over` returns true.
fn run_on_cores<T: Send>(
    cores: &[usize],
    stop: &AtomicBool,
    is_over: &dyn Fn() -> bool,
    work: impl Fn(usize) -> Result<T, MeasuringThreadError> + Sync,
) -> Result<Vec<T>, MeasuringThreadError> {
    thread::scope(|scope| {
        let work = &work;
        let start = |&core: &usize| {
            let thread = thread::Builder::new().name(format!("interrupt {core}"));
            let thread = thread.spawn_scoped(scope, move || work(core));
            thread.map_err(|error| MeasuringThreadError::Thread { core, error })
        };
        let threads: Vec<_> = cores.iter().map(start).collect();
        let running = |thread: &Result<ScopedJoinHandle<'_, _>, _>| {
            thread.as_ref().is_ok_and(|thread| !thread.is_finished())
        };
        while threads.iter().any(running) {
            thread::sleep(CHECK_INTERVAL);
            if is_over() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let join = |thread: Result<ScopedJoinHandle<'_, _>, _>| {
            thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use horolog_record::FindingCode;

    use super::*;

    fn options() -> HostInterruptOptions {
        HostInterruptOptions {
            cores: Vec::new(),
            kinds: vec![TimerHandlerKind::Signal, TimerHandlerKind::Timerfd],
            expiries: 20,
            repetitions: 2,
            distance: (Duration::from_micros(100), Duration::from_micros(300)),
            spin: Duration::from_millis(50),
            threshold: Duration::from_micros(2),
            priority: None,
            hold_awake: false,
            command: Vec::new(),
        }
    }

    /// Needs no privilege.
    #[test]
    fn handlers_in_user_space_run_at_each_expiry() {
        let result = run(options(), &|_| (), &|| false).unwrap();
        let cores = result.os_noise.len();
        assert_eq!(result.handlers.len(), 2 * cores);
        for handler in &result.handlers {
            let count = handler.delay_ns.as_ref().map_or(0, |delay| delay.count);
            assert_eq!((count, handler.repetitions.len()), (40, 2), "{handler:?}");
        }
        for core in &result.os_noise {
            assert!(core.duration_ns >= 40_000_000, "{core:?}");
            let parts = [core.by_threads, core.by_others];
            assert_eq!(parts.iter().map(|part| part.gaps).sum::<u64>(), core.all.gaps);
            assert!(core.all.total_ns <= core.duration_ns);
        }
    }

    #[test]
    fn an_interrupted_run_has_a_finding() {
        let result = run(options(), &|_| (), &|| true).unwrap();
        assert!(result.findings.iter().any(|finding| finding.code == FindingCode::Interrupted));
    }
}
