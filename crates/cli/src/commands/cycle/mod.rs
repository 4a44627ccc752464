//! `horolog cycle`: periodic real-time tasks, on one node and on several, and their deadlines.

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

mod live;
mod node;
mod predict;
mod run;
mod test;

/// Run, test and predict periodic real-time work: the timing of each period, and its
/// schedulability.
#[derive(Args, Debug)]
pub(crate) struct CycleArgs {
    #[command(subcommand)]
    command: CycleCommand,
}

#[derive(Subcommand, Debug)]
enum CycleCommand {
    Run(Box<run::CycleRunArgs>),
    Predict(Box<predict::CyclePredictArgs>),
    Test(Box<test::CycleTestArgs>),
    #[command(hide = true)]
    Node(node::CycleNodeArgs),
    #[command(hide = true)]
    ApplicationNode(test::ApplicationNodeArgs),
}

pub(crate) fn run(args: CycleArgs) -> Result<(), CommandFailure> {
    match args.command {
        CycleCommand::Run(args) => run::run(*args),
        CycleCommand::Predict(args) => predict::run(&args),
        CycleCommand::Test(args) => test::run(&args),
        CycleCommand::Node(args) => node::run(&args),
        CycleCommand::ApplicationNode(args) => test::run_node(&args),
    }
}
