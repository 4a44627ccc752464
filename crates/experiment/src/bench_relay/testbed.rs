//! Testbed of the relay benchmark: lab hosts, and trials in which the source sends at a constant
//! rate and the receivers count the copies. Loss is the number of packets sent minus those
//! received; the relay's counters are not used.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use horolog_lab::{Lab, LabConfig, LabHost, LabInterface};
use horolog_relay::IpNetwork;
use horolog_stats::Histogram;
use horolog_sys::affinity;
use horolog_sys::clock::ClockMonotonic;
use horolog_time::Clock;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use horolog_xdp::{
    Attachment, CoreSenders, Interface, STREAM_MARK_LEN, StreamChildCounts, StreamFrameTemplate,
    StreamLane, StreamSink, StreamSource, StreamTrialExpectation, XdpError,
};

use super::cost::CpuTimeByCore;
use crate::{ExperimentError, ExperimentObserver};

/// Destination port of the source's packets ([`SOURCE_PORT`] is their source port).
pub(super) const GROUP_PORT: u16 = 5_000;
const SOURCE_PORT: u16 = 4_000;
/// UDP port of the first child; the next children have consecutive ports.
pub(super) const FIRST_CHILD_PORT: u16 = 6_000;
/// NAPI weight: most frames that the kernel receives from an interface in one poll. Copies beyond
/// it stay in the receiver's ring, to which those of the next packets are added, so that larger
/// batches occasionally lose copies.
const NAPI_WEIGHT: usize = 64;
/// Time from the instant when all sending threads are ready to the first packet, in ns.
const START_LEAD_NS: u64 = 200_000;
/// Time after the last packet of a trial within which copies must arrive. Later ones count as lost,
/// since a relay that is slower than the source still has them in its buffers.
const LATE_COPY_GRACE: Duration = Duration::from_millis(10);
/// Time without an arrival after which no more copies of a trial are expected.
const IDLE_TIMEOUT: Duration = Duration::from_millis(30);
/// Longest wait for the remaining copies of a trial.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Number of packets that the source may send late, in a burst, after a delay of its core; above
/// it, the rest of the schedule is postponed. The receive buffer of a relay's socket holds so many.
/// [`CATCH_UP_BOUNDS_NS`] are the least and the greatest lateness allowed, in ns: a host may stop a
/// core for a few milliseconds.
const CATCH_UP_PACKETS_MAX: f64 = 1_000.0;
const CATCH_UP_BOUNDS_NS: [f64; 2] = [5e6, 50e6];
/// Units of a lane's times per nanosecond ([`StreamLane`] has times in 2^-16 ns).
const LANE_UNITS_PER_NS: f64 = 65_536.0;

/// Lab hosts of the benchmark: source and receivers, each joined to the relay's host by a veth
/// pair.
pub(super) struct RelayTestbed<'a> {
    lab: Lab,
    sink: StreamSink,
    _sink_attachments: Vec<Attachment>,
    /// Cores that may run sending threads, in order of preference; all cores allowed to this
    /// process.
    pub(super) source_cores: Vec<usize>,
    trials_started: u32,
    pub(super) observer: &'a dyn ExperimentObserver,
}

/// Packet source of one payload size, attached to the interface of the source's lab host.
pub(super) struct PacketSource {
    source: StreamSource,
    size: usize,
}

/// Load of one trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialLoad {
    /// Packets per second.
    pub(super) rate: f64,
    pub(super) duration: Duration,
    /// Number of sending threads, each on its own core.
    pub(super) lanes: usize,
    /// Most packets that are sent in one call.
    pub(super) batch: u32,
    pub(super) children: usize,
    /// True if the delays of copies are measured, which costs CPU time.
    pub(super) measures_delays: bool,
}

/// Packets sent and copies received in one trial.
#[derive(Debug, Default)]
pub(super) struct RelayTrialOutcome {
    /// Packets sent.
    pub(super) sent: u64,
    /// Packets sent per second, between the first and the last one.
    pub(super) send_rate: f64,
    /// Number of copies that arrived in time, summed over all children.
    pub(super) copies: u64,
    /// Number of copies that did not arrive, or arrived late, summed over all children.
    pub(super) lost: u64,
    /// Number of copies that arrived out of order or more than once; those of a wrong length count
    /// as `damaged`.
    pub(super) disordered: u64,
    pub(super) damaged: u64,
    /// True if no copy counts as lost but some child did not receive each packet once: a duplicate
    /// took the place of a missing copy in the count.
    pub(super) has_masked_loss: bool,
    pub(super) first_copy: Histogram,
    pub(super) last_copy: Histogram,
    /// CPU time of this host during the trial without that of the source, in ns; `None` if the
    /// kernel does not report it.
    pub(super) cpu_ns: Option<f64>,
}

