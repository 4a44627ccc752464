//! Lab hosts of the experiment, and one trial in them: the source sends at a rate for a while, and
//! the receivers count the copies. The source's own counts only determine how much there was to
//! receive.

use std::net::SocketAddr;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use horolog_lab::{Lab, LabConfig, LabHost, LabInterface};
use horolog_relay::Network;
use horolog_stats::Recorder;
use horolog_sys::affinity;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::signal::InterruptibleThread;
use horolog_time::Clock;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use horolog_xdp::{
    Attachment, Interface, RawHistogram, STREAM_MARK_LEN, StreamChildCounts, StreamFrame,
    StreamLane, StreamSink, StreamSource, StreamTrial,
};

use super::cost::ProcessorTime;
use crate::failure::CommandFailure;
use crate::output;

/// Destination port of the source's packets, and their source port.
pub(super) const GROUP_PORT: u16 = 5_000;
const SOURCE_PORT: u16 = 4_000;
/// The first child's port; the others follow.
pub(super) const CHILD_PORT: u16 = 6_000;
/// Frames that the kernel receives from an interface before it checks for other work (NAPI's
/// weight). The copies of a packet beyond this number stay in the receivers' ring, and those of the
/// next packets are added: so full batches lose copies now and then.
const POLL: usize = 64;
/// Time from the readiness of all threads of the source to the first packet.
const LEAD_NS: u64 = 200_000;
/// Time after the end beyond which copies count as late, that is as lost: a relay that sends slower
/// than it receives has the rest in its buffers.
const GRACE: Duration = Duration::from_millis(10);
/// Idle time after which no more copies are expected ...
const IDLE_TIMEOUT: Duration = Duration::from_millis(30);
/// ... and the longest time to wait for it.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Greatest number of packets for which the source catches up after a delay, which any buffer of a
/// relay's socket holds, within these bounds of time, in ns: a host stops a core now and then for a
/// few milliseconds.
const LATE_PACKETS: f64 = 1_000.0;
const LATE_NS: [f64; 2] = [5e6, 50e6];
/// Fractions of a nanosecond in a lane's times.
const FRACTION: f64 = 65_536.0;

/// Source, relay and receivers, joined by virtual links: the relay's host is in the middle.
pub(super) struct RelayTestbed {
    lab: Lab,
    sink: StreamSink,
    _receiving: Vec<Attachment>,
    /// Cores to send from, in order of use.
    pub(super) cores: Vec<usize>,
    trials: u32,
}

/// A running source of packets of one size.
pub(super) struct PacketSource {
    source: StreamSource,
    size: usize,
}

/// Load of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialLoad {
    /// Packets per second.
    pub(super) rate: f64,
    pub(super) duration: Duration,
    /// Threads of the source, each on a core of its own.
    pub(super) lanes: usize,
    /// Greatest number of packets that are sent together.
    pub(super) batch: u32,
    pub(super) children: usize,
    /// True if latencies are measured.
    pub(super) timed: bool,
}

/// Arrivals of a trial.
#[derive(Debug, Default)]
pub(super) struct TrialArrivals {
    /// Packets sent.
    pub(super) sent: u64,
    /// Packets sent per second, from the first to the last.
    pub(super) rate: f64,
    /// Copies that arrived in time, of all children.
    pub(super) copies: u64,
    /// Copies that did not arrive at a child, or arrived late.
    pub(super) lost: u64,
    /// Copies that arrived out of order, twice, or with another length.
    pub(super) disordered: u64,
    pub(super) damaged: u64,
    /// True if a packet arrived at a child twice, and another one did not.
    pub(super) mixed_up: bool,
    pub(super) first_copy: Recorder,
    pub(super) last_copy: Recorder,
    /// CPU time meanwhile, except the source's, in ns.
    pub(super) cpu_ns: Option<f64>,
}

