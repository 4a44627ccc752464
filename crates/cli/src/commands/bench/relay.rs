//! `horolog bench relay`: private hosts, a relay in the middle, and for each engine, size and
//! number of children the highest rate of copies of which none is lost.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_record::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, Distribution, Host, RelayCell, RelayDirect, RelayEngine,
    rfc3339_now,
};
use horolog_report::{html, table, to_json, units};
use horolog_stats::{Recorder, SearchConfig};
use horolog_xdp::STREAM_MARK_LEN;

use super::distinct;
use crate::failure::Failure;
use crate::files::FileArgs;
use crate::output::{self, Progress};
use crate::values;
use cost::Programs;
use findings::Events;
use measure::Subject;
use node::{COPY_RATE, Node};
use stage::{CHILD_PORT, Course, Source, Stage};

mod cost;
mod findings;
mod measure;
mod node;
mod stage;

/// The longest payload of a packet on a link with an MTU of 1,500 bytes.
const SIZE_MAX: usize = 1_472;
/// Copies of one packet that a virtual link's ring holds.
const CHILDREN_OF_RECEIVER_MAX: usize = 256;
/// Private hosts besides source and relay.
const RECEIVERS_MAX: usize = 16;
const CHILDREN_MAX: usize = 1_024;

/// What a relay gains by making copies below the host.
///
/// Makes private hosts, a source of packets, a relay and receivers, and searches for the highest
/// rate at which each child gets each packet once, with each engine, size of packets and number of
/// children; engines take turns, and of several rounds the median counts. The receivers count;
/// what the relay says that it sent is not asked for. The table is Figure 3 of Cao, Su and Lu, "A
/// Mechanism Improving the Forwarding Throughput of Application Layer Multicast", Journal of
/// National University of Defense Technology 30 (2008), 2, 51-55, with the gain beside theirs. At
/// half of each rate it also takes how long the first and the last copy of a packet took from the
/// source, and the processor time of a copy.
///
/// Source, relay and receivers share this machine's cores. A relay that sends by sockets is sent to
/// from one core and kept on another; one in the kernel does its work on the cores that packets
/// come in on, so it is sent to from all of them.
#[derive(Args, Debug)]
pub(crate) struct RelayArgs {
    /// Bytes of UDP payload: sizes and ranges with a step or with a factor.
    #[arg(long, value_name = "LIST", value_parser = sizes, default_value = "64,128,256,512,1400")]
    sizes: Sizes,
    /// Numbers of children: numbers and ranges with a step or with a factor.
    #[arg(long, value_name = "LIST", value_parser = children, default_value = "1..64:*2")]
    children: Children,
    /// What sends the copies: one system call for each, one for many, the kernel's driver path.
    #[arg(long, value_enum, value_name = "NAME[,NAME...]", value_delimiter = ',',
          default_values_t = [EngineArg::Send, EngineArg::Xdp])]
    engines: Vec<EngineArg>,
    /// How often each search is run; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// About how long each search sends.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "2s")]
    seconds: Duration,
    /// Share of copies that may be lost where a rate still counts as lossless.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "0")]
    loss_ratio: f64,
    /// Copies per second that the relay is limited to [default: more than any machine sends].
    #[arg(long, value_name = "RATE", value_parser = values::count, default_value_t = COPY_RATE,
          hide_default_value = true)]
    copy_rate: u32,
    /// Packets that leave the source together, at most, 1 to 64 [default: as many as have 64 copies
    /// for each receiver, which the kernel takes in at once].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: Option<u32>,
    /// Hosts that children are on, by turns, each behind an interface of the relay of its own.
    #[arg(long, value_name = "N", value_parser = receivers, default_value = "1")]
    receivers: usize,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Clone, Debug)]
struct Sizes(Vec<usize>);

