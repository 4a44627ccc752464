//! `horolog runs compare`: compares two runs, or two sets of runs, to detect regressions.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_record::{
    COMPARE_SCHEMA, CompareVerdict, ComparedMetric, ComparedRun, Finding, FindingCode, Host,
    RunsCompareResult, Severity, rfc3339_now,
};
use horolog_report::{ComparableResult, ResultComparison, compared_name, units};
use horolog_stats::bootstrap;
use std::path::PathBuf;

use super::run_input::{ReferencedResult, ResultReader};
use crate::ci::CiOutputArgs;
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::result_store::StoreArgs;
use crate::{output, values};

/// Help of --junit, in place of that of [`CiOutputArgs`]: a comparison has metrics instead of
/// limits.
const JUNIT_HELP: &str = "Write JUnit XML to FILE: a test case for each compared metric, and one \
                          for the comparison itself";

/// Compare runs of one kind, metric by metric, with confidence intervals; status 1 if a metric is
/// worse.
///
/// The metrics compared are medians and tails of times, shares that were lost, late, invalid or
/// missed, rates, and offsets of clocks, of the trials, cores, rows or servers that both results
/// have. A metric is worse if the whole confidence interval of its change is beyond the threshold.
/// Several runs of each, such as 'a,b,c', show the variation from run to run. Properties of the
/// measuring host are shown, but do not affect the verdict.
#[derive(Args, Debug)]
#[command(mut_arg("junit", |junit| junit.help(JUNIT_HELP)))]
pub(super) struct RunsCompareArgs {
    /// Run to compare with, then the run to judge; with --baseline only the latter, 'last' if it is
    /// omitted. Each is a number, a key, a name, 'last' or 'last~1'; or a result file, if it
    /// contains '/' or ends with '.json'.
    ///
    /// Separate several runs of one configuration by commas.
    #[arg(value_name = "RUN", num_args = 0..=2)]
    runs: Vec<String>,
    /// Run to compare with, or several separated by commas.
    #[arg(long, value_name = "RUN")]
    baseline: Option<String>,
    /// Permitted degradation of a metric, as a fraction or percentage of its earlier value, such as
    /// 0.1 or 10%.
    #[arg(long, value_name = "RATIO", value_parser = values::excess, default_value = "10%")]
    threshold: f64,
    /// Compare only metrics whose names contain this text, such as 'rtt p99' or 'capacity'.
    /// Repeatable.
    #[arg(long, value_name = "TEXT")]
    metric: Vec<String>,
    /// Write the comparison to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report of the comparison to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiOutputArgs,
    #[command(flatten)]
    store: StoreArgs,
}

impl RunsCompareArgs {
    /// Returns the names of the earlier and the later run; each may be a list separated by commas.
    fn run_names(&self) -> Result<[&str; 2], CommandFailure> {
        match (&self.baseline, &*self.runs) {
            (None, [earlier, later]) | (Some(earlier), [later]) => Ok([earlier, later]),
            (Some(earlier), []) => Ok([earlier, "last"]),
            (Some(_), _) => {
                Err(CommandFailure::usage("with --baseline, give exactly one run to judge"))
            }
            (None, _) => Err(CommandFailure::usage(
                "give two runs, such as 'last~1 last', or the first with --baseline",
            )),
        }
    }
}

pub(super) fn run(args: &RunsCompareArgs) -> Result<(), CommandFailure> {
    args.ci.open(&[("--json", args.json.as_deref()), ("--html", args.html.as_deref())])?;
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?;
    let mut reader = ResultReader::new(&args.store);
    let [earlier, later] = args.run_names()?;
    let [earlier, later] = [reader.read_several(earlier)?, reader.read_several(later)?];
    let first = &earlier[0];
    if let Some(other) = earlier.iter().chain(&later).find(|one| one.schema != first.schema) {
        return Err(CommandFailure::usage(format!(
            "{} is a result '{}' and {} a result '{}'; compare results of one kind",
            first.reference, first.schema, other.reference, other.schema
        )));
    }
    let mut result = compare_runs(&earlier, &later, args.threshold)?;
    retain_metrics(&mut result, &args.metric)?;
    files.write(&result)?;
    check_verdict(&result)
}

fn read_comparable(runs: &[ReferencedResult]) -> Result<Vec<ComparableResult<'_>>, CommandFailure> {
    let mut all = Vec::with_capacity(runs.len());
    for ReferencedResult { reference, result, .. } in runs {
        let read = ComparableResult::read(result);
        all.push(read.map_err(|why| CommandFailure::environment(format!("{reference}: {why}")))?);
    }
    Ok(all)
}

