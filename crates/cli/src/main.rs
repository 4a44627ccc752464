//! The `horolog` binary: flags become resolved options, and options one call into the crate that
//! does the work. Results go to stdout, progress and complaints to stderr.

mod commands;
mod failure;
mod output;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{demo, lab, load, serve, status};
use failure::Failure;

/// Serve time, load it, and prove when things happen.
///
/// Exit status: 0 done; 1 what was measured failed its limit; 2 wrong usage; 3 the machine lacks
/// something.
#[derive(Parser, Debug)]
#[command(name = "horolog", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Serve(serve::ServeArgs),
    Status(status::StatusArgs),
    Load(load::LoadArgs),
    Lab(lab::LabArgs),
}

fn main() -> ExitCode {
    // Clap ends the process with status 2 where the command line is wrong.
    let result: Result<(), Failure> = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Status(args) => status::run(args),
        Command::Load(args) => load::run(args),
        Command::Lab(args) => lab::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
