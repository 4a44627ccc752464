//! Socket engine: opens the sockets, starts threads pinned to cores that answer from them, and sums
//! their counters.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, DatagramEndpoints, TransmitTimestampSource, UdpDevice, UdpDeviceError,
    UdpDeviceOptions,
};
use horolog_nts::NonceStream;
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::leap::LeapSecondRepresentation;
use horolog_wire::ntp::HEADER_LEN;
use horolog_xdp::XskDropCounter;

use super::counters::{SocketEngineCounts, WorkerCounters};
use super::preferred_sockets::PreferredSocketPair;
use super::worker::{Worker, WorkerContext};
use crate::config::{ServerConfig, SocketSharingMode};
use crate::xdp::queues::AfXdpQueue;

/// Maximum number of packets per batch of a thread with its own socket.
const BATCH: usize = 32;
/// Send buffer size to request, in bytes: room for more than one batch.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// Longest wait for room in the send buffer, after which a reply is dropped.
const SEND_WAIT: Duration = Duration::from_millis(1);

/// Open sockets of one listen address that are not served yet: one per thread, or one for all.
#[derive(Debug)]
pub(crate) struct ListenAddressSockets {
    address: SocketAddr,
    /// Timeline served at this address.
    timeline: LeapSecondRepresentation,
    devices: Vec<UdpDevice>,
    /// Additional sockets, one per thread, for requests longer than a header; empty if requests are
    /// not authenticated.
    preferred: Vec<UdpDevice>,
}

impl ListenAddressSockets {
    /// Returns the listen address, with the port that the kernel chose if 0 was requested.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the timeline served at this address.
    pub(crate) const fn timeline(&self) -> LeapSecondRepresentation {
        self.timeline
    }

    /// Opens the sockets of a listen address: one for all threads with
    /// [`SocketSharingMode::SharedLock`], otherwise one per thread, and a second one if requests
    /// may be authenticated.
    pub(crate) fn open(
        address: SocketAddr,
        timeline: LeapSecondRepresentation,
        config: &ServerConfig,
    ) -> Result<Self, UdpDeviceError> {
        let shared = config.dispatch == SocketSharingMode::SharedLock;
        let timestamp_source =
            match (config.timestamps.transmit, config.timestamps.hardware.is_empty()) {
                (false, _) => None,
                (true, true) => Some(TransmitTimestampSource::Kernel),
                (true, false) => Some(TransmitTimestampSource::Hardware),
            };
        let options = UdpDeviceOptions {
            slots: if shared { 1 } else { BATCH },
            receive_buffer: Some(config.receive_buffer_bytes),
            send_buffer: Some(SEND_BUFFER_BYTES),
            send_wait: SEND_WAIT,
            transmit_timestamps: timestamp_source,
            report_unicast: true,
            ..UdpDeviceOptions::default()
        };
        // Binding a shared port succeeds even if another server of this user has it. Only an
        // exclusive socket detects that.
        let exclusive = UdpDevice::bind(address, &options)?;
        let address = exclusive.local_address();
        let separates_long_requests = config.nts.authenticates() && !shared;
        if shared || (config.threads == 1 && !separates_long_requests) {
            return Ok(Self { address, timeline, devices: vec![exclusive], preferred: Vec::new() });
        }
        drop(exclusive);
        let options = UdpDeviceOptions { share_port: true, ..options };
        let bind = |_| UdpDevice::bind(address, &options);
        let sockets = if separates_long_requests { 2 * config.threads } else { config.threads };
        let mut devices: Vec<_> = (0..sockets).map(bind).collect::<Result<_, _>>()?;
        let steered = match (separates_long_requests, config.steer_by_cpu) {
            (true, by_cpu) => devices[0].steer_by_length(sockets as u32, HEADER_LEN as u32, by_cpu),
            (false, true) => devices[0].steer_by_cpu(sockets as u32),
            (false, false) => Ok(()),
        };
        steered.map_err(|error| UdpDeviceError::Other(address, error))?;
        let preferred = devices.split_off(config.threads);
        Ok(Self { address, timeline, devices, preferred })
    }
}

/// Threads that answer from sockets. Dropping it ends the threads.
#[derive(Debug)]
pub(crate) struct SocketEngine {
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counters: Vec<Arc<WorkerCounters>>,
    /// Core of each thread, in the order of `counters`.
    cores: Vec<Option<usize>>,
    /// Duplicates of the sockets, from which the kernel's drop counts are read.
    sockets: Mutex<Vec<UdpDevice>>,
    af_xdp_drops: Vec<XskDropCounter>,
}

impl SocketEngine {
    fn new(context: &WorkerContext) -> Self {
        Self {
            stop: Arc::clone(&context.stop),
            threads: Mutex::default(),
            counters: Vec::new(),
            cores: Vec::new(),
            sockets: Mutex::default(),
            af_xdp_drops: Vec::new(),
        }
    }

    /// Starts the threads that answer requests redirected to `AF_XDP` sockets.
    pub(crate) fn start_af_xdp(
        devices: Vec<AfXdpQueue>,
        context: &WorkerContext,
    ) -> io::Result<Self> {
        let mut engine = Self::new(context);
        let cores = allowed_cores()?;
        // These devices take no transmit timestamps.
        let context = &WorkerContext { has_transmit_timestamps: false, ..context.clone() };
        for (queue, af_xdp_queue) in devices.into_iter().enumerate() {
            engine.af_xdp_drops.push(af_xdp_queue.drops);
            let core = core_for(queue, cores.len().max(1), &cores);
            engine.spawn(af_xdp_queue.device, BATCH, core, context)?;
        }
        Ok(engine)
    }

