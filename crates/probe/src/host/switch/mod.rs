//! Cost of a context switch between two processes or threads.
//!
//! Two methods. Eight steps of Hao, Xue and Qin 2010 (section 4.1.1): n calls of `sched_yield`
//! alone, then n turns with a peer on the same core, both with `SCHED_FIFO`. Ping-pong: turns that
//! wake the peer and block (pipe, futex, eventfd), on one core and across two, minus the cost of
//! the calls alone, as in lmbench. Negative values, and steps in which the kernel did not switch,
//! are discarded.

mod arithmetic;
mod exchange;
mod findings;
mod steps;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_conditions::{self as conditions, HostConditionsGuard};
use horolog_record::{
    ContextSwitchPeerKind, ContextSwitchPlacement, HOST_SWITCH_SCHEMA, HandoverMechanism, Host,
    HostSwitchResult, PingPongCost, ThreadScheduling, YieldSwitchCost, rfc3339_now,
};
use horolog_sys::ping_pong::PeerKind;
use horolog_sys::signal::InterruptibleThread;

use super::{MeasuringThreadError, figures};

/// Maximum number of turns per repetition. A longer repetition, which does not sleep, would be
/// throttled as a real-time thread.
pub const TURNS_MAX: u64 = 50_000;
/// Interval between checks of whether the run is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit of a repetition; it is reached only if the peer has ended.
const REPETITION_MAX: Duration = Duration::from_secs(20);

const PEERS: [ContextSwitchPeerKind; 2] =
    [ContextSwitchPeerKind::Process, ContextSwitchPeerKind::Thread];
const MECHANISMS: [HandoverMechanism; 3] =
    [HandoverMechanism::Pipe, HandoverMechanism::Futex, HandoverMechanism::Eventfd];

/// Options of a switch measurement.
#[derive(Clone, Debug)]
pub struct HostSwitchOptions {
    /// One or two cores; empty for the first two that this process may run on.
    pub cores: Vec<usize>,
    /// Turns of each repetition, up to [`TURNS_MAX`].
    pub turns: u64,
    /// Repetitions of each measurement.
    pub repetitions: usize,
    /// Real-time priority of both sides; `None` for sched-other.
    pub priority: Option<u8>,
    /// True to hold off deep idle states.
    pub hold_awake: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Setup shared by all measurements of a run.
pub(super) struct ContextSwitchSetup<'a> {
    turns: u64,
    repetitions: usize,
    /// Real-time priority in effect; `None` for `SCHED_OTHER`.
    priority: Option<u8>,
    core: usize,
    clock_ns: u64,
    stop: &'a AtomicBool,
    /// Called before each repetition.
    report_repetition: &'a dyn Fn(),
}