/// Retains only the metrics, common or of one side, whose names contain one of the texts in
/// `wanted`; all if `wanted` is empty. It is an error if no common metric remains of several.
fn retain_metrics(result: &mut RunsCompareResult, wanted: &[String]) -> Result<(), CommandFailure> {
    if wanted.is_empty() {
        return Ok(());
    }
    let is_wanted = |name: &str| wanted.iter().any(|text| name.contains(text.as_str()));
    let had = result.metrics.len();
    result.metrics.retain(|metric| is_wanted(&compared_name(metric)));
    result.only_earlier.retain(|name| is_wanted(name));
    result.only_later.retain(|name| is_wanted(name));
    if had > 0 && result.metrics.is_empty() {
        return Err(CommandFailure::usage(format!(
            "none of the {had} common metrics has '{}' in its name; --json lists them",
            wanted.join("' or '")
        )));
    }
    Ok(())
}

fn compare_runs(
    earlier: &[ReferencedResult],
    later: &[ReferencedResult],
    threshold: f64,
) -> Result<RunsCompareResult, CommandFailure> {
    let comparable = [read_comparable(earlier)?, read_comparable(later)?];
    let ResultComparison { metrics, only_earlier, only_later, conditions } =
        ResultComparison::compare(&comparable[0], &comparable[1], threshold);
    let run = |input: &ReferencedResult| ComparedRun {
        reference: input.reference.clone(),
        schema: input.schema.clone(),
        started: input.started.clone(),
    };
    Ok(RunsCompareResult {
        schema: COMPARE_SCHEMA.to_owned(),
        started: rfc3339_now(),
        command: output::command_line(),
        host: Host::read(),
        earlier: run(&earlier[0]),
        later: run(&later[0]),
        earlier_repeats: earlier[1..].iter().map(run).collect(),
        later_repeats: later[1..].iter().map(run).collect(),
        threshold,
        confidence: bootstrap::CONFIDENCE,
        findings: lateness_findings(&metrics),
        metrics,
        only_earlier,
        only_later,
        conditions,
    })
}

/// Returns a finding if the generator's send lateness differs between the runs, since the measured
/// times include it.
fn lateness_findings(metrics: &[ComparedMetric]) -> Vec<Finding> {
    let informational = || metrics.iter().filter(|metric| metric.informational);
    let differs = |metric: &&ComparedMetric| {
        matches!(metric.verdict, CompareVerdict::Worse | CompareVerdict::Better)
    };
    let differing = informational().filter(differs).count();
    let finding = (differing > 0).then(|| Finding {
        code: FindingCode::RequestsLate,
        severity: Severity::Warning,
        message: format!(
            "send lateness of the generator differs between the runs ({differing} of {} of its \
             metrics), and the measured times include it",
            informational().count()
        ),
        advice: "keep other load off the measuring host, and compare several runs of each"
            .to_owned(),
        trial: None,
    });
    finding.into_iter().collect()
}

/// Returns the failure for the exit status: 1 if a metric is worse, 3 if no metric can be compared
/// or none has enough data for a verdict.
fn check_verdict(result: &RunsCompareResult) -> Result<(), CommandFailure> {
    let with_verdict =
        |verdict| result.deciding_metrics().filter(move |metric| metric.verdict == verdict);
    let all = result.deciding_metrics().count();
    if let Some(first) = with_verdict(CompareVerdict::Worse).next() {
        return Err(CommandFailure::Measurement(format!(
            "worse by more than {}: {} of {} metrics, first {}",
            units::percent(result.threshold),
            with_verdict(CompareVerdict::Worse).count(),
            all,
            compared_name(first)
        )));
    }
    if all == 0 {
        return Err(CommandFailure::environment(
            "the runs have no common metrics; compare runs of the same command",
        ));
    }
    if with_verdict(CompareVerdict::NotEnough).count() == all {
        return Err(CommandFailure::environment("not enough data for a verdict; measure longer"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use horolog_record::ComparedMetricKind;

    use super::*;

    #[test]
    fn worse_generator_lateness_is_a_finding() {
        let metric = |of_measurer, verdict| ComparedMetric {
            name: "lateness".to_owned(),
            item: Some("1,000/s".to_owned()),
            metric: ComparedMetricKind::P99,
            earlier: Some(1e3),
            later: Some(2e3),
            low: Some(0.9),
            high: Some(1.1),
            verdict,
            informational: of_measurer,
        };
        let (same, worse) = (CompareVerdict::Same, CompareVerdict::Worse);
        assert_eq!(lateness_findings(&[metric(true, same), metric(false, worse)]), []);
        let found =
            lateness_findings(&[metric(true, same), metric(true, worse), metric(false, worse)]);
        assert!(found.len() == 1 && found[0].message.contains("1 of 2"), "{found:?}");
    }
}
