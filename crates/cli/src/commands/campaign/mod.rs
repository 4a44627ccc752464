//! `horolog campaign`: measurements on many machines at one instant.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod agent;
mod broker;
mod list;
mod over_nats;
mod plans;
mod run;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Measure from many machines at one instant, with one result.
///
/// An agent runs on each machine ('horolog campaign agent') and does what its policy allows. A plan
/// says which roles there are, how many of each and where ('horolog campaign run PLAN'). Both meet
/// at a NATS server with JetStream, which keeps results while either is away.
#[derive(Args, Debug)]
pub(crate) struct CampaignArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    Agent(Box<agent::AgentArgs>),
    Run(Box<run::RunArgs>),
    List(Box<list::ListArgs>),
    Plans(plans::PlansArgs),
}

pub(crate) fn run(args: CampaignArgs) -> Result<(), Failure> {
    match args.action {
        Action::Agent(args) => agent::run(*args),
        Action::Run(args) => run::run(&args),
        Action::List(args) => list::run(&args),
        Action::Plans(args) => plans::run(&args),
    }
}
