//! `horolog runs`: the results that are kept, and what they say of one another.

mod compare;
mod given;
mod list;
pub(crate) mod report;
mod show;
mod transfer;

use clap::{Args, Subcommand};
use horolog_store::Reference;

use crate::failure::Failure;
use crate::keep::StoreArgs;
use crate::output;

/// List, show, compare, name, export, import and delete the results that are kept.
///
/// Every measurement is kept in a store, one file of this user. A RUN is its number, its key or the
/// beginning of it, the name that it was given, 'last', or 'last~1' for the one before that.
#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Subcommand, Debug)]
enum RunsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Compare(compare::CompareArgs),
    Name(NameArgs),
    Export(transfer::ExportArgs),
    Import(transfer::ImportArgs),
    Delete(DeleteArgs),
}

/// Give a run a name, or take it away.
#[derive(Args, Debug)]
struct NameArgs {
    /// Which run.
    #[arg(value_name = "RUN")]
    run: Reference,
    /// Its name: letters, digits, '-', '_' and '.', with a letter in front; without one, it has
    /// none any more.
    #[arg(value_parser = name)]
    name: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Delete runs.
#[derive(Args, Debug)]
struct DeleteArgs {
    /// Which runs; where one is not there, none is deleted.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<Reference>,
    #[command(flatten)]
    store: StoreArgs,
}

fn name(text: &str) -> Result<String, String> {
    if Reference::can_be_a_name(text) {
        Ok(text.to_owned())
    } else {
        Err("write letters, digits, '-', '_' and '.', with a letter in front, and nothing that \
             means another run"
            .to_owned())
    }
}

pub(crate) fn run(args: &RunsArgs) -> Result<(), Failure> {
    match &args.command {
        RunsCommand::List(args) => list::run(args),
        RunsCommand::Show(args) => show::run(args),
        RunsCommand::Compare(args) => compare::run(args),
        RunsCommand::Name(args) => {
            let mut store = args.store.open()?;
            let id = store.find(&args.run)?.id;
            Ok(store.name(id, args.name.as_deref())?)
        }
        RunsCommand::Export(args) => transfer::export(args),
        RunsCommand::Import(args) => transfer::import(args),
        RunsCommand::Delete(args) => delete(args),
    }
}

fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    let mut store = args.store.open()?;
    let found = args.runs.iter().map(|run| Ok(store.find(run)?.id));
    let mut ids = found.collect::<Result<Vec<_>, Failure>>()?;
    ids.sort_unstable();
    ids.dedup();
    store.delete(&ids)?;
    let told: Vec<_> = ids.iter().map(ToString::to_string).collect();
    output::aside(&format!("deleted: {}", told.join(", ")));
    Ok(())
}
