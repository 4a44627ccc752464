//! `horolog relay`: application-layer multicast, control of a running relay, and trees of relays.

mod control;
mod run;
mod tree;

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

/// Relay packets by application-layer multicast: one packet in, a unicast copy for each child out.
///
/// UDP over IPv4 and IPv6 is supported; TCP is not relayed.
#[derive(Args, Debug)]
pub(crate) struct RelayArgs {
    #[command(subcommand)]
    command: RelayCommand,
}

#[derive(Subcommand, Debug)]
enum RelayCommand {
    Run(run::RelayRunArgs),
    Add(Box<control::RelayAddArgs>),
    Remove(control::RelayRemoveArgs),
    List(control::RelayListArgs),
    Tree(Box<tree::RelayTreeArgs>),
}

pub(crate) fn run(args: RelayArgs) -> Result<(), CommandFailure> {
    match args.command {
        RelayCommand::Run(args) => run::run(&args),
        RelayCommand::Add(args) => control::add(*args),
        RelayCommand::Remove(args) => control::remove(args),
        RelayCommand::List(args) => control::list(&args),
        RelayCommand::Tree(args) => tree::run(&args),
    }
}

/// Returns the error for a missing default path of the control socket.
fn no_default_path() -> CommandFailure {
    CommandFailure::usage(
        "XDG_RUNTIME_DIR is not set, so the control socket has no default path; give --socket",
    )
}
