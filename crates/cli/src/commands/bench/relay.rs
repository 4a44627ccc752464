//! `horolog bench relay`: gain of a relay from in-kernel copies.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_experiment::bench_relay::{
    self, CHILDREN_MAX, COPY_RATE_LIMIT, RECEIVERS_MAX, RelayBenchOptions, SIZES,
};
use horolog_record::RelayEngineKind;

use crate::commands::experiment_progress::ExperimentProgress;
use crate::failure::{CommandFailure, check_findings};
use crate::files::ResultFileArgs;
use crate::{output, values};

/// Measure the gain of a relay from in-kernel copies.
///
/// Creates lab hosts (a source of packets, a relay and receivers), and searches for the highest
/// rate at which each child receives each packet once, for each engine, packet size and number of
/// children. Engines alternate, and the median of several repetitions counts. Copies are counted at
/// the receivers, not by the relay. The table has the rates of Figure 3 of Cao, Su and Lu, "A
/// Mechanism Improving the Forwarding Throughput of Application Layer Multicast", Journal of
/// National University of Defense Technology 30 (2008), 2, 51-55, with the gain of the paper next
/// to the measured one. At half of each rate the delays of the first and the last copy of a packet
/// from the source are measured too, and the CPU time per copy.
///
/// Requires root and XDP in native mode. Source, relay and receivers share this host's cores. For
/// the socket engines (send, sendmmsg), the source sends from one core and the relay is pinned to
/// another; an in-kernel relay (xdp) runs on the cores on which packets arrive, so the source sends
/// from all cores.
#[derive(Args, Debug)]
pub(crate) struct BenchRelayArgs {
    /// Bytes of UDP payload: sizes, and ranges with a step or a factor.
    #[arg(long, value_name = "LIST", value_parser = parse_sizes, default_value = "64,128,256,512,1400")]
    sizes: PayloadSizes,
    /// Numbers of children to measure with: numbers, and ranges with a step or a factor.
    #[arg(long, value_name = "LIST", value_parser = parse_child_counts, default_value = "1..64:*2")]
    children: ChildCountList,
    /// Engines that send the copies. send: a system call for each copy; sendmmsg: a system call for
    /// many copies; xdp: the kernel's driver path.
    #[arg(
        long,
        value_enum,
        value_name = "NAME[,NAME...]",
        value_delimiter = ',',
        default_value = "send,xdp"
    )]
    engines: Vec<BenchRelayEngineArg>,
    /// Repetitions of each search; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Approximate total duration of the trials of each search.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "2s")]
    time: Duration,
    /// Share of copies that may be lost at a rate that still counts as lossless.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "0")]
    loss_ratio: f64,
    /// Limit on copies per second of the relay [default: unlimited].
    #[arg(long, value_name = "RATE", value_parser = values::count, default_value_t = COPY_RATE_LIMIT,
          hide_default_value = true)]
    copy_rate: u32,
    /// Largest number of packets that the source sends together, 1 to 64 [default: by the number of
    /// children, so that each receiving host gets at most 64 copies, the most that the kernel takes
    /// from an interface at once].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: Option<u32>,
    /// Number of hosts over which the children are spread round-robin, each on its own interface of
    /// the relay, 1 to 16.
    #[arg(long, value_name = "N", value_parser = parse_receiver_count, default_value = "1")]
    receivers: usize,
    #[command(flatten)]
    files: ResultFileArgs,
}

#[derive(Clone, Debug)]
struct PayloadSizes(Vec<usize>);

#[derive(Clone, Debug)]
struct ChildCountList(Vec<usize>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchRelayEngineArg {
    Send,
    Sendmmsg,
    Xdp,
}

impl BenchRelayEngineArg {
    const fn engine(self) -> RelayEngineKind {
        match self {
            Self::Send => RelayEngineKind::Send,
            Self::Sendmmsg => RelayEngineKind::Sendmmsg,
            Self::Xdp => RelayEngineKind::Xdp,
        }
    }
}

fn parse_sizes(text: &str) -> Result<PayloadSizes, String> {
    let sizes = values::sizes(text)?.into_iter().map(|size| size as usize);
    let sizes: Vec<_> = sizes.collect();
    match sizes.iter().find(|size| !SIZES.contains(size)) {
        Some(wrong) => {
            let (min, max) = (SIZES.start(), SIZES.end());
            Err(format!("invalid packet size {wrong}: {min} to {max} bytes"))
        }
        None => Ok(PayloadSizes(sizes)),
    }
}

fn parse_child_counts(text: &str) -> Result<ChildCountList, String> {
    let numbers = values::numbers(text)?;
    let is_number =
        |number: &f64| number.fract() == 0.0 && (1.0..=CHILDREN_MAX as f64).contains(number);
    match numbers.iter().find(|number| !is_number(number)) {
        Some(wrong) => Err(format!("invalid number of children {wrong}: 1 to {CHILDREN_MAX}")),
        None => Ok(ChildCountList(numbers.into_iter().map(|number| number as usize).collect())),
    }
}

fn parse_receiver_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=RECEIVERS_MAX).contains(&number) => Ok(number),
        _ => Err(format!("write a number of hosts from 1 to {RECEIVERS_MAX}")),
    }
}

impl BenchRelayArgs {
    fn options(&self) -> RelayBenchOptions {
        RelayBenchOptions {
            sizes: self.sizes.0.clone(),
            children: self.children.0.clone(),
            engines: self.engines.iter().map(|engine| engine.engine()).collect(),
            repetitions: self.repetitions,
            search_duration: self.time,
            loss_ratio: self.loss_ratio,
            copy_rate: self.copy_rate,
            batch: self.batch,
            receivers: self.receivers,
            command: output::command_line(),
        }
    }
}

pub(crate) fn run(args: &BenchRelayArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let result = bench_relay::run(&args.options(), &ExperimentProgress::default())?;
    files.write(&result)?;
    check_findings(&result.findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(parse_sizes("64,128").unwrap().0, [64, 128]);
        assert_eq!(parse_child_counts("1..64:*2").unwrap().0, [1, 2, 4, 8, 16, 32, 64]);
        for bad in ["23", "1473", "64k", "none"] {
            assert!(parse_sizes(bad).is_err(), "{bad}");
        }
        for bad in ["0", "1.5", "1025", "-1", ""] {
            assert!(parse_child_counts(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_receiver_count("16"), Ok(16));
        assert!(parse_receiver_count("0").is_err() && parse_receiver_count("17").is_err());
    }
}
