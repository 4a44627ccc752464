//! `horolog host interrupt`: flags to a run of expiries and a spin, its result as text, JSON and
//! page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_probe::host::interrupt::{self, InterruptOptions};
use horolog_record::{HandlerKind, HostInterruptResult, LimitUnit};
use horolog_report::{html, table, to_json};

use super::cores::{CoreList, ThreadArgs, core_list};
use crate::failure::{Failure, no_lack, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, Limited, MAX, MEAN, P99, TimeOf};
use crate::output::{self, Progress};
use crate::values;

/// What can be limited of each core.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    /// Of the delay of a kind of handler.
    Delay(HandlerKind, TimeOf),
    /// The share of the core that was stolen.
    Stolen,
    /// The longest gap.
    Gap,
}

const FIGURES: [Limited<Figure>; 11] = [
    ("kernel.p99", LimitUnit::Ns, Figure::Delay(HandlerKind::Kernel, P99)),
    ("kernel.mean", LimitUnit::Ns, Figure::Delay(HandlerKind::Kernel, MEAN)),
    ("kernel.max", LimitUnit::Ns, Figure::Delay(HandlerKind::Kernel, MAX)),
    ("signal.mean", LimitUnit::Ns, Figure::Delay(HandlerKind::Signal, MEAN)),
    ("signal.p99", LimitUnit::Ns, Figure::Delay(HandlerKind::Signal, P99)),
    ("signal.max", LimitUnit::Ns, Figure::Delay(HandlerKind::Signal, MAX)),
    ("timerfd.mean", LimitUnit::Ns, Figure::Delay(HandlerKind::Timerfd, MEAN)),
    ("timerfd.p99", LimitUnit::Ns, Figure::Delay(HandlerKind::Timerfd, P99)),
    ("timerfd.max", LimitUnit::Ns, Figure::Delay(HandlerKind::Timerfd, MAX)),
    ("stolen", LimitUnit::Ratio, Figure::Stolen),
    ("gap", LimitUnit::Ns, Figure::Gap),
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
    fail_if: Vec<Limit<Figure>>,
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

pub(super) fn limit(text: &str) -> Result<Limit<Figure>, String> {
    Limit::parse(text, FIGURES)
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
    let told = |what: &str| progress.doing(what);
    let mut result = interrupt::run(options, &told, &|| output::flow().is_break())?;
    progress.finish();
    let judge = |limit: &Limit<Figure>| limit.judge_named(of_cores(&result, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::host_interrupt], table::host_interrupt)?;
    verdict(&result.limits, &result.findings)?;
    no_lack(lack(&result))
}

/// Why there is no figure at all; `None` where there is one, or nothing was in the way.
fn lack(result: &HostInterruptResult) -> Option<String> {
    let is_measured = result.handlers.iter().any(|handler| handler.delay_ns.is_some());
    let error = result.handlers.iter().find_map(|handler| handler.error.clone());
    error.filter(|_| !is_measured && result.stolen.is_empty())
}

/// The figure of each core.
pub(super) fn of_cores(result: &HostInterruptResult, figure: Figure) -> Vec<(String, Option<f64>)> {
    let stolen = result.stolen.iter();
    let core = |number: usize, value| (format!("core {number}"), value);
    match figure {
        Figure::Delay(kind, of) => {
            let handlers = result.handlers.iter().filter(|handler| handler.kind == kind);
            handlers.map(|one| core(one.core, one.delay_ns.as_ref().map(of))).collect()
        }
        Figure::Stolen => stolen
            .map(|one| {
                core(one.core, Some(one.all.total_ns as f64 / one.duration_ns.max(1) as f64))
            })
            .collect(),
        Figure::Gap => stolen.map(|one| core(one.core, Some(one.all.max_ns as f64))).collect(),
    }
}
