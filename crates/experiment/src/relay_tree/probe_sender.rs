//! Probe trains from one lab host, and the delays of their packets to sinks in others. Arriving
//! packets wake no thread: they remain in the sink's socket buffer with the kernel's receive
//! timestamp, and the sender reads them in pauses. So receivers take no CPU time from the relays,
//! which run on the same machine.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use horolog_lab::LabHost;
use horolog_sys::affinity;
use horolog_sys::clock::{ClockMonotonic, ClockRealtime, sleep_until};
use horolog_sys::datagram::send_to;
use horolog_sys::message::MmsghdrTable;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, TimeGrid, Timestamp, Utc};

use crate::{ExperimentError, ExperimentObserver};

/// Number of packets sent between two reads of the sinks.
const CHUNK: usize = 50;
/// Pause before the sinks are read, in which packets in flight arrive.
const SETTLE_TIME: Duration = Duration::from_millis(20);
/// Maximum number of pauses after a chunk; a busy host needs more than one.
const SETTLES_MAX: usize = 25;
/// Receive buffer of a sink: several chunks of the longest packets, with the kernel's overhead.
const BUFFER_BYTES: usize = 4 << 20;
const SLOTS: usize = 64;
/// Bytes read of each packet: its number and that of its probe train, 32 bits each.
const HEAD_BYTES: usize = 8;

/// Parameters of a probe train.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeTrain {
    /// Number of uncounted packets at the start.
    pub(super) warm_up: usize,
    pub(super) packets: usize,
    pub(super) interval: Duration,
    pub(super) payload: usize,
}

/// Delay of each packet to each sink, in ns, indexed by sink and packet; `None` if it did not
/// arrive.
pub(super) type SinkDelays = Vec<Vec<Option<u64>>>;

/// Receiving socket for probes in a lab host.
pub(super) struct ProbeSink {
    socket: DatagramSocket,
}

impl ProbeSink {
    /// Opens a sink at an address of a lab host.
    pub(super) fn open(host: &LabHost, at: SocketAddr) -> Result<Self, ExperimentError> {
        let open = || -> io::Result<DatagramSocket> {
            let socket = DatagramSocket::udp(at)?;
            socket.set_receive_buffer(BUFFER_BYTES)?;
            socket.enable_receive_timestamps(false)?;
            socket.bind(at)?;
            Ok(socket)
        };
        let socket = host.run(open)?.map_err(|error| lab_host_error("receive", &error))?;
        Ok(Self { socket })
    }
}

/// Sender of probe trains in a lab host; reads the sinks as well.
pub(super) struct ProbeSender<'a> {
    observer: &'a dyn ExperimentObserver,
    socket: DatagramSocket,
    table: MmsghdrTable,
    heads: Box<[[u8; HEAD_BYTES]]>,
    /// Number of the latest probe train, which packets carry: late packets of earlier trains are
    /// ignored.
    probe_trains: u32,
}

impl<'a> ProbeSender<'a> {
    /// Opens a sender in a lab host.
    pub(super) fn open(
        host: &LabHost,
        observer: &'a dyn ExperimentObserver,
    ) -> Result<Self, ExperimentError> {
        let at = SocketAddr::new(host.first_interface().ipv4.into(), 0);
        let open = || -> io::Result<DatagramSocket> {
            let socket = DatagramSocket::udp(at)?;
            socket.bind(at)?;
            Ok(socket)
        };
        let socket = host.run(open)?.map_err(|error| lab_host_error("send", &error))?;
        let heads = vec![[0; HEAD_BYTES]; SLOTS].into_boxed_slice();
        Ok(Self { observer, socket, table: MmsghdrTable::new(SLOTS), heads, probe_trains: 0 })
    }

