//! `horolog cycle predict`: a task file and costs of the host to bounds, as text, JSON and HTML
//! report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

pub(super) mod input;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_cycle::predict::{self, CostInput, MeasuredRuns, PredictedHost, source};
use horolog_cycle::task::TaskSet;
use horolog_record::{
    CYCLE_PREDICT_SCHEMA, CyclePredictPercentile, CyclePredictResult, CyclePredictTask, Host,
    LimitUnit, rfc3339_now,
};
use horolog_report::{RenderResult, to_json};

use crate::failure::{CommandFailure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, LimitedMetric};
use crate::{output, values};

/// Metric of each task that can be limited.
#[derive(Clone, Copy, Debug)]
enum PredictMetric {
    /// The safe bound.
    Response,
    /// Equation (3) as published.
    Printed,
    /// The share of the deadline that the safe bound uses.
    Used,
    /// The share of a core that the task uses.
    Utilisation,
}

const FIGURES: [LimitedMetric<PredictMetric>; 4] = [
    ("response", LimitUnit::Ns, PredictMetric::Response),
    ("as-published", LimitUnit::Ns, PredictMetric::Printed),
    ("deadline-share", LimitUnit::Ratio, PredictMetric::Used),
    ("utilisation", LimitUnit::Ratio, PredictMetric::Utilisation),
];
const TIME_MIN: Duration = Duration::from_secs(5);
const TIME_MAX: Duration = Duration::from_hours(1);
const TIME: Duration = Duration::from_secs(15);

/// Predict the worst-case response times of periodic tasks and whether they meet their deadlines.
///
/// For each task of a file (TOML, [[task]]), the equations (1) to (3) of Hao, Xue and Qin 2010 as
/// published, and a safe bound by response-time analysis (Joseph and Pandya 1986, Audsley et al.
/// 1993): every job released in the window counts, and so do tasks of higher and equal priority,
/// blocking, release jitter and context switches. The costs of this host come from results of 'host
/// all', 'host timer', 'host switch', 'host interrupt', 'host clock' and 'path udp', or are
/// measured now; the result names the source of each value. Exit status 1 if a task misses its
/// deadline or cannot be analysed.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("costing").required(true).multiple(true)
          .args(["costs", "measure"]))]
pub(super) struct PredictArgs {
    /// Task file.
    file: PathBuf,
    /// Result (JSON) from which costs are taken. Repeatable; of several results of one kind the
    /// worst counts.
    #[arg(long, value_name = "FILE")]
    costs: Vec<PathBuf>,
    /// Measure the costs of this host now: wake-ups, context switches, interrupts, the tick.
    /// Messages are measured by 'path udp' only.
    #[arg(long)]
    measure: bool,
    /// Approximate duration of that measurement, 5s to 1h [default: 15s].
    #[arg(long, value_name = "TIME", value_parser = time, requires = "measure")]
    time: Option<Duration>,
    /// Percentile of a measurement that counts as its worst case: p50, p90, p99, p99.9, p99.99 or
    /// max. Gaps rarer than that are left out of the OS noise.
    #[arg(long, value_name = "PERCENTILE", value_parser = worst, default_value = "max")]
    percentile: CyclePredictPercentile,
    /// Result (JSON) of 'cycle run' for these tasks, to compare with the bounds. Repeatable. For
    /// tasks that are programs or compute in units, and have no worst-case execution time (key
    /// 'worst'), it provides one.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Number of nodes that run these tasks and exchange messages; with 1 no task waits for
    /// messages.
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    nodes: u32,
    /// Exit with status 1 if this expression is true for any task, such as 'deadline-share>80%' or
    /// 'response>5ms'. Repeatable. A limit on a metric that is not known fails.
    ///
    /// Metrics: response (the safe bound), as-published, deadline-share (the bound as a share of
    /// the deadline), utilisation (of a core).
    #[arg(long, value_name = "LIMIT", value_parser = |text: &str| Limit::parse(text, FIGURES))]
    fail_if: Vec<Limit<PredictMetric>>,
    #[command(flatten)]
    files: FileArgs,
}

