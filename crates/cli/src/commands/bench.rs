//! `horolog bench`: experiments on servers and relays, each on this host from end to end.

use clap::{Args, Subcommand};

use crate::failure::CommandFailure;

mod cores;
mod nts;
mod relay;

/// Greatest number of threads, and so of cores: above the cores of any host.
const THREADS_MAX: usize = 1024;

/// Compare a server or a relay with itself in different configurations.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    experiment: ExperimentArgs,
}

#[derive(Subcommand, Debug)]
enum ExperimentArgs {
    Cores(cores::CoresArgs),
    Nts(nts::BenchNtsArgs),
    Relay(relay::BenchRelayArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), CommandFailure> {
    match &args.experiment {
        ExperimentArgs::Cores(args) => cores::run(args),
        ExperimentArgs::Nts(args) => nts::run(args),
        ExperimentArgs::Relay(args) => relay::run(args),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("write a number of threads from 1 to {THREADS_MAX}")),
    }
}

/// Each value once, in the order of first occurrence.
fn distinct<T: PartialEq + Copy>(values: &[T]) -> Vec<T> {
    let is_first = |(index, value): &(usize, &T)| !values[..*index].contains(*value);
    values.iter().enumerate().filter(is_first).map(|(_, value)| *value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads() {
        assert_eq!(distinct(&[2, 1, 2, 1]), [2, 1]);
        assert_eq!(threads("1024"), Ok(1024));
        for bad in ["0", "", "-1", "two", "1025"] {
            assert!(threads(bad).is_err(), "{bad}");
        }
    }
}
