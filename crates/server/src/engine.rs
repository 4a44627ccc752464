//! The socket engine: opens the sockets, spreads them over pinned threads, and counts what they do.
//! What is answered is decided elsewhere.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_io::{Batch, Device, Endpoints, UdpDevice, UdpError, UdpOptions};
use horolog_sys::affinity::{allowed_cores, pin_to_core};
use horolog_sys::clock::MonotonicClock;

use crate::worker::{Surroundings, Worker};
use crate::{Counters, Dispatch, ServerConfig, Totals};

/// Packets that a thread moves at once when it has a socket of its own.
const BATCH: usize = 32;
/// Bytes of send buffer to ask for: more than one batch on its way.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// How long a thread waits for room in the send buffer before it gives up a reply.
const SEND_WAIT: Duration = Duration::from_millis(1);

/// The sockets of one address, one for each thread or one for all.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    devices: Vec<UdpDevice>,
}

/// All sockets, open but not yet served.
#[derive(Debug)]
pub(crate) struct Listeners(Vec<Listener>);

impl Listeners {
    /// Opens the sockets that the configuration asks for, or none.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, UdpError> {
        config
            .listen
            .iter()
            .map(|address| Listener::open(*address, config))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The addresses listened on, with the ports that the kernel chose where 0 was asked for.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|listener| listener.address).collect()
    }
}

impl Listener {
    fn open(address: SocketAddr, config: &ServerConfig) -> Result<Self, UdpError> {
        let shared = config.dispatch == Dispatch::SharedLock;
        let options = UdpOptions {
            slots: if shared { 1 } else { BATCH },
            receive_buffer: Some(config.receive_buffer_bytes),
            send_buffer: Some(SEND_BUFFER_BYTES),
            send_wait: SEND_WAIT,
            ..UdpOptions::default()
        };
        // A port that is shared could be shared with a server that runs already, and nobody would
        // be told. Only a socket that wants the port to itself finds out.
        let alone = UdpDevice::bind(address, &options)?;
        let address = alone.local_address();
        if shared || config.threads == 1 {
            return Ok(Self { address, devices: vec![alone] });
        }
        drop(alone);
        let options = UdpOptions { share_port: true, ..options };
        let bind = |_| UdpDevice::bind(address, &options);
        let devices: Vec<_> = (0..config.threads).map(bind).collect::<Result<_, _>>()?;
        if config.steer_by_cpu {
            let failed = |error| UdpError::Other(address, error);
            devices[0].steer_by_cpu(devices.len() as u32).map_err(failed)?;
        }
        Ok(Self { address, devices })
    }
}

/// Threads that answer from sockets; dropping it ends them.
#[derive(Debug)]
pub(crate) struct SocketEngine {
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counters: Vec<Arc<Counters>>,
    /// The core that each thread was given, in the order of `counters`.
    cores: Vec<Option<usize>>,
    /// Second handles of the sockets, to ask how much the kernel dropped.
    sockets: Mutex<Vec<UdpDevice>>,
}

impl SocketEngine {
    /// Starts the threads.
    pub(crate) fn start(
        listeners: Listeners,
        config: &ServerConfig,
        surroundings: &Surroundings,
    ) -> io::Result<Self> {
        let mut engine = Self {
            stop: Arc::clone(&surroundings.stop),
            threads: Mutex::default(),
            counters: Vec::new(),
            cores: Vec::new(),
            sockets: Mutex::default(),
        };
        let cores = allowed_cores()?;
        for listener in listeners.0 {
            let sockets = listener.devices.iter().map(UdpDevice::try_clone);
            lock(&engine.sockets).extend(sockets.collect::<io::Result<Vec<_>>>()?);
            match config.dispatch {
                Dispatch::PerThread => {
                    for (index, device) in listener.devices.into_iter().enumerate() {
                        let core = core_for(index, config.threads, &cores);
                        engine.spawn(device, BATCH, core, surroundings)?;
                    }
                }
                Dispatch::SharedLock => {
                    for device in listener.devices {
                        engine.spawn_sharing(&device, config.threads, &cores, surroundings)?;
                    }
                }
            }
        }
        Ok(engine)
    }

    fn spawn_sharing(
        &mut self,
        device: &UdpDevice,
        threads: usize,
        cores: &[usize],
        surroundings: &Surroundings,
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
        device: impl Device<Address = Endpoints> + Send + 'static,
        slots: usize,
        core: Option<usize>,
        surroundings: &Surroundings,
    ) -> io::Result<()> {
        let counters = Arc::new(Counters::default());
        self.counters.push(Arc::clone(&counters));
        self.cores.push(core);
        let surroundings = surroundings.clone();
        let work = move || {
            // Unpinned threads answer as well, only less evenly; a core may have gone offline.
            let _ = core.map(pin_to_core);
            // Made here, so that the batches lie in memory near the thread's core.
            Worker::new(device, MonotonicClock, surroundings, counters, slots).run();
        };
        let mut threads = lock(&self.threads);
        let name = format!("answer-{}", threads.len());
        threads.push(thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// The sum over all threads, and the drops at all sockets.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.counters {
            totals += counters.totals();
        }
        totals.dropped =
            lock(&self.sockets).iter_mut().filter_map(|socket| socket.dropped().ok()).sum();
        totals
    }

    /// The core and the counters of each thread; drops are counted by socket, not here.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (Option<usize>, Totals)> {
        self.cores.iter().copied().zip(self.counters.iter().map(|counters| counters.totals()))
    }

    /// Whether a thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        lock(&self.threads).iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads. The counters and the drops can still be read.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in lock(&self.threads).drain(..) {
            // A thread that panicked has said so on stderr; there is nothing to add here.
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

impl Device for SharedSocket {
    type Address = Endpoints;

    fn receive(&mut self, batch: &mut Batch<Endpoints>, wait: Duration) -> io::Result<usize> {
        let mut socket = lock(&self.receiving);
        // The threads come here one after the other; each would wait anew after the stop.
        let wait = if self.stop.load(Ordering::Relaxed) { Duration::ZERO } else { wait };
        socket.receive(batch, wait)
    }

    fn send(&mut self, batch: &mut Batch<Endpoints>) -> io::Result<usize> {
        lock(&self.sending).send(batch)
    }
}

/// A thread that panicked while it held a lock has left a socket or a list behind it, both whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The core for a thread: where steering by CPU brings its packets from, if this process may run
/// there, else any in turn.
fn core_for(index: usize, threads: usize, cores: &[usize]) -> Option<usize> {
    let steered = cores.iter().find(|core| *core % threads == index);
    steered.or_else(|| cores.get(index % cores.len().max(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sit_where_their_packets_come_from() {
        let place = |threads, cores: &[usize]| -> Vec<_> {
            (0..threads).map(|index| core_for(index, threads, cores)).collect()
        };
        assert_eq!(place(2, &[0, 1]), [Some(0), Some(1)]);
        assert_eq!(place(2, &[5, 6]), [Some(6), Some(5)]);
        assert_eq!(place(4, &[0, 1]), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(place(1, &[3, 4]), [Some(3)]);
        assert_eq!(place(1, &[]), [None]);
    }
}
