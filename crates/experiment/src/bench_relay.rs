//! Benchmark of relays: highest rate of copies without loss through a relay between lab hosts,
//! for each combination of engine, packet size and number of children (a configuration).

use std::ops::RangeInclusive;
use std::time::Duration;

use horolog_record::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, Distribution, Host, NoRelayBaseline,
    RelayConfigurationResult, RelayEngineKind, rfc3339_now,
};
use horolog_report::units;
use horolog_stats::{Histogram, SearchConfig};
use horolog_xdp::STREAM_MARK_LEN;

use crate::{ExperimentError, ExperimentObserver, distinct_values};
use cost::OtherProcessesCpuTime;
use findings::RelayBenchEvents;
use measure::RelayMeasurementSetup;
use node::RelaySpec;
use testbed::{FIRST_CHILD_PORT, PacketSource, RelayTestbed, TrialLoad};

mod cost;
mod findings;
mod measure;
mod node;
mod testbed;

pub use node::COPY_RATE_LIMIT;

/// UDP payloads of packets, in bytes: at least the mark by which the receivers count, at most what
/// an IPv4 packet holds on a link with an MTU of 1,500 bytes.
pub const SIZES: RangeInclusive<usize> = STREAM_MARK_LEN..=1_472;
/// Most children per receiving host: the copies of one packet must fit into the ring of its veth
/// interface (256 entries).
const CHILDREN_OF_RECEIVER_MAX: usize = 256;
/// Largest number of receiving lab hosts.
pub const RECEIVERS_MAX: usize = 16;
/// Largest number of children.
pub const CHILDREN_MAX: usize = 1_024;

/// Settings of the benchmark.
#[derive(Clone, Debug)]
pub struct RelayBenchOptions {
    /// Bytes of UDP payload, each of [`SIZES`].
    pub sizes: Vec<usize>,
    /// Numbers of children, each of 1 to [`CHILDREN_MAX`].
    pub children: Vec<usize>,
    /// Engines that send the copies.
    pub engines: Vec<RelayEngineKind>,
    /// Repetitions of each search.
    pub repetitions: u32,
    /// Approximate total duration of the trials of each search.
    pub search_duration: Duration,
    /// Share of copies that may be lost at a rate that still counts as lossless.
    pub loss_ratio: f64,
    /// Limit on copies per second of the relay.
    pub copy_rate: u32,
    /// Largest number of packets that the source sends together; `None`: by the number of children.
    pub batch: Option<u32>,
    /// Number of hosts over which the children are spread, at most [`RECEIVERS_MAX`].
    pub receivers: usize,
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Delays of packets in one configuration, in all repetitions, at half of the rate found.
#[derive(Default)]
struct CopyDelays {
    first_copy: Histogram,
    last_copy: Histogram,
    /// Delays from the source to the relay's interface, measured without a relay.
    baseline: Histogram,
}

/// Options, testbed and events of the benchmark, shared by the measurements of all configurations.
struct RelayBench<'a> {
    options: &'a RelayBenchOptions,
    observer: &'a dyn ExperimentObserver,
    config: SearchConfig,
    sizes: Vec<usize>,
    child_counts: Vec<usize>,
    engines: Vec<RelayEngineKind>,
    testbed: RelayTestbed<'a>,
    /// Number of searches started.
    searches: usize,
    events: RelayBenchEvents,
}

/// Runs the benchmark.
pub fn run(
    options: &RelayBenchOptions,
    observer: &dyn ExperimentObserver,
) -> Result<BenchRelayResult, ExperimentError> {
    let (mut bench, started) = (RelayBench::open(options, observer)?, rfc3339_now());
    let (mut cells, mut baselines) = (Vec::new(), Vec::new());
    for size in bench.sizes.clone() {
        if bench.is_finished() {
            break;
        }
        bench.measure_size(size, &mut cells, &mut baselines)?;
    }
    Ok(BenchRelayResult {
        schema: BENCH_RELAY_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        repetitions: options.repetitions,
        loss_ratio: options.loss_ratio,
        receivers: options.receivers,
        findings: findings::relay_findings(
            &cells,
            &baselines,
            &bench.events,
            bench.testbed.source_cores.len(),
            observer.flow().is_break(),
        ),
        direct: baselines,
        cells,
    })
}

