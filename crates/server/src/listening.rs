//! The addresses that a server listens on while it runs: one socket engine for each, so that one
//! can come or go without the sockets of the others being touched.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::engine::{Listeners, SocketEngine};
use crate::reload::{Change, Part, ReloadError};
use crate::worker::Surroundings;
use crate::xdp::SharedListen;
use crate::{ServerConfig, StartError, Totals};

/// What one thread of the socket engine counted, as `horolog status` tells it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkerStatus {
    /// The address that it answers at.
    pub listen: SocketAddr,
    /// Its number among the threads of this address.
    pub thread: usize,
    /// The core that it is tied to.
    pub core: Option<usize>,
    /// Datagrams that it took.
    pub received: u64,
    /// Replies that it handed to the kernel.
    pub answered: u64,
}

/// One address.
#[derive(Debug)]
struct Listened {
    /// As it was asked for.
    asked: SocketAddr,
    /// With the port that the kernel chose.
    address: SocketAddr,
    engine: SocketEngine,
}

#[derive(Debug, Default)]
struct State {
    listened: Vec<Listened>,
    /// What engines counted that have ended since.
    ended: Totals,
}

/// All addresses listened on; dropping it ends all threads.
#[derive(Debug)]
pub(crate) struct Listening {
    state: Mutex<State>,
    surroundings: Surroundings,
    shared: SharedListen,
}

/// Sockets that are open, by the addresses as they were asked for, but not served yet.
pub(crate) struct Opened(Vec<(SocketAddr, Listeners)>);

impl Opened {
    /// Opens the sockets for these addresses, or none.
    pub(crate) fn open(listen: &[SocketAddr], config: &ServerConfig) -> Result<Self, StartError> {
        let open = |asked: &SocketAddr| {
            let alone = ServerConfig { listen: vec![*asked], ..config.clone() };
            Ok((*asked, Listeners::open(&alone)?))
        };
        listen.iter().map(open).collect::<Result<_, StartError>>().map(Self)
    }

    /// The addresses with the ports that the kernel chose.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().flat_map(|(_, listeners)| listeners.addresses()).collect()
    }
}

impl Listening {
    /// Answers from these sockets. The addresses go to `shared` too, at this and every change.
    pub(crate) fn start(
        opened: Opened,
        config: &ServerConfig,
        surroundings: Surroundings,
        shared: SharedListen,
    ) -> io::Result<Self> {
        let listened = serve(opened, config, &surroundings)?;
        let state = State { listened, ended: Totals::default() };
        Ok(Self { state: Mutex::new(state), surroundings, shared })
    }

    /// The addresses, with the ports that the kernel chose where 0 was asked for.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().listened.iter().map(|listened| listened.address).collect()
    }

    /// The sum over all threads that run or ran, and the drops at all sockets.
    pub(crate) fn totals(&self) -> Totals {
        let state = self.lock();
        let mut totals = state.ended;
        for listened in &state.listened {
            totals += listened.engine.totals();
        }
        totals
    }

    /// What each thread counted.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        let status = |listened: &Listened| {
            let listen = listened.address;
            let workers = listened.engine.workers().enumerate();
            workers
                .map(|(thread, (core, totals))| {
                    let Totals { received, answered, .. } = totals;
                    WorkerStatus { listen, thread, core, received, answered }
                })
                .collect::<Vec<_>>()
        };
        self.lock().listened.iter().flat_map(status).collect()
    }

    /// Whether a thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.lock().listened.iter().any(|listened| listened.engine.has_died())
    }

    /// Ends all threads. The counters and the drops can still be read.
    pub(crate) fn stop(&self) {
        self.lock().listened.iter().for_each(|listened| listened.engine.stop());
    }

    /// Takes new engines over and ends those of addresses that are no longer listened on.
    fn replace(&self, listen: &[SocketAddr], mut new: Vec<Listened>) {
        let mut state = self.lock();
        let mut old = std::mem::take(&mut state.listened);
        let mut take = |asked: &SocketAddr| {
            let is_it = |listened: &Listened| listened.asked == *asked;
            let kept = old.iter().position(is_it).map(|at| old.remove(at));
            kept.or_else(|| new.iter().position(is_it).map(|at| new.remove(at)))
        };
        state.listened = listen.iter().filter_map(&mut take).collect();
        let addresses = state.listened.iter().map(|listened| listened.address).collect();
        self.shared.store(Arc::new(addresses));
        for gone in old {
            gone.engine.stop();
            state.ended += gone.engine.totals();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(
    opened: Opened,
    config: &ServerConfig,
    surroundings: &Surroundings,
) -> io::Result<Vec<Listened>> {
    let start = |(asked, listeners): (SocketAddr, Listeners)| {
        let address = listeners.addresses().first().copied().unwrap_or(asked);
        // Each can be told to stop alone.
        let surroundings =
            Surroundings { stop: Arc::new(AtomicBool::new(false)), ..surroundings.clone() };
        let engine = SocketEngine::start(listeners, config, &surroundings)?;
        Ok(Listened { asked, address, engine })
    };
    opened.0.into_iter().map(start).collect()
}

/// The option `listen` of a running server.
pub(crate) struct ListenPart(pub(crate) Arc<Listening>);

impl Part for ListenPart {
    fn keys(&self) -> &'static [&'static str] {
        &["listen"]
    }

    fn adopt(&self, in_force: &mut ServerConfig, new: &ServerConfig) {
        in_force.listen.clone_from(&new.listen);
    }

    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<Change>, ReloadError> {
        if in_force.listen == next.listen {
            return Ok(None);
        }
        let mut kept = in_force.listen.clone();
        let mut added = next.listen.clone();
        // Port 0 may stand there more than once.
        added.retain(|asked| match kept.iter().position(|old| old == asked) {
            Some(at) => {
                kept.remove(at);
                false
            }
            None => true,
        });
        let own = self.0.addresses();
        for new in &added {
            if let Some(old) = own.iter().find(|old| overlap(**old, *new)) {
                return Err(ReloadError::Overlap(*new, *old));
            }
        }
        let opened = Opened::open(&added, next)?;
        let new = serve(opened, next, &self.0.surroundings).map_err(StartError::Thread)?;
        let (listening, listen) = (Arc::clone(&self.0), next.listen.clone());
        let apply = Box::new(move || listening.replace(&listen, new));
        Ok(Some(Change { keys: vec!["listen"], apply }))
    }
}

/// Whether one of two addresses is a wildcard that covers the other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
