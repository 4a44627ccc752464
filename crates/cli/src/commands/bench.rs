//! `horolog bench`: experiments about servers, each on this machine from end to end.

use clap::{Args, Subcommand};

use crate::failure::Failure;

mod nts;

/// Experiments that compare a server with itself.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    experiment: ExperimentArgs,
}

#[derive(Subcommand, Debug)]
enum ExperimentArgs {
    Nts(nts::NtsArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.experiment {
        ExperimentArgs::Nts(args) => nts::run(args),
    }
}
