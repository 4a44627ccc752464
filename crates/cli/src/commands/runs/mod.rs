//! `horolog runs`: lists, shows, compares, names, exports, imports and deletes stored runs.

mod compare;
mod list;
pub(crate) mod report;
mod run_input;
mod show;
mod transfer;

use clap::{Args, Subcommand};
use horolog_store::RunReference;

use crate::failure::CommandFailure;
use crate::output;
use crate::result_store::StoreArgs;

/// List, show, compare, name, export, import and delete stored results.
///
/// Every measurement is stored as a run, in one file for each user (--store). RUN is one of: the
/// run's number; its name; its key, or the beginning of it (a key is unique across hosts and
/// survives export and import); 'last'; 'last~1' for the one before the last, and so on. 'runs
/// list' shows numbers and names, and with --json keys.
#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Subcommand, Debug)]
enum RunsCommand {
    List(list::RunsListArgs),
    Show(show::RunsShowArgs),
    Compare(compare::RunsCompareArgs),
    Name(RunsNameArgs),
    Export(transfer::RunsExportArgs),
    Import(transfer::RunsImportArgs),
    Delete(RunsDeleteArgs),
}

/// Name a run, or remove its name.
#[derive(Args, Debug)]
struct RunsNameArgs {
    /// Run to name: its number, key or present name, or 'last' or 'last~1'.
    #[arg(value_name = "RUN")]
    run: RunReference,
    /// Name: letters, digits, '-', '_' and '.', beginning with a letter; without it, the name is
    /// removed.
    #[arg(value_parser = parse_run_name)]
    name: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Delete runs.
#[derive(Args, Debug)]
struct RunsDeleteArgs {
    /// Runs to delete, each a number, a key, a name, 'last' or 'last~1'; if one does not exist,
    /// none is deleted.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<RunReference>,
    #[command(flatten)]
    store: StoreArgs,
}

fn parse_run_name(text: &str) -> Result<String, String> {
    if RunReference::is_valid_name(text) {
        Ok(text.to_owned())
    } else {
        Err("use letters, digits, '-', '_' and '.', starting with a letter, and no name that \
             refers to another run"
            .to_owned())
    }
}

pub(crate) fn run(args: &RunsArgs) -> Result<(), CommandFailure> {
    match &args.command {
        RunsCommand::List(args) => list::run(args),
        RunsCommand::Show(args) => show::run(args),
        RunsCommand::Compare(args) => compare::run(args),
        RunsCommand::Name(args) => {
            let mut store = args.store.open()?;
            let id = store.find(&args.run)?.id;
            Ok(store.set_name(id, args.name.as_deref())?)
        }
        RunsCommand::Export(args) => transfer::export(args),
        RunsCommand::Import(args) => transfer::import(args),
        RunsCommand::Delete(args) => delete(args),
    }
}

fn delete(args: &RunsDeleteArgs) -> Result<(), CommandFailure> {
    let mut store = args.store.open()?;
    let found = args.runs.iter().map(|run| Ok(store.find(run)?.id));
    let mut ids = found.collect::<Result<Vec<_>, CommandFailure>>()?;
    ids.sort_unstable();
    ids.dedup();
    store.delete(&ids)?;
    let deleted: Vec<_> = ids.iter().map(ToString::to_string).collect();
    output::print_terminal_note(&format!("deleted: {}", deleted.join(", ")));
    Ok(())
}
