//! `horolog cycle predict`: computes bounds of response times from a task file and the costs of a
//! host, and writes them as text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

pub(super) mod input;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_cycle::predict::{self, CostInput, MeasuredRuns, PredictedHostConfig, source};
use horolog_cycle::task::TaskSet;
use horolog_record::{
    CYCLE_PREDICT_SCHEMA, CyclePredictPercentile, CyclePredictResult, Host, rfc3339_now,
};

use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::{output, values};

const TIME_MIN: Duration = Duration::from_secs(5);
const TIME_MAX: Duration = Duration::from_hours(1);
const TIME_DEFAULT: Duration = Duration::from_secs(15);

/// Predict the worst-case response times of periodic tasks and whether they meet their deadlines.
///
/// For each task of a file (TOML, [[task]]), computes equations (1) to (3) of Hao, Xue and Qin 2010
/// as published, and a safe bound by response-time analysis (Joseph and Pandya 1986, Audsley et al.
/// 1993), which includes every job of tasks of higher and equal priority that is released before
/// the task finishes, blocking, release jitter and context switches. The costs of this host come
/// from results of 'host all', 'host timer', 'host switch', 'host interrupt', 'host clock' and
/// 'path udp', or are measured now; the result names the source of each value. Exit status 1 if the
/// bound of a task exceeds its deadline or a task cannot be analysed.
///
/// References: Hao, Xue and Qin, "Performance and test method for real-time parallel system",
/// Computer Engineering 36 (2010), 8, 267-269, doi:10.3969/j.issn.1000-3428.2010.08.093. Joseph and
/// Pandya, "Finding response times in a real-time system", The Computer Journal 29 (1986), 5,
/// 390-395. Audsley, Burns, Richardson, Tindell and Wellings, "Applying new scheduling theory to
/// static priority pre-emptive scheduling", Software Engineering Journal 8 (1993), 5, 284-292.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("costing").required(true).multiple(true)
          .args(["costs", "measure"]))]
pub(super) struct CyclePredictArgs {
    /// Task file.
    file: PathBuf,
    /// Result (JSON) from which costs are taken. Repeatable; of several results of one kind the
    /// worst counts.
    #[arg(long, value_name = "FILE")]
    costs: Vec<PathBuf>,
    /// Measure the costs of this host now: wake-ups, context switches, interrupts, the tick. The
    /// cost of messages is not measured: add --costs with a result of 'path udp'.
    #[arg(long)]
    measure: bool,
    /// Approximate duration of --measure, 5s to 1h [default: 15s].
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "measure")]
    time: Option<Duration>,
    /// Percentile of a measurement that counts as its worst case: p50, p90, p99, p99.9, p99.99 or
    /// max. OS noise gaps that are rarer than this percentile are left out.
    #[arg(long, value_name = "PERCENTILE", value_parser = parse_percentile, default_value = "max")]
    percentile: CyclePredictPercentile,
    /// Result (JSON) of 'cycle run' for these tasks, to compare with the bounds. Repeatable. The
    /// result also provides the worst-case execution time of tasks that are programs or compute in
    /// units and have no key 'worst'.
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Number of nodes that run these tasks and exchange messages; with 1 no task waits for
    /// messages.
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    nodes: u32,
    /// Exit with status 1 if this expression is true for any task, such as 'deadline-share>80%' or
    /// 'response>5ms'. Repeatable. A limit on a metric that could not be computed fails.
    ///
    /// Metrics: response (the safe bound), as-published (response by equation (3) of the paper),
    /// deadline-share (the bound as a share of the deadline), utilisation (of a core).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<CyclePredictResult>::parse)]
    fail_if: Vec<MetricLimit<CyclePredictResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match values::positive_duration(text)? {
        time if (TIME_MIN..=TIME_MAX).contains(&time) => Ok(time),
        _ => Err("5s to 1h".into()),
    }
}

fn parse_percentile(text: &str) -> Result<CyclePredictPercentile, String> {
    let names = || CyclePredictPercentile::ALL.map(CyclePredictPercentile::name).join(", ");
    let found =
        CyclePredictPercentile::ALL.into_iter().find(|percentile| percentile.name() == text);
    found.ok_or_else(|| format!("write one of {}", names()))
}

pub(super) fn run(args: &CyclePredictArgs) -> Result<(), CommandFailure> {
    let mut runs = MeasuredRuns::default();
    for path in &args.measured {
        runs.add(&path.display().to_string(), &input::read_cycle_result(path)?, args.percentile);
    }
    let set = runs
        .with_measured_execution(&input::read_tasks(&args.file)?)
        .map_err(CommandFailure::usage)?;
    let mut sources = Vec::new();
    for path in &args.costs {
        sources.extend(input::read_costs(path)?);
    }
    // Errors in the tasks are reported before anything is measured.
    let predicted_host =
        PredictedHostConfig { nodes: args.nodes, cores: Host::read().cores, real_time_share: None };
    predict_bounds(args, (&set, &runs), &sources, predicted_host)?;
    let files = args.files.open()?;
    if args.measure {
        output::install_interrupt_handler()?;
        sources.extend(input::measure_costs(args.time.unwrap_or(TIME_DEFAULT))?);
    }
    let real_time_share = source::real_time_share(&sources);
    let mut result = predict_bounds(
        args,
        (&set, &runs),
        &sources,
        PredictedHostConfig { real_time_share, ..predicted_host },
    )?;
    files.finish(&mut result, &args.fail_if)
}

/// Predicts the tasks from costs, and returns the result without limits.
fn predict_bounds(
    args: &CyclePredictArgs,
    (set, runs): (&TaskSet, &MeasuredRuns),
    sources: &[CostInput],
    predicted_host: PredictedHostConfig,
) -> Result<CyclePredictResult, CommandFailure> {
    let costs = source::extract_costs(sources, args.percentile);
    let mut prediction = predict::predict(set, &costs, predicted_host)
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
        nodes: predicted_host.nodes,
        percentile: args.percentile,
        costs: costs.list().to_vec(),
        tasks: prediction.tasks,
        limits: Vec::new(),
        findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_named() {
        assert_eq!(parse_percentile("p99.9"), Ok(CyclePredictPercentile::P99_9));
        assert_eq!(parse_percentile("max"), Ok(CyclePredictPercentile::Max));
        assert!(parse_percentile("p42").is_err_and(|why| why.contains("p99.99, max")));
        assert!(
            parse_time("4s").is_err() && parse_time("2h").is_err() && parse_time("30s").is_ok()
        );
        assert!(MetricLimit::<CyclePredictResult>::parse("deadline-share>80%").is_ok());
        assert!(MetricLimit::<CyclePredictResult>::parse("margin>1ms").is_err());
    }
}
