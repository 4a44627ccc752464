//! `horolog runs list`: lists the stored runs, one per line.

use std::path::PathBuf;

use clap::Args;
use horolog_record::{RUN_LIST_SCHEMA, StoredRun, StoredRunList};
use horolog_report::{table, to_json};
use horolog_store::{RunFilter, RunMetadata, Store, StoreError};

use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::result_store::StoreArgs;

/// List the runs, the latest last.
#[derive(Args, Debug)]
pub(super) struct RunsListArgs {
    #[command(flatten)]
    filter: RunFilterArgs,
    /// Write the list to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Filter of runs.
#[derive(Args, Debug)]
pub(super) struct RunFilterArgs {
    /// Select runs of this kind, such as load, or of kinds that begin with it, such as path.
    #[arg(long)]
    kind: Option<String>,
    /// Select runs since this day or time (UTC), such as 2026-01-31 or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "DATE", value_parser = parse_instant)]
    since: Option<String>,
    /// Select only this many of the latest runs.
    #[arg(long, value_name = "COUNT")]
    last: Option<u32>,
}

/// Parses a day or an instant (RFC 3339) to a text in UTC that is comparable with the `started`
/// fields of results in string order.
fn parse_instant(text: &str) -> Result<String, String> {
    // Tried before the day, whose parser also accepts an instant and ignores its time.
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        // Without the final Z, which sorts after the '.' of fractional seconds.
        return Ok(instant.to_string().trim_end_matches('Z').to_owned());
    }
    let refused = "write a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z";
    match text.parse::<jiff::civil::Date>() {
        Ok(day) if !text.contains(':') => Ok(format!("{day}T00:00:00")),
        _ => Err(refused.to_owned()),
    }
}

impl RunFilterArgs {
    pub(super) fn run_filter(&self) -> RunFilter {
        RunFilter { kind: self.kind.clone(), since: self.since.clone(), last: self.last }
    }

    /// Returns true if any filter flag is set.
    pub(super) const fn has_filter(&self) -> bool {
        self.kind.is_some() || self.since.is_some() || self.last.is_some()
    }
}

pub(super) fn run(args: &RunsListArgs) -> Result<(), CommandFailure> {
    let files = ResultFiles::open([("--json", &args.json)])?;
    let path = args.store.path()?;
    let runs = match Store::open_to_read(&path) {
        Ok(store) => store.list(&args.filter.run_filter())?,
        Err(StoreError::Absent(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let list = StoredRunList {
        schema: RUN_LIST_SCHEMA.to_owned(),
        store: path.display().to_string(),
        runs: runs.into_iter().map(stored_run).collect(),
    };
    files.write_with(&list, [to_json], table::run_list)
}

fn stored_run(run: RunMetadata) -> StoredRun {
    let RunMetadata { id, facts, bytes, name } = run;
    let [errors, warnings] = facts.findings;
    StoredRun {
        id,
        key: facts.key,
        name,
        kind: facts.schema,
        started: facts.started,
        command: facts.command,
        errors,
        warnings,
        broken_limits: facts.failed_limits,
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_compare_as_text() {
        assert_eq!(parse_instant("2026-01-31").unwrap(), "2026-01-31T00:00:00");
        assert_eq!(parse_instant("2026-01-31T12:00:00+01:00").unwrap(), "2026-01-31T11:00:00");
        assert!(
            parse_instant("2026-01-31T11:00:00Z").unwrap().as_str() <= "2026-01-31T11:00:00.5Z"
        );
        assert!(parse_instant("yesterday").is_err());
        assert!(parse_instant("2026-01-31T11:00:00").is_err(), "an instant of no zone");
    }
}
