//! `horolog bench relay`: lab hosts with a relay in the middle, and for each engine, size and
//! number of children the highest rate of copies without loss.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_record::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, Distribution, Host, RelayBaseline,
    RelayConfigurationResult, RelayEngine, rfc3339_now,
};
use horolog_report::{html, table, to_json, units};
use horolog_stats::{Recorder, SearchConfig};
use horolog_xdp::STREAM_MARK_LEN;

use super::distinct;
use crate::failure::CommandFailure;
use crate::files::FileArgs;
use crate::output::{self, ProgressLine};
use crate::values;
use cost::OtherProcesses;
use findings::ExperimentEvents;
use measure::RelayUnderTest;
use node::{COPY_RATE, RelaySpec};
use testbed::{CHILD_PORT, PacketSource, RelayTestbed, TrialLoad};

mod cost;
mod findings;
mod measure;
mod node;
mod testbed;

/// The longest payload of a packet on a link with an MTU of 1,500 bytes.
const SIZE_MAX: usize = 1_472;
/// Copies of one packet that fit into a virtual link's ring.
const CHILDREN_OF_RECEIVER_MAX: usize = 256;
/// Lab hosts other than source and relay.
const RECEIVERS_MAX: usize = 16;
const CHILDREN_MAX: usize = 1_024;

/// Measure the gain of a relay from in-kernel copies.
///
/// Creates lab hosts, a source of packets, a relay and receivers, and searches for the highest rate
/// at which each child receives each packet once, with each engine, packet size and number of
/// children; engines take turns, and the median of several repetitions counts. The receivers count;
/// the counters of the relay are not used. The table is Figure 3 of Cao, Su and Lu, "A Mechanism
/// Improving the Forwarding Throughput of Application Layer Multicast", Journal of National
/// University of Defense Technology 30 (2008), 2, 51-55, with the gain of the paper next to the
/// measured one. At half of each rate the delays of the first and the last copy of a packet from
/// the source are measured too, and the CPU time per copy.
///
/// Source, relay and receivers share this host's cores. For the socket engines, the source sends
/// from one core and the relay is pinned to another; an in-kernel relay runs on the cores on which
/// packets arrive, so the source sends from all cores.
#[derive(Args, Debug)]
pub(crate) struct BenchRelayArgs {
    /// Bytes of UDP payload: sizes, and ranges with a step or a factor.
    #[arg(long, value_name = "LIST", value_parser = sizes, default_value = "64,128,256,512,1400")]
    sizes: PacketSizes,
    /// Numbers of children: numbers, and ranges with a step or a factor.
    #[arg(long, value_name = "LIST", value_parser = children, default_value = "1..64:*2")]
    children: Children,
    /// Engines that send the copies. send: a system call for each copy; sendmmsg: one for many
    /// copies; xdp: the kernel's driver path.
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
    /// Approximate send time of each search.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "2s")]
    time: Duration,
    /// Share of copies that may be lost at a rate that counts as lossless.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "0")]
    loss_ratio: f64,
    /// Limit on copies per second of the relay [default: more than any host sends].
    #[arg(long, value_name = "RATE", value_parser = values::count, default_value_t = COPY_RATE,
          hide_default_value = true)]
    copy_rate: u32,
    /// Largest number of packets that the source sends together, 1 to 64 [default: as many as make
    /// 64 copies for each receiving host, which the kernel accepts at once].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: Option<u32>,
    /// Hosts of the children, in turn, each on its own interface of the relay.
    #[arg(long, value_name = "N", value_parser = receivers, default_value = "1")]
    receivers: usize,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Clone, Debug)]
struct PacketSizes(Vec<usize>);

