//! `horolog path`: what a network path really does, and the far end to measure it with.

use clap::{Args, Subcommand};

use crate::failure::Failure;

mod serve;
mod stall;
mod tcp;
mod udp;

/// Network paths: what they and the kernels at both ends really do.
#[derive(Args, Debug)]
pub(crate) struct PathArgs {
    #[command(subcommand)]
    command: PathCommand,
}

#[derive(Subcommand, Debug)]
enum PathCommand {
    Serve(serve::ServeArgs),
    Udp(Box<udp::UdpArgs>),
    Tcp(Box<tcp::TcpArgs>),
    Stall(Box<stall::StallArgs>),
}

pub(crate) fn run(args: PathArgs) -> Result<(), Failure> {
    match args.command {
        PathCommand::Serve(args) => serve::run(&args),
        PathCommand::Udp(args) => udp::run(*args),
        PathCommand::Tcp(args) => tcp::run(&args),
        PathCommand::Stall(args) => stall::run(&args),
    }
}