    /// Sends a probe train to one address from a thread that is pinned to one core, and returns the
    /// delays to the sinks. If interrupted, it ends early and returns the delays so far.
    pub(super) fn run(
        &mut self,
        to: SocketAddr,
        sinks: &[&ProbeSink],
        train: &ProbeTrain,
    ) -> Result<SinkDelays, ExperimentError> {
        thread::scope(|scope| {
            // Pins a thread of its own: threads inherit the affinity of the one that starts them,
            // and relays may run on any core.
            let sending = scope.spawn(|| {
                let cores = affinity::allowed_cores().unwrap_or_default();
                let pinned = cores.first().map(|core| affinity::pin_to_core(*core)).transpose();
                pinned.map_err(|error| lab_host_error("send", &error))?;
                self.send(to, sinks, train)
            });
            sending
                .join()
                .unwrap_or_else(|_| Err(ExperimentError::host("the sending thread has exited")))
        })
    }

    fn send(
        &mut self,
        to: SocketAddr,
        sinks: &[&ProbeSink],
        train: &ProbeTrain,
    ) -> Result<SinkDelays, ExperimentError> {
        self.probe_trains += 1;
        let total = train.warm_up + train.packets;
        let mut packet = vec![0; train.payload.max(HEAD_BYTES)];
        packet[4..HEAD_BYTES].copy_from_slice(&self.probe_trains.to_le_bytes());
        let mut sent_at: Vec<Timestamp<Utc>> = Vec::with_capacity(total);
        let mut arrivals = vec![vec![None; total]; sinks.len()];
        while sent_at.len() < total && self.observer.flow().is_continue() {
            let grid = TimeGrid { start: ClockMonotonic.now(), interval: train.interval.into() };
            for number in 1..=CHUNK.min(total - sent_at.len()) {
                sleep_until(grid.instant(number as u64));
                packet[..4].copy_from_slice(&(sent_at.len() as u32).to_le_bytes());
                sent_at.push(ClockRealtime.now());
                send_to(self.socket.as_fd(), &packet, to)
                    .map_err(|error| lab_host_error("send", &error))?;
            }
            for _ in 0..SETTLES_MAX {
                thread::sleep(SETTLE_TIME);
                for (sink, arrivals) in sinks.iter().zip(&mut arrivals) {
                    self.read_sink(sink, &sent_at, arrivals)
                        .map_err(|error| lab_host_error("receive", &error))?;
                }
                if arrivals
                    .iter()
                    .all(|sink_arrivals| sink_arrivals[..sent_at.len()].iter().all(Option::is_some))
                {
                    break;
                }
            }
        }
        for arrivals in &mut arrivals {
            arrivals.truncate(sent_at.len());
            arrivals.drain(..train.warm_up.min(arrivals.len()));
        }
        Ok(arrivals)
    }

    /// Reads all packets that are queued at a sink, and enters their delays in `arrivals`.
    fn read_sink(
        &mut self,
        sink: &ProbeSink,
        sent_at: &[Timestamp<Utc>],
        arrivals: &mut [Option<u64>],
    ) -> io::Result<()> {
        loop {
            let buffers = self.heads.iter_mut().map(|head| &mut head[..]);
            let count = match self.table.receive(sink.socket.as_fd(), buffers) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                received => received?,
            };
            for (slot, head) in self.heads.iter().enumerate().take(count) {
                let received = self.table.received(slot);
                let word = |at: usize| {
                    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
                };
                let (number, train_number) = (word(0) as usize, word(4));
                let sent_time = sent_at.get(number).filter(|_| train_number == self.probe_trains);
                let timestamp = received.control.received_at.filter(|_| received.len == HEAD_BYTES);
                if let (Some(sent_at), Some(received_at)) = (sent_time, timestamp) {
                    // A clock that was stepped back makes the delay negative, and it is discarded.
                    // Of several copies of a packet the first one counts.
                    let delay = u64::try_from((received_at - *sent_at).as_ns()).ok();
                    arrivals[number] = arrivals[number].or(delay);
                }
            }
        }
    }
}

fn lab_host_error(what: &str, error: &io::Error) -> ExperimentError {
    ExperimentError::host(format!("cannot {what} in a lab host: {error}"))
}
