//! `horolog runs export` and `horolog runs import`: stored results to CSV, Parquet or JSON Lines,
//! and result files to the store.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use horolog_columns::{ParquetMetricWriter, ParquetWriteError};
use horolog_report::csv;
use horolog_store::{ResultFacts, RunMetadata, RunReference, Store, StoreError, compact_json};
use serde_json::Value;

use super::list::RunFilterArgs;
use super::run_input::{describe_invalid_result, read_result_file};
use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreArgs;

/// Export runs to a file: all, those given as RUN, or those selected by --kind, --since and --last.
#[derive(Args, Debug)]
pub(super) struct RunsExportArgs {
    /// Runs to export, each a number, a key, a name, 'last' or 'last~1' [default: all].
    #[arg(value_name = "RUN")]
    runs: Vec<RunReference>,
    #[command(flatten)]
    filter: RunFilterArgs,
    /// Format [default: by the extension of --output; required for standard output].
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Output file, such as runs.csv, runs.parquet or runs.jsonl; '-' for standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ExportFormat {
    /// A line for each value of each run, with its JSON path in the result
    Csv,
    /// Typed columns for readers of Apache Parquet
    Parquet,
    /// Each complete result on one line, for 'runs import'
    Jsonl,
}

impl ExportFormat {
    fn from_path(path: &Path) -> Result<Self, CommandFailure> {
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
pub(super) struct RunsImportArgs {
    /// Files to import; if one is invalid, nothing is stored.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl RunsExportArgs {
    fn format(&self) -> Result<ExportFormat, CommandFailure> {
        let is_stdout = output::is_stdout(&self.output);
        let format = match self.format {
            Some(format) => format,
            None if is_stdout => {
                return Err(CommandFailure::usage(
                    "give --format csv, parquet or jsonl, or a file with --output",
                ));
            }
            None => ExportFormat::from_path(&self.output)?,
        };
        if format == ExportFormat::Parquet && is_stdout && io::stdout().is_terminal() {
            return Err(CommandFailure::usage("Parquet is binary; give a file with --output"));
        }
        Ok(format)
    }
}

pub(super) fn export(args: &RunsExportArgs) -> Result<(), CommandFailure> {
    let format = args.format()?;
    if !args.runs.is_empty() && args.filter.has_filter() {
        return Err(CommandFailure::usage("give runs or filters, not both"));
    }
    let destination = ResultDestination::open(&args.output)?;
    let store = args.store.open_to_read()?;
    let runs = if args.runs.is_empty() {
        store.list(&args.filter.run_filter())?
    } else {
        let found = args.runs.iter().map(|run| Ok(store.find(run)?));
        found.collect::<Result<Vec<_>, CommandFailure>>()?
    };
    if runs.is_empty() {
        output::print_note("no matching runs");
    }
    let unread = Cell::new(0);
    let results = runs.iter().filter_map(|run| match store.result(run.id) {
        // A damaged run is reported and left out; the others are exported.
        Err(error @ StoreError::DamagedRun { .. }) => {
            output::print_note(&format!("horolog: {error}"));
            unread.set(unread.get() + 1);
            None
        }
        result => Some(result.map(|text| (run, text)).map_err(CommandFailure::from)),
    });
    match format {
        ExportFormat::Csv => destination.write(&csv_text(results)?),
        ExportFormat::Parquet => destination.write_bytes(&parquet_bytes(results)?),
        ExportFormat::Jsonl => {
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

fn csv_text<'a>(
    results: impl Iterator<Item = Result<(&'a RunMetadata, String), CommandFailure>>,
) -> Result<String, CommandFailure> {
    let mut text = csv::FIGURES_HEADER.to_owned();
    for of in results {
        let (run, result) = of?;
        let (name, result) =
            (run.name.as_deref().unwrap_or_default(), parse_stored_result(run, &result)?);
        text.push_str(&csv::figures(run.id, name, &run.facts.command, &result));
    }
    Ok(text)
}

fn parquet_bytes<'a>(
    results: impl Iterator<Item = Result<(&'a RunMetadata, String), CommandFailure>>,
) -> Result<Vec<u8>, CommandFailure> {
    let unwritten = |error: ParquetWriteError| CommandFailure::environment(error);
    let mut writer = ParquetMetricWriter::new(Vec::new()).map_err(unwritten)?;
    for of in results {
        let (run, result) = of?;
        let (name, result) =
            (run.name.as_deref().unwrap_or_default(), parse_stored_result(run, &result)?);
        writer.add(run.id, name, &run.facts.command, &result).map_err(unwritten)?;
    }
    writer.finish().map_err(unwritten)
}

fn parse_stored_result(run: &RunMetadata, result: &str) -> Result<Value, CommandFailure> {
    serde_json::from_str(result).map_err(|error| {
        CommandFailure::environment(format!(
            "run {}: {error}; delete it to export the others",
            run.id
        ))
    })
}

pub(super) fn import(args: &RunsImportArgs) -> Result<(), CommandFailure> {
    let mut results = Vec::new();
    for file in &args.files {
        let text = read_result_file(file)?;
        results.extend(parse_results(&text).map_err(|why| {
            CommandFailure::environment(format!("{}: {why}; nothing was imported", file.display()))
        })?);
    }
    let path = args.store.path()?;
    let mut store = Store::open(&path)?;
    let new = store.add_all(&results)?;
    let known = results.len().saturating_sub(new);
    let were = if new == 1 { "result was" } else { "results were" };
    output::print_note(&format!("{new} {were} imported; already stored: {known}"));
    Ok(())
}

/// Parses a file that holds one result, or one on each line. If its first line is a complete
/// result, an error names the first invalid line; otherwise it is that of the text as one result.
fn parse_results(text: &str) -> Result<Vec<(ResultFacts, String)>, String> {
    let whole = ResultFacts::parse(text);
    let why = match whole {
        Ok(facts) => return Ok(vec![(facts, text.to_owned())]),
        Err(error) => describe_invalid_result(text, &error),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<_> = lines.collect();
    // If the first line is no complete result, the file is a single invalid result.
    if lines.len() < 2 || lines.first().is_some_and(|(_, line)| ResultFacts::parse(line).is_err()) {
        return Err(why);
    }
    let of_line = |&(index, line): &(usize, &str)| {
        let reason = |error| {
            let sound = lines.iter().filter(|(before, _)| *before < index).count();
            let before = format!("; sound results before it: {sound}");
            format!("line {}: {}{before}", index + 1, describe_invalid_result(line, &error))
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
        assert_eq!(parse_results(RESULT).unwrap().len(), 1);
        let two = format!("{RESULT}\n\n{RESULT}\n");
        assert_eq!(parse_results(&two).unwrap().len(), 2);
        let cut = format!("{RESULT}\n{}", &RESULT[..40]);
        let why = parse_results(&cut).unwrap_err();
        assert!(why.starts_with("line 2: ") && why.ends_with("; sound results before it: 1"));
        assert!(parse_results("{\n\"schema\": 7\n}").unwrap_err().contains("not a result"));
    }

    #[test]
    fn endings_name_formats() {
        assert_eq!(ExportFormat::from_path(Path::new("x.csv")).ok(), Some(ExportFormat::Csv));
        assert_eq!(
            ExportFormat::from_path(Path::new("x.parquet")).ok(),
            Some(ExportFormat::Parquet)
        );
        assert_eq!(ExportFormat::from_path(Path::new("x.jsonl")).ok(), Some(ExportFormat::Jsonl));
        assert!(ExportFormat::from_path(Path::new("x.txt")).is_err());
    }
}