#[derive(Clone, Debug)]
struct Children(Vec<usize>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum EngineArg {
    Send,
    Sendmmsg,
    Xdp,
}

impl EngineArg {
    const fn engine(self) -> RelayEngine {
        match self {
            Self::Send => RelayEngine::Send,
            Self::Sendmmsg => RelayEngine::Sendmmsg,
            Self::Xdp => RelayEngine::Xdp,
        }
    }
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let sizes = values::sizes(text)?.into_iter().map(|size| size as usize);
    let sizes: Vec<_> = sizes.collect();
    match sizes.iter().find(|size| !(STREAM_MARK_LEN..=SIZE_MAX).contains(size)) {
        Some(wrong) => {
            Err(format!("packets of {wrong} bytes cannot be: {STREAM_MARK_LEN} to {SIZE_MAX}"))
        }
        None => Ok(Sizes(distinct(&sizes))),
    }
}

fn children(text: &str) -> Result<Children, String> {
    let numbers = values::numbers(text)?;
    let is_number =
        |number: &f64| number.fract() == 0.0 && (1.0..=CHILDREN_MAX as f64).contains(number);
    match numbers.iter().find(|number| !is_number(number)) {
        Some(wrong) => Err(format!("there are no {wrong} children: write 1 to {CHILDREN_MAX}")),
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

/// How long packets of a cell took, in all of its rounds at half the rate found.
#[derive(Default)]
struct Times {
    first_copy: Recorder,
    last_copy: Recorder,
    /// Without a relay.
    direct: Recorder,
}

/// Everything that the single figures share.
struct Bench<'a> {
    args: &'a RelayArgs,
    config: SearchConfig,
    engines: Vec<RelayEngine>,
    stage: Stage,
    /// Searches begun.
    searches: usize,
    events: Events,
}

pub(crate) fn run(args: &RelayArgs) -> Result<(), Failure> {
    let files = args.files.open()?;
    output::end_gently()?;
    let (mut bench, started) = (Bench::open(args)?, rfc3339_now());
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
        rounds: args.rounds,
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

impl<'a> Bench<'a> {
    fn open(args: &'a RelayArgs) -> Result<Self, Failure> {
        let most = args.children.0.iter().copied().max().unwrap_or(1);
        let of_receiver = most.div_ceil(args.receivers);
        if of_receiver > CHILDREN_OF_RECEIVER_MAX {
            return Err(Failure::usage(format!(
                "{of_receiver} children at one interface are more than its ring holds copies \
                 ({CHILDREN_OF_RECEIVER_MAX}); give more hosts with --receivers"
            )));
        }
        let engines: Vec<_> = args.engines.iter().map(|engine| engine.engine()).collect();
        let config = measure::search(args.seconds, args.loss_ratio)?;
        let stage = Stage::new(args.receivers, most)?;
        Ok(Self {
            args,
            config,
            engines: distinct(&engines),
            stage,
            searches: 0,
            events: Events::default(),
        })
    }

    fn searches_planned(&self) -> usize {
        let cells = self.args.sizes.0.len() * self.args.children.0.len() * self.engines.len();
        cells * self.args.rounds as usize
    }

    /// Whether nothing more is to be measured.
    fn is_over(&self) -> bool {
        output::flow().is_break() || self.events.relay_ended.is_some()
    }

    /// All numbers of children with packets of one size.
    fn size(
        &mut self,
        size: usize,
        cells: &mut Vec<RelayCell>,
        direct: &mut Vec<RelayDirect>,
    ) -> Result<(), Failure> {
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

    /// All engines with so many children, by turns.
    fn cells(
        &mut self,
        source: &Source,
        direct: &RelayDirect,
        children: usize,
    ) -> Result<Vec<RelayCell>, Failure> {
        let mut cells: Vec<_> = self
            .engines
            .clone()
            .into_iter()
            .map(|engine| (self.empty(direct.size_bytes, children, engine), Times::default()))
            .collect();
        'rounds: for _ in 0..self.args.rounds {
            for (cell, times) in &mut cells {
                if self.is_over() {
                    break 'rounds;
                }
                self.round(source, direct, cell, times)?;
            }
        }
        let finish = |(cell, times): (RelayCell, Times)| {
            if let Some(rate) = cell.copies_per_s() {
                let (name, rate) = (findings::name(&cell), units::human_rate(rate));
                output::note(&format!("horolog: {name}: {rate} copies"));
            }
            RelayCell {
                first_copy_ns: Distribution::of_recorder(&times.first_copy),
                last_copy_ns: Distribution::of_recorder(&times.last_copy),
                direct_ns: Distribution::of_recorder(&times.direct),
                ..cell
            }
        };
        let measured = cells.into_iter().filter(|(cell, ..)| !cell.rounds.is_empty());
        Ok(measured.map(finish).collect())
    }

    fn empty(&self, size_bytes: usize, children: usize, engine: RelayEngine) -> RelayCell {
        let source_threads = if engine == RelayEngine::Xdp { self.stage.cores.len() } else { 1 };
        RelayCell {
            size_bytes,
            children,
            engine,
            source_threads,
            batch: self.args.batch.unwrap_or_else(|| self.stage.batch(children)),
            relay_command: Vec::new(),
            rounds: Vec::new(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    /// One search with one engine.
    fn round(
        &mut self,
        source: &Source,
        direct: &RelayDirect,
        cell: &mut RelayCell,
        times: &mut Times,
    ) -> Result<(), Failure> {
        let is_host_based = cell.engine != RelayEngine::Xdp;
        let node = Node {
            host: self.stage.middle(),
            engine: cell.engine,
            listen: self.stage.group(),
            network: stage::network()?,
            children: self.stage.children(cell.children),
            copy_rate: self.args.copy_rate,
            core: self.stage.cores.last().copied().filter(|_| is_host_based),
        };
        let mut relay = node.start()?;
        cell.relay_command.clone_from(&relay.command);
        self.searches += 1;
        let (name, all) = (findings::name(cell), self.searches_planned());
        let progress = Progress::named(format!("search {} of {all}: {name}: ", self.searches));
        let course = Course {
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
            Subject { stage, source, course, config, receiving_ns, progress: &progress };
        let before = Programs::read();
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
        if let Some(half) = &measured.round.half {
            let course = Course { rate: half.rate, duration: config.final_duration, ..course };
            times.direct.merge(&measure::without_relay(&mut self.stage, source, &course)?);
        }
        times.first_copy.merge(&measured.first_copy);
        times.last_copy.merge(&measured.last_copy);
        self.events.is_spoiled |= measured.is_spoiled;
        cell.rounds.push(measured.round);
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