#[derive(Clone, Debug)]
struct Children(Vec<usize>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchRelayEngineArg {
    Send,
    Sendmmsg,
    Xdp,
}

impl BenchRelayEngineArg {
    const fn engine(self) -> RelayEngine {
        match self {
            Self::Send => RelayEngine::Send,
            Self::Sendmmsg => RelayEngine::Sendmmsg,
            Self::Xdp => RelayEngine::Xdp,
        }
    }
}

fn sizes(text: &str) -> Result<PacketSizes, String> {
    let sizes = values::sizes(text)?.into_iter().map(|size| size as usize);
    let sizes: Vec<_> = sizes.collect();
    match sizes.iter().find(|size| !(STREAM_MARK_LEN..=SIZE_MAX).contains(size)) {
        Some(wrong) => {
            Err(format!("invalid packet size {wrong}: {STREAM_MARK_LEN} to {SIZE_MAX} bytes"))
        }
        None => Ok(PacketSizes(distinct(&sizes))),
    }
}

fn children(text: &str) -> Result<Children, String> {
    let numbers = values::numbers(text)?;
    let is_number =
        |number: &f64| number.fract() == 0.0 && (1.0..=CHILDREN_MAX as f64).contains(number);
    match numbers.iter().find(|number| !is_number(number)) {
        Some(wrong) => Err(format!("invalid number of children {wrong}: 1 to {CHILDREN_MAX}")),
        None => Ok(Children(distinct(
            &numbers.into_iter().map(|number| number as usize).collect::<Vec<_>>(),
        ))),
    }
}

fn receivers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=RECEIVERS_MAX).contains(&number) => Ok(number),
        _ => Err(format!("write a number of hosts from 1 to {RECEIVERS_MAX}")),
    }
}

/// Delays of packets of a cell, in all of its repetitions at half the rate found.
#[derive(Default)]
struct CopyDelays {
    first_copy: Recorder,
    last_copy: Recorder,
    /// Delays without a relay.
    direct: Recorder,
}

/// State shared by all measurements.
struct RelayBench<'a> {
    args: &'a BenchRelayArgs,
    config: SearchConfig,
    engines: Vec<RelayEngine>,
    stage: RelayTestbed,
    /// Number of searches started.
    searches: usize,
    events: ExperimentEvents,
}

pub(crate) fn run(args: &BenchRelayArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let (mut bench, started) = (RelayBench::open(args)?, rfc3339_now());
    let (mut cells, mut direct) = (Vec::new(), Vec::new());
    for &size in &args.sizes.0 {
        if bench.is_over() {
            break;
        }
        bench.size(size, &mut cells, &mut direct)?;
    }
    let result = BenchRelayResult {
        schema: BENCH_RELAY_SCHEMA.to_owned(),
        started,
        command: output::command_line(),
        host: Host::read(),
        repetitions: args.repetitions,
        loss_ratio: args.loss_ratio,
        receivers: args.receivers,
        findings: findings::all(&cells, &direct, &bench.events, bench.stage.cores.len()),
        direct,
        cells,
    };
    drop(bench);
    files.write(&result, [to_json, html::bench_relay], table::bench_relay)?;
    crate::failure::no_error(&result.findings)
}

impl<'a> RelayBench<'a> {
    fn open(args: &'a BenchRelayArgs) -> Result<Self, CommandFailure> {
        let most = args.children.0.iter().copied().max().unwrap_or(1);
        let of_receiver = most.div_ceil(args.receivers);
        if of_receiver > CHILDREN_OF_RECEIVER_MAX {
            return Err(CommandFailure::usage(format!(
                "{of_receiver} children at one interface exceed the copies that its ring holds \
                 ({CHILDREN_OF_RECEIVER_MAX}); give more hosts with --receivers"
            )));
        }
        let engines: Vec<_> = args.engines.iter().map(|engine| engine.engine()).collect();
        let config = measure::search(args.time, args.loss_ratio)?;
        let stage = RelayTestbed::new(args.receivers, most)?;
        Ok(Self {
            args,
            config,
            engines: distinct(&engines),
            stage,
            searches: 0,
            events: ExperimentEvents::default(),
        })
    }

    fn searches_planned(&self) -> usize {
        let cells = self.args.sizes.0.len() * self.args.children.0.len() * self.engines.len();
        cells * self.args.repetitions as usize
    }

    /// Returns true if nothing more is to be measured.
    fn is_over(&self) -> bool {
        output::flow().is_break() || self.events.relay_ended.is_some()
    }

    /// Measures all numbers of children with packets of one size.
    fn size(
        &mut self,
        size: usize,
        cells: &mut Vec<RelayConfigurationResult>,
        direct: &mut Vec<RelayBaseline>,
    ) -> Result<(), CommandFailure> {
        let source = self.stage.source(size)?;
        let without = measure::direct(&mut self.stage, &source, size, self.config.final_duration)?;
        for &children in &self.args.children.0 {
            if self.is_over() {
                break;
            }
            cells.extend(self.cells(&source, &without, children)?);
        }
        direct.push(without);
        Ok(())
    }

