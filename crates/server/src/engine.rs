//! Socket engine: opens the sockets, distributes them over pinned threads, and counts their work.
//! Replies are decided elsewhere.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, Endpoints, TransmitTimestamp, UdpDevice, UdpError, UdpOptions,
};
use horolog_nts::Nonces;
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::MonotonicClock;
use horolog_time::leap::Timeline;
use horolog_wire::ntp::HEADER_LEN;
use horolog_xdp::XskDropCounter;

use crate::af_xdp::AfXdpQueue;
use crate::priority_sockets::PrioritySockets;
use crate::worker::{Worker, WorkerContext};
use crate::{Counters, Dispatch, ServerConfig, SocketCounts};

/// Packets that a thread moves at once if it has its own socket.
const BATCH: usize = 32;
/// Bytes of send buffer to request: more than one batch in flight.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// Longest wait of a thread for room in the send buffer before it drops a reply.
const SEND_WAIT: Duration = Duration::from_millis(1);

/// Sockets of one address, one per thread or one for all; open but not yet served.
#[derive(Debug)]
pub(crate) struct ListenSockets {
    address: SocketAddr,
    /// Timeline served at the address.
    timeline: Timeline,
    devices: Vec<UdpDevice>,
    /// Separate sockets, one per thread, for requests longer than a header; empty if no trailer is
    /// evaluated.
    preferred: Vec<UdpDevice>,
}

impl ListenSockets {
    /// Returns the listen address, with the port that the kernel chose if 0 was requested.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the timeline served at the address.
    pub(crate) const fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// Opens the sockets as configured.
    pub(crate) fn open(
        address: SocketAddr,
        timeline: Timeline,
        config: &ServerConfig,
    ) -> Result<Self, UdpError> {
        let shared = config.dispatch == Dispatch::SharedLock;
        let stamp = match (config.timestamps.transmit, config.timestamps.hardware.is_empty()) {
            (false, _) => None,
            (true, true) => Some(TransmitTimestamp::Kernel),
            (true, false) => Some(TransmitTimestamp::Hardware),
        };
        let options = UdpOptions {
            slots: if shared { 1 } else { BATCH },
            receive_buffer: Some(config.receive_buffer_bytes),
            send_buffer: Some(SEND_BUFFER_BYTES),
            send_wait: SEND_WAIT,
            transmit_timestamps: stamp,
            report_unicast: true,
            ..UdpOptions::default()
        };
        // A shared port could be shared with a running server without any error. Only a socket that
        // requests exclusive use detects that.
        let alone = UdpDevice::bind(address, &options)?;
        let address = alone.local_address();
        let apart = config.nts.authenticates() && !shared;
        if shared || (config.threads == 1 && !apart) {
            return Ok(Self { address, timeline, devices: vec![alone], preferred: Vec::new() });
        }
        drop(alone);
        let options = UdpOptions { share_port: true, ..options };
        let bind = |_| UdpDevice::bind(address, &options);
        let sockets = if apart { 2 * config.threads } else { config.threads };
        let mut devices: Vec<_> = (0..sockets).map(bind).collect::<Result<_, _>>()?;
        let steered = match (apart, config.steer_by_cpu) {
            (true, by_cpu) => devices[0].steer_by_length(sockets as u32, HEADER_LEN as u32, by_cpu),
            (false, true) => devices[0].steer_by_cpu(sockets as u32),
            (false, false) => Ok(()),
        };
        steered.map_err(|error| UdpError::Other(address, error))?;
        let preferred = devices.split_off(config.threads);
        Ok(Self { address, timeline, devices, preferred })
    }
}

/// Threads that answer from sockets; dropping it ends them.
#[derive(Debug)]
pub(crate) struct SocketEngine {
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counters: Vec<Arc<Counters>>,
    /// Core of each thread, in the order of `counters`.
    cores: Vec<Option<usize>>,
    /// Second handles of the sockets, to read the kernel's drop counts.
    sockets: Mutex<Vec<UdpDevice>>,
    handed_over: Vec<XskDropCounter>,
}

impl SocketEngine {
    fn new(surroundings: &WorkerContext) -> Self {
        Self {
            stop: Arc::clone(&surroundings.stop),
            threads: Mutex::default(),
            counters: Vec::new(),
            cores: Vec::new(),
            sockets: Mutex::default(),
            handed_over: Vec::new(),
        }
    }

    /// Starts the threads for redirected requests.
    pub(crate) fn start_handed_over(
        devices: Vec<AfXdpQueue>,
        surroundings: &WorkerContext,
    ) -> io::Result<Self> {
        let mut engine = Self::new(surroundings);
        let cores = allowed_cores()?;
        // No transmit timestamps are taken on these devices.
        let surroundings =
            &WorkerContext { has_transmit_timestamps: false, ..surroundings.clone() };
        for (queue, handed) in devices.into_iter().enumerate() {
            engine.handed_over.push(handed.drops);
            let core = core_for(queue, cores.len().max(1), &cores);
            engine.spawn(handed.device, BATCH, core, surroundings)?;
        }
        Ok(engine)
    }

