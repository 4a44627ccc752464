//! `horolog host`: what this machine is capable of, and why.

use clap::{Args, Subcommand};
use horolog_probe::host::HostError;

use crate::failure::Failure;

mod bound;
mod cores;
mod files;
mod interrupt;
mod switch;
mod timer;

/// What this machine's scheduler, timers and interrupts really do.
#[derive(Args, Debug)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Subcommand, Debug)]
enum HostCommand {
    Interrupt(interrupt::InterruptArgs),
    Switch(switch::SwitchArgs),
    Timer(timer::TimerArgs),
}

pub(crate) fn run(args: HostArgs) -> Result<(), Failure> {
    match args.command {
        HostCommand::Interrupt(args) => interrupt::run(args),
        HostCommand::Switch(args) => switch::run(args),
        HostCommand::Timer(args) => timer::run(args),
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}
