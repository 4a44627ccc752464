//! What it costs to switch from one process or thread to another.
//!
//! By the eight steps of Hao, Xue and Qin 2010 (section 4.1.1): n calls of the scheduler alone,
//! then n turns with a partner on the same core under `SCHED_FIFO`. And by turns that hand over and
//! wait (pipe, futex, eventfd), on one core and across two, less the same calls alone, as lmbench
//! does. A figure that comes out negative is refused; so are steps whose switches the kernel did
//! not make.

mod arithmetic;
mod exchange;
mod findings;
mod steps;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_conditions::{self as conditions, Conditions};
use horolog_record::{
    HOST_SWITCH_SCHEMA, Host, HostSwitchResult, SwitchExchange, SwitchPartner, SwitchPlacement,
    SwitchSteps, SwitchWay, ThreadScheduling, rfc3339_now,
};
use horolog_sys::partner::PartnerKind;
use horolog_sys::signal::InterruptibleThread;

use super::{HostError, figures};

/// Turns of a repetition at most: a longer one, which does not sleep, would run into the throttling
/// of real-time threads.
pub const TURNS_MAX: u64 = 50_000;
/// How often the waiting thread looks whether the run is to end.
const LOOK: Duration = Duration::from_millis(20);
/// No repetition of so few turns takes longer, unless a partner is gone.
const REPETITION_MAX: Duration = Duration::from_secs(20);

const PARTNERS: [SwitchPartner; 2] = [SwitchPartner::Process, SwitchPartner::Thread];
const WAYS: [SwitchWay; 3] = [SwitchWay::Pipe, SwitchWay::Futex, SwitchWay::Eventfd];

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// One or two cores; none for the first two that this process may run on.
    pub cores: Vec<usize>,
    /// Turns of each repetition, up to [`TURNS_MAX`].
    pub turns: u64,
    /// Repetitions of each measurement.
    pub repetitions: usize,
    /// The real-time priority of both sides; `None` for ordinary ones.
    pub priority: Option<u8>,
    /// Whether deep idle states are held off.
    pub hold_awake: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// What all measurements of a run share.
pub(super) struct Setting<'a> {
    turns: u64,
    repetitions: usize,
    /// The priority that was got.
    priority: Option<u8>,
    core: usize,
    clock_ns: u64,
    stop: &'a AtomicBool,
    /// Told before each repetition.
    step: &'a dyn Fn(),
}

impl Setting<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Measures all of it.
///
/// # Errors
///
/// When a core is not to be had or the measuring thread cannot be started.
pub fn run(
    options: SwitchOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
    is_over: &dyn Fn() -> bool,
) -> Result<HostSwitchResult, HostError> {
    let mut cores = conditions::cores(&options.cores)?;
    cores.truncate(2);
    let core = cores[0];
    let started = rfc3339_now();
    let arranged = Conditions::arrange(options.hold_awake);
    let watch = Watch::default();
    let measured = thread::scope(|scope| {
        let work = || measure(&options, &cores, &watch, progress);
        let measuring = thread::Builder::new().name("switch".into()).spawn_scoped(scope, work);
        let measuring = measuring.map_err(|error| HostError::Thread { core, error })?;
        while !measuring.is_finished() {
            thread::sleep(LOOK);
            watch.look(is_over());
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
    let is_ended = watch.stop.load(Ordering::Relaxed);
    result.findings = findings::all(&result, options.repetitions, is_ended);
    Ok(result)
}

/// Sees that the measuring thread waits for nobody who is gone, nor for longer than the user does.
#[derive(Default)]
struct Watch {
    stop: AtomicBool,
    measuring: std::sync::Mutex<Option<(InterruptibleThread, Instant)>>,
}

impl Watch {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(InterruptibleThread, Instant)>> {
        self.measuring.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A repetition of this thread begins.
    fn begin(&self, thread: InterruptibleThread) {
        *self.lock() = Some((thread, Instant::now()));
    }

    fn look(&self, is_over: bool) {
        let measuring = *self.lock();
        let Some((thread, since)) = measuring else { return };
        if is_over || since.elapsed() > REPETITION_MAX {
            self.stop.store(true, Ordering::Relaxed);
            // It ends by itself where it is in no system call.
            let _ = thread.interrupt();
        }
    }
}

struct Measured {
    scheduling: ThreadScheduling,
    clock_ns: u64,
    steps: Vec<SwitchSteps>,
    exchanges: Vec<SwitchExchange>,
}

fn measure(
    options: &SwitchOptions,
    cores: &[usize],
    watch: &Watch,
    progress: &dyn Fn(u64, u64),
) -> Result<Measured, HostError> {
    let core = cores[0];
    let scheduling = conditions::settle(core, options.priority)?;
    let thread =
        InterruptibleThread::current().map_err(|error| HostError::Thread { core, error })?;
    let placements =
        [(SwitchPlacement::SameCore, Some(&core)), (SwitchPlacement::AcrossCores, cores.get(1))];
    let placements = placements.into_iter().filter_map(|(name, core)| Some((name, *core?)));
    let exchanges = placements.clone().count() * WAYS.len() * PARTNERS.len();
    let total = ((PARTNERS.len() + exchanges) * options.repetitions) as u64;
    let done = std::cell::Cell::new(0);
    let step = || {
        watch.begin(thread);
        progress(done.get(), total);
        done.set(done.get() + 1);
    };
    let setting = Setting {
        turns: options.turns,
        repetitions: options.repetitions,
        priority: (scheduling.priority > 0).then_some(scheduling.priority),
        core,
        clock_ns: figures::clock_ns(),
        stop: &watch.stop,
        step: &step,
    };
    let steps = PARTNERS.into_iter().map(|partner| steps::measure(&setting, partner)).collect();
    let mut exchanges = Vec::new();
    for (placement, other) in placements {
        for (partner, way) in PARTNERS.into_iter().flat_map(|one| WAYS.map(|way| (one, way))) {
            exchanges.push(exchange::measure(&setting, way, partner, (placement, other)));
        }
    }
    Ok(Measured { clock_ns: setting.clock_ns, scheduling, steps, exchanges })
}

const fn kind(partner: SwitchPartner) -> PartnerKind {
    match partner {
        SwitchPartner::Process => PartnerKind::Process,
        SwitchPartner::Thread => PartnerKind::Thread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(turns: u64) -> SwitchOptions {
        SwitchOptions {
            cores: Vec::new(),
            turns,
            repetitions: 2,
            priority: None,
            hold_awake: false,
            command: Vec::new(),
        }
    }

    /// As an ordinary user can.
    #[test]
    fn exchanges_take_their_turns() {
        let result = run(options(100), &|_, _| (), &|| false).unwrap();
        assert_eq!(result.steps.len(), 2);
        assert_eq!(result.exchanges.len(), 6 * result.cores.len());
        for exchange in &result.exchanges {
            let turns = exchange.turn_ns.as_ref().map_or(0, |turns| turns.count);
            assert_eq!((turns, exchange.error.as_deref()), (200, None), "{exchange:?}");
            assert!(exchange.repetitions.iter().all(|one| one.turn_ns > one.alone_ns));
        }
    }

    #[test]
    fn a_run_that_is_ended_says_so() {
        let result = run(options(TURNS_MAX), &|_, _| (), &|| true).unwrap();
        let codes = result.findings.iter().map(|finding| finding.code);
        assert!(codes.into_iter().any(|code| code == horolog_record::Code::Interrupted));
    }
}
