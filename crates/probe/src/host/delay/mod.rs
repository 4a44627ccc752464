//! What the functions deliver by which programs wait. Short delays are measured one after the
//! other, the functions in turn, so that all see the same state of the machine; long ones, during
//! which nothing happens, all at once. Each setting holds for threads or children that end with it.

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
    DelayCell, DelayKind, DelaySetting, DelaySlack, HOST_DELAY_SCHEMA, Host, HostDelayResult,
    SchedulingPolicy, rfc3339_now,
};
use horolog_sys::affinity::{Scheduling, prefer_real_time, set_timer_slack_ns};
use horolog_sys::alarm::{ChildSettings, alarm_and_pause};
use horolog_sys::delay::{DelayFunction, Delayer};
use horolog_sys::posix_clock::timer_slack_ns;

use super::clock::tick;
use cell::{Account, ns};
use evidence::Evidence;

/// Delays from here on are measured all at once.
const LONG: Duration = Duration::from_millis(5);
/// The waits of one function at one delay take about so long, and there are so many at least.
const CELL_TIME: Duration = Duration::from_secs(1);
const SAMPLES_MIN: u64 = 3;
/// High enough to come before everything ordinary, below the kernel's own threads at 50 and more.
const PRIORITY: i32 = 40;
const MINIMAL_SLACK_NS: u32 = 1;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct HostDelayOptions {
    /// The functions.
    pub functions: Vec<DelayKind>,
    /// The delays to ask for.
    pub delays: Vec<Duration>,
    /// Waits of each function at each delay, fewer of long ones.
    pub samples: u64,
    /// The schedulings.
    pub policies: Vec<SchedulingPolicy>,
    /// The timer slacks.
    pub slacks: Vec<DelaySlack>,
    /// Whether what is commonly said is judged; that takes two seconds more.
    pub claims: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl HostDelayOptions {
    /// Whether a function can be asked for one of the delays.
    #[must_use]
    pub fn is_any_possible(&self) -> bool {
        self.functions.iter().any(|kind| self.delays.iter().any(|delay| fits(*kind, *delay)))
    }
}

/// Whether a function can be asked for just this delay.
fn fits(kind: DelayKind, delay: Duration) -> bool {
    let delay_ns = ns(delay);
    delay_ns > 0 && delay_ns.is_multiple_of(kind.unit_ns())
}

/// Whether the run is to end.
pub type IsOver<'a> = &'a (dyn Fn() -> bool + Sync);

/// Measures; says what it is at as it goes on.
pub fn measure(
    options: HostDelayOptions,
    doing: &dyn Fn(&str),
    is_over: IsOver<'_>,
) -> HostDelayResult {
    let started = rfc3339_now();
    let mut evidence = options.claims.then(|| {
        doing("trying what is commonly said");
        Evidence::begin()
    });
    let mut settings = settings(&options);
    let all = settings.len();
    let mut cells = Vec::new();
    for (index, setting) in settings.iter_mut().enumerate() {
        if is_over() {
            break;
        }
        doing(&format!("waiting, setting {} of {all}", index + 1));
        match refused(setting) {
            Some(error) => setting.error = Some(error.to_string()),
            None => cells.extend(of_setting(&options, index, setting, is_over)),
        }
    }
    let interrupted =
        if options.claims && !is_over() { interrupted::measure() } else { Ok(Vec::new()) };
    let mut result = HostDelayResult {
        schema: HOST_DELAY_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        tick: tick::look(),
        own_cost_ns: cell::own_cost_ns(),
        settings,
        cells,
        interrupted: interrupted.unwrap_or_default(),
        claims: Vec::new(),
        limits: Vec::new(),
        findings: Vec::new(),
    };
    if let Some(evidence) = &mut evidence {
        evidence.end();
        result.claims = claims::all(&result, evidence);
    }
    result.findings = findings::all(&result, is_over());
    result
}

fn settings(options: &HostDelayOptions) -> Vec<DelaySetting> {
    let slack_ns = |slack| match slack {
        DelaySlack::Default => timer_slack_ns(),
        DelaySlack::Minimal => Some(MINIMAL_SLACK_NS.into()),
    };
    let of = |policy: &SchedulingPolicy| {
        let policy = *policy;
        let with =
            move |slack| DelaySetting { policy, slack, slack_ns: slack_ns(slack), error: None };
        options.slacks.iter().map(move |slack| with(*slack))
    };
    options.policies.iter().flat_map(of).collect()
}

/// Has this thread scheduled so.
fn apply(setting: &DelaySetting) -> io::Result<()> {
    if setting.slack == DelaySlack::Minimal {
        set_timer_slack_ns(MINIMAL_SLACK_NS)?;
    }
    match setting.policy {
        SchedulingPolicy::Other => Ok(()),
        SchedulingPolicy::Fifo => match prefer_real_time(PRIORITY) {
            Scheduling::RealTime => Ok(()),
            Scheduling::Ordinary(error) => Err(error),
        },
    }
}

/// Why threads may not be scheduled so, tried by one.
fn refused(setting: &DelaySetting) -> Option<io::Error> {
    let gone = || Err(io::ErrorKind::Other.into());
    thread::scope(|scope| scope.spawn(|| apply(setting)).join().unwrap_or_else(|_| gone())).err()
}

/// All functions at all delays, in the order of the options.
fn of_setting(
    options: &HostDelayOptions,
    index: usize,
    setting: &DelaySetting,
    is_over: IsOver<'_>,
) -> Vec<DelayCell> {
    let all = options.delays.iter().flat_map(|delay| {
        let possible = options.functions.iter().filter(|kind| fits(**kind, *delay));
        possible.map(|kind| (*kind, *delay))
    });
    let (long, short): (Vec<_>, Vec<_>) = all.partition(|(_, delay)| *delay >= LONG);
    let mut cells = thread::scope(|scope| {
        let one_by_one = scope.spawn(|| in_turn(options, index, setting, &short, is_over));
        one_by_one.join().unwrap_or_default()
    });
    let at_once = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for pair in &long {
            scope.spawn(|| {
                let cell = in_turn(options, index, setting, &[*pair], is_over);
                at_once.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(cell);
            });
            // So that they do not end all at one instant.
            thread::sleep(Duration::from_micros(700));
        }
    });
    cells.extend(at_once.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    cells.sort_by_key(|cell| {
        (options.functions.iter().position(|kind| *kind == cell.function), cell.requested_ns)
    });
    cells
}

