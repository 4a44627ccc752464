//! `horolog relay tree`: delays of a tree of relays by a model, their measurement on real relays,
//! and construction of a tree with a small delay from measured delays between nodes.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod input;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_experiment::relay_tree::{self, TreeMeasurementOptions};
use horolog_record::{RelayEngineKind, RelayTreeResult};
use horolog_relay::tree::{ProcessingTime, predicted_result, tree_toml};
use horolog_report::{RenderableResult, to_json};

use crate::ci::CiOutputArgs;
use crate::commands::experiment_progress::ExperimentProgress;
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::limit::MetricLimit;
use crate::result_store::StoreResultArgs;
use crate::{output, values};
use horolog_time::text::{self, QuantityError};
use input::TreeInput;

/// Engines compared by default: one system call per copy, and in-kernel copies.
const DEFAULT_ENGINES: [RelayEngineKind; 2] = [RelayEngineKind::Send, RelayEngineKind::Xdp];

/// Compute the delays of a tree of relays by a model, and measure them.
///
/// The model is that of Cao, Su and Lu, "A Mechanism Improving the Forwarding Throughput of
/// Application Layer Multicast", Journal of National University of Defense Technology 30 (2008), 2,
/// 51-55 (section 2): a packet's delay is the sum of the processing delay of each node and the link
/// delay of each edge on its path (the paper's transmission delay); D is the delay of the slowest
/// leaf. A node serves its children one after another, so the copy for child i, counted from 0,
/// leaves FIRST + i × NEXT after the packet arrived (see --user-space). With two engines, the
/// output shows by how much the second reduces the delay if used at all nodes, and for each node if
/// used there alone.
///
/// The tree comes from a file (TOML: nodes, [[edge]], [[processing]]), from --degree and --depth,
/// or with --pairwise from delays between pairs of nodes. With --measure, relays run in lab hosts
/// (requires root), one for each inner node; one node alone shows its processing delay, the model
/// predicts the tree from that, and the tree is measured.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("form").required(true).args(["file", "degree", "pairwise"]))]
pub(super) struct RelayTreeArgs {
    /// Tree file.
    file: Option<PathBuf>,
    /// Children of each inner node of a regular tree.
    #[arg(long, value_name = "N", requires = "depth", value_parser = values::count)]
    degree: Option<u32>,
    /// Edges from the root to each leaf of a regular tree.
    #[arg(long, value_name = "N", value_parser = values::count)]
    depth: Option<u32>,
    /// Link delay of each edge of a regular tree, such as 100us.
    #[arg(long, value_name = "TIME", requires = "degree", default_value = "0s",
          value_parser = parse_time_with_unit)]
    delay: Duration,
    /// Build a tree with a small D from the delays in this file: the header 'from,to,delay_us',
    /// then one line for each pair; a delay given in one direction is used for both.
    ///
    /// The tree is built by the compact tree algorithm (Shi and Turner, "Routing in overlay
    /// multicast networks", Proceedings of IEEE INFOCOM 2002, 1200-1208), with the processing
    /// delays of --user-space (with --measure: 0); a star and a chain are shown for comparison.
    #[arg(long, value_name = "FILE", requires = "degree_max")]
    pairwise: Option<PathBuf>,
    /// Largest number of children of a node of the tree of --pairwise.
    #[arg(long, value_name = "N", value_parser = values::count)]
    degree_max: Option<u32>,
    /// Root of the tree of --pairwise [default: the first node in the file].
    #[arg(long, value_name = "NODE")]
    root: Option<String>,
    /// Processing delay of a node that copies in user space (engine send or sendmmsg), such as
    /// 20us,6us: until the first copy leaves, and from one copy to the next. Overrides the tree
    /// file.
    #[arg(long, value_name = "FIRST,NEXT", value_parser = parse_processing_time)]
    user_space: Option<ProcessingTime>,
    /// Processing delay of a node that copies in the kernel (engine xdp), in the same notation.
    #[arg(long, value_name = "FIRST,NEXT", value_parser = parse_processing_time, requires = "user_space")]
    in_kernel: Option<ProcessingTime>,
    #[command(flatten)]
    measure: TreeMeasurementArgs,
    /// Write the tree to FILE as a tree file; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    toml: Option<PathBuf>,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiOutputArgs,
    #[command(flatten)]
    store_args: StoreResultArgs,
    /// Exit with status 1 if this expression is true, such as 'tree>1ms' or 'p99>500us'.
    /// Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: tree (delay D) and mean (delay of all nodes but the root), both by the model for
    /// the slower engine; p50, p99 (measured, of the slowest node).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<RelayTreeResult>::parse)]
    fail_if: Vec<MetricLimit<RelayTreeResult>>,
}

/// Measurement of a tree.
#[derive(Args, Debug)]
struct TreeMeasurementArgs {
    /// Measure the tree, of at most 64 nodes, on relays in lab hosts (requires root). Links between
    /// lab hosts have no delay, and processing delays are measured instead of taken from a file.
    #[arg(long, conflicts_with_all = ["user_space", "in_kernel", "delay"])]
    measure: bool,
    /// Engines to measure with: send, sendmmsg or xdp, as in 'relay run'; one, or two to compare,
    /// separated by a comma [default: send,xdp].
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = parse_engine)]
    engine: Vec<RelayEngineKind>,
    /// Packets to measure at each level of the tree, not counting the warm-up [default: 1000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    packets: Option<u32>,
    /// Interval between packets [default: 2ms].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
    /// Payload of each packet in bytes [default: 256].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(16..=1_472))]
    size: Option<u16>,
}

