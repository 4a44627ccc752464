//! `horolog bench relay`: highest rate of copies without loss through a relay between lab hosts,
//! for each combination of engine, packet size and number of children (a configuration).

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_record::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, Distribution, Host, NoRelayBaseline,
    RelayConfigurationResult, RelayEngineKind, rfc3339_now,
};
use horolog_report::units;
use horolog_stats::{Recorder, SearchConfig};
use horolog_xdp::STREAM_MARK_LEN;

use super::distinct_values;
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::output::{self, ProgressLine};
use crate::values;
use cost::OtherProcessesCpuTime;
use findings::RelayBenchEvents;
use measure::RelayMeasurementSetup;
use node::{COPY_RATE_LIMIT, RelaySpec};
use testbed::{FIRST_CHILD_PORT, PacketSource, RelayTestbed, TrialLoad};

mod cost;
mod findings;
mod measure;
mod node;
mod testbed;

/// Longest UDP payload of an IPv4 packet on a link with an MTU of 1,500 bytes, in bytes.
const SIZE_MAX: usize = 1_472;
/// Most children per receiving host: the copies of one packet must fit into the ring of its veth
/// interface (256 entries).
const CHILDREN_OF_RECEIVER_MAX: usize = 256;
/// Largest number of receiving lab hosts.
const RECEIVERS_MAX: usize = 16;
const CHILDREN_MAX: usize = 1_024;

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
    match sizes.iter().find(|size| !(STREAM_MARK_LEN..=SIZE_MAX).contains(size)) {
        Some(wrong) => {
            Err(format!("invalid packet size {wrong}: {STREAM_MARK_LEN} to {SIZE_MAX} bytes"))
        }
        None => Ok(PayloadSizes(distinct_values(&sizes))),
    }
}

fn parse_child_counts(text: &str) -> Result<ChildCountList, String> {
    let numbers = values::numbers(text)?;
    let is_number =
        |number: &f64| number.fract() == 0.0 && (1.0..=CHILDREN_MAX as f64).contains(number);
    match numbers.iter().find(|number| !is_number(number)) {
        Some(wrong) => Err(format!("invalid number of children {wrong}: 1 to {CHILDREN_MAX}")),
        None => Ok(ChildCountList(distinct_values(
            &numbers.into_iter().map(|number| number as usize).collect::<Vec<_>>(),
        ))),
    }
}

fn parse_receiver_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=RECEIVERS_MAX).contains(&number) => Ok(number),
        _ => Err(format!("write a number of hosts from 1 to {RECEIVERS_MAX}")),
    }
}

/// Delays of packets in one configuration, in all repetitions, at half of the rate found.
#[derive(Default)]
struct CopyDelays {
    first_copy: Recorder,
    last_copy: Recorder,
    /// Delays from the source to the relay's interface, measured without a relay.
    baseline: Recorder,
}

/// Arguments, testbed and events of the benchmark, shared by the measurements of all
/// configurations.
struct RelayBench<'a> {
    args: &'a BenchRelayArgs,
    config: SearchConfig,
    engines: Vec<RelayEngineKind>,
    testbed: RelayTestbed,
    /// Number of searches started.
    searches: usize,
    events: RelayBenchEvents,
}

