//! `horolog path`: what the network path between two hosts really does.

use clap::{Args, Subcommand};

use crate::failure::Failure;

mod limit;
mod serve;
mod udp;

/// The network path between two hosts: what really becomes of datagrams on it.
#[derive(Args, Debug)]
pub(crate) struct PathArgs {
    #[command(subcommand)]
    command: PathCommand,
}

#[derive(Subcommand, Debug)]
enum PathCommand {
    Serve(serve::ServeArgs),
    Udp(Box<udp::UdpArgs>),
}

pub(crate) fn run(args: PathArgs) -> Result<(), Failure> {
    match args.command {
        PathCommand::Serve(args) => serve::run(&args),
        PathCommand::Udp(args) => udp::run(*args),
    }
}