impl TreeMeasurementArgs {
    fn options(&self) -> Result<TreeMeasurementOptions, CommandFailure> {
        let engines = match &self.engine[..] {
            [] => DEFAULT_ENGINES.to_vec(),
            [_] => self.engine.clone(),
            [before, after] if before != after => self.engine.clone(),
            _ => {
                let reason = "--engine takes one engine, or two different ones";
                return Err(CommandFailure::usage(reason));
            }
        };
        Ok(TreeMeasurementOptions {
            engines,
            packets: self.packets.unwrap_or(1_000),
            interval: self.interval.unwrap_or(Duration::from_millis(2)),
            payload: self.size.unwrap_or(256).into(),
            command: output::command_line(),
        })
    }
}

/// Parses the name of an engine, or `auto` for XDP, all of whose requirements a lab host meets.
fn parse_engine(text: &str) -> Result<RelayEngineKind, String> {
    let found = RelayEngineKind::ALL.into_iter().find(|engine| engine.name() == text);
    found.or((text == "auto").then_some(RelayEngineKind::Xdp)).ok_or_else(|| {
        let names = RelayEngineKind::ALL.map(RelayEngineKind::name).join(", ");
        format!("expected auto, {names}, or two of them separated by a comma")
    })
}

/// Returns an error for flags that would have no effect. clap's `requires` does not: it is ignored
/// if the required flag conflicts with another one that is present, and the three forms of a tree
/// conflict with one another.
fn refuse_ineffective_flags(args: &RelayTreeArgs) -> Result<(), CommandFailure> {
    let TreeMeasurementArgs { measure, engine, packets, interval, size } = &args.measure;
    let idle = [
        ("--degree-max", args.degree_max.is_some(), "--pairwise", args.pairwise.is_some()),
        ("--depth", args.depth.is_some(), "--degree", args.degree.is_some()),
        ("--root", args.root.is_some(), "--pairwise", args.pairwise.is_some()),
        ("--engine", !engine.is_empty(), "--measure", *measure),
        ("--packets", packets.is_some(), "--measure", *measure),
        ("--interval", interval.is_some(), "--measure", *measure),
        ("--size", size.is_some(), "--measure", *measure),
    ];
    match idle.iter().find(|(_, is_present, _, is_used)| *is_present && !is_used) {
        Some((flag, _, needed, _)) => {
            Err(CommandFailure::usage(format!("{flag} requires {needed}")))
        }
        None => Ok(()),
    }
}

fn parse_processing_time(text: &str) -> Result<ProcessingTime, String> {
    let form = || "expected two times with units, such as 20us,6us".to_owned();
    let (first, next) = text.split_once(',').ok_or_else(form)?;
    let ns = |text: &str| parse_time_with_unit(text).map(|time| time.as_nanos() as f64);
    let (first_ns, next_ns) = (ns(first).map_err(|_| form())?, ns(next).map_err(|_| form())?);
    Ok(ProcessingTime { first_ns, next_ns })
}

/// Parses a time that has a unit. A bare number other than 0 is refused, because it would mean
/// seconds, while delays of relays are microseconds.
fn parse_time_with_unit(text: &str) -> Result<Duration, QuantityError> {
    text::ns_with_unit(text).and_then(|_| text::duration(text))
}

pub(super) fn run(args: &RelayTreeArgs) -> Result<(), CommandFailure> {
    refuse_ineffective_flags(args)?;
    let named = [("--toml", &args.toml), ("--json", &args.json), ("--html", &args.html)];
    args.ci.open(&named.map(|(flag, path)| (flag, path.as_deref())))?;
    let files = ResultFiles::open(named)?.with_store(&args.store_args);
    let input = input::read_input(args)?;
    let mut result = if args.measure.measure {
        output::install_interrupt_handler()?;
        relay_tree::run(&input.tree, &args.measure.options()?, &ExperimentProgress::default())?
    } else {
        result_without_measurement(input)
    };
    let renderers: [fn(&RelayTreeResult) -> String; 3] =
        [tree_toml, to_json, RenderableResult::page];
    files.finish_with(&mut result, &args.fail_if, renderers)
}

/// Returns the result of the model for the input, with the trees for comparison.
fn result_without_measurement(input: TreeInput) -> RelayTreeResult {
    let TreeInput { tree, engines, shapes } = input;
    RelayTreeResult { shapes, ..predicted_result(&tree, &engines, output::command_line()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_node_are_two() {
        let read = parse_processing_time("20us,1.5us").unwrap();
        assert!((read.first_ns - 20e3).abs() < 1e-6 && (read.next_ns - 1.5e3).abs() < 1e-6);
        for bad in ["", "20us", "20us,", "20,6", "fast,1us", "-1us,1us", "1us,1us,1us"] {
            assert!(
                parse_processing_time(bad).unwrap_err().starts_with("expected two times"),
                "{bad}"
            );
        }
    }

    #[test]
    fn engines_have_the_names_of_those_of_a_relay() {
        for engine in RelayEngineKind::ALL {
            assert_eq!(parse_engine(engine.name()), Ok(engine));
        }
        assert_eq!(parse_engine("auto"), Ok(RelayEngineKind::Xdp));
        let refused = parse_engine("fast").unwrap_err();
        assert!(refused.starts_with("expected auto, send, sendmmsg, xdp"), "{refused}");
    }
}