impl RelayTestbed {
    /// Creates the hosts, with children on `receivers` of them.
    pub(super) fn new(receivers: usize, children_max: usize) -> Result<Self, CommandFailure> {
        let mut cores = affinity::allowed_cores().map_err(CommandFailure::environment)?;
        // The first one takes most interrupts, and tasks pinned by default.
        cores.reverse();
        let lab = Lab::new(&LabConfig {
            hosts: 2 + receivers,
            queues: cores.len() as u32,
            ipv6: false,
            client_networks: Vec::new(),
        })?;
        let sink = StreamSink::load(cores.len() as u32, children_max as u32).map_err(unfit)?;
        let mut receiving = Vec::new();
        for host in &lab.hosts()[2..] {
            receiving.push(attach(&sink, host)?);
        }
        Ok(Self { lab, sink, _receiving: receiving, cores, trials: 0 })
    }

    /// The host that relays.
    pub(super) fn relay_host(&self) -> &LabHost {
        self.lab.client()
    }

    fn receivers(&self) -> usize {
        self.lab.hosts().len() - 2
    }

    /// Destination of the packets to relay.
    pub(super) fn group(&self) -> SocketAddr {
        SocketAddr::new(self.relay_host().first_interface().ipv4.into(), GROUP_PORT)
    }

    /// The addresses of the children, on the hosts in turn.
    pub(super) fn children(&self, count: usize) -> Vec<SocketAddr> {
        let hosts = &self.lab.hosts()[2..];
        let child = |number: usize| {
            let host = &hosts[number % hosts.len()];
            SocketAddr::new(host.first_interface().ipv4.into(), CHILD_PORT + number as u16)
        };
        (0..count).map(child).collect()
    }

    /// Number of packets that may be sent together so that all of their copies are received at
    /// once.
    pub(super) fn batch(&self, children: usize) -> u32 {
        let copies = children.div_ceil(self.receivers()).max(1);
        (POLL / copies).max(1) as u32
    }

    /// Starts a source of packets of one size.
    pub(super) fn source(&self, size: usize) -> Result<PacketSource, CommandFailure> {
        let host = self.lab.server();
        let builder = UdpFrameBuilder {
            destination_mac: MacAddress(self.relay_host().first_interface().mac),
            source_mac: MacAddress(host.first_interface().mac),
            vlan: None,
            source: SocketAddr::new(host.first_interface().ipv4.into(), SOURCE_PORT),
            destination: self.group(),
        };
        let mut frame = vec![0; builder.headers_len() + size];
        // After the mark, any bytes but zeros.
        let payload: Vec<u8> =
            (0..size).map(|at| if at < STREAM_MARK_LEN { 0 } else { at as u8 }).collect();
        builder.emit(&payload, &mut frame);
        let frame = StreamFrame::new(frame).ok_or_else(|| {
            CommandFailure::usage(format!("{size} bytes are too short for a mark"))
        })?;
        let port = interface(host.first_interface());
        let source = host.run(|| StreamSource::attach(&port, frame))?.map_err(unfit)?;
        Ok(PacketSource { source, size })
    }

    /// Attaches a sink for packets of a source at the relay's interface, for trials without a
    /// relay.
    pub(super) fn direct_sink(&self) -> Result<(StreamSink, Attachment), CommandFailure> {
        let sink = StreamSink::load(self.cores.len() as u32, 1).map_err(unfit)?;
        let attachment = attach(&sink, self.relay_host())?;
        Ok((sink, attachment))
    }

    /// Runs a trial with a relay.
    pub(super) fn run_relayed(
        &mut self,
        source: &PacketSource,
        load: &TrialLoad,
    ) -> Result<TrialArrivals, CommandFailure> {
        self.trials += 1;
        run(&RelayTrial {
            number: self.trials,
            host: self.lab.server(),
            source,
            sink: &self.sink,
            cores: &self.cores[..load.lanes.min(self.cores.len())],
            first_port: CHILD_PORT,
            load,
        })
    }

    /// Runs a trial without a relay.
    pub(super) fn run_direct(
        &mut self,
        source: &PacketSource,
        sink: &StreamSink,
        load: &TrialLoad,
    ) -> Result<TrialArrivals, CommandFailure> {
        self.trials += 1;
        run(&RelayTrial {
            number: self.trials,
            host: self.lab.server(),
            source,
            sink,
            cores: &self.cores[..load.lanes.min(self.cores.len())],
            first_port: GROUP_PORT,
            load,
        })
    }

