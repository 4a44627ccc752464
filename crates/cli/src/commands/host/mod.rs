//! `horolog host`: capabilities of this host, and their reasons.

use clap::{Args, Subcommand};
use horolog_probe::host::HostError;

use crate::failure::CommandFailure;

mod all;
mod clock;
mod cores;
mod delay;
mod interrupt;
mod nic;
mod switch;
mod timer;

/// Measure this host's clocks, sleep functions, context switches, timers and interrupts, and show
/// its NICs.
#[derive(Args, Debug)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Subcommand, Debug)]
enum HostCommand {
    All(all::AllArgs),
    Interrupt(interrupt::InterruptArgs),
    Switch(switch::SwitchArgs),
    Clock(clock::HostClockArgs),
    Delay(Box<delay::HostDelayArgs>),
    Nic(nic::NicArgs),
    Timer(timer::TimerArgs),
}

pub(crate) fn run(args: HostArgs) -> Result<(), CommandFailure> {
    match args.command {
        HostCommand::All(args) => all::run(&args),
        HostCommand::Interrupt(args) => interrupt::run(args),
        HostCommand::Switch(args) => switch::run(args),
        HostCommand::Clock(args) => clock::run(&args),
        HostCommand::Delay(args) => delay::run(&args),
        HostCommand::Nic(args) => nic::run(&args),
        HostCommand::Timer(args) => timer::run(args),
    }
}

impl From<HostError> for CommandFailure {
    fn from(error: HostError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::environment(error) }
    }
}