pub(crate) fn run(args: &BenchRelayArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    output::install_interrupt_handler()?;
    let (mut bench, started) = (RelayBench::open(args)?, rfc3339_now());
    let (mut cells, mut baselines) = (Vec::new(), Vec::new());
    for &size in &args.sizes.0 {
        if bench.is_finished() {
            break;
        }
        bench.measure_size(size, &mut cells, &mut baselines)?;
    }
    let result = BenchRelayResult {
        schema: BENCH_RELAY_SCHEMA.to_owned(),
        started,
        command: output::command_line(),
        host: Host::read(),
        repetitions: args.repetitions,
        loss_ratio: args.loss_ratio,
        receivers: args.receivers,
        findings: findings::relay_findings(
            &cells,
            &baselines,
            &bench.events,
            bench.testbed.source_cores.len(),
        ),
        direct: baselines,
        cells,
    };
    drop(bench);
    files.write(&result)?;
    crate::failure::check_findings(&result.findings)
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
        let config = measure::search_config(args.time, args.loss_ratio)?;
        let testbed = RelayTestbed::new(args.receivers, most)?;
        Ok(Self {
            args,
            config,
            engines: distinct_values(&engines),
            testbed,
            searches: 0,
            events: RelayBenchEvents::default(),
        })
    }

    fn planned_searches(&self) -> usize {
        let cells = self.args.sizes.0.len() * self.args.children.0.len() * self.engines.len();
        cells * self.args.repetitions as usize
    }

    /// Returns true if the benchmark must end: it was interrupted, or a relay exited by itself.
    fn is_finished(&self) -> bool {
        output::check_stop_request().is_break() || self.events.relay_exit.is_some()
    }

    /// Measures packets of `size` bytes with all numbers of children, and appends the results to
    /// `cells` and the measurement without a relay to the baselines.
    fn measure_size(
        &mut self,
        size: usize,
        cells: &mut Vec<RelayConfigurationResult>,
        baselines: &mut Vec<NoRelayBaseline>,
    ) -> Result<(), CommandFailure> {
        let source = self.testbed.start_source(size)?;
        let baseline = measure::measure_baseline(
            &mut self.testbed,
            &source,
            size,
            self.config.final_duration,
        )?;
        for &children in &self.args.children.0 {
            if self.is_finished() {
                break;
            }
            cells.extend(self.measure_engines(&source, &baseline, children)?);
        }
        baselines.push(baseline);
        Ok(())
    }

    /// Measures all engines with this number of children. Engines alternate within each repetition,
    /// so that changes of the host over time affect all alike.
    fn measure_engines(
        &mut self,
        source: &PacketSource,
        baseline: &NoRelayBaseline,
        children: usize,
    ) -> Result<Vec<RelayConfigurationResult>, CommandFailure> {
        let mut cells: Vec<_> = self
            .engines
            .clone()
            .into_iter()
            .map(|engine| {
                (
                    self.unmeasured_configuration(baseline.size_bytes, children, engine),
                    CopyDelays::default(),
                )
            })
            .collect();
        'repetitions: for _ in 0..self.args.repetitions {
            for (cell, delays) in &mut cells {
                if self.is_finished() {
                    break 'repetitions;
                }
                self.run_repetition(source, baseline, cell, delays)?;
            }
        }
        let finish = |(cell, delays): (RelayConfigurationResult, CopyDelays)| {
            if let Some(rate) = cell.copies_per_s() {
                let (name, rate) = (findings::configuration_name(&cell), units::human_rate(rate));
                output::print_note(&format!("horolog: {name}: {rate} copies"));
            }
            RelayConfigurationResult {
                first_copy_ns: Distribution::from_recorder(&delays.first_copy),
                last_copy_ns: Distribution::from_recorder(&delays.last_copy),
                direct_ns: Distribution::from_recorder(&delays.baseline),
                ..cell
            }
        };
        let measured = cells.into_iter().filter(|(cell, ..)| !cell.repetitions.is_empty());
        Ok(measured.map(finish).collect())
    }

    fn unmeasured_configuration(
        &self,
        size_bytes: usize,
        children: usize,
        engine: RelayEngineKind,
    ) -> RelayConfigurationResult {
        let source_threads =
            if engine == RelayEngineKind::Xdp { self.testbed.source_cores.len() } else { 1 };
        RelayConfigurationResult {
            size_bytes,
            children,
            engine,
            source_threads,
            batch: self.args.batch.unwrap_or_else(|| self.testbed.batch_size(children)),
            relay_command: Vec::new(),
            repetitions: Vec::new(),
            first_copy_ns: None,
            last_copy_ns: None,
            direct_ns: None,
        }
    }

    /// Runs one repetition with one engine: the search, the trials at half of the rate found, and a
    /// trial without a relay at that rate.
    fn run_repetition(
        &mut self,
        source: &PacketSource,
        baseline: &NoRelayBaseline,
        cell: &mut RelayConfigurationResult,
        delays: &mut CopyDelays,
    ) -> Result<(), CommandFailure> {
        let is_socket_engine = cell.engine != RelayEngineKind::Xdp;
        let relay_spec = RelaySpec {
            host: self.testbed.relay_host(),
            engine: cell.engine,
            listen: self.testbed.group_address(),
            network: testbed::lab_network()?,
            children: self.testbed.child_addresses(cell.children),
            copy_rate: self.args.copy_rate,
            core: self.testbed.source_cores.last().copied().filter(|_| is_socket_engine),
        };
        let mut relay = relay_spec.start()?;
        cell.relay_command.clone_from(&relay.command);
        self.searches += 1;
        let (name, all) = (findings::configuration_name(cell), self.planned_searches());
        let progress =
            ProgressLine::with_prefix(format!("search {} of {all}: {name}: ", self.searches));
        let load = TrialLoad {
            rate: 0.0,
            duration: Duration::ZERO,
            lanes: cell.source_threads,
            batch: cell.batch,
            children: cell.children,
            measures_delays: false,
        };
        let receiving_ns = if is_socket_engine {
            baseline.receiving_socket_ns
        } else {
            baseline.receiving_frame_ns
        };
        let (testbed, config) = (&mut self.testbed, self.config);
        let mut subject = RelayMeasurementSetup {
            testbed,
            source,
            load,
            config,
            receive_cpu_ns: receiving_ns,
            progress: &progress,
        };
        let other_processes = OtherProcessesCpuTime::read();
        let measured = subject.measure();
        progress.finish();
        if let Some(share) = other_processes.and_then(|before| before.share_since()) {
            self.events.record_other_programs(cell, share);
        }
        if let Some(exit_reason) = relay.exit_reason() {
            self.events.record_relay_exit(cell, &exit_reason);
            return Ok(());
        }
        let Some(measured) = measured? else { return Ok(()) };
        drop(relay);
        if let Some(half) = &measured.repetition.half_rate {
            let half_rate_load =
                TrialLoad { rate: half.rate, duration: config.final_duration, ..load };
            delays.baseline.merge(&measure::measure_direct_delay(
                &mut self.testbed,
                source,
                &half_rate_load,
            )?);
        }
        delays.first_copy.merge(&measured.first_copy);
        delays.last_copy.merge(&measured.last_copy);
        self.events.has_wrong_copies |= measured.has_wrong_copies;
        cell.repetitions.push(measured.repetition);
        Ok(())
    }
}

const _: () = assert!(FIRST_CHILD_PORT as usize + CHILDREN_MAX < 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(parse_sizes("64,128,64").unwrap().0, [64, 128]);
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