fn time(text: &str) -> Result<Duration, String> {
    match values::long_duration(text)? {
        time if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(time),
        _ => Err("5s to 1h".into()),
    }
}

fn worst(text: &str) -> Result<CyclePredictPercentile, String> {
    let names = || CyclePredictPercentile::ALL.map(CyclePredictPercentile::name).join(", ");
    let found = CyclePredictPercentile::ALL.into_iter().find(|worst| worst.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

pub(super) fn run(args: &PredictArgs) -> Result<(), CommandFailure> {
    let mut runs = MeasuredRuns::default();
    for path in &args.measured {
        runs.add(&path.display().to_string(), &input::run(path)?, args.percentile);
    }
    let set =
        runs.with_measured_execution(&input::tasks(&args.file)?).map_err(CommandFailure::usage)?;
    let mut sources = Vec::new();
    for path in &args.costs {
        sources.extend(input::costs(path)?);
    }
    // Errors in the tasks are reported before anything is measured.
    let machine =
        PredictedHost { nodes: args.nodes, cores: Host::read().cores, real_time_share: None };
    predicted(args, (&set, &runs), &sources, machine)?;
    let files = args.files.open()?;
    if args.measure {
        output::install_interrupt_handler()?;
        sources.extend(input::measured(args.time.unwrap_or(TIME))?);
    }
    let real_time_share = source::real_time_share(&sources);
    let mut result =
        predicted(args, (&set, &runs), &sources, PredictedHost { real_time_share, ..machine })?;
    let judge = |limit: &Limit<PredictMetric>| limit.judge_named(of_tasks(&result, limit.metric));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, RenderResult::page], RenderResult::text)?;
    verdict(&result.limits, &result.findings)
}

fn predicted(
    args: &PredictArgs,
    (set, runs): (&TaskSet, &MeasuredRuns),
    sources: &[CostInput],
    machine: PredictedHost,
) -> Result<CyclePredictResult, CommandFailure> {
    let costs = source::extract_costs(sources, args.percentile);
    let mut prediction = predict::predict(set, &costs, machine)
        .map_err(|error| CommandFailure::usage(format!("{}: {error}", args.file.display())))?;
    let host = Host::read();
    let mut findings = runs.compare_with_bounds(set, &mut prediction.tasks);
    findings.extend(prediction.findings);
    findings.extend(source::source_findings(sources, &host, args.percentile));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(CyclePredictResult {
        schema: CYCLE_PREDICT_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command: output::command_line(),
        host,
        nodes: machine.nodes,
        percentile: args.percentile,
        costs: costs.list().to_vec(),
        tasks: prediction.tasks,
        limits: Vec::new(),
        findings,
    })
}

/// The metric of each task.
fn of_tasks(
    result: &CyclePredictResult,
    figure: PredictMetric,
) -> impl Iterator<Item = (String, Option<f64>)> {
    let of = move |task: &CyclePredictTask| match figure {
        PredictMetric::Response => task.safe.as_ref().map(|bound| bound.response_ns as f64),
        PredictMetric::Printed => task.as_published.as_ref().map(|bound| bound.response_ns as f64),
        PredictMetric::Used => task.deadline_share(),
        PredictMetric::Utilisation => task.utilisation,
    };
    result.tasks.iter().map(move |task| (format!("task {}", task.name), of(task)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_named() {
        assert_eq!(worst("p99.9"), Ok(CyclePredictPercentile::P99_9));
        assert_eq!(worst("max"), Ok(CyclePredictPercentile::Max));
        assert!(worst("p42").is_err_and(|why| why.contains("p99.99, max")));
        assert!(time("4s").is_err() && time("2h").is_err() && time("30s").is_ok());
        assert!(Limit::parse("deadline-share>80%", FIGURES).is_ok());
        assert!(Limit::parse("margin>1ms", FIGURES).is_err());
    }
}