    /// Measures all engines with this number of children, in turn.
    fn cells(
        &mut self,
        source: &PacketSource,
        direct: &RelayBaseline,
        children: usize,
    ) -> Result<Vec<RelayConfigurationResult>, CommandFailure> {
        let mut cells: Vec<_> = self
            .engines
            .clone()
            .into_iter()
            .map(|engine| (self.empty(direct.size_bytes, children, engine), CopyDelays::default()))
            .collect();
        'repetitions: for _ in 0..self.args.repetitions {
            for (cell, times) in &mut cells {
                if self.is_over() {
                    break 'repetitions;
                }
                self.round(source, direct, cell, times)?;
            }
        }
        let finish = |(cell, times): (RelayConfigurationResult, CopyDelays)| {
            if let Some(rate) = cell.copies_per_s() {
                let (name, rate) = (findings::name(&cell), units::human_rate(rate));
                output::print_note(&format!("horolog: {name}: {rate} copies"));
            }
            RelayConfigurationResult {
                first_copy_ns: Distribution::from_recorder(&times.first_copy),
                last_copy_ns: Distribution::from_recorder(&times.last_copy),
                direct_ns: Distribution::from_recorder(&times.direct),
                ..cell
            }
        };
        let measured = cells.into_iter().filter(|(cell, ..)| !cell.repetitions.is_empty());
        Ok(measured.map(finish).collect())
    }

    fn empty(
        &self,
        size_bytes: usize,
        children: usize,
        engine: RelayEngine,
    ) -> RelayConfigurationResult {
        let source_threads = if engine == RelayEngine::Xdp { self.stage.cores.len() } else { 1 };
        RelayConfigurationResult {
            size_bytes,
            children,
            engine,
            source_threads,
            batch: self.args.batch.unwrap_or_else(|| self.stage.batch(children)),
            relay_command: Vec::new(),
            repetitions: Vec::new(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    /// Runs one search with one engine.
    fn round(
        &mut self,
        source: &PacketSource,
        direct: &RelayBaseline,
        cell: &mut RelayConfigurationResult,
        times: &mut CopyDelays,
    ) -> Result<(), CommandFailure> {
        let is_host_based = cell.engine != RelayEngine::Xdp;
        let node = RelaySpec {
            host: self.stage.relay_host(),
            engine: cell.engine,
            listen: self.stage.group(),
            network: testbed::network()?,
            children: self.stage.children(cell.children),
            copy_rate: self.args.copy_rate,
            core: self.stage.cores.last().copied().filter(|_| is_host_based),
        };
        let mut relay = node.start()?;
        cell.relay_command.clone_from(&relay.command);
        self.searches += 1;
        let (name, all) = (findings::name(cell), self.searches_planned());
        let progress = ProgressLine::named(format!("search {} of {all}: {name}: ", self.searches));
        let load = TrialLoad {
            rate: 0.0,
            duration: Duration::ZERO,
            lanes: cell.source_threads,
            batch: cell.batch,
            children: cell.children,
            timed: false,
        };
        let receiving_ns =
            if is_host_based { direct.receiving_socket_ns } else { direct.receiving_frame_ns };
        let (stage, config) = (&mut self.stage, self.config);
        let mut subject =
            RelayUnderTest { stage, source, load, config, receiving_ns, progress: &progress };
        let before = OtherProcesses::read();
        let measured = subject.measure();
        progress.finish();
        if let Some(share) = before.and_then(|before| before.share_since()) {
            self.events.note_others(cell, share);
        }
        if let Some(last_words) = relay.ended() {
            self.events.note_end(cell, &last_words);
            return Ok(());
        }
        let Some(measured) = measured? else { return Ok(()) };
        drop(relay);
        if let Some(half) = &measured.round.half_rate {
            let half_rate_load =
                TrialLoad { rate: half.rate, duration: config.final_duration, ..load };
            times.direct.merge(&measure::without_relay(&mut self.stage, source, &half_rate_load)?);
        }
        times.first_copy.merge(&measured.first_copy);
        times.last_copy.merge(&measured.last_copy);
        self.events.is_spoiled |= measured.is_spoiled;
        cell.repetitions.push(measured.round);
        Ok(())
    }
}

const _: () = assert!(CHILD_PORT as usize + CHILDREN_MAX < 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(sizes("64,128,64").unwrap().0, [64, 128]);
        assert_eq!(children("1..64:*2").unwrap().0, [1, 2, 4, 8, 16, 32, 64]);
        for bad in ["23", "1473", "64k", "none"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
        for bad in ["0", "1.5", "1025", "-1", ""] {
            assert!(children(bad).is_err(), "{bad}");
        }
        assert_eq!(receivers("16"), Ok(16));
        assert!(receivers("0").is_err() && receivers("17").is_err());
    }
}