    /// Starts the threads for the sockets of an address.
    pub(crate) fn start(
        listener: ListenSockets,
        config: &ServerConfig,
        surroundings: &WorkerContext,
    ) -> io::Result<Self> {
        let mut engine = Self::new(surroundings);
        let cores = allowed_cores()?;
        let page = surroundings.page.of(listener.timeline);
        let surroundings = &WorkerContext { page, ..surroundings.clone() };
        let sockets = listener.devices.iter().chain(&listener.preferred);
        let sockets = sockets.map(UdpDevice::try_clone);
        lock(&engine.sockets).extend(sockets.collect::<io::Result<Vec<_>>>()?);
        if config.dispatch == Dispatch::SharedLock {
            for device in listener.devices {
                engine.spawn_sharing(&device, config.threads, &cores, surroundings)?;
            }
            return Ok(engine);
        }
        let mut preferred = listener.preferred.into_iter();
        for (index, device) in listener.devices.into_iter().enumerate() {
            let core = core_for(index, config.threads, &cores);
            match preferred.next() {
                Some(preferred) => {
                    let pair = PrioritySockets::new(preferred, device);
                    engine.spawn(pair, BATCH, core, surroundings)?;
                }
                None => engine.spawn(device, BATCH, core, surroundings)?,
            }
        }
        Ok(engine)
    }

    fn spawn_sharing(
        &mut self,
        device: &UdpDevice,
        threads: usize,
        cores: &[usize],
        surroundings: &WorkerContext,
    ) -> io::Result<()> {
        let receiving = Arc::new(Mutex::new(device.try_clone()?));
        let sending = Arc::new(Mutex::new(device.try_clone()?));
        for index in 0..threads {
            let shared = SharedSocket {
                receiving: Arc::clone(&receiving),
                sending: Arc::clone(&sending),
                stop: Arc::clone(&surroundings.stop),
            };
            self.spawn(shared, 1, core_for(index, threads, cores), surroundings)?;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        device: impl BatchDevice<Address = Endpoints> + Send + 'static,
        slots: usize,
        core: Option<usize>,
        surroundings: &WorkerContext,
    ) -> io::Result<()> {
        let counters = Arc::new(Counters::default());
        self.counters.push(Arc::clone(&counters));
        self.cores.push(core);
        let surroundings = surroundings.clone();
        let nonces = Nonces::new().map_err(io::Error::other)?;
        let work = move || {
            // Unpinned threads work as well, only less evenly; a core may have gone offline.
            let _ = core.map(pin_to_core);
            // Created here, so that the batches lie in memory near the thread's core.
            Worker::new(device, MonotonicClock, surroundings, counters, nonces, slots).run();
        };
        let mut threads = lock(&self.threads);
        let name = format!("answer-{}", threads.len());
        threads.push(thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Returns the sum over all threads, including the drops at all sockets.
    pub(crate) fn totals(&self) -> SocketCounts {
        let mut totals = SocketCounts::default();
        for counters in &self.counters {
            totals += counters.totals();
        }
        totals.dropped = lock(&self.sockets)
            .iter_mut()
            .filter_map(|socket| socket.dropped().ok())
            .chain(self.handed_over.iter().filter_map(|socket| socket.count().ok()))
            .sum();
        totals
    }

    /// Returns the core and the counters of each thread; drops are counted by socket, not here.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (Option<usize>, SocketCounts)> {
        self.cores.iter().copied().zip(self.counters.iter().map(|counters| counters.totals()))
    }

    /// Returns true if a thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        lock(&self.threads).iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads. The counters and the drops remain readable.
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

/// One socket for several threads, with one lock around receiving and another around sending.
#[derive(Debug)]
struct SharedSocket {
    receiving: Arc<Mutex<UdpDevice>>,
    sending: Arc<Mutex<UdpDevice>>,
    stop: Arc<AtomicBool>,
}

impl BatchDevice for SharedSocket {
    type Address = Endpoints;

    fn receive(&mut self, batch: &mut Batch<Endpoints>, wait: Duration) -> io::Result<usize> {
        let mut socket = lock(&self.receiving);
        // The threads arrive here one after the other; each would wait anew after the stop.
        let wait = if self.stop.load(Ordering::Relaxed) { Duration::ZERO } else { wait };
        socket.receive(batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        lock(&self.sending).send(batch)
    }

    fn sent(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        lock(&self.sending).sent(batch)
    }
}

/// Locks a mutex. A thread that panicked while it held a lock has left a socket or a list intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the core for a thread: the one whose packets CPU steering delivers to it, if this
/// process may run there, otherwise the next in turn.
fn core_for(index: usize, threads: usize, cores: &[usize]) -> Option<usize> {
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
