//! `horolog clock compare`: flags to a comparison of clocks, its result as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_probe::clocks::{COUNT_MAX, ClockError, ClockName, CompareOptions, Comparison};
use horolog_report::{html, table, to_json};

use super::figures::{OffsetOf, of_clocks, of_comparison};
use crate::ci::CiArgs;
use crate::failure::{Failure, verdict};
use crate::files::Files;
use crate::keep::KeepArgs;
use crate::limit::Limit;
use crate::output::{self, Progress};
use crate::values;

const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Compare the system clock with other clocks of this machine: the kernel's, PTP hardware clocks,
/// pulses.
///
/// At each interval every clock is read between two readings of the system clock
/// (CLOCK_REALTIME); the middle of these gives the offset, which is how far the system clock is
/// ahead, and half the time between them its doubt. Offsets are described by mean, standard
/// deviation and extremes, by the frequency (the straight line through them) and by the overlapping
/// Allan deviation at octaves of the interval. Nothing is set. Other machines' clocks are compared
/// by 'horolog query'.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    clocks: ClocksArgs,
    /// How long to compare.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          default_value = "10s")]
    time: Duration,
    /// End with status 1 if this holds of a clock's offset, such as 'max>1ms'; may be given more
    /// than once. Metrics: mean, stddev, rms, p99, max (either way). What was not measured breaks
    /// its limit.
    #[arg(long, value_name = "LIMIT", value_parser = of_comparison)]
    fail_if: Vec<Limit<OffsetOf>>,
    /// Write the result, with every reading, to this file; to standard output with -, instead of
    /// the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Which clocks are read, and how often.
#[derive(Args, Debug)]
pub(super) struct ClocksArgs {
    /// The clocks: raw (CLOCK_MONOTONIC_RAW, the oscillator as it runs), monotonic, tai,
    /// /dev/ptpN[,scale=utc][,tai-offset=37] (on TAI as the kernel has it where nothing is said),
    /// /dev/ppsN[,edge=clear] [default: raw and tai].
    #[arg(value_name = "CLOCK")]
    clocks: Vec<ClockName>,
    /// Time from one reading to the next, 1ms at least.
    #[arg(short, long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    pub(super) interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        short if short < INTERVAL_MIN => Err("1ms at least".into()),
        interval => Ok(interval),
    }
}

impl ClocksArgs {
    /// Opens the clocks for so long a time.
    pub(super) fn open(&self, time: Duration) -> Result<Comparison, Failure> {
        let count = time.as_nanos() / self.interval.as_nanos();
        let count = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
        let clocks = &self.clocks;
        let clocks = if clocks.is_empty() { ClockName::usual() } else { clocks.clone() };
        let options = CompareOptions {
            clocks,
            interval: self.interval,
            count,
            command: output::command_line(),
        };
        Ok(Comparison::open(options)?)
    }
}

impl From<ClockError> for Failure {
    fn from(error: ClockError) -> Self {
        match error {
            ClockError::TaiUnknown(_) => Self::usage(error),
            ClockError::Device { .. } => Self::environment(error),
        }
    }
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    if args.time.as_nanos() / args.clocks.interval.as_nanos() >= u128::from(COUNT_MAX) {
        return Err(Failure::usage(format!(
            "at most {COUNT_MAX} readings are kept; give a shorter --time or a longer --interval"
        )));
    }
    args.ci.open(&[("--json", args.json.as_deref()), ("--html", args.html.as_deref())])?;
    let files = Files::open([("--json", &args.json), ("--html", &args.html)])?.kept(&args.keep);
    let comparison = args.clocks.open(args.time)?;
    output::end_gently()?;
    let progress = Progress::new();
    let total = comparison.places();
    let told = |done| progress.counted(done, total, "readings");
    let mut result = comparison.run(&told, &|| output::flow().is_break());
    progress.finish();
    let judge =
        |limit: &Limit<OffsetOf>| limit.judge_named(of_clocks(&result.clocks, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::clock_compare], table::clock_compare)?;
    verdict(&result.limits, &result.findings)
}
