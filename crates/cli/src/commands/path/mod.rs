//! `horolog path`: measurements of a network path, and the far end for them.

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

mod serve;
mod stall;
mod tcp;
mod udp;

/// Measure latency, loss and bandwidth of UDP and TCP between hosts, and stalls of TCP.
#[derive(Args, Debug)]
pub(crate) struct PathArgs {
    #[command(subcommand)]
    command: PathCommand,
}

#[derive(Subcommand, Debug)]
enum PathCommand {
    Serve(serve::PathServeArgs),
    Udp(Box<udp::PathUdpArgs>),
    Tcp(Box<tcp::PathTcpArgs>),
    Stall(Box<stall::PathStallArgs>),
}

pub(crate) fn run(args: PathArgs) -> Result<(), CommandFailure> {
    match args.command {
        PathCommand::Serve(args) => serve::run(&args),
        PathCommand::Udp(args) => udp::run(*args),
        PathCommand::Tcp(args) => tcp::run(&args),
        PathCommand::Stall(args) => stall::run(&args),
    }
}
