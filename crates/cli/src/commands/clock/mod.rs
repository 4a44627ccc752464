//! `horolog clock`: clocks, how they are disciplined and how right they are.

use clap::{Args, Subcommand};

use crate::failure::Failure;

mod compare;
mod draw;
mod figures;
mod log;
mod outcome;
mod show;
mod simulate;

pub(crate) use simulate::oscillator;

/// Clocks: how they are disciplined, and how right they are.
#[derive(Args, Debug)]
pub(crate) struct ClockArgs {
    #[command(subcommand)]
    command: ClockCommand,
}

#[derive(Subcommand, Debug)]
enum ClockCommand {
    Compare(compare::CompareArgs),
    Draw(draw::DrawArgs),
    Log(log::LogArgs),
    Show(show::ShowArgs),
    Simulate(Box<simulate::SimulateArgs>),
}

pub(crate) fn run(args: ClockArgs) -> Result<(), Failure> {
    match args.command {
        ClockCommand::Compare(args) => compare::run(&args),
        ClockCommand::Draw(args) => draw::run(&args),
        ClockCommand::Log(args) => log::run(args),
        ClockCommand::Show(args) => show::run(args),
        ClockCommand::Simulate(args) => simulate::run(&args),
    }
}
