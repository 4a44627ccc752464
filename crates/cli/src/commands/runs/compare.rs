//! `horolog runs compare`: whether one run is worse than another.

use clap::Args;
use horolog_record::{
    COMPARE_SCHEMA, CompareResult, CompareVerdict, ComparedRun, Comparison, Host, rfc3339_now,
};
use horolog_report::{html, table, to_json, units};
use horolog_stats::bootstrap;
use std::path::PathBuf;

use super::given::{Given, Reader};
use crate::ci::CiArgs;
use crate::failure::Failure;
use crate::files::Files;
use crate::keep::StoreArgs;
use crate::{output, values};

/// Compare two runs of one kind, figure by figure, with bounds; status 1 where one is worse.
///
/// Medians, tails, losses and found rates are compared where both runs have them at the same place.
/// A figure is worse where the whole of its change is beyond the threshold.
#[derive(Args, Debug)]
pub(super) struct CompareArgs {
    /// The run to compare with, then the run that is judged; with --baseline the latter alone, or
    /// none for the last. A file of a result where it has a '/' or ends with '.json'.
    #[arg(value_name = "RUN", num_args = 0..=2)]
    runs: Vec<String>,
    /// The run to compare with.
    #[arg(long, value_name = "RUN")]
    baseline: Option<String>,
    /// How much worse a figure may be, as a share of what it was.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "10%")]
    threshold: f64,
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
    let [earlier, later] = [reader.read(earlier)?, reader.read(later)?];
    if earlier.schema != later.schema {
        return Err(Failure::usage(format!(
            "{} is a result '{}' and {} one '{}'; compare two of one kind",
            earlier.reference, earlier.schema, later.reference, later.schema
        )));
    }
    let result = compared(&earlier, &later, args.threshold);
    files.write(&result, [to_json, html::compare], table::compare)?;
    judged(&result)
}

fn compared(earlier: &Given, later: &Given, threshold: f64) -> CompareResult {
    let Comparison { figures, only_earlier, only_later, conditions } =
        Comparison::of(&earlier.result, &later.result, threshold);
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
        earlier: run(earlier),
        later: run(later),
        threshold,
        confidence: bootstrap::CONFIDENCE,
        figures,
        only_earlier,
        only_later,
        conditions,
        findings: Vec::new(),
    }
}

/// Status 1 where something is worse, 3 where nothing can be told at all.
fn judged(result: &CompareResult) -> Result<(), Failure> {
    let of = |verdict| result.figures.iter().filter(move |figure| figure.verdict == verdict);
    if let Some(first) = of(CompareVerdict::Worse).next() {
        return Err(Failure::Limit(format!(
            "worse by more than {}: {} of {} figures, {} first",
            units::percent(result.threshold),
            of(CompareVerdict::Worse).count(),
            result.figures.len(),
            first.place
        )));
    }
    if result.figures.is_empty() {
        return Err(Failure::environment(
            "the two runs have no figure in common; compare runs of the same command",
        ));
    }
    if of(CompareVerdict::NotEnough).count() == result.figures.len() {
        return Err(Failure::environment(
            "there is not enough data to tell anything; measure for longer",
        ));
    }
    Ok(())
}