impl<'a> RelayTestbed<'a> {
    /// Creates the lab hosts, of which `receivers` have children, and attaches the packet counters
    /// for up to `children_max` children to them.
    pub(super) fn new(
        receivers: usize,
        children_max: usize,
        observer: &'a dyn ExperimentObserver,
    ) -> Result<Self, ExperimentError> {
        let mut cores = affinity::allowed_cores().map_err(ExperimentError::host)?;
        // Core 0 is used last: it handles most interrupts and tasks that are pinned by default.
        cores.reverse();
        let lab = Lab::new(&LabConfig {
            hosts: 2 + receivers,
            queues: cores.len() as u32,
            ipv6: false,
            client_networks: Vec::new(),
        })?;
        let sink =
            StreamSink::load(cores.len() as u32, children_max as u32).map_err(xdp_failure)?;
        let mut receiving = Vec::new();
        for host in &lab.hosts()[2..] {
            receiving.push(attach_sink(&sink, host)?);
        }
        Ok(Self {
            lab,
            sink,
            _sink_attachments: receiving,
            source_cores: cores,
            trials_started: 0,
            observer,
        })
    }

    /// Returns the lab host of the relay.
    pub(super) fn relay_host(&self) -> &LabHost {
        self.lab.client()
    }

    fn receiver_count(&self) -> usize {
        self.lab.hosts().len() - 2
    }

    /// Returns the address to which the source sends packets and at which the relay receives them.
    pub(super) fn group_address(&self) -> SocketAddr {
        SocketAddr::new(self.relay_host().first_interface().ipv4.into(), GROUP_PORT)
    }

    /// Returns the addresses of `count` children, distributed round-robin over the receiving hosts.
    pub(super) fn child_addresses(&self, count: usize) -> Vec<SocketAddr> {
        let hosts = &self.lab.hosts()[2..];
        let child = |number: usize| {
            let host = &hosts[number % hosts.len()];
            SocketAddr::new(host.first_interface().ipv4.into(), FIRST_CHILD_PORT + number as u16)
        };
        (0..count).map(child).collect()
    }

    /// Returns the number of packets per batch with which all copies of a batch at one receiver fit
    /// into one NAPI poll; at least 1.
    pub(super) fn batch_size(&self, children: usize) -> u32 {
        let copies = children.div_ceil(self.receiver_count()).max(1);
        (NAPI_WEIGHT / copies).max(1) as u32
    }

    /// Attaches a source of packets with `size` bytes of UDP payload.
    pub(super) fn start_source(&self, size: usize) -> Result<PacketSource, ExperimentError> {
        let host = self.lab.server();
        let builder = UdpFrameBuilder {
            destination_mac: MacAddress(self.relay_host().first_interface().mac),
            source_mac: MacAddress(host.first_interface().mac),
            vlan: None,
            source: SocketAddr::new(host.first_interface().ipv4.into(), SOURCE_PORT),
            destination: self.group_address(),
        };
        let mut frame = vec![0; builder.headers_len() + size];
        // The mark is filled in for each packet; the bytes after it count up.
        let payload: Vec<u8> =
            (0..size).map(|at| if at < STREAM_MARK_LEN { 0 } else { at as u8 }).collect();
        builder.emit(&payload, &mut frame);
        let frame = StreamFrameTemplate::new(frame).ok_or_else(|| {
            ExperimentError::options(format!("{size} bytes are too short for a mark"))
        })?;
        let port = xdp_interface(host.first_interface());
        let source = host.run(|| StreamSource::attach(&port, frame))?.map_err(xdp_failure)?;
        Ok(PacketSource { source, size })
    }

    /// Attaches a packet counter for the source's packets to the relay's interface, for trials
    /// without a relay. It is detached when the returned [`Attachment`] is dropped.
    pub(super) fn attach_direct_sink(&self) -> Result<(StreamSink, Attachment), ExperimentError> {
        let sink = StreamSink::load(self.source_cores.len() as u32, 1).map_err(xdp_failure)?;
        let attachment = attach_sink(&sink, self.relay_host())?;
        Ok((sink, attachment))
    }

