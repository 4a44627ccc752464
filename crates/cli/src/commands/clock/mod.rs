//! `horolog clock`: clocks, their discipline and their accuracy.

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

mod compare;
mod log;
mod plot;
mod show;
mod simulate;

pub(crate) use simulate::parse_oscillator;

/// Compare, log, simulate and show clocks and their discipline.
#[derive(Args, Debug)]
pub(crate) struct ClockArgs {
    #[command(subcommand)]
    command: ClockCommand,
}

#[derive(Subcommand, Debug)]
enum ClockCommand {
    Compare(compare::ClockCompareArgs),
    Plot(plot::ClockPlotArgs),
    Log(log::ClockLogArgs),
    Show(show::ClockShowArgs),
    Simulate(Box<simulate::ClockSimulateArgs>),
}

pub(crate) fn run(args: ClockArgs) -> Result<(), CommandFailure> {
    match args.command {
        ClockCommand::Compare(args) => compare::run(&args),
        ClockCommand::Plot(args) => plot::run(&args),
        ClockCommand::Log(args) => log::run(args),
        ClockCommand::Show(args) => show::run(args),
        ClockCommand::Simulate(args) => simulate::run(&args),
    }
}
