//! `horolog relay tree`: the delay model of a tree of relays, the same measured on real relays, and
//! a good tree from measured delays.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod courier;
mod doubts;
mod engine;
mod given;
mod measure;
mod outcome;
mod pool;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_record::{LimitUnit, RelayTreeResult};
use horolog_relay::tree::Processing;
use horolog_report::{html, table, to_json};

use crate::ci::CiArgs;
use crate::failure::{Failure, verdict};
use crate::files::Files;
use crate::keep::KeepArgs;
use crate::limit::{Limit, Limited};
use crate::{output, values};
use engine::Maker;

/// What can be limited.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// D by the model.
    Tree,
    /// The mean delay by the model.
    Mean,
    /// The largest median of a node as measured.
    P50,
    /// The largest 99th percentile of a node as measured.
    P99,
}

const FIGURES: [Limited<Figure>; 4] = [
    ("tree", LimitUnit::Ns, Figure::Tree),
    ("mean", LimitUnit::Ns, Figure::Mean),
    ("p50", LimitUnit::Ns, Figure::P50),
    ("p99", LimitUnit::Ns, Figure::P99),
];

/// Delays of a tree of relays: by a model, and measured.
///
/// The model is that of Cao, Su and Lu 2008 (section 2): a packet's delay is the processing of each
/// node on its way and the transmission delay of each edge; D is that of the slowest leaf. A node
/// serves its children one after another, so the copy for the child at place i, from 0 on, leaves
/// FIRST + i NEXT after the packet came. With two engines it tells what the second gains, at all
/// nodes and at one at a time.
///
/// The tree is given by a file (TOML: nodes, [[edge]], [[processing]]), by --degree and --depth, or
/// made from delays between pairs of nodes by --pairwise. With --measure, relays run in private
/// hosts (root is needed), one for each inner node; one node alone tells how long it takes, the
/// model predicts the tree from that, and the tree is measured.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("form").required(true).args(["file", "degree", "pairwise"]))]
pub(super) struct TreeArgs {
    /// Tree file.
    file: Option<PathBuf>,
    /// Children of each inner node of a regular tree.
    #[arg(long, value_name = "N", requires = "depth", value_parser = values::count)]
    degree: Option<u32>,
    /// Edges from its root to each of its leaves.
    #[arg(long, value_name = "N", value_parser = values::count)]
    depth: Option<u32>,
    /// Transmission delay of each of its edges.
    #[arg(long, value_name = "TIME", requires = "degree", default_value = "0",
          value_parser = with_unit)]
    delay: Duration,
    /// Make a tree with a small D from the delays in this file: the line 'from,to,delay_us', then
    /// one for each pair; one direction alone holds for both. By the compact tree algorithm of Shi
    /// and Turner 2002, with the time that a node takes for each copy; beside it a star and a
    /// chain.
    #[arg(long, value_name = "FILE", requires = "degree_max")]
    pairwise: Option<PathBuf>,
    /// Children that a node of that tree has at most.
    #[arg(long, value_name = "N", value_parser = values::count)]
    degree_max: Option<u32>,
    /// Its root [default: the node that the file names first].
    #[arg(long, value_name = "NODE")]
    root: Option<String>,
    /// How long a host-based node takes, such as 20us,6us: until the first copy leaves, and from
    /// one copy to the next. Takes the place of what a tree file says.
    #[arg(long, value_name = "FIRST,NEXT", value_parser = processing)]
    host_based: Option<Processing>,
    /// The same of a node whose copies are made below the host.
    #[arg(long, value_name = "FIRST,NEXT", value_parser = processing, requires = "host_based")]
    in_kernel: Option<Processing>,
    #[command(flatten)]
    measure: MeasureArgs,
    /// Write the tree to this file, as a tree file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    toml: Option<PathBuf>,
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiArgs,
    #[command(flatten)]
    keep: KeepArgs,
    /// End with status 1 if this holds, such as 'tree>1ms' or 'p99>500us'; may be given more than
    /// once. Figures: tree (D), mean (both by the model, of the slower engine), p50, p99 (measured,
    /// of the slowest node). What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = |text: &str| Limit::parse(text, FIGURES))]
    fail_if: Vec<Limit<Figure>>,
}

