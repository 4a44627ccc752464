//! `horolog bench`: benchmarks of servers and relays; load generator and system under test both run
//! on this host.

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

mod cores;
mod nts;
mod relay;

/// Largest accepted number of threads or cores, above that of any host.
const THREADS_MAX: usize = 1024;

/// Compare a server or a relay with itself in different configurations.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    experiment: BenchCommand,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    Cores(cores::BenchCoresArgs),
    Nts(nts::BenchNtsArgs),
    Relay(relay::BenchRelayArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), CommandFailure> {
    match &args.experiment {
        BenchCommand::Cores(args) => cores::run(args),
        BenchCommand::Nts(args) => nts::run(args),
        BenchCommand::Relay(args) => relay::run(args),
    }
}

fn parse_thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("write a number of threads from 1 to {THREADS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads() {
        assert_eq!(parse_thread_count("1024"), Ok(1024));
        for bad in ["0", "", "-1", "two", "1025"] {
            assert!(parse_thread_count(bad).is_err(), "{bad}");
        }
    }
}