impl<'a> RelayBench<'a> {
    fn open(
        options: &'a RelayBenchOptions,
        observer: &'a dyn ExperimentObserver,
    ) -> Result<Self, ExperimentError> {
        let most = options.children.iter().copied().max().unwrap_or(1);
        let of_receiver = most.div_ceil(options.receivers);
        if of_receiver > CHILDREN_OF_RECEIVER_MAX {
            return Err(ExperimentError::options(format!(
                "{of_receiver} children at one interface exceed the copies that its ring holds \
                 ({CHILDREN_OF_RECEIVER_MAX}); give more hosts with --receivers"
            )));
        }
        let config = measure::search_config(options.search_duration, options.loss_ratio)?;
        let testbed = RelayTestbed::new(options.receivers, most, observer)?;
        Ok(Self {
            options,
            observer,
            config,
            sizes: distinct_values(&options.sizes),
            child_counts: distinct_values(&options.children),
            engines: distinct_values(&options.engines),
            testbed,
            searches: 0,
            events: RelayBenchEvents::default(),
        })
    }

    fn planned_searches(&self) -> usize {
        let cells = self.sizes.len() * self.child_counts.len() * self.engines.len();
        cells * self.options.repetitions as usize
    }

    /// Returns true if the benchmark must end: it was interrupted, or a relay exited by itself.
    fn is_finished(&self) -> bool {
        self.observer.flow().is_break() || self.events.relay_exit.is_some()
    }

    /// Measures packets of `size` bytes with all numbers of children, and appends the results to
    /// `cells` and the measurement without a relay to the baselines.
    fn measure_size(
        &mut self,
        size: usize,
        cells: &mut Vec<RelayConfigurationResult>,
        baselines: &mut Vec<NoRelayBaseline>,
    ) -> Result<(), ExperimentError> {
        let source = self.testbed.start_source(size)?;
        let baseline = measure::measure_baseline(
            &mut self.testbed,
            &source,
            size,
            self.config.final_duration,
        )?;
        for children in self.child_counts.clone() {
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
    ) -> Result<Vec<RelayConfigurationResult>, ExperimentError> {
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
        'repetitions: for _ in 0..self.options.repetitions {
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
                self.observer.note(&format!("{name}: {rate} copies"));
            }
            RelayConfigurationResult {
                first_copy_ns: Distribution::from_histogram(&delays.first_copy),
                last_copy_ns: Distribution::from_histogram(&delays.last_copy),
                direct_ns: Distribution::from_histogram(&delays.baseline),
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
            batch: self.options.batch.unwrap_or_else(|| self.testbed.batch_size(children)),
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
    ) -> Result<(), ExperimentError> {
        let is_socket_engine = cell.engine != RelayEngineKind::Xdp;
        let relay_spec = RelaySpec {
            host: self.testbed.relay_host(),
            engine: cell.engine,
            listen: self.testbed.group_address(),
            network: testbed::lab_network()?,
            children: self.testbed.child_addresses(cell.children),
            copy_rate: self.options.copy_rate,
            core: self.testbed.source_cores.last().copied().filter(|_| is_socket_engine),
        };
        let mut relay = relay_spec.start()?;
        cell.relay_command.clone_from(&relay.command);
        self.searches += 1;
        let (name, all) = (findings::configuration_name(cell), self.planned_searches());
        let number = self.searches;
        self.observer.measurement_started(format!("search {number} of {all}: {name}: "));
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
        let mut subject =
            RelayMeasurementSetup { testbed, source, load, config, receive_cpu_ns: receiving_ns };
        let other_processes = OtherProcessesCpuTime::read();
        let measured = subject.measure();
        self.observer.measurement_ended();
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
