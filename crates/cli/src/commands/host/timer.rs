//! `horolog host timer`: measures the wake-up latency of periodic threads, and writes the result as
//! text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::timer::{self, HostTimerOptions};
use horolog_record::HostTimerResult;

use super::{CoreList, MeasuringThreadArgs, parse_core_list};
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};
use crate::values;

/// Minimum of `--interval`.
const INTERVAL_MIN: Duration = Duration::from_micros(50);
/// Maximum number of periods: eight weeks of the shortest interval.
const CYCLES_MAX: u128 = 100_000_000_000;

/// Measure the wake-up latency of periodic threads, as cyclictest does.
///
/// One thread for each core, pinned to it and real-time if permitted, sleeps until the start of
/// each period (clock_nanosleep, absolute, CLOCK_MONOTONIC) and reads the clock. No period is
/// skipped: one whose start has passed before the thread waits for it is counted as missed, and its
/// latency counts from that start. Memory is locked meanwhile. All settings are restored when the
/// command ends.
#[derive(Args, Debug)]
pub(crate) struct HostTimerArgs {
    /// Cores, such as 0,2..6:2 [default: all that this process may run on].
    #[arg(short, long, value_name = "LIST", value_parser = parse_core_list)]
    cores: Option<CoreList>,
    /// Period of each thread, at least 50us.
    #[arg(short, long, value_name = "TIME", value_parser = parse_interval, default_value = "1ms")]
    interval: Duration,
    /// Duration of the measurement.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10s")]
    time: Duration,
    #[command(flatten)]
    threads: MeasuringThreadArgs,
    /// Stop at the first latency above this, with status 1.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    break_above: Option<Duration>,
    /// Exit with status 1 if this expression is true for any core, such as 'p99>100us' or
    /// 'missed>0.1%'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: mean, p50, p90, p99, p99.9, max, missed (a share).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<HostTimerResult>::parse)]
    fail_if: Vec<MetricLimit<HostTimerResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        short if short < INTERVAL_MIN => Err("at least 50us".into()),
        interval => Ok(interval),
    }
}

pub(super) fn run(args: HostTimerArgs) -> Result<(), CommandFailure> {
    let cycles = args.time.as_nanos() / args.interval.as_nanos();
    if cycles == 0 {
        return Err(CommandFailure::usage(
            "--time is shorter than one --interval; give a longer one",
        ));
    }
    if cycles > CYCLES_MAX {
        return Err(CommandFailure::usage(format!(
            "at most {CYCLES_MAX} periods; give a shorter --time"
        )));
    }
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let options = HostTimerOptions {
        cores: args.cores.map(|list| list.0).unwrap_or_default(),
        interval: args.interval,
        cycles: cycles as u64,
        priority: args.threads.priority(),
        hold_awake: !args.threads.allow_idle_states,
        break_above: args.break_above,
        command: output::command_line(),
    };
    let progress = ProgressLine::new();
    let report_progress = |done: Duration, total: Duration| {
        progress.set_count(done.as_secs(), total.as_secs(), "s");
    };
    let mut result =
        timer::run(options, &report_progress, &|| output::check_stop_request().is_break())?;
    progress.finish();
    files.finish(&mut result, &args.fail_if)
}