/// How many waits there are of a delay.
fn samples(options: &HostDelayOptions, delay: Duration) -> u64 {
    let fitting = CELL_TIME.as_nanos() / delay.as_nanos().max(1);
    u64::try_from(fitting).unwrap_or(u64::MAX).max(SAMPLES_MIN).min(options.samples)
}

/// Functions at delays in this thread: at each delay one wait of each function after the other.
fn in_turn(
    options: &HostDelayOptions,
    index: usize,
    setting: &DelaySetting,
    pairs: &[(DelayKind, Duration)],
    is_over: IsOver<'_>,
) -> Vec<DelayCell> {
    let applied = apply(setting);
    let mut cells = Vec::new();
    for group in pairs.chunk_by(|one, next| one.1 == next.1) {
        let Some((_, delay)) = group.first().copied() else { continue };
        let mut running: Vec<_> = group
            .iter()
            .map(|(kind, _)| {
                let mut account = Account::new(delay);
                let way = match &applied {
                    Ok(()) => Way::open(*kind, setting),
                    Err(error) => Err(io::Error::from(error.kind())),
                };
                let way = way.map_err(|error| account.fail(&error)).ok();
                (*kind, account, way)
            })
            .collect();
        for _ in 0..samples(options, delay) {
            for (_, account, way) in &mut running {
                if let Some(open) = way
                    && !open.wait(account)
                {
                    *way = None;
                }
            }
            if is_over() {
                break;
            }
        }
        cells.extend(running.into_iter().map(|(kind, account, _)| account.cell(kind, index)));
    }
    cells
}

