//! `horolog bench`: experiments about servers and relays, each on this machine from end to end.

use clap::{Args, Subcommand};

use crate::failure::Failure;

mod cores;
mod nts;
mod relay;

/// More threads than a machine has cores make no sense, and more cores are not to be had.
const THREADS_MAX: usize = 1024;

/// Experiments that compare a server or a relay with itself.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    experiment: ExperimentArgs,
}

#[derive(Subcommand, Debug)]
enum ExperimentArgs {
    Cores(cores::CoresArgs),
    Nts(nts::NtsArgs),
    Relay(relay::RelayArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
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

/// Each value once, in the order in which it comes first.
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