    /// Starts the threads for the sockets of a listen address.
    pub(crate) fn start(
        listener: ListenAddressSockets,
        config: &ServerConfig,
        context: &WorkerContext,
    ) -> io::Result<Self> {
        let mut engine = Self::new(context);
        let cores = allowed_cores()?;
        let page = context.page.with_timeline(listener.timeline);
        let context = &WorkerContext { page, ..context.clone() };
        let sockets = listener.devices.iter().chain(&listener.preferred);
        let sockets = sockets.map(UdpDevice::try_clone);
        lock(&engine.sockets).extend(sockets.collect::<io::Result<Vec<_>>>()?);
        if config.dispatch == SocketSharingMode::SharedLock {
            for device in listener.devices {
                engine.spawn_sharing(&device, config.threads, &cores, context)?;
            }
            return Ok(engine);
        }
        let mut preferred = listener.preferred.into_iter();
        for (index, device) in listener.devices.into_iter().enumerate() {
            let core = core_for(index, config.threads, &cores);
            match preferred.next() {
                Some(preferred) => {
                    let pair = PreferredSocketPair::new(preferred, device);
                    engine.spawn(pair, BATCH, core, context)?;
                }
                None => engine.spawn(device, BATCH, core, context)?,
            }
        }
        Ok(engine)
    }

    fn spawn_sharing(
        &mut self,
        device: &UdpDevice,
        threads: usize,
        cores: &[usize],
        context: &WorkerContext,
    ) -> io::Result<()> {
        let receiving = Arc::new(Mutex::new(device.try_clone()?));
        let sending = Arc::new(Mutex::new(device.try_clone()?));
        for index in 0..threads {
            let shared = SharedSocket {
                receiving: Arc::clone(&receiving),
                sending: Arc::clone(&sending),
                stop: Arc::clone(&context.stop),
            };
            self.spawn(shared, 1, core_for(index, threads, cores), context)?;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        device: impl BatchDevice<Address = DatagramEndpoints> + Send + 'static,
        slots: usize,
        core: Option<usize>,
        context: &WorkerContext,
    ) -> io::Result<()> {
        let counters = Arc::new(WorkerCounters::default());
        self.counters.push(Arc::clone(&counters));
        self.cores.push(core);
        let context = context.clone();
        let nonces = NonceStream::new().map_err(io::Error::other)?;
        let work = move || {
            // Threads that cannot be pinned, because a core has gone offline, work too.
            let _ = core.map(pin_to_core);
            // Created in this thread, so that its batches lie in memory near its core.
            Worker::new(device, ClockMonotonic, context, counters, nonces, slots).run();
        };
        let mut threads = lock(&self.threads);
        let name = format!("answer-{}", threads.len());
        threads.push(thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Returns the sum of the counts of all threads, with the drops at all sockets whose counts can
    /// be read.
    pub(crate) fn totals(&self) -> SocketEngineCounts {
        let mut totals = SocketEngineCounts::default();
        for counters in &self.counters {
            totals += counters.totals();
        }
        totals.dropped = lock(&self.sockets)
            .iter_mut()
            .filter_map(|socket| socket.dropped().ok())
            .chain(self.af_xdp_drops.iter().filter_map(|socket| socket.count().ok()))
            .sum();
        totals
    }

    /// Returns the core and the counts of each thread, without drops, which are counted by socket.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (Option<usize>, SocketEngineCounts)> {
        self.cores.iter().copied().zip(self.counters.iter().map(|counters| counters.totals()))
    }

    /// Returns true if a thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        lock(&self.threads).iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads. Their counts and the drops remain readable.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in lock(&self.threads).drain(..) {
            // A panicked thread has already reported on stderr.
            let _ = thread.join();
        }
    }
}

impl Drop for SocketEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Socket shared by several threads, with one lock for receiving and one for sending.
#[derive(Debug)]
struct SharedSocket {
    receiving: Arc<Mutex<UdpDevice>>,
    sending: Arc<Mutex<UdpDevice>>,
    stop: Arc<AtomicBool>,
}

impl BatchDevice for SharedSocket {
    type Address = DatagramEndpoints;

    fn receive(
        &mut self,
        batch: &mut Batch<DatagramEndpoints>,
        wait: Duration,
    ) -> io::Result<usize> {
        let mut socket = lock(&self.receiving);
        // Threads wait for this lock one after the other; after a stop, each would wait for packets
        // anew.
        let wait = if self.stop.load(Ordering::Relaxed) { Duration::ZERO } else { wait };
        socket.receive(batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        lock(&self.sending).send(batch)
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        lock(&self.sending).receive_transmitted(batch)
    }
}

/// Locks a mutex. The value stays consistent even if a thread panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the core for a thread: the first permitted one whose packets are steered to it,
/// otherwise the permitted cores in turn; `None` if there are none.
pub(crate) fn core_for(index: usize, threads: usize, cores: &[usize]) -> Option<usize> {
    let steered = cores.iter().find(|core| *core % threads == index);
    steered.or_else(|| cores.get(index % cores.len().max(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sit_where_their_packets_come_from() {
        let assigned_cores = |threads, cores: &[usize]| -> Vec<_> {
            (0..threads).map(|index| core_for(index, threads, cores)).collect()
        };
        assert_eq!(assigned_cores(2, &[0, 1]), [Some(0), Some(1)]);
        assert_eq!(assigned_cores(2, &[5, 6]), [Some(6), Some(5)]);
        assert_eq!(assigned_cores(4, &[0, 1]), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(assigned_cores(1, &[3, 4]), [Some(3)]);
        assert_eq!(assigned_cores(1, &[]), [None]);
    }
}
