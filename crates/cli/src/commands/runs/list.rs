//! `horolog runs list`: a line for each run.

use std::path::PathBuf;

use clap::Args;
use horolog_record::{KeptRun, RUN_LIST_SCHEMA, RunList};
use horolog_report::{table, to_json};
use horolog_store::{Filter, Run, Store, StoreError};

use crate::failure::Failure;
use crate::files::Files;
use crate::keep::StoreArgs;

/// List the runs, the latest last.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Write the list to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Some of the runs.
#[derive(Args, Debug)]
pub(super) struct FilterArgs {
    /// Only those of this kind, such as load, or those whose kinds begin so, such as path.
    #[arg(long)]
    kind: Option<String>,
    /// Only those since this instant or day, such as 2026-01-31 or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    since: Option<String>,
    /// Only the last so many.
    #[arg(long, value_name = "COUNT")]
    last: Option<u32>,
}

/// An instant as the results have theirs: UTC, to be compared as text.
fn instant(text: &str) -> Result<String, String> {
    // The instant first: a parser of days takes the day of an instant and leaves its time out.
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        // Without what stands behind the seconds: '.' comes before 'Z'.
        return Ok(instant.to_string().trim_end_matches('Z').to_owned());
    }
    let refused = "write a day such as 2026-01-31, or an instant such as 2026-01-31T12:00:00Z";
    match text.parse::<jiff::civil::Date>() {
        Ok(day) if !text.contains(':') => Ok(format!("{day}T00:00:00")),
        _ => Err(refused.to_owned()),
    }
}

impl FilterArgs {
    pub(super) fn resolve(&self) -> Filter {
        Filter { kind: self.kind.clone(), since: self.since.clone(), last: self.last }
    }

    /// Whether there is one.
    pub(super) const fn is_given(&self) -> bool {
        self.kind.is_some() || self.since.is_some() || self.last.is_some()
    }
}

pub(super) fn run(args: &ListArgs) -> Result<(), Failure> {
    let files = Files::open([("--json", &args.json)])?;
    let path = args.store.there()?;
    let runs = match Store::open_to_read(&path) {
        Ok(store) => store.list(&args.filter.resolve())?,
        Err(StoreError::Absent(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let list = RunList {
        schema: RUN_LIST_SCHEMA.to_owned(),
        store: path.display().to_string(),
        runs: runs.into_iter().map(kept).collect(),
    };
    files.write(&list, [to_json], table::run_list)
}

fn kept(run: Run) -> KeptRun {
    let Run { id, facts, bytes, name } = run;
    let [errors, warnings] = facts.findings;
    KeptRun {
        id,
        key: facts.key,
        name,
        kind: facts.schema,
        started: facts.started,
        command: facts.command,
        errors,
        warnings,
        broken_limits: facts.broken,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_compare_as_text() {
        assert_eq!(instant("2026-01-31").unwrap(), "2026-01-31T00:00:00");
        assert_eq!(instant("2026-01-31T12:00:00+01:00").unwrap(), "2026-01-31T11:00:00");
        assert!(instant("2026-01-31T11:00:00Z").unwrap().as_str() <= "2026-01-31T11:00:00.5Z");
        assert!(instant("yesterday").is_err());
        assert!(instant("2026-01-31T11:00:00").is_err(), "an instant of no zone");
    }
}
