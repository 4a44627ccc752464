//! `horolog host interrupt`: measures the latency of timer handlers and the OS noise, and writes
//! the result as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_probe::host::interrupt::{self, HostInterruptOptions};
use horolog_record::{HostInterruptResult, TimerHandlerKind};

use super::{CoreList, MeasuringThreadArgs, parse_core_list};
use crate::failure::{CommandFailure, fail_if_unmeasured};
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};
use crate::values;

/// Minimum of `--interval`.
const INTERVAL_MIN: Duration = Duration::from_micros(20);
/// Maximum of `--interval`.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Measure the latency of timer handlers, and the OS noise of each core.
///
/// Timers expire at random intervals. The latency is measured from the expiry to the first reading
/// of the clock in the handler: in the kernel (bpf_timer, whose callback runs in a softirq after
/// the timer interrupt), in a signal handler, and in a thread that waits for a timerfd. Then a
/// SCHED_OTHER thread spins on each core and reads the clock: an iteration that took longer than
/// --threshold is a gap (OS noise), and the kernel's accounting shows whether another thread ran in
/// it; if not, the gap is attributed to an interrupt, a system management interrupt (SMI) or the
/// hypervisor.
#[derive(Args, Debug)]
pub(crate) struct HostInterruptArgs {
    /// Cores, such as 0,2..6:2 [default: all that this process may run on].
    #[arg(short, long, value_name = "LIST", value_parser = parse_core_list)]
    cores: Option<CoreList>,
    /// Kinds of handlers, separated by commas.
    #[arg(
        long,
        value_name = "KIND[,KIND...]",
        value_delimiter = ',',
        default_value = "kernel,signal,timerfd"
    )]
    handlers: Vec<TimerHandlerKindArg>,
    /// Timer expiries on each core in each repetition.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    expiries: u64,
    /// Repetitions for each kind of handler.
    #[arg(short, long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    repetitions: u16,
    /// Mean interval from a handler to the next expiry, 20us to 1s; each interval is random, from
    /// 0.1 to 1.9 times the mean.
    #[arg(short, long, value_name = "TIME", value_parser = parse_interval, default_value = "500us")]
    interval: Duration,
    /// Duration of the OS noise measurement, on all cores simultaneously; 0 skips it.
    #[arg(short = 't', long, value_name = "TIME", value_parser = values::duration, default_value = "5s")]
    noise_time: Duration,
    /// Threshold above which an iteration of the spinning loop is a gap.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "2us")]
    threshold: Duration,
    #[command(flatten)]
    threads: MeasuringThreadArgs,
    /// Exit with status 1 if this expression is true for any core, such as 'kernel.p99>50us',
    /// 'os-noise>1%' or 'gap>1ms'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: mean, p50, p90, p99, p99.9, max of kernel, signal, timerfd; os-noise (a share), gap
    /// (the longest).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<HostInterruptResult>::parse)]
    fail_if: Vec<MetricLimit<HostInterruptResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

/// Kind of timer handler, as named by `--handlers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimerHandlerKindArg {
    Kernel,
    Signal,
    Timerfd,
}

impl std::fmt::Display for TimerHandlerKindArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Signal => "signal",
            Self::Timerfd => "timerfd",
        })
    }
}

impl From<TimerHandlerKindArg> for TimerHandlerKind {
    fn from(kind: TimerHandlerKindArg) -> Self {
        match kind {
            TimerHandlerKindArg::Kernel => Self::Kernel,
            TimerHandlerKindArg::Signal => Self::Signal,
            TimerHandlerKindArg::Timerfd => Self::Timerfd,
        }
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        time if (INTERVAL_MIN..=INTERVAL_MAX).contains(&time) => Ok(time),
        _ => Err("20us to 1s".into()),
    }
}

pub(super) fn run(args: HostInterruptArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let options = HostInterruptOptions {
        cores: args.cores.map(|list| list.0).unwrap_or_default(),
        kinds: args.handlers.into_iter().map(TimerHandlerKind::from).collect(),
        expiries: args.expiries,
        repetitions: args.repetitions.into(),
        distance: (args.interval / 10, args.interval * 19 / 10),
        spin: args.noise_time,
        threshold: args.threshold,
        priority: args.threads.priority(),
        hold_awake: !args.threads.allow_idle_states,
        command: output::command_line(),
    };
    let progress = ProgressLine::new();
    let report_progress = |what: &str| progress.set_message(what);
    let mut result =
        interrupt::run(options, &report_progress, &|| output::check_stop_request().is_break())?;
    progress.finish();
    files.finish(&mut result, &args.fail_if)?;
    fail_if_unmeasured(unmeasured_reason(&result))
}

/// Returns the first error if nothing was measured; `None` if there is a value, or no error.
fn unmeasured_reason(result: &HostInterruptResult) -> Option<String> {
    let is_measured = result.handlers.iter().any(|handler| handler.delay_ns.is_some());
    let error = result.handlers.iter().find_map(|handler| handler.error.clone());
    error.filter(|_| !is_measured && result.os_noise.is_empty())
}
