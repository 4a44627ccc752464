//! `horolog relay`: application-layer multicast, and changes of a running relay.

mod control;
mod run;
mod tree;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Application-layer multicast: one packet in, a unicast copy for each child out.
///
/// UDP over IPv4 and IPv6; TCP is not relayed.
#[derive(Args, Debug)]
pub(crate) struct RelayArgs {
    #[command(subcommand)]
    command: RelayCommand,
}

#[derive(Subcommand, Debug)]
enum RelayCommand {
    Run(run::RunArgs),
    Add(Box<control::AddArgs>),
    Remove(control::RemoveArgs),
    List(control::ListArgs),
    Tree(Box<tree::TreeArgs>),
}

pub(crate) fn run(args: RelayArgs) -> Result<(), Failure> {
    match args.command {
        RelayCommand::Run(args) => run::run(&args),
        RelayCommand::Add(args) => control::add(*args),
        RelayCommand::Remove(args) => control::remove(args),
        RelayCommand::List(args) => control::list(&args),
        RelayCommand::Tree(args) => tree::run(&args),
    }
}

/// Refuses to guess where a relay's control socket is.
fn no_usual_place() -> Failure {
    Failure::usage(
        "XDG_RUNTIME_DIR is not set, so a relay's control socket has no usual place; name it with \
         --socket",
    )
}
