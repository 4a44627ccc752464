//! `horolog runs export` and `import`: results to other programs, and results from elsewhere.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use horolog_columns::{ColumnsError, FigureWriter};
use horolog_report::csv;
use horolog_store::{Facts, Reference, Run, Store, StoreError, one_line};
use serde_json::Value;

use super::given::{of_file, unsound};
use super::list::FilterArgs;
use crate::failure::Failure;
use crate::keep::StoreArgs;
use crate::output::{self, Destination};

/// Write runs to a file: all, or those that are named or filtered.
#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Which runs; all without any.
    #[arg(value_name = "RUN")]
    runs: Vec<Reference>,
    #[command(flatten)]
    filter: FilterArgs,
    /// How; by the ending of the file where this is not given.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The file, such as runs.csv, runs.parquet or runs.jsonl; - for standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// A line for each figure of each run: where it stands, and its value.
    Csv,
    /// The same in columns with types, for programs that read Apache Parquet.
    Parquet,
    /// Each result whole, on a line of its own; 'runs import' reads it.
    Jsonl,
}

impl Format {
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            Some("jsonl" | "ndjson") => Ok(Self::Jsonl),
            _ => Err(Failure::usage(format!(
                "{}: its ending names no format; give --format csv, parquet or jsonl",
                path.display()
            ))),
        }
    }
}

/// Keep results from files: of this program's --json, or of 'runs export --format jsonl'.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// The files; where one is unsound, nothing is kept.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl ExportArgs {
    fn format(&self) -> Result<Format, Failure> {
        let is_stdout = output::is_stdout(&self.output);
        let format = match self.format {
            Some(format) => format,
            None if is_stdout => {
                return Err(Failure::usage(
                    "give --format csv, parquet or jsonl, or a file with --output",
                ));
            }
            None => Format::of(&self.output)?,
        };
        if format == Format::Parquet && is_stdout && io::stdout().is_terminal() {
            return Err(Failure::usage("Parquet is nothing to read; give a file with --output"));
        }
        Ok(format)
    }
}

pub(super) fn export(args: &ExportArgs) -> Result<(), Failure> {
    let format = args.format()?;
    if !args.runs.is_empty() && args.filter.is_given() {
        return Err(Failure::usage("name runs, or filter them; not both"));
    }
    let destination = Destination::open(&args.output)?;
    let store = args.store.open_to_read()?;
    let runs = if args.runs.is_empty() {
        store.list(&args.filter.resolve())?
    } else {
        let found = args.runs.iter().map(|run| Ok(store.find(run)?));
        found.collect::<Result<Vec<_>, Failure>>()?
    };
    if runs.is_empty() {
        output::note("no run that was asked for is kept");
    }
    let unread = Cell::new(0);
    let results = runs.iter().filter_map(|run| match store.result(run.id) {
        // The others are written all the same.
        Err(error @ StoreError::DamagedRun { .. }) => {
            output::note(&format!("horolog: {error}"));
            unread.set(unread.get() + 1);
            None
        }
        result => Some(result.map(|text| (run, text)).map_err(Failure::from)),
    });
    match format {
        Format::Csv => destination.write(&figures(results)?),
        Format::Parquet => destination.write_bytes(&columns(results)?),
        Format::Jsonl => {
            let lines = results.map(|of| Ok(format!("{}\n", one_line(&of?.1))));
            destination.write(&lines.collect::<Result<String, Failure>>()?)
        }
    }?;
    match unread.get() {
        0 => Ok(()),
        unread => Err(Failure::environment(format!(
            "{unread} of {} runs cannot be read; the others were written",
            runs.len()
        ))),
    }
}

fn figures<'a>(
    results: impl Iterator<Item = Result<(&'a Run, String), Failure>>,
) -> Result<String, Failure> {
    let mut text = csv::FIGURES_HEADER.to_owned();
    for of in results {
        let (run, result) = of?;
        let (name, result) = (run.name.as_deref().unwrap_or_default(), read(run, &result)?);
        text.push_str(&csv::figures(run.id, name, &run.facts.command, &result));
    }
    Ok(text)
}

fn columns<'a>(
    results: impl Iterator<Item = Result<(&'a Run, String), Failure>>,
) -> Result<Vec<u8>, Failure> {
    let unwritten = |error: ColumnsError| Failure::environment(error);
    let mut writer = FigureWriter::new(Vec::new()).map_err(unwritten)?;
    for of in results {
        let (run, result) = of?;
        let (name, result) = (run.name.as_deref().unwrap_or_default(), read(run, &result)?);
        writer.add(run.id, name, &run.facts.command, &result).map_err(unwritten)?;
    }
    writer.finish().map_err(unwritten)
}

fn read(run: &Run, result: &str) -> Result<Value, Failure> {
    serde_json::from_str(result).map_err(|error| {
        Failure::environment(format!("run {}: {error}; delete it to export the others", run.id))
    })
}

pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    let mut results = Vec::new();
    for file in &args.files {
        let text = of_file(file)?;
        results.extend(sound(&text).map_err(|why| {
            Failure::environment(format!("{}: {why}; nothing was kept", file.display()))
        })?);
    }
    let path = args.store.there()?;
    let mut store = Store::open(&path)?;
    let new = store.add_all(&results)?;
    let known = results.len().saturating_sub(new);
    let were = if new == 1 { "result was" } else { "results were" };
    output::note(&format!("{new} {were} kept; there before: {known}"));
    Ok(())
}

/// The results of a file: one, or one on each line.
fn sound(text: &str) -> Result<Vec<(Facts, String)>, String> {
    let whole = Facts::of(text);
    let why = match whole {
        Ok(facts) => return Ok(vec![(facts, text.to_owned())]),
        Err(error) => unsound(text, &error),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<_> = lines.collect();
    // One result over several lines is none on any of them.
    if lines.len() < 2 || lines.first().is_some_and(|(_, line)| Facts::of(line).is_err()) {
        return Err(why);
    }
    let of_line = |&(index, line): &(usize, &str)| {
        let told = |error| {
            let sound = lines.iter().filter(|(before, _)| *before < index).count();
            let before = format!("; sound results before it: {sound}");
            format!("line {}: {}{before}", index + 1, unsound(line, &error))
        };
        Ok((Facts::of(line).map_err(told)?, line.to_owned()))
    };
    lines.iter().map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str =
        r#"{"schema": "horolog.load/1", "started": "2026-01-01T00:00:00Z", "command": []}"#;

    #[test]
    fn files_have_one_result_or_one_on_each_line() {
        assert_eq!(sound(RESULT).unwrap().len(), 1);
        let two = format!("{RESULT}\n\n{RESULT}\n");
        assert_eq!(sound(&two).unwrap().len(), 2);
        let cut = format!("{RESULT}\n{}", &RESULT[..40]);
        let why = sound(&cut).unwrap_err();
        assert!(why.starts_with("line 2: ") && why.ends_with("; sound results before it: 1"));
        assert!(sound("{\n\"schema\": 7\n}").unwrap_err().contains("no result"));
    }

    #[test]
    fn endings_name_formats() {
        assert_eq!(Format::of(Path::new("x.csv")).ok(), Some(Format::Csv));
        assert_eq!(Format::of(Path::new("x.parquet")).ok(), Some(Format::Parquet));
        assert_eq!(Format::of(Path::new("x.jsonl")).ok(), Some(Format::Jsonl));
        assert!(Format::of(Path::new("x.txt")).is_err());
    }
}
