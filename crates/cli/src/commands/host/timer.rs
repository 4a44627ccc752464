//! `horolog host timer`: measures the wake-up latency of periodic threads, and writes the result as
//! text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::timer::{self, TimerOptions};
use horolog_record::{Distribution, HostTimerResult, LimitUnit};
use horolog_report::{RenderResult, to_json};

use super::{CoreList, MeasuringThreadArgs, parse_core_list};
use crate::failure::{CommandFailure, check_limits_and_findings};
use crate::files::ResultFileArgs;
use crate::limit::{DistributionMetric, Limit, time_metrics};
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
    #[arg(long, value_name = "LIMIT", value_parser = parse_limit)]
    fail_if: Vec<Limit<HostTimerMetric>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        short if short < INTERVAL_MIN => Err("at least 50us".into()),
        interval => Ok(interval),
    }
}

/// Metric of a core that `--fail-if` can limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostTimerMetric {
    /// Statistic of the wake-up latency, in ns.
    Latency(DistributionMetric),
    /// Share of missed periods.
    Missed,
}

pub(super) fn parse_limit(text: &str) -> Result<Limit<HostTimerMetric>, String> {
    let missed = ("missed", LimitUnit::Ratio, HostTimerMetric::Missed);
    Limit::parse(text, time_metrics(HostTimerMetric::Latency).into_iter().chain([missed]))
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
    let options = TimerOptions {
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
    let judge = |limit: &Limit<HostTimerMetric>| {
        limit.evaluate_named(core_metric_values(&result, limit.metric))
    };
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, RenderResult::page], RenderResult::text)?;
    check_limits_and_findings(&result.limits, &result.findings)
}

/// Returns the name and the metric of each core; `None` if it was not measured.
pub(super) fn core_metric_values(
    result: &HostTimerResult,
    metric: HostTimerMetric,
) -> impl Iterator<Item = (String, Option<f64>)> {
    result.cores.iter().map(move |core| {
        let value_of = |latency: &Distribution| match metric {
            HostTimerMetric::Latency(statistic) => statistic(latency),
            HostTimerMetric::Missed => core.missed as f64 / latency.count as f64,
        };
        (format!("core {}", core.core), core.latency_ns.as_ref().map(value_of))
    })
}