impl ContextSwitchSetup<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs all measurements, until `is_over` returns true or a peer ends; calls `progress` with the
/// number of repetitions done and of all.
///
/// # Errors
///
/// If a core is not available or the measuring thread cannot be started.
pub fn run(
    options: HostSwitchOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
    is_over: &dyn Fn() -> bool,
) -> Result<HostSwitchResult, MeasuringThreadError> {
    let mut cores = conditions::select_cores(&options.cores)?;
    cores.truncate(2);
    let core = cores[0];
    let started = rfc3339_now();
    let arranged = HostConditionsGuard::apply(options.hold_awake);
    let watchdog = ContextSwitchWatchdog::default();
    let measured = thread::scope(|scope| {
        let work = || measure(&options, &cores, &watchdog, progress);
        let measuring = thread::Builder::new().name("switch".into()).spawn_scoped(scope, work);
        let measuring = measuring.map_err(|error| MeasuringThreadError::Thread { core, error })?;
        while !measuring.is_finished() {
            thread::sleep(CHECK_INTERVAL);
            watchdog.check(is_over());
        }
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let mut result = HostSwitchResult {
        schema: HOST_SWITCH_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        conditions: arranged.record(),
        scheduling: measured.scheduling,
        cores,
        turns: options.turns,
        clock_ns: measured.clock_ns,
        steps: measured.steps,
        exchanges: measured.exchanges,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    let is_ended = watchdog.stop.load(Ordering::Relaxed);
    result.findings = findings::all_findings(&result, options.repetitions, is_ended);
    Ok(result)
}

/// Watchdog that interrupts the measuring thread if the run is to end, or if a repetition takes
/// longer than [`REPETITION_MAX`], as without its peer.
#[derive(Default)]
struct ContextSwitchWatchdog {
    stop: AtomicBool,
    measuring: std::sync::Mutex<Option<(InterruptibleThread, Instant)>>,
}

impl ContextSwitchWatchdog {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(InterruptibleThread, Instant)>> {
        self.measuring.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records that `thread` starts a repetition now.
    fn begin_repetition(&self, thread: InterruptibleThread) {
        *self.lock() = Some((thread, Instant::now()));
    }

    fn check(&self, is_over: bool) {
        let measuring = *self.lock();
        let Some((thread, since)) = measuring else { return };
        if is_over || since.elapsed() > REPETITION_MAX {
            self.stop.store(true, Ordering::Relaxed);
            // A thread that is in no system call checks `stop` itself.
            let _ = thread.interrupt();
        }
    }
}

struct ContextSwitchCosts {
    scheduling: ThreadScheduling,
    clock_ns: u64,
    steps: Vec<YieldSwitchCost>,
    exchanges: Vec<PingPongCost>,
}

fn measure(
    options: &HostSwitchOptions,
    cores: &[usize],
    watchdog: &ContextSwitchWatchdog,
    progress: &dyn Fn(u64, u64),
) -> Result<ContextSwitchCosts, MeasuringThreadError> {
    let core = cores[0];
    let scheduling = conditions::apply_to_thread(core, options.priority)?;
    let thread = InterruptibleThread::current()
        .map_err(|error| MeasuringThreadError::Thread { core, error })?;
    let placements = [
        (ContextSwitchPlacement::SameCore, Some(&core)),
        (ContextSwitchPlacement::AcrossCores, cores.get(1)),
    ];
    let placements = placements.into_iter().filter_map(|(name, core)| Some((name, *core?)));
    let exchanges = placements.clone().count() * MECHANISMS.len() * PEERS.len();
    let total = ((PEERS.len() + exchanges) * options.repetitions) as u64;
    let done = std::cell::Cell::new(0);
    let step = || {
        watchdog.begin_repetition(thread);
        progress(done.get(), total);
        done.set(done.get() + 1);
    };
    let setting = ContextSwitchSetup {
        turns: options.turns,
        repetitions: options.repetitions,
        priority: (scheduling.priority > 0).then_some(scheduling.priority),
        core,
        clock_ns: figures::clock_read_cost_ns(),
        stop: &watchdog.stop,
        report_repetition: &step,
    };
    let steps = PEERS.into_iter().map(|peer| steps::measure_steps(&setting, peer)).collect();
    let mut exchanges = Vec::new();
    for (placement, other) in placements {
        for (peer, way) in PEERS.into_iter().flat_map(|one| MECHANISMS.map(|way| (one, way))) {
            exchanges.push(exchange::measure(&setting, way, peer, (placement, other)));
        }
    }
    Ok(ContextSwitchCosts { clock_ns: setting.clock_ns, scheduling, steps, exchanges })
}

const fn peer_kind(peer: ContextSwitchPeerKind) -> PeerKind {
    match peer {
        ContextSwitchPeerKind::Process => PeerKind::Process,
        ContextSwitchPeerKind::Thread => PeerKind::Thread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(turns: u64) -> HostSwitchOptions {
        HostSwitchOptions {
            cores: Vec::new(),
            turns,
            repetitions: 2,
            priority: None,
            hold_awake: false,
            command: Vec::new(),
        }
    }

    /// Needs no privilege.
    #[test]
    fn exchanges_take_their_turns() {
        let result = run(options(100), &|_, _| (), &|| false).unwrap();
        assert_eq!(result.steps.len(), 2);
        assert_eq!(result.exchanges.len(), 6 * result.cores.len());
        for exchange in &result.exchanges {
            let turns = exchange.turn_ns.as_ref().map_or(0, |turns| turns.count);
            assert_eq!((turns, exchange.error.as_deref()), (200, None), "{exchange:?}");
            assert!(exchange.repetitions.iter().all(|one| one.turn_ns > one.baseline_ns));
        }
    }

    #[test]
    fn an_interrupted_run_has_a_finding() {
        let result = run(options(TURNS_MAX), &|_, _| (), &|| true).unwrap();
        let codes = result.findings.iter().map(|finding| finding.code);
        assert!(codes.into_iter().any(|code| code == horolog_record::FindingCode::Interrupted));
    }
}
