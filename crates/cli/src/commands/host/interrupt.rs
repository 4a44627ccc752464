//! `horolog host interrupt`: flags to a run of expiries and a spin, its result as text, JSON and
//! page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_probe::host::interrupt::{self, InterruptOptions};
use horolog_record::{HandlerDelay, HandlerKind, HostInterruptResult, LimitUnit};
use horolog_report::{html, table};

use super::bound::{Bound, Limited, time_of, worst};
use super::cores::{CoreList, ThreadArgs, core_list};
use super::files::{FileArgs, verdict};
use crate::failure::Failure;
use crate::output::{self, Progress};
use crate::values;

/// What can be limited: the worst core's mean, 99th percentile and largest delay of each handler,
/// the share of a core that was stolen, and the longest gap.
const FIGURES: [Limited; 11] = [
    ("kernel.p99", LimitUnit::Ns),
    ("kernel.mean", LimitUnit::Ns),
    ("kernel.max", LimitUnit::Ns),
    ("signal.mean", LimitUnit::Ns),
    ("signal.p99", LimitUnit::Ns),
    ("signal.max", LimitUnit::Ns),
    ("timerfd.mean", LimitUnit::Ns),
    ("timerfd.p99", LimitUnit::Ns),
    ("timerfd.max", LimitUnit::Ns),
    ("stolen", LimitUnit::Ratio),
    ("gap", LimitUnit::Ns),
];
const DISTANCE_MIN: Duration = Duration::from_micros(20);
const DISTANCE_MAX: Duration = Duration::from_secs(1);

/// How late handlers run behind a timer's expiry, and what is taken from each core.
///
/// Timers expire at random distances; the delay counts from the expiry to the first reading of the
/// clock in the handler: in the kernel (bpf_timer, whose callback runs in the soft interrupt behind
/// the timer's own), in a signal handler, and in a thread that waits for a timerfd. Then a thread
/// spins on each core, as an ordinary one, and reads the clock: a turn of its loop that took longer
/// than the threshold is a gap, and the kernel is asked whether another thread ran in it; if not,
/// it was an interrupt, system management or the host.
#[derive(Args, Debug)]
pub(crate) struct InterruptArgs {
    /// The cores, such as 0,2..6:2 [default: all that this process may run on].
    #[arg(short, long, value_name = "LIST", value_parser = core_list)]
    cores: Option<CoreList>,
    /// Kinds of handlers.
    #[arg(long, value_name = "KIND", value_delimiter = ',',
          default_values_t = [Kind::Kernel, Kind::Signal, Kind::Timerfd])]
    handlers: Vec<Kind>,
    /// Expiries of each repetition.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    expiries: u64,
    /// Repetitions of each kind.
    #[arg(short, long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    repetitions: u16,
    /// Mean distance from a handler to the next expiry, 20us to 1s; each is random from a tenth of
    /// it up to nineteen tenths.
    #[arg(short, long, value_name = "TIME", value_parser = distance, default_value = "500us")]
    distance: Duration,
    /// How long to look for stolen time; 0 for not at all.
    #[arg(short, long, value_name = "TIME", value_parser = values::duration, default_value = "5s")]
    spin: Duration,
    /// A turn of the spinning loop that takes longer than this is a gap.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "2us")]
    threshold: Duration,
    #[command(flatten)]
    threads: ThreadArgs,
    /// End with status 1 if this holds of any core, such as 'kernel.p99>50us', 'stolen>1%' or
    /// 'gap>1ms'; may be given more than once. Figures: mean, p99, max of kernel, signal, timerfd;
    /// stolen (a share), gap (the longest). What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Bound>,
    #[command(flatten)]
    files: FileArgs,
}

/// Kinds of handlers, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Kernel,
    Signal,
    Timerfd,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Signal => "signal",
            Self::Timerfd => "timerfd",
        })
    }
}

impl From<Kind> for HandlerKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Kernel => Self::Kernel,
            Kind::Signal => Self::Signal,
            Kind::Timerfd => Self::Timerfd,
        }
    }
}

fn distance(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        time if (DISTANCE_MIN..=DISTANCE_MAX).contains(&time) => Ok(time),
        _ => Err("20us to 1s".into()),
    }
}

fn limit(text: &str) -> Result<Bound, String> {
    Bound::parse(text, &FIGURES)
}

pub(super) fn run(args: InterruptArgs) -> Result<(), Failure> {
    let files = args.files.open()?;
    output::end_gently()?;
    let options = InterruptOptions {
        cores: args.cores.map(|list| list.0).unwrap_or_default(),
        kinds: args.handlers.into_iter().map(HandlerKind::from).collect(),
        expiries: args.expiries,
        repetitions: args.repetitions.into(),
        distance: (args.distance / 10, args.distance * 19 / 10),
        spin: args.spin,
        threshold: args.threshold,
        priority: args.threads.priority(),
        hold_awake: !args.threads.leave_idle_states,
        command: output::command_line(),
    };
    let progress = Progress::new();
    let told = |what: &str| progress.part(what);
    let mut result = interrupt::run(options, &told, &|| output::flow().is_break())?;
    progress.finish();
    result.limits = args.fail_if.iter().map(|one| one.judge(figure(&result, &one.name))).collect();
    let text = table::host_interrupt(&result, &output::table_style());
    files.write(&result, horolog_report::to_json, html::host_interrupt, &text)?;
    verdict(&result.limits, &result.findings)
}

/// The worst core's figure of this name.
fn figure(result: &HostInterruptResult, name: &str) -> Option<f64> {
    match name.split_once('.') {
        Some((handler, figure)) => {
            let kind = match handler {
                "kernel" => HandlerKind::Kernel,
                "signal" => HandlerKind::Signal,
                _ => HandlerKind::Timerfd,
            };
            let of_kind = |one: &&HandlerDelay| one.kind == kind;
            let value = |one: &HandlerDelay| time_of(one.delay_ns.as_ref()?, figure);
            worst(result.handlers.iter().filter(of_kind).map(value))
        }
        None => worst(result.stolen.iter().map(|core| match name {
            "gap" => Some(core.all.max_ns as f64),
            _ => Some(core.all.total_ns as f64 / core.duration_ns.max(1) as f64),
        })),
    }
}
