//! `horolog host all`: flags to all measurements of this host, their result as text, JSON and HTML
//! report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_probe::host::all::{self, HostAllOptions, HostCallbacks};
use horolog_record::{Finding, HostAllResult, HostMeasurement, LimitResult};
use horolog_report::{html, table, to_json};

use super::ThreadArgs;
use super::{delay, interrupt, switch, timer};
use crate::failure::{CommandFailure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, TimeOf};
use crate::output::{self, ProgressLine};
use crate::values;

const TIME_MIN: Duration = Duration::from_secs(5);
const TIME_MAX: Duration = Duration::from_hours(1);

/// Measure all properties of this host in about a minute: clock, delay, timer, switch, interrupt,
/// and nic for each NIC, one after the other, with a verdict and the three worst findings.
///
/// The verdict states whether this host is fit for measurements in microseconds: fit, fit with
/// doubts (a warning), not fit (an error), or not known (wake-ups or OS noise were not measured). A
/// 99th percentile of the wake-up latency above 100us or OS noise above 1% of a core is a warning;
/// above 1ms or 10% it is an error. A part that lacks a privilege or another prerequisite reports
/// that, and the others run. The result contains that of each part. Exit status 1 if the verdict is
/// 'not fit' or a limit failed.
#[derive(Args, Debug)]
pub(crate) struct HostAllArgs {
    /// Approximate total duration, 5s to 1h; below 30s 'delay' has no waits above 10ms and no
    /// comparison with common beliefs.
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "1m")]
    time: Duration,
    /// Parts to skip, such as 'delay,nic': clock, delay, timer, switch, interrupt, nic.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = part)]
    skip: Vec<HostMeasurement>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Exit with status 1 if this expression is true for a part, such as 'timer.p99>100us' or
    /// 'interrupt.os-noise>1%'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: those of delay, timer, switch and interrupt, after the part's name.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<MeasurementLimit>,
    #[command(flatten)]
    files: FileArgs,
}

fn time(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        time if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(time),
        _ => Err("5s to 1h".into()),
    }
}

fn part(text: &str) -> Result<HostMeasurement, String> {
    let names = || HostMeasurement::ALL.map(HostMeasurement::name).join(", ");
    let found = HostMeasurement::ALL.into_iter().find(|part| part.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

/// A limit on a metric of a part.
#[derive(Clone, Debug)]
struct MeasurementLimit {
    expression: String,
    of: PartFigure,
}

/// The part's own limit.
#[derive(Clone, Debug)]
enum PartFigure {
    Delay(Limit<TimeOf>),
    Timer(Limit<timer::TimerMetric>),
    Switch(Limit<switch::SwitchMetric>),
    Interrupt(Limit<interrupt::InterruptMetric>),
}

fn limit(text: &str) -> Result<MeasurementLimit, String> {
    let form = || {
        "expected PART.METRIC>BOUND (PART: delay, timer, switch, interrupt), such as \
         'timer.p99>100us'"
            .to_owned()
    };
    let (name, rest) = text.split_once('.').ok_or_else(form)?;
    let of = match part(name.trim()).map_err(|_| form())? {
        HostMeasurement::Delay => PartFigure::Delay(delay::limit(rest)?),
        HostMeasurement::Timer => PartFigure::Timer(timer::limit(rest)?),
        HostMeasurement::Switch => PartFigure::Switch(switch::limit(rest)?),
        HostMeasurement::Interrupt => PartFigure::Interrupt(interrupt::limit(rest)?),
        HostMeasurement::Clock | HostMeasurement::Nic => return Err(form()),
    };
    Ok(MeasurementLimit { expression: text.to_owned(), of })
}

impl MeasurementLimit {
    fn judge(&self, result: &HostAllResult) -> LimitResult {
        let HostAllResult { delay, timer, switch, interrupt, .. } = result;
        let judged =
            match &self.of {
                PartFigure::Delay(limit) => limit
                    .judge_named(delay.iter().flat_map(|one| delay::overshoots(one, limit.metric))),
                PartFigure::Timer(limit) => limit
                    .judge_named(timer.iter().flat_map(|one| timer::of_cores(one, limit.metric))),
                PartFigure::Switch(limit) => limit
                    .judge_named(switch.iter().flat_map(|one| switch::measured(one, limit.metric))),
                PartFigure::Interrupt(limit) => limit.judge_named(
                    interrupt.iter().flat_map(|one| interrupt::of_cores(one, limit.metric)),
                ),
            };
        LimitResult { expression: self.expression.clone(), ..judged }
    }
}

pub(super) fn run(args: &HostAllArgs) -> Result<(), CommandFailure> {
    let parts: Vec<_> =
        HostMeasurement::ALL.into_iter().filter(|part| !args.skip.contains(part)).collect();
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
    let watch = HostCallbacks {
        report_step: &|part, what| progress.set_message(&format!("{}: {what}", part.name())),
        report_outcome: &|outcome| progress.keep(&table::host_part(outcome)),
        is_over: &|| output::flow().is_break(),
    };
    let mut result = all::run(&options, watch);
    progress.finish();
    result.limits = args.fail_if.iter().map(|one| one.judge(&result)).collect();
    files.write(&result, [to_json, html::host_all], table::host_all)?;
    let worst: Vec<Finding> = result.worst_findings.into_iter().map(|one| one.finding).collect();
    verdict(&result.limits, &worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_names_its_part() {
        let read = limit("interrupt.kernel.p99>50us").unwrap();
        assert!(matches!(read.of, PartFigure::Interrupt(_)), "{read:?}");
        assert_eq!(read.expression, "interrupt.kernel.p99>50us");
        assert!(matches!(limit("switch.pipe>20us").unwrap().of, PartFigure::Switch(_)));
        for wrong in ["p99>1us", "clock.cost>1us", "nic.rings>1", "timer.kernel.p99>1us", "timer"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_and_parts_that_cannot_be_are_refused() {
        assert_eq!(time("5s"), Ok(TIME_MIN));
        for wrong in ["4s", "2h", "soon"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(part("nic"), Ok(HostMeasurement::Nic));
        assert!(part("card").is_err_and(|why| why.contains("interrupt")));
    }
}
