//! `horolog runs export` and `import`: results to other programs, and results from other stores.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use horolog_columns::{ColumnsError, MetricWriter};
use horolog_report::csv;
use horolog_store::{ResultFacts, RunMetadata, RunReference, Store, StoreError, compact_json};
use serde_json::Value;

use super::list::FilterArgs;
use super::run_input::{invalid_result, of_file};
use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreArgs;

/// Export runs to a file: all, or those that are named or filtered.
#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Runs to export [default: all].
    #[arg(value_name = "RUN")]
    runs: Vec<RunReference>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Format [default: by the extension of the file].
    #[arg(long, value_enum)]
    format: Option<TransferFormat>,
    /// Output file, such as runs.csv, runs.parquet or runs.jsonl; '-' for standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TransferFormat {
    /// A line for each value of each run: its path and its value
    Csv,
    /// Typed columns for readers of Apache Parquet
    Parquet,
    /// Each complete result on one line, for 'runs import'
    Jsonl,
}

impl TransferFormat {
    fn of(path: &Path) -> Result<Self, CommandFailure> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            Some("jsonl" | "ndjson") => Ok(Self::Jsonl),
            _ => Err(CommandFailure::usage(format!(
                "{}: unknown file extension; give --format csv, parquet or jsonl",
                path.display()
            ))),
        }
    }
}

/// Import result files, as written with --json or by 'runs export --format jsonl'.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// Files to import; if one is invalid, nothing is stored.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl ExportArgs {
    fn format(&self) -> Result<TransferFormat, CommandFailure> {
        let is_stdout = output::is_stdout(&self.output);
        let format = match self.format {
            Some(format) => format,
            None if is_stdout => {
                return Err(CommandFailure::usage(
                    "give --format csv, parquet or jsonl, or a file with --output",
                ));
            }
            None => TransferFormat::of(&self.output)?,
        };
        if format == TransferFormat::Parquet && is_stdout && io::stdout().is_terminal() {
            return Err(CommandFailure::usage("Parquet is binary; give a file with --output"));
        }
        Ok(format)
    }
}

pub(super) fn export(args: &ExportArgs) -> Result<(), CommandFailure> {
    let format = args.format()?;
    if !args.runs.is_empty() && args.filter.has_filter() {
        return Err(CommandFailure::usage("give runs or filters, not both"));
    }
    let destination = ResultDestination::open(&args.output)?;
    let store = args.store.open_to_read()?;
    let runs = if args.runs.is_empty() {
        store.list(&args.filter.resolve())?
    } else {
        let found = args.runs.iter().map(|run| Ok(store.find(run)?));
        found.collect::<Result<Vec<_>, CommandFailure>>()?
    };
    if runs.is_empty() {
        output::print_note("no matching runs");
    }
    let unread = Cell::new(0);
    let results = runs.iter().filter_map(|run| match store.result(run.id) {
        // The others are written all the same.
        Err(error @ StoreError::DamagedRun { .. }) => {
            output::print_note(&format!("horolog: {error}"));
            unread.set(unread.get() + 1);
            None
        }
        result => Some(result.map(|text| (run, text)).map_err(CommandFailure::from)),
    });
    match format {
        TransferFormat::Csv => destination.write(&figures(results)?),
        TransferFormat::Parquet => destination.write_bytes(&columns(results)?),
        TransferFormat::Jsonl => {
            let lines = results.map(|of| Ok(format!("{}\n", compact_json(&of?.1))));
            destination.write(&lines.collect::<Result<String, CommandFailure>>()?)
        }
    }?;
    match unread.get() {
        0 => Ok(()),
        unread => Err(CommandFailure::environment(format!(
            "{unread} of {} runs are unreadable; the others were written",
            runs.len()
        ))),
    }
}