    /// Makes the receivers expect packets from a socket of the relay's host, and returns the mark
    /// with which such a packet begins.
    pub(super) fn expect_from_socket(&mut self, size: usize) -> [u8; STREAM_MARK_LEN] {
        self.trials += 1;
        self.sink.begin_trial(&StreamTrial {
            number: self.trials,
            lanes: 1,
            children: 1,
            first_port: CHILD_PORT,
            payload_len: size as u32,
            timed: false,
        });
        let mut mark = [0; STREAM_MARK_LEN];
        mark[..4].copy_from_slice(&self.trials.to_ne_bytes());
        mark
    }

    /// Packets that arrived since.
    pub(super) fn received_from_socket(&self) -> u64 {
        self.sink.child_counts(0, 0).packets
    }
}

/// All addresses of the hosts: TEST-NET-1 (RFC 5737).
pub(super) fn network() -> Result<Network, CommandFailure> {
    "192.0.2.0/24".parse().map_err(CommandFailure::environment)
}

fn interface(port: &LabInterface) -> Interface {
    Interface { index: port.index, name: port.name.clone() }
}

fn attach(sink: &StreamSink, host: &LabHost) -> Result<Attachment, CommandFailure> {
    let port = interface(host.first_interface());
    host.run(|| sink.attach(&port))?.map_err(unfit)
}

fn unfit(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::environment(format!("the experiment needs XDP at both ends: {error}"))
}

/// A trial with its resources.
struct RelayTrial<'a> {
    number: u32,
    host: &'a LabHost,
    source: &'a PacketSource,
    sink: &'a StreamSink,
    cores: &'a [usize],
    first_port: u16,
    load: &'a TrialLoad,
}

fn run(trial: &RelayTrial<'_>) -> Result<TrialArrivals, CommandFailure> {
    trial.sink.begin_trial(&StreamTrial {
        number: trial.number,
        lanes: trial.cores.len() as u32,
        children: trial.load.children as u32,
        first_port: trial.first_port,
        payload_len: trial.source.size as u32,
        timed: trial.load.timed,
    });
    let before = ProcessorTime::read();
    trial.host.run(|| trial.send())??;
    let sent: Vec<_> = trial.lanes().map(|lane| lane.sent).collect();
    let in_time = trial.await_copies(&sent);
    let spent = |before| Some(ProcessorTime::read()?.spent_ns(&before, trial.cores));
    let cpu_ns = before.and_then(spent);
    Ok(TrialArrivals { cpu_ns, ..trial.arrivals(&sent, &in_time) })
}

