//! `horolog runs compare`: whether one run is worse than another.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_record::{
    COMPARE_SCHEMA, Code, CompareResult, CompareVerdict, ComparedFigure, ComparedRun, Comparison,
    Finding, Host, Severity, damaged, rfc3339_now,
};
use horolog_report::{check_result, html, table, to_json, units};
use horolog_stats::bootstrap;
use std::path::PathBuf;

use super::given::{Given, Reader};
use crate::ci::CiArgs;
use crate::failure::Failure;
use crate::files::Files;
use crate::keep::StoreArgs;
use crate::{output, values};

/// Compare runs of one kind, figure by figure, with bounds; status 1 where a figure is worse.
///
/// Medians and tails of times, shares that were lost, late, invalid or missed, rates, and offsets
/// of clocks are compared where the runs have them at the same place. A figure is worse where the
/// whole of its change is beyond the threshold. Several runs of each, such as 'a,b,c', tell what
/// differs from run to run of itself. What tells of whoever measured is shown, and decides nothing.
#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    /// The run to compare with, then the run that is judged; with --baseline the latter alone, or
    /// none for the last. A file of a result where it has a '/' or ends with '.json'. Several runs
    /// of the same with commas between them.
    #[arg(value_name = "RUN", num_args = 0..=2)]
    runs: Vec<String>,
    /// The run to compare with, or several.
    #[arg(long, value_name = "RUN")]
    baseline: Option<String>,
    /// How much worse a figure may be, as a share of what it was.
    #[arg(long, value_name = "SHARE", value_parser = values::excess, default_value = "10%")]
    threshold: f64,
    /// Compare figures alone whose names have this in them, such as 'rtt_ns p99' or 'search'; may
    /// be given more than once.
    #[arg(long, value_name = "TEXT")]
    figure: Vec<String>,
    /// Write the comparison to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the comparison as a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiArgs,
    #[command(flatten)]
    store: StoreArgs,
}

impl CompareArgs {
    /// The names of the earlier and the later run.
    fn names(&self) -> Result<[&str; 2], Failure> {
        match (&self.baseline, &*self.runs) {
            (None, [earlier, later]) | (Some(earlier), [later]) => Ok([earlier, later]),
            (Some(earlier), []) => Ok([earlier, "last"]),
            (Some(_), _) => Err(Failure::usage("with --baseline, name one run that is judged")),
            (None, _) => Err(Failure::usage(
                "name two runs, such as 'last~1 last', or the first by --baseline",
            )),
        }
    }
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    args.ci.open(&[("--json", args.json.as_deref()), ("--html", args.html.as_deref())])?;
    let files = Files::open([("--json", &args.json), ("--html", &args.html)])?;
    let mut reader = Reader::new(&args.store);
    let [earlier, later] = args.names()?;
    let [earlier, later] = [reader.read_several(earlier)?, reader.read_several(later)?];
    let first = &earlier[0];
    if let Some(other) = earlier.iter().chain(&later).find(|one| one.schema != first.schema) {
        return Err(Failure::usage(format!(
            "{} is a result '{}' and {} one '{}'; compare those of one kind",
            first.reference, first.schema, other.reference, other.schema
        )));
    }
    earlier.iter().chain(&later).try_for_each(sound)?;
    let mut result = compared(&earlier, &later, args.threshold);
    keep_named(&mut result, &args.figure)?;
    files.write(&result, [to_json, html::compare], table::compare)?;
    judged(&result)
}

/// Complains of a result of a known kind that has not what it should have, and of one with a
/// damaged histogram: its figures would be left out.
fn sound(given: &Given) -> Result<(), Failure> {
    let refused = |why: String| Failure::environment(format!("{}: {why}", given.reference));
    check_result(&given.result).map_err(|error| refused(error.to_string()))?;
    match damaged(&given.result) {
        Some((place, why)) => Err(refused(format!("the histogram of {place} is damaged: {why}"))),
        None => Ok(()),
    }
}