fn figures<'a>(
    results: impl Iterator<Item = Result<(&'a RunMetadata, String), CommandFailure>>,
) -> Result<String, CommandFailure> {
    let mut text = csv::FIGURES_HEADER.to_owned();
    for of in results {
        let (run, result) = of?;
        let (name, result) = (run.name.as_deref().unwrap_or_default(), read(run, &result)?);
        text.push_str(&csv::figures(run.id, name, &run.facts.command, &result));
    }
    Ok(text)
}

fn columns<'a>(
    results: impl Iterator<Item = Result<(&'a RunMetadata, String), CommandFailure>>,
) -> Result<Vec<u8>, CommandFailure> {
    let unwritten = |error: ColumnsError| CommandFailure::environment(error);
    let mut writer = MetricWriter::new(Vec::new()).map_err(unwritten)?;
    for of in results {
        let (run, result) = of?;
        let (name, result) = (run.name.as_deref().unwrap_or_default(), read(run, &result)?);
        writer.add(run.id, name, &run.facts.command, &result).map_err(unwritten)?;
    }
    writer.finish().map_err(unwritten)
}

fn read(run: &RunMetadata, result: &str) -> Result<Value, CommandFailure> {
    serde_json::from_str(result).map_err(|error| {
        CommandFailure::environment(format!(
            "run {}: {error}; delete it to export the others",
            run.id
        ))
    })
}

pub(super) fn import(args: &ImportArgs) -> Result<(), CommandFailure> {
    let mut results = Vec::new();
    for file in &args.files {
        let text = of_file(file)?;
        results.extend(sound(&text).map_err(|why| {
            CommandFailure::environment(format!("{}: {why}; nothing was imported", file.display()))
        })?);
    }
    let path = args.store.there()?;
    let mut store = Store::open(&path)?;
    let new = store.add_all(&results)?;
    let known = results.len().saturating_sub(new);
    let were = if new == 1 { "result was" } else { "results were" };
    output::print_note(&format!("{new} {were} imported; already stored: {known}"));
    Ok(())
}

/// The results of a file: one, or one on each line.
fn sound(text: &str) -> Result<Vec<(ResultFacts, String)>, String> {
    let whole = ResultFacts::parse(text);
    let why = match whole {
        Ok(facts) => return Ok(vec![(facts, text.to_owned())]),
        Err(error) => invalid_result(text, &error),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<_> = lines.collect();
    // One result over several lines is not complete on any of them.
    if lines.len() < 2 || lines.first().is_some_and(|(_, line)| ResultFacts::parse(line).is_err()) {
        return Err(why);
    }
    let of_line = |&(index, line): &(usize, &str)| {
        let reason = |error| {
            let sound = lines.iter().filter(|(before, _)| *before < index).count();
            let before = format!("; sound results before it: {sound}");
            format!("line {}: {}{before}", index + 1, invalid_result(line, &error))
        };
        Ok((ResultFacts::parse(line).map_err(reason)?, line.to_owned()))
    };
    lines.iter().map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str =
        r#"{"schema": "horolog.load/2", "started": "2026-01-01T00:00:00Z", "command": []}"#;

    #[test]
    fn files_have_one_result_or_one_on_each_line() {
        assert_eq!(sound(RESULT).unwrap().len(), 1);
        let two = format!("{RESULT}\n\n{RESULT}\n");
        assert_eq!(sound(&two).unwrap().len(), 2);
        let cut = format!("{RESULT}\n{}", &RESULT[..40]);
        let why = sound(&cut).unwrap_err();
        assert!(why.starts_with("line 2: ") && why.ends_with("; sound results before it: 1"));
        assert!(sound("{\n\"schema\": 7\n}").unwrap_err().contains("not a result"));
    }

    #[test]
    fn endings_name_formats() {
        assert_eq!(TransferFormat::of(Path::new("x.csv")).ok(), Some(TransferFormat::Csv));
        assert_eq!(TransferFormat::of(Path::new("x.parquet")).ok(), Some(TransferFormat::Parquet));
        assert_eq!(TransferFormat::of(Path::new("x.jsonl")).ok(), Some(TransferFormat::Jsonl));
        assert!(TransferFormat::of(Path::new("x.txt")).is_err());
    }
}
