//! The `horolog` binary. Each command resolves its flags to options and passes them to the crate
//! that does the work. Results go to stdout, progress and errors to stderr.

#![warn(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "they panic on a closed pipe and a full disk; `output` has writers that do not"
)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "comments on flags are help texts, in which brackets are notation"
)]

mod build_date;
mod ci;
mod commands;
#[cfg(test)]
mod documented_commands;
mod failure;
mod files;
#[cfg(test)]
mod help_texts;
mod limit;
mod live;
#[cfg(feature = "campaign")]
#[cfg(test)]
mod names;
mod output;
mod result_store;
mod secret;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "campaign")]
use commands::campaign;
use commands::{
    after, at, bench, clock, counters, cycle, demo, host, lab, load, manual, path, query, relay,
    runs, serve, status,
};
use failure::CommandFailure;

/// Serve time, load-test time servers, and measure clocks, hosts and paths.
///
/// Exit status: 0 success; 1 negative outcome: no reply, a failed limit, an error-level finding, a
/// comparison with a worse metric, a missed deadline or a lost part of a campaign; 2 usage error; 3
/// missing prerequisite on this host, or far end unreachable (no route, TCP connection refused); 4
/// this campaign agent ended, because another with its name was started; 130 terminated by a second
/// Ctrl-C. The commands after, at and lab exec end with the status of the program that they run.
#[derive(Parser, Debug)]
#[command(name = "horolog", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Serve(Box<serve::ServeArgs>),
    Status(status::StatusArgs),
    Load(load::LoadArgs),
    Ntpperf(Box<load::ntpperf::NtpperfArgs>),
    Counters(counters::CountersArgs),
    Query(query::QueryArgs),
    Clock(clock::ClockArgs),
    Path(path::PathArgs),
    Relay(relay::RelayArgs),
    Host(host::HostArgs),
    Cycle(cycle::CycleArgs),
    Runs(runs::RunsArgs),
    Report(runs::report::ReportArgs),
    Lab(lab::LabArgs),
    #[cfg(feature = "campaign")]
    Campaign(campaign::CampaignArgs),
    Bench(bench::BenchArgs),
    After(after::AfterArgs),
    At(Box<at::AtArgs>),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let command = match Cli::try_parse_from(load::ntpperf::arguments(std::env::args_os())) {
        Ok(cli) => cli.command,
        // Help and version were requested.
        Err(help) if !help.use_stderr() => help.exit(),
        Err(error) => return failure::command_line_failure(&error).report(),
    };
    // A process of a campaign job waits here, with its command line parsed, until the start time.
    #[cfg(feature = "campaign")]
    if let Err(error) = horolog_campaign::job::pass_gate() {
        return CommandFailure::environment(format!("cannot wait for the instant: {error}"))
            .report();
    }
    let result: Result<(), CommandFailure> = match command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Status(args) => status::run(args),
        Command::Load(args) => load::run(args),
        Command::Ntpperf(args) => load::ntpperf::run(*args),
        Command::Counters(args) => counters::run(args),
        Command::Query(args) => query::run(args),
        Command::Clock(args) => clock::run(args),
        Command::Path(args) => path::run(args),
        Command::Relay(args) => relay::run(args),
        Command::Host(args) => host::run(args),
        Command::Cycle(args) => cycle::run(args),
        Command::Runs(args) => runs::run(&args),
        Command::Report(args) => runs::report::run(&args),
        Command::Lab(args) => lab::run(args),
        #[cfg(feature = "campaign")]
        Command::Campaign(args) => campaign::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::After(args) => after::run(&args),
        Command::At(args) => at::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    };
    match ci::write_ci_files(result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
