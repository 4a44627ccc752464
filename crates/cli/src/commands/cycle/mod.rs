//! `horolog cycle`: periodic real-time tasks, on one node and on several, and whether they keep
//! their deadlines.

use clap::{Args, Subcommand};

use crate::failure::Failure;

mod node;
mod predict;
mod run;
mod test;

/// Periodic real-time work: what becomes of each period, and whether it can.
#[derive(Args, Debug)]
pub(crate) struct CycleArgs {
    #[command(subcommand)]
    command: CycleCommand,
}

#[derive(Subcommand, Debug)]
enum CycleCommand {
    Run(Box<run::RunArgs>),
    Predict(Box<predict::PredictArgs>),
    Test(Box<test::TestArgs>),
    #[command(hide = true)]
    Node(node::NodeArgs),
    #[command(hide = true)]
    ApplicationNode(test::ApplicationNodeArgs),
}

pub(crate) fn run(args: CycleArgs) -> Result<(), Failure> {
    match args.command {
        CycleCommand::Run(args) => run::run(*args),
        CycleCommand::Predict(args) => predict::run(&args),
        CycleCommand::Test(args) => test::run(&args),
        CycleCommand::Node(args) => node::run(&args),
        CycleCommand::ApplicationNode(args) => test::run_node(&args),
    }
}
