//! `horolog host all`: runs all measurements of this host, and writes their results as text, JSON
//! and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::all::{self, HostAllCallbacks, HostAllOptions};
use horolog_record::{HostAllResult, HostMeasurementKind};
use horolog_report::host_part;

use super::MeasuringThreadArgs;
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::output::{self, ProgressLine};
use crate::values;

const TIME_MIN: Duration = Duration::from_secs(5);
const TIME_MAX: Duration = Duration::from_hours(1);

/// Measure all properties of this host in about a minute: clock, delay, timer, switch, interrupt,
/// and nic for each NIC, one after the other, with a verdict and the three worst findings.
///
/// The verdict states whether this host is fit for measurements in microseconds: fit, fit with
/// findings (a warning), not fit (an error), or unknown (wake-ups or OS noise were not measured). A
/// 99th percentile of the wake-up latency above 100us or OS noise above 1% of a core is a warning;
/// above 1ms or 10% it is an error. A part that lacks a privilege or another prerequisite reports
/// that, and the others run. The result contains the result of each part. Exit status 1 if the
/// verdict is 'not fit' or a limit failed.
#[derive(Args, Debug)]
pub(crate) struct HostAllArgs {
    /// Approximate total duration, 5s to 1h; below 30s 'delay' has no waits above 10ms and does not
    /// test common beliefs about sleep functions.
    #[arg(short, long, value_name = "TIME", value_parser = parse_time, default_value = "1m")]
    time: Duration,
    /// Parts to skip, such as 'delay,nic': clock, delay, timer, switch, interrupt, nic.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_measurement)]
    skip: Vec<HostMeasurementKind>,
    #[command(flatten)]
    threads: MeasuringThreadArgs,
    /// Exit with status 1 if this expression is true for a part, such as 'timer.p99>100us' or
    /// 'interrupt.os-noise>1%'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: those of delay, timer, switch and interrupt, with the part's name as prefix, such
    /// as timer.p99.
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<HostAllResult>::parse)]
    fail_if: Vec<MetricLimit<HostAllResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match values::positive_duration(text)? {
        time if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(time),
        _ => Err("5s to 1h".into()),
    }
}

fn parse_measurement(text: &str) -> Result<HostMeasurementKind, String> {
    let names = || HostMeasurementKind::ALL.map(HostMeasurementKind::name).join(", ");
    let found = HostMeasurementKind::ALL.into_iter().find(|part| part.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

pub(super) fn run(args: &HostAllArgs) -> Result<(), CommandFailure> {
    let parts: Vec<_> =
        HostMeasurementKind::ALL.into_iter().filter(|part| !args.skip.contains(part)).collect();
    if parts.is_empty() {
        return Err(CommandFailure::usage("no parts left to measure; give fewer to --skip"));
    }
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let options = HostAllOptions {
        time: args.time,
        parts,
        priority: args.threads.priority(),
        hold_awake: !args.threads.allow_idle_states,
        command: output::command_line(),
    };
    let progress = ProgressLine::new();
    let callbacks = HostAllCallbacks {
        report_step: &|part, what| progress.set_message(&format!("{}: {what}", part.name())),
        report_outcome: &|outcome| progress.print_above(&host_part(outcome)),
        is_over: &|| output::check_stop_request().is_break(),
    };
    let mut result = all::run(&options, callbacks);
    progress.finish();
    files.finish(&mut result, &args.fail_if)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_names_its_part() {
        for text in ["interrupt.kernel.p99>50us", "switch.pipe>20us", "delay.mean>1ms"] {
            assert!(MetricLimit::<HostAllResult>::parse(text).is_ok(), "{text}");
        }
        for wrong in ["p99>1us", "clock.cost>1us", "nic.rings>1", "timer.kernel.p99>1us", "timer"] {
            assert!(MetricLimit::<HostAllResult>::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_and_parts_that_cannot_be_are_refused() {
        assert_eq!(parse_time("5s"), Ok(TIME_MIN));
        for wrong in ["4s", "2h", "soon"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_measurement("nic"), Ok(HostMeasurementKind::Nic));
        assert!(parse_measurement("card").is_err_and(|why| why.contains("interrupt")));
    }
}
