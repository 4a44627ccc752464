//! `horolog campaign`: measurements on several hosts at one start time.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod agent;
mod broker;
mod list;
mod over_nats;
mod plans;
mod run;

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

/// Run a measurement on many hosts simultaneously, and merge the results.
///
/// An agent runs on each host ('horolog campaign agent') and executes what its policy allows. A
/// plan defines the roles, the number of instances of each, and their placement. 'horolog campaign
/// run PLAN' (the controller) gives jobs to the agents. Both connect to a NATS server with
/// JetStream, which stores results while either is disconnected.
#[derive(Args, Debug)]
pub(crate) struct CampaignArgs {
    #[command(subcommand)]
    action: CampaignCommand,
}

#[derive(Subcommand, Debug)]
enum CampaignCommand {
    Agent(Box<agent::CampaignAgentArgs>),
    Run(Box<run::CampaignRunArgs>),
    List(Box<list::CampaignListArgs>),
    Plans(plans::CampaignPlansArgs),
}

pub(crate) fn run(args: CampaignArgs) -> Result<(), CommandFailure> {
    match args.action {
        CampaignCommand::Agent(args) => agent::run(*args),
        CampaignCommand::Run(args) => run::run(&args),
        CampaignCommand::List(args) => list::run(&args),
        CampaignCommand::Plans(args) => plans::run(&args),
    }
}
