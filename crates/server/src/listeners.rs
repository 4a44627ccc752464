//! Listen addresses of a running server: one socket engine each, so that one can be added or
//! removed without affecting the sockets of the others.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_time::leap::Timeline;
use serde::Serialize;

use crate::af_xdp::AfXdpQueue;
use crate::engine::{ListenSockets, SocketEngine};
use crate::reload::{PreparedReload, ReloadError, ReloadPart};
use crate::worker::WorkerContext;
use crate::xdp::{ListenAddresses, SharedListen};
use crate::{ServerConfig, SocketCounts, StartError};

/// Counts of one thread of the socket engine, as reported by `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkerStatus {
    /// Listen address of the thread; absent if it answers redirected requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Number of the thread among those of this address.
    pub thread: usize,
    /// Core that the thread is pinned to.
    pub core: Option<usize>,
    /// Datagrams received.
    pub received: u64,
    /// Replies passed to the kernel.
    pub answered: u64,
}

/// Listener of one address.
#[derive(Debug)]
struct ActiveListener {
    /// Address as configured.
    requested: SocketAddr,
    /// Address with the port that the kernel chose.
    address: SocketAddr,
    timeline: Timeline,
    engine: SocketEngine,
}

#[derive(Debug, Default)]
struct ListenersState {
    listened: Vec<ActiveListener>,
    /// Threads that answer redirected requests.
    handed_over: Option<SocketEngine>,
    /// Counts of engines that have ended.
    ended: SocketCounts,
}

impl ListenersState {
    fn engines(&self) -> impl Iterator<Item = &SocketEngine> {
        self.listened.iter().map(|listened| &listened.engine).chain(&self.handed_over)
    }

    fn addresses(&self) -> ListenAddresses {
        listens(self.listened.iter().map(|listened| (listened.address, listened.timeline)))
    }
}

/// All listen addresses; dropping it ends all threads.
#[derive(Debug)]
pub(crate) struct Listeners {
    state: Mutex<ListenersState>,
    surroundings: WorkerContext,
    shared: SharedListen,
}

/// Open sockets that are not yet served, by the configured addresses.
pub(crate) struct OpenListeners(Vec<(SocketAddr, ListenSockets)>);

impl OpenListeners {
    /// Opens the sockets for all configured addresses, or for none.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, StartError> {
        let Self(mut opened) = Self::open_some(&config.listen, Timeline::Stepped, config)?;
        let smeared = &config.leap_seconds.smear_listen;
        opened.extend(Self::open_some(smeared, Timeline::Smeared, config)?.0);
        Ok(Self(opened))
    }

    fn open_some(
        listen: &[SocketAddr],
        timeline: Timeline,
        config: &ServerConfig,
    ) -> Result<Self, StartError> {
        let open = |requested: &SocketAddr| {
            Ok((*requested, ListenSockets::open(*requested, timeline, config)?))
        };
        listen.iter().map(open).collect::<Result<_, StartError>>().map(Self)
    }

    /// Returns the addresses with the ports that the kernel chose.
    pub(crate) fn addresses(&self) -> ListenAddresses {
        listens(self.0.iter().map(|(_, listener)| (listener.address(), listener.timeline())))
    }
}

fn listens(addresses: impl Iterator<Item = (SocketAddr, Timeline)>) -> ListenAddresses {
    let mut listens = ListenAddresses::default();
    for (address, timeline) in addresses {
        match timeline {
            Timeline::Stepped => listens.stepped.push(address),
            Timeline::Smeared => listens.smeared.push(address),
        }
    }
    listens
}

impl Listeners {
    /// Answers from these sockets. The addresses are also published to `shared`, now and at every
    /// change.
    pub(crate) fn start(
        opened: OpenListeners,
        handed_over: Vec<AfXdpQueue>,
        config: &ServerConfig,
        surroundings: WorkerContext,
        shared: SharedListen,
    ) -> io::Result<Self> {
        let listened = serve(opened, config, &surroundings)?;
        let handed_over = match handed_over {
            none if none.is_empty() => None,
            devices => Some(SocketEngine::start_handed_over(devices, &alone(&surroundings))?),
        };
        let state = ListenersState { listened, handed_over, ended: SocketCounts::default() };
        Ok(Self { state: Mutex::new(state), surroundings, shared })
    }

    /// Returns the addresses, with the ports that the kernel chose if 0 was requested.
    pub(crate) fn addresses(&self) -> ListenAddresses {
        self.lock().addresses()
    }