impl RelayTrial<'_> {
    fn lanes(&self) -> impl Iterator<Item = StreamLane> + '_ {
        self.cores.iter().map(|&core| self.source.source.lane(core as u32))
    }

    /// A lane's share of the schedule, from now on.
    fn lane(&self, number: usize) -> StreamLane {
        let lanes = self.cores.len() as f64;
        let interval = lanes * 1e9 / self.load.rate * FRACTION;
        let [least, most] = LATE_NS.map(|ns| ns * FRACTION);
        let late_max = (LATE_PACKETS * interval).clamp(least, most);
        StreamLane {
            start_ns: MonotonicClock.now().as_ns() as u64 + LEAD_NS,
            next: (interval / lanes * number as f64) as u64,
            interval: interval.max(1.0) as u64,
            end: (self.load.duration.as_nanos() as f64 * FRACTION) as u64,
            late_max: late_max as u64,
            trial: self.number,
            number: number as u32,
            active: 1,
            ..StreamLane::default()
        }
    }

    /// Sends from a thread on each core until the schedule is over or the run is interrupted.
    fn send(&self) -> Result<(), CommandFailure> {
        for &core in self.cores {
            self.source.source.set_lane(core as u32, &StreamLane::default());
        }
        let all = &Barrier::new(self.cores.len());
        thread::scope(|scope| {
            let senders: Vec<_> = (0..self.cores.len())
                .map(|number| {
                    let (handle, thread) = mpsc::channel();
                    let sender = move || self.send_from(number, all, &handle);
                    (scope.spawn(sender), thread, self.cores[number])
                })
                .collect();
            for (task, thread, core) in &senders {
                let Ok(thread) = thread.recv() else { continue };
                while self.source.source.lane(*core as u32).done == 0 && !task.is_finished() {
                    thread::sleep(POLL_INTERVAL);
                    if output::flow().is_break() {
                        self.source.source.end_lane(*core as u32);
                    }
                }
                // The thread may be between two calls when a signal comes: repeat it.
                while !task.is_finished() {
                    thread.interrupt().map_err(CommandFailure::environment)?;
                    thread::sleep(POLL_INTERVAL);
                }
            }
            senders.into_iter().try_for_each(|(task, ..)| {
                task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// Starts when all lanes are ready: on a busy host a thread may take long to start.
    fn send_from(
        &self,
        number: usize,
        all: &Barrier,
        handle: &mpsc::Sender<InterruptibleThread>,
    ) -> Result<(), CommandFailure> {
        let core = self.cores[number];
        let ready = InterruptibleThread::current();
        let ready = ready.and_then(|thread| affinity::pin_to_core(core).map(|()| thread));
        all.wait();
        let thread = ready.map_err(CommandFailure::environment)?;
        self.source.source.set_lane(core as u32, &self.lane(number));
        // The receiver ends the call; without a receiver there is nothing to send for.
        if handle.send(thread).is_err() {
            return Ok(());
        }
        while self.source.source.lane(core as u32).done == 0 {
            self.source.source.send(self.load.batch).map_err(unfit)?;
        }
        Ok(())
    }

    /// Arrivals at a child, by lane.
    fn child(&self, number: usize) -> impl Iterator<Item = StreamChildCounts> + '_ {
        let lanes = 0..self.cores.len() as u32;
        lanes.map(move |lane| self.sink.child_counts(lane, number as u32))
    }

    /// Arrivals at each child so far.
    fn counts(&self) -> Vec<u64> {
        let arrived = |number| self.child(number).map(|child| child.packets).sum();
        (0..self.load.children).map(arrived).collect()
    }

    /// Waits until no more copies arrive, and returns each child's arrivals in time.
    fn await_copies(&self, sent: &[u64]) -> Vec<u64> {
        thread::sleep(GRACE);
        let in_time = self.counts();
        let wanted: u64 = sent.iter().sum();
        let (begun, mut last_arrival) = (Instant::now(), Instant::now());
        let mut counts = in_time.clone();
        while counts.iter().any(|count| *count < wanted)
            && last_arrival.elapsed() < IDLE_TIMEOUT
            && begun.elapsed() < DRAIN_MAX
        {
            thread::sleep(POLL_INTERVAL);
            let now = self.counts();
            if now != counts {
                (counts, last_arrival) = (now, Instant::now());
            }
        }
        in_time
    }

    fn arrivals(&self, sent: &[u64], in_time: &[u64]) -> TrialArrivals {
        let total: u64 = sent.iter().sum();
        let first = self.lanes().map(|lane| lane.first_sent_ns).filter(|ns| *ns > 0).min();
        let last = self.lanes().map(|lane| lane.last_sent_ns).max();
        let span_ns = last.zip(first).map_or(0, |(last, first)| last.saturating_sub(first));
        let mut arrivals = TrialArrivals { sent: total, ..TrialArrivals::default() };
        let mut is_whole = true;
        for number in 0..self.load.children {
            for (child, &sent) in self.child(number).zip(sent) {
                arrivals.disordered += child.disordered;
                arrivals.damaged += child.damaged;
                is_whole &= child.has_each_once(sent);
            }
        }
        for (first, last) in self.sink.delays() {
            arrivals.first_copy.merge(&recorder(&first));
            arrivals.last_copy.merge(&recorder(&last));
        }
        arrivals.rate = if span_ns > 0 { (total - 1) as f64 * 1e9 / span_ns as f64 } else { 0.0 };
        arrivals.copies = in_time.iter().sum();
        arrivals.lost = in_time.iter().map(|count| total.saturating_sub(*count)).sum();
        arrivals.mixed_up = arrivals.lost == 0 && !is_whole;
        arrivals
    }
}

fn recorder(raw: &RawHistogram) -> Recorder {
    // The program follows the layout, so the kernel's table is never refused.
    Recorder::from_raw(&raw.buckets, raw.sum.into(), raw.min, raw.max).unwrap_or_default()
}