/// How to wait by a function.
enum Way {
    Here(Delayer),
    InChild(ChildSettings),
}

impl Way {
    fn open(kind: DelayKind, setting: &DelaySetting) -> io::Result<Self> {
        let function = match kind {
            DelayKind::AlarmPause => {
                let is_real_time = setting.policy == SchedulingPolicy::Fifo;
                let is_minimal = setting.slack == DelaySlack::Minimal;
                return Ok(Self::InChild(ChildSettings {
                    slack_ns: is_minimal.then_some(MINIMAL_SLACK_NS),
                    real_time_priority: is_real_time.then_some(PRIORITY),
                }));
            }
            DelayKind::Sleep => DelayFunction::Sleep,
            DelayKind::Usleep => DelayFunction::Usleep,
            DelayKind::Nanosleep => DelayFunction::Nanosleep,
            DelayKind::ClockNanosleep => DelayFunction::ClockNanosleep,
            DelayKind::ClockNanosleepAbsolute => DelayFunction::ClockNanosleepAbsolute,
            DelayKind::Select => DelayFunction::Select,
            DelayKind::Poll => DelayFunction::Poll,
            DelayKind::EpollWait => DelayFunction::EpollWait,
            DelayKind::EpollPwait2 => DelayFunction::EpollPwait2,
            DelayKind::Timerfd => DelayFunction::Timerfd,
            DelayKind::IoUring => DelayFunction::IoUring,
        };
        Delayer::open(function).map(Self::Here)
    }

    /// Waits once; false where there is no use in going on.
    fn wait(&mut self, account: &mut Account) -> bool {
        match self {
            Self::Here(delayer) => account.wait(&mut |delay| delayer.wait(delay)),
            Self::InChild(settings) => {
                let seconds = account.requested_s();
                match alarm_and_pause(seconds, *settings) {
                    Ok(took_ns) => account.count(took_ns),
                    Err(error) => account.fail(&error),
                }
                !account.is_failed()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> HostDelayOptions {
        HostDelayOptions {
            functions: DelayKind::ALL.to_vec(),
            delays: [50, 1_000, 6_000].map(Duration::from_micros).to_vec(),
            samples: 4,
            policies: vec![SchedulingPolicy::Other],
            slacks: vec![DelaySlack::Default, DelaySlack::Minimal],
            claims: false,
            command: Vec::new(),
        }
    }

    #[test]
    fn each_function_waits_for_the_delays_that_it_can_be_asked_for() {
        let result = measure(options(), &|_| (), &|| false);
        let of = |kind| result.cells.iter().filter(|cell| cell.function == kind).count();
        assert_eq!((of(DelayKind::Sleep), of(DelayKind::Poll), of(DelayKind::Usleep)), (0, 4, 6));
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
        assert!(result.findings.iter().any(|one| one.code == horolog_record::Code::Interrupted));
    }

    #[test]
    fn what_no_function_can_wait_for_is_known_before() {
        let of = |kind, delay| HostDelayOptions {
            functions: vec![kind],
            delays: vec![delay],
            ..options()
        };
        assert!(!of(DelayKind::Sleep, Duration::from_millis(1_500)).is_any_possible());
        assert!(of(DelayKind::Sleep, Duration::from_secs(2)).is_any_possible());
        assert!(!of(DelayKind::Poll, Duration::from_micros(10)).is_any_possible());
    }

    #[test]
    fn long_delays_have_fewer_samples_and_never_none() {
        let options = HostDelayOptions { samples: 100, ..options() };
        let of = |ms| samples(&options, Duration::from_millis(ms));
        assert_eq!((of(1), of(100), of(10_000)), (100, 10, 3));
    }
}