fn results_of(runs: &[Given]) -> Vec<&serde_json::Value> {
    runs.iter().map(|one| &one.result).collect()
}

/// Leaves the figures that were asked for.
fn keep_named(result: &mut CompareResult, wanted: &[String]) -> Result<(), Failure> {
    if wanted.is_empty() {
        return Ok(());
    }
    let is_wanted = |name: &str| wanted.iter().any(|text| name.contains(text.as_str()));
    let had = result.figures.len();
    result.figures.retain(|figure| is_wanted(&table::compared_name(figure)));
    result.only_earlier.retain(|place| is_wanted(place));
    result.only_later.retain(|place| is_wanted(place));
    if had > 0 && result.figures.is_empty() {
        return Err(Failure::usage(format!(
            "none of the {had} figures of both runs has '{}' in its name; --json lists them",
            wanted.join("' or '")
        )));
    }
    Ok(())
}

fn compared(earlier: &[Given], later: &[Given], threshold: f64) -> CompareResult {
    let Comparison { figures, only_earlier, only_later, conditions } =
        Comparison::of(&results_of(earlier), &results_of(later), threshold);
    let run = |given: &Given| ComparedRun {
        reference: given.reference.clone(),
        schema: given.schema.clone(),
        started: given.started.clone(),
    };
    CompareResult {
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
        findings: doubts(&figures),
        figures,
        only_earlier,
        only_later,
        conditions,
    }
}

/// Where whoever measured did not do it alike, its own times are in those that it measured.
fn doubts(figures: &[ComparedFigure]) -> Vec<Finding> {
    let of_measurer = || figures.iter().filter(|figure| figure.of_measurer);
    let differs = |figure: &&ComparedFigure| {
        matches!(figure.verdict, CompareVerdict::Worse | CompareVerdict::Better)
    };
    let differing = of_measurer().filter(differs).count();
    let finding = (differing > 0).then(|| Finding {
        code: Code::RequestsLate,
        severity: Severity::Warning,
        message: format!(
            "whoever measured was not as late in one run as in the other ({differing} of {} of its \
             own figures differ), and times of what was measured include that",
            of_measurer().count()
        ),
        advice: "keep other work off the machine that measures, and compare several runs of each"
            .to_owned(),
        trial: None,
    });
    finding.into_iter().collect()
}

/// Status 1 where something is worse, 3 where nothing can be told at all.
fn judged(result: &CompareResult) -> Result<(), Failure> {
    let of = |verdict| result.deciding().filter(move |figure| figure.verdict == verdict);
    let all = result.deciding().count();
    if let Some(first) = of(CompareVerdict::Worse).next() {
        return Err(Failure::Limit(format!(
            "worse by more than {}: {} of {} figures, {} first",
            units::percent(result.threshold),
            of(CompareVerdict::Worse).count(),
            all,
            table::compared_name(first)
        )));
    }
    if all == 0 {
        return Err(Failure::environment(
            "the runs have no figure in common; compare runs of the same command",
        ));
    }
    if of(CompareVerdict::NotEnough).count() == all {
        return Err(Failure::environment(
            "there is not enough data to tell anything; measure for longer",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use horolog_record::ComparedFigureKind;

    use super::*;

    #[test]
    fn a_generator_that_was_later_is_a_doubt() {
        let figure = |of_measurer, verdict| ComparedFigure {
            place: "trials[offered_rate=1000].lateness_ns".to_owned(),
            figure: ComparedFigureKind::P99,
            earlier: Some(1e3),
            later: Some(2e3),
            low: Some(0.9),
            high: Some(1.1),
            verdict,
            of_measurer,
        };
        let (same, worse) = (CompareVerdict::Same, CompareVerdict::Worse);
        assert_eq!(doubts(&[figure(true, same), figure(false, worse)]), []);
        let found = doubts(&[figure(true, same), figure(true, worse), figure(false, worse)]);
        assert!(found.len() == 1 && found[0].message.contains("1 of 2"), "{found:?}");
    }
}