    /// Returns the port of the first address of a configuration, if it is known before that is in
    /// force: a new address with port 0 has none yet.
    pub(crate) fn first_port(&self, config: &ServerConfig) -> Option<u16> {
        let requested = *config.all_listen().first()?;
        let state = self.lock();
        let bound = state.listened.iter().find(|listened| listened.requested == requested);
        let port = bound.map_or(requested, |listened| listened.address).port();
        (port != 0).then_some(port)
    }

    /// Returns the sum over all present and past threads, including the drops at all sockets.
    pub(crate) fn totals(&self) -> SocketCounts {
        let state = self.lock();
        let mut totals = state.ended;
        for engine in state.engines() {
            totals += engine.totals();
        }
        totals
    }

    /// Returns the counts of each thread.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        let status = |listen: Option<SocketAddr>, engine: &SocketEngine| {
            let workers = engine.workers().enumerate();
            workers
                .map(|(thread, (core, totals))| {
                    let SocketCounts { received, answered, .. } = totals;
                    WorkerStatus { listen, thread, core, received, answered }
                })
                .collect::<Vec<_>>()
        };
        let state = self.lock();
        let listened = state.listened.iter().map(|one| (Some(one.address), &one.engine));
        let handed_over = state.handed_over.iter().map(|engine| (None, engine));
        listened.chain(handed_over).flat_map(|(listen, engine)| status(listen, engine)).collect()
    }

    /// Returns true if a thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.lock().engines().any(SocketEngine::has_died)
    }

    /// Ends all threads. The counters and the drops remain readable.
    pub(crate) fn stop(&self) {
        self.lock().engines().for_each(SocketEngine::stop);
    }

    /// Adopts new engines and ends those of addresses that are no longer listened on. Engines of
    /// smeared time are unchanged.
    fn replace(&self, listen: &[SocketAddr], mut new: Vec<ActiveListener>) {
        let mut state = self.lock();
        let is_smeared = |listened: &ActiveListener| listened.timeline == Timeline::Smeared;
        let (smeared, mut old): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.listened).into_iter().partition(is_smeared);
        let mut take = |requested: &SocketAddr| {
            let is_it = |listened: &ActiveListener| listened.requested == *requested;
            let retained = old.iter().position(is_it).map(|at| old.remove(at));
            retained.or_else(|| new.iter().position(is_it).map(|at| new.remove(at)))
        };
        state.listened = listen.iter().filter_map(&mut take).collect();
        state.listened.extend(smeared);
        self.shared.store(Arc::new(state.addresses()));
        for gone in old {
            gone.engine.stop();
            state.ended += gone.engine.totals();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ListenersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(
    opened: OpenListeners,
    config: &ServerConfig,
    surroundings: &WorkerContext,
) -> io::Result<Vec<ActiveListener>> {
    let start = |(requested, listener): (SocketAddr, ListenSockets)| {
        let (address, timeline) = (listener.address(), listener.timeline());
        let engine = SocketEngine::start(listener, config, &alone(surroundings))?;
        Ok(ActiveListener { requested, address, timeline, engine })
    };
    opened.0.into_iter().map(start).collect()
}

/// Returns a context for threads that can be stopped separately.
fn alone(surroundings: &WorkerContext) -> WorkerContext {
    WorkerContext { stop: Arc::new(AtomicBool::new(false)), ..surroundings.clone() }
}

/// Reload of the option `listen` of a running server.
pub(crate) struct ListenersPart(pub(crate) Arc<Listeners>);

impl ReloadPart for ListenersPart {
    fn adopt_fixed(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str] {
        in_force.listen.clone_from(&new.listen);
        &["listen"]
    }

    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
        if in_force.listen == next.listen {
            return Ok(None);
        }
        let mut retained = in_force.listen.clone();
        let mut added = next.listen.clone();
        // Port 0 may occur more than once.
        added.retain(|requested| match retained.iter().position(|old| old == requested) {
            Some(at) => {
                retained.remove(at);
                false
            }
            None => true,
        });
        let own = self.0.addresses();
        for new in &added {
            if let Some(old) =
                own.stepped.iter().chain(&own.smeared).find(|old| overlap(**old, *new))
            {
                return Err(ReloadError::Overlap(*new, *old));
            }
        }
        let opened = OpenListeners::open_some(&added, Timeline::Stepped, next)?;
        let new = serve(opened, next, &self.0.surroundings).map_err(StartError::Thread)?;
        let (listening, listen) = (Arc::clone(&self.0), next.listen.clone());
        let apply = Box::new(move || listening.replace(&listen, new));
        Ok(Some(PreparedReload { keys: vec!["listen"], apply }))
    }
}

/// Returns true if one of two addresses is a wildcard that covers the other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