    /// Runs a trial through a running relay, or without one if `direct_sink` is given, which counts
    /// the packets at the relay's interface.
    pub(super) fn run_trial(
        &mut self,
        source: &PacketSource,
        direct_sink: Option<&StreamSink>,
        load: &TrialLoad,
    ) -> Result<RelayTrialOutcome, ExperimentError> {
        self.trials_started += 1;
        run_trial(&RelayTrial {
            number: self.trials_started,
            host: self.lab.server(),
            source,
            sink: direct_sink.unwrap_or(&self.sink),
            cores: &self.source_cores[..load.lanes.min(self.source_cores.len())],
            first_port: if direct_sink.is_some() { GROUP_PORT } else { FIRST_CHILD_PORT },
            load,
            observer: self.observer,
        })
    }

    /// Prepares the receivers to count packets that a UDP socket of the relay's host sends, and
    /// returns the mark with which the payload of each must begin.
    pub(super) fn expect_from_socket(&mut self, size: usize) -> [u8; STREAM_MARK_LEN] {
        self.trials_started += 1;
        self.sink.begin_trial(&StreamTrialExpectation {
            number: self.trials_started,
            lanes: 1,
            children: 1,
            first_port: FIRST_CHILD_PORT,
            payload_len: size as u32,
            timed: false,
        });
        let mut mark = [0; STREAM_MARK_LEN];
        mark[..4].copy_from_slice(&self.trials_started.to_ne_bytes());
        mark
    }

    /// Returns the number of packets received since [`Self::expect_from_socket`].
    pub(super) fn received_from_socket(&self) -> u64 {
        self.sink.child_counts(0, 0).packets
    }
}

/// Returns the network of all lab hosts: TEST-NET-1 (RFC 5737).
pub(super) fn lab_network() -> Result<IpNetwork, ExperimentError> {
    "192.0.2.0/24".parse().map_err(ExperimentError::host)
}

fn xdp_interface(port: &LabInterface) -> Interface {
    Interface { index: port.index, name: port.name.clone() }
}

fn attach_sink(sink: &StreamSink, host: &LabHost) -> Result<Attachment, ExperimentError> {
    let port = xdp_interface(host.first_interface());
    host.run(|| sink.attach(&port))?.map_err(xdp_failure)
}

fn xdp_failure(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::host(format!("the experiment needs XDP at both ends: {error}"))
}

/// Trial to run, with the source, packet counter and cores that it uses.
struct RelayTrial<'a> {
    number: u32,
    host: &'a LabHost,
    source: &'a PacketSource,
    sink: &'a StreamSink,
    cores: &'a [usize],
    first_port: u16,
    load: &'a TrialLoad,
    observer: &'a dyn ExperimentObserver,
}

fn run_trial(trial: &RelayTrial<'_>) -> Result<RelayTrialOutcome, ExperimentError> {
    trial.sink.begin_trial(&StreamTrialExpectation {
        number: trial.number,
        lanes: trial.cores.len() as u32,
        children: trial.load.children as u32,
        first_port: trial.first_port,
        payload_len: trial.source.size as u32,
        timed: trial.load.measures_delays,
    });
    let before = CpuTimeByCore::read();
    trial.host.run(|| trial.send_all_lanes())??;
    let sent: Vec<_> = trial.lanes().map(|lane| lane.sent).collect();
    let in_time = trial.await_arrivals(&sent);
    let spent = |before| Some(CpuTimeByCore::read()?.spent_since_ns(&before, trial.cores));
    let cpu_ns = before.and_then(spent);
    Ok(RelayTrialOutcome { cpu_ns, ..trial.trial_arrivals(&sent, &in_time) })
}

