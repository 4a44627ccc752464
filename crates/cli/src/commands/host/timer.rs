//! `horolog host timer`: flags to a run of wake-ups, its result as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::timer::{self, TimerOptions};
use horolog_record::{Distribution, HostTimerResult, LimitUnit};
use horolog_report::{html, table, to_json};

use super::cores::{CoreList, ThreadArgs, core_list};
use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, TimeOf, times};
use crate::output::{self, Progress};
use crate::values;

const INTERVAL_MIN: Duration = Duration::from_micros(50);
/// Weeks of the shortest period.
const CYCLES_MAX: u128 = 100_000_000_000;

/// How late threads wake up that are to run in each period, as cyclictest measures it.
///
/// One thread for each core, tied to it and in real time where that is allowed, sleeps until the
/// instant of each period (clock_nanosleep, absolute, CLOCK_MONOTONIC) and reads the clock. No
/// period is skipped: one that is over before the thread comes to wait for it is counted as missed,
/// and its latency counts from its own instant. Memory is locked meanwhile. All of it is as before
/// when the command ends.
#[derive(Args, Debug)]
pub(crate) struct TimerArgs {
    /// The cores, such as 0,2..6:2 [default: all that this process may run on].
    #[arg(short, long, value_name = "LIST", value_parser = core_list)]
    cores: Option<CoreList>,
    /// The period of each thread, 50us at least.
    #[arg(short, long, value_name = "TIME", value_parser = interval, default_value = "1ms")]
    interval: Duration,
    /// How long to measure.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          default_value = "10s")]
    time: Duration,
    #[command(flatten)]
    threads: ThreadArgs,
    /// End at the first latency above this, with status 1.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration)]
    break_above: Option<Duration>,
    /// End with status 1 if this holds of any core, such as 'p99>100us' or 'missed>0.1%'; may be
    /// given more than once. Figures: mean, p50, p90, p99, p99.9, max, missed (a share). What was
    /// not measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit<Figure>>,
    #[command(flatten)]
    files: FileArgs,
}

fn interval(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        short if short < INTERVAL_MIN => Err("50us at least".into()),
        interval => Ok(interval),
    }
}

/// What can be limited of each core.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figure {
    Latency(TimeOf),
    /// The share of periods that were missed.
    Missed,
}

pub(super) fn limit(text: &str) -> Result<Limit<Figure>, String> {
    let missed = ("missed", LimitUnit::Ratio, Figure::Missed);
    Limit::parse(text, times(Figure::Latency).into_iter().chain([missed]))
}

pub(super) fn run(args: TimerArgs) -> Result<(), Failure> {
    let cycles = args.time.as_nanos() / args.interval.as_nanos();
    if cycles == 0 {
        return Err(Failure::usage("the --time is shorter than one --interval; give a longer one"));
    }
    if cycles > CYCLES_MAX {
        return Err(Failure::usage(format!("at most {CYCLES_MAX} periods; give a shorter --time")));
    }
    let files = args.files.open()?;
    output::end_gently()?;
    let options = TimerOptions {
        cores: args.cores.map(|list| list.0).unwrap_or_default(),
        interval: args.interval,
        cycles: cycles as u64,
        priority: args.threads.priority(),
        hold_awake: !args.threads.leave_idle_states,
        break_above: args.break_above,
        command: output::command_line(),
    };
    let progress = Progress::new();
    let told = |done: Duration, total: Duration| {
        progress.counted(done.as_secs(), total.as_secs(), "s");
    };
    let mut result = timer::run(options, &told, &|| output::flow().is_break())?;
    progress.finish();
    let judge = |limit: &Limit<Figure>| limit.judge_named(of_cores(&result, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::host_timer], table::host_timer)?;
    verdict(&result.limits, &result.findings)
}

/// The figure of each core.
pub(super) fn of_cores(
    result: &HostTimerResult,
    figure: Figure,
) -> impl Iterator<Item = (String, Option<f64>)> {
    result.cores.iter().map(move |core| {
        let of = |latency: &Distribution| match figure {
            Figure::Latency(of) => of(latency),
            Figure::Missed => core.missed as f64 / latency.count as f64,
        };
        (format!("core {}", core.core), core.latency_ns.as_ref().map(of))
    })
}