/// How to measure.
#[derive(Args, Debug)]
struct MeasureArgs {
    /// Measure the tree on relays in private hosts, of which there are 64 at most. Their links take
    /// no time, and how long nodes take is measured, whatever a file says.
    #[arg(long, conflicts_with_all = ["host_based", "in_kernel", "delay"])]
    measure: bool,
    /// Engines to measure with, as of 'relay run': one, or two to compare [default: send,xdp].
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = Maker::parse)]
    engine: Vec<Maker>,
    /// Packets that count, at each level of the tree [default: 1000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    packets: Option<u32>,
    /// From one packet to the next [default: 2ms].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    interval: Option<Duration>,
    /// Payload of each packet in bytes [default: 256].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(16..=1_472))]
    size: Option<u16>,
}

impl MeasureArgs {
    fn engines(&self) -> Vec<Maker> {
        if self.engine.is_empty() { Maker::USUAL.to_vec() } else { self.engine.clone() }
    }

    fn packets(&self) -> u32 {
        self.packets.unwrap_or(1_000)
    }

    fn interval(&self) -> Duration {
        self.interval.unwrap_or(Duration::from_millis(2))
    }

    fn size(&self) -> u16 {
        self.size.unwrap_or(256)
    }
}

/// Refuses flags that would do nothing here. `requires` of clap does not: it takes what is required
/// for unneeded where another flag conflicts with it, as the forms of a tree do with one another.
fn refuse_idle(args: &TreeArgs) -> Result<(), Failure> {
    let MeasureArgs { measure, engine, packets, interval, size } = &args.measure;
    let idle = [
        ("--degree-max", args.degree_max.is_some(), "--pairwise", args.pairwise.is_some()),
        ("--depth", args.depth.is_some(), "--degree", args.degree.is_some()),
        ("--root", args.root.is_some(), "--pairwise", args.pairwise.is_some()),
        ("--engine", !engine.is_empty(), "--measure", *measure),
        ("--packets", packets.is_some(), "--measure", *measure),
        ("--interval", interval.is_some(), "--measure", *measure),
        ("--size", size.is_some(), "--measure", *measure),
    ];
    match idle.iter().find(|(_, is_given, _, is_used)| *is_given && !is_used) {
        Some((flag, _, needed, _)) => {
            Err(Failure::usage(format!("{flag} does nothing without {needed}")))
        }
        None => Ok(()),
    }
}

fn processing(text: &str) -> Result<Processing, String> {
    let form = || "write two times with their units, such as 20us,6us".to_owned();
    let (first, next) = text.split_once(',').ok_or_else(form)?;
    let ns = |text: &str| with_unit(text).map(|time| time.as_nanos() as f64);
    let (first_ns, next_ns) = (ns(first).map_err(|_| form())?, ns(next).map_err(|_| form())?);
    Ok(Processing { first_ns, next_ns })
}

/// A time that says of what it is so many: delays of relays are microseconds, and a number alone
/// would be seconds.
fn with_unit(text: &str) -> Result<Duration, String> {
    if text.ends_with('s') || text == "0" {
        values::duration(text)
    } else {
        Err("write a time with its unit, such as 100us".to_owned())
    }
}

pub(super) fn run(args: &TreeArgs) -> Result<(), Failure> {
    refuse_idle(args)?;
    let named = [("--toml", &args.toml), ("--json", &args.json), ("--html", &args.html)];
    args.ci.open(&named.map(|(flag, path)| (flag, path.as_deref())))?;
    let files = Files::open(named)?.kept(&args.keep);
    let given = given::read(args)?;
    let mut result = if args.measure.measure {
        output::end_gently()?;
        measure::run(&given, &args.measure)?
    } else {
        outcome::of_model(&given)
    };
    let judge = |limit: &Limit<Figure>| limit.judge_named(outcome::figures(&result, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    let forms: [fn(&RelayTreeResult) -> String; 3] = [outcome::toml, to_json, html::relay_tree];
    files.write(&result, forms, table::relay_tree)?;
    verdict(&result.limits, &result.findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_node_are_two() {
        let read = processing("20us,1.5us").unwrap();
        assert!((read.first_ns - 20e3).abs() < 1e-6 && (read.next_ns - 1.5e3).abs() < 1e-6);
        for bad in ["", "20us", "20us,", "20,6", "fast,1us", "-1us,1us", "1us,1us,1us"] {
            assert!(processing(bad).unwrap_err().starts_with("write two times"), "{bad}");
        }
    }
}