impl RelayTrial<'_> {
    fn lanes(&self) -> impl Iterator<Item = StreamLane> + '_ {
        self.cores.iter().map(|&core| self.source.source.lane(core as u32))
    }

    /// Returns the send schedule of lane `number`: every n-th packet of the load, with n lanes.
    fn lane_schedule(&self, number: usize, start_ns: u64) -> StreamLane {
        let lanes = self.cores.len() as f64;
        let interval = lanes * 1e9 / self.load.rate * LANE_UNITS_PER_NS;
        let [least, most] = CATCH_UP_BOUNDS_NS.map(|ns| ns * LANE_UNITS_PER_NS);
        let late_max = (CATCH_UP_PACKETS_MAX * interval).clamp(least, most);
        StreamLane {
            start_ns,
            next: (interval / lanes * number as f64) as u64,
            interval: interval.max(1.0) as u64,
            end: (self.load.duration.as_nanos() as f64 * LANE_UNITS_PER_NS) as u64,
            late_max: late_max as u64,
            trial: self.number,
            number: number as u32,
            active: 1,
            ..StreamLane::default()
        }
    }

    /// Runs a sending thread on each core until the schedule ends or the run is interrupted.
    fn send_all_lanes(&self) -> Result<(), ExperimentError> {
        let start = || {
            let start_ns = ClockMonotonic.now().as_ns() as u64 + START_LEAD_NS;
            for (number, &core) in self.cores.iter().enumerate() {
                self.source.source.set_lane(core as u32, &self.lane_schedule(number, start_ns));
            }
            Ok::<_, XdpError>(())
        };
        let senders = CoreSenders {
            cores: self.cores,
            is_done: &|core| self.source.source.lane(core as u32).done != 0,
            send: &|| self.source.source.send(self.load.batch),
        };
        let check = |(): &mut ()| {
            if self.observer.flow().is_break() {
                self.cores.iter().for_each(|&core| self.source.source.end_lane(core as u32));
            }
        };
        senders.run(start, check).map_err(|error| match error {
            XdpError::Thread(_) => ExperimentError::host(error),
            _ => xdp_failure(error),
        })
    }

    /// Returns the counts of copies received by child `number`, one for each lane.
    fn child_counts(&self, number: usize) -> impl Iterator<Item = StreamChildCounts> + '_ {
        let lanes = 0..self.cores.len() as u32;
        lanes.map(move |lane| self.sink.child_counts(lane, number as u32))
    }

    /// Returns the number of copies received by each child so far.
    fn arrivals_by_child(&self) -> Vec<u64> {
        let arrived = |number| self.child_counts(number).map(|child| child.packets).sum();
        (0..self.load.children).map(arrived).collect()
    }

    /// Waits until no more copies arrive, and returns the number that each child received in time
    /// (within [`LATE_COPY_GRACE`]).
    fn await_arrivals(&self, sent: &[u64]) -> Vec<u64> {
        thread::sleep(LATE_COPY_GRACE);
        let in_time = self.arrivals_by_child();
        let expected: u64 = sent.iter().sum();
        let (begun, mut last_arrival) = (Instant::now(), Instant::now());
        let mut counts = in_time.clone();
        while counts.iter().any(|count| *count < expected)
            && last_arrival.elapsed() < IDLE_TIMEOUT
            && begun.elapsed() < DRAIN_TIMEOUT
        {
            thread::sleep(POLL_INTERVAL);
            let now = self.arrivals_by_child();
            if now != counts {
                (counts, last_arrival) = (now, Instant::now());
            }
        }
        in_time
    }

    fn trial_arrivals(&self, sent: &[u64], in_time: &[u64]) -> RelayTrialOutcome {
        let total: u64 = sent.iter().sum();
        let first = self.lanes().map(|lane| lane.first_sent_ns).filter(|ns| *ns > 0).min();
        let last = self.lanes().map(|lane| lane.last_sent_ns).max();
        let span_ns = last.zip(first).map_or(0, |(last, first)| last.saturating_sub(first));
        let mut arrivals = RelayTrialOutcome { sent: total, ..RelayTrialOutcome::default() };
        let mut has_each_once = true;
        for number in 0..self.load.children {
            for (child, &sent) in self.child_counts(number).zip(sent) {
                arrivals.disordered += child.disordered;
                arrivals.damaged += child.damaged;
                has_each_once &= child.has_each_once(sent);
            }
        }
        for (first, last) in self.sink.delays() {
            arrivals.first_copy.merge(&first.to_histogram());
            arrivals.last_copy.merge(&last.to_histogram());
        }
        arrivals.send_rate =
            if span_ns > 0 { (total - 1) as f64 * 1e9 / span_ns as f64 } else { 0.0 };
        arrivals.copies = in_time.iter().sum();
        arrivals.lost = in_time.iter().map(|count| total.saturating_sub(*count)).sum();
        arrivals.has_masked_loss = arrivals.lost == 0 && !has_each_once;
        arrivals
    }
}
