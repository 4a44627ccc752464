//! `horolog clock compare`: compares other clocks of this host with the system clock, and writes
//! the result as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_probe::clocks::{
    COUNT_MAX, ClockCompareOptions, ClockCompareRun, ClockName, ClockOpenError,
};
use horolog_record::ClockCompareResult;

use crate::ci::CiOutputArgs;
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};
use crate::result_store::StoreResultArgs;
use crate::values;

/// Minimum of `--interval`.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Compare the system clock with other clocks of this host: the kernel's, PTP hardware clocks and
/// pulses.
///
/// Once in each interval every clock is read between two readings of the system clock
/// (CLOCK_REALTIME); the middle of the two gives the offset (positive if the system clock is ahead,
/// unlike in 'horolog query'), and half the time between them its error bound. Offsets from raw and
/// monotonic are relative to the first reading; that of a pulse is the fraction of the second at
/// which it came, without an error bound. Offsets are described by mean, standard deviation
/// and extremes, by the frequency offset (slope of the least-squares line through them) and by the
/// overlapping Allan deviation at averaging times of 1, 2, 4, ... intervals. No clock is changed.
/// To compare clocks of other hosts, use 'horolog query'.
#[derive(Args, Debug)]
pub(crate) struct ClockCompareArgs {
    #[command(flatten)]
    clocks: ClockReadingArgs,
    /// Duration of the comparison.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10s")]
    time: Duration,
    /// Exit with status 1 if this expression is true for a clock's offset, such as 'max>1ms'.
    /// Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: mean (absolute value of the mean), p99 and max (of absolute values), stddev, rms.
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<ClockCompareResult>::parse)]
    fail_if: Vec<MetricLimit<ClockCompareResult>>,
    /// Write the result with every reading to FILE as JSON; '-' writes it to standard output
    /// instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiOutputArgs,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

/// Clocks to read, and the interval between readings.
#[derive(Args, Debug)]
pub(super) struct ClockReadingArgs {
    /// Clocks: raw (CLOCK_MONOTONIC_RAW, the undisciplined oscillator), monotonic, tai (CLOCK_TAI
    /// less the kernel's TAI offset), /dev/ptpN[,scale=utc][,tai-offset=37] (by default on TAI,
    /// with the kernel's offset), /dev/ppsN[,edge=clear] [default: raw and tai].
    #[arg(value_name = "CLOCK")]
    clocks: Vec<ClockName>,
    /// Interval between readings, at least 1ms.
    #[arg(short, long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub(super) interval: Duration,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match values::positive_duration(text)? {
        short if short < INTERVAL_MIN => Err("at least 1ms".into()),
        interval => Ok(interval),
    }
}

impl ClockReadingArgs {
    /// Opens the clocks for a comparison that lasts `time`.
    pub(super) fn open(&self, time: Duration) -> Result<ClockCompareRun, CommandFailure> {
        let count = time.as_nanos() / self.interval.as_nanos();
        let count = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1);
        let clocks = &self.clocks;
        let clocks = if clocks.is_empty() { ClockName::defaults() } else { clocks.clone() };
        let options = ClockCompareOptions {
            clocks,
            interval: self.interval,
            count,
            command: output::command_line(),
        };
        Ok(ClockCompareRun::open(options)?)
    }
}

impl From<ClockOpenError> for CommandFailure {
    fn from(error: ClockOpenError) -> Self {
        match error {
            ClockOpenError::TaiUnknown(_) => Self::usage(error),
            ClockOpenError::Device { .. } => Self::environment(error),
        }
    }
}

pub(super) fn run(args: &ClockCompareArgs) -> Result<(), CommandFailure> {
    if args.time.as_nanos() / args.clocks.interval.as_nanos() >= u128::from(COUNT_MAX) {
        return Err(CommandFailure::usage(format!(
            "at most {COUNT_MAX} readings are kept; give a shorter --time or a longer --interval"
        )));
    }
    args.ci.open(&[("--json", args.json.as_deref()), ("--html", args.html.as_deref())])?;
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?
        .with_store(&args.store_args);
    let comparison = args.clocks.open(args.time)?;
    output::install_interrupt_handler()?;
    let progress = ProgressLine::new();
    let total = comparison.slot_count();
    let report_progress = |done| progress.set_count(done, total, "readings");
    let mut result = comparison.run(&report_progress, &|| output::check_stop_request().is_break());
    progress.finish();
    files.finish(&mut result, &args.fail_if)
}
