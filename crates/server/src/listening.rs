//! The addresses that a server listens on while it runs: one socket engine for each, so that one
//! can come or go without the sockets of the others being touched.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_time::leap::Timeline;
use serde::Serialize;

use crate::engine::{Listener, SocketEngine};
use crate::hand_over::HandedOver;
use crate::reload::{Change, Part, ReloadError};
use crate::worker::Surroundings;
use crate::xdp::{Listens, SharedListen};
use crate::{ServerConfig, StartError, Totals};

/// What one thread of the socket engine counted, as `horolog status` tells it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkerStatus {
    /// The address that it answers at; absent where it answers what XDP hands over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
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
    timeline: Timeline,
    engine: SocketEngine,
}

#[derive(Debug, Default)]
struct State {
    listened: Vec<Listened>,
    /// The threads that answer what XDP hands over.
    handed_over: Option<SocketEngine>,
    /// What engines counted that have ended since.
    ended: Totals,
}

impl State {
    fn engines(&self) -> impl Iterator<Item = &SocketEngine> {
        self.listened.iter().map(|listened| &listened.engine).chain(&self.handed_over)
    }

    fn addresses(&self) -> Listens {
        listens(self.listened.iter().map(|listened| (listened.address, listened.timeline)))
    }
}

/// All addresses listened on; dropping it ends all threads.
#[derive(Debug)]
pub(crate) struct Listening {
    state: Mutex<State>,
    surroundings: Surroundings,
    shared: SharedListen,
}

/// Sockets that are open, by the addresses as they were asked for, but not served yet.
pub(crate) struct Opened(Vec<(SocketAddr, Listener)>);

impl Opened {
    /// Opens the sockets for all addresses of the configuration, or none.
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
        let open = |asked: &SocketAddr| Ok((*asked, Listener::open(*asked, timeline, config)?));
        listen.iter().map(open).collect::<Result<_, StartError>>().map(Self)
    }

    /// The addresses with the ports that the kernel chose.
    pub(crate) fn addresses(&self) -> Listens {
        listens(self.0.iter().map(|(_, listener)| (listener.address(), listener.timeline())))
    }
}

fn listens(addresses: impl Iterator<Item = (SocketAddr, Timeline)>) -> Listens {
    let mut listens = Listens::default();
    for (address, timeline) in addresses {
        match timeline {
            Timeline::Stepped => listens.stepped.push(address),
            Timeline::Smeared => listens.smeared.push(address),
        }
    }
    listens
}

impl Listening {
    /// Answers from these sockets. The addresses go to `shared` too, at this and every change.
    pub(crate) fn start(
        opened: Opened,
        handed_over: Vec<HandedOver>,
        config: &ServerConfig,
        surroundings: Surroundings,
        shared: SharedListen,
    ) -> io::Result<Self> {
        let listened = serve(opened, config, &surroundings)?;
        let handed_over = match handed_over {
            none if none.is_empty() => None,
            devices => Some(SocketEngine::start_handed_over(devices, &alone(&surroundings))?),
        };
        let state = State { listened, handed_over, ended: Totals::default() };
        Ok(Self { state: Mutex::new(state), surroundings, shared })
    }

    /// The addresses, with the ports that the kernel chose where 0 was asked for.
    pub(crate) fn addresses(&self) -> Listens {
        self.lock().addresses()
    }

    /// The port of the first address of a configuration, if it is known before that is in force: a
    /// new address with port 0 has none yet.
    pub(crate) fn first_port(&self, config: &ServerConfig) -> Option<u16> {
        let asked = *config.all_listen().first()?;
        let state = self.lock();
        let bound = state.listened.iter().find(|listened| listened.asked == asked);
        let port = bound.map_or(asked, |listened| listened.address).port();
        (port != 0).then_some(port)
    }

    /// The sum over all threads that run or ran, and the drops at all sockets.
    pub(crate) fn totals(&self) -> Totals {
        let state = self.lock();
        let mut totals = state.ended;
        for engine in state.engines() {
            totals += engine.totals();
        }
        totals
    }

    /// What each thread counted.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        let status = |listen: Option<SocketAddr>, engine: &SocketEngine| {
            let workers = engine.workers().enumerate();
            workers
                .map(|(thread, (core, totals))| {
                    let Totals { received, answered, .. } = totals;
                    WorkerStatus { listen, thread, core, received, answered }
                })
                .collect::<Vec<_>>()
        };
        let state = self.lock();
        let listened = state.listened.iter().map(|one| (Some(one.address), &one.engine));
        let handed_over = state.handed_over.iter().map(|engine| (None, engine));
        listened.chain(handed_over).flat_map(|(listen, engine)| status(listen, engine)).collect()
    }

    /// Whether a thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.lock().engines().any(SocketEngine::has_died)
    }

    /// Ends all threads. The counters and the drops can still be read.
    pub(crate) fn stop(&self) {
        self.lock().engines().for_each(SocketEngine::stop);
    }

    /// Takes new engines over and ends those of addresses that are no longer listened on. Smeared
    /// ones stay as they are.
    fn replace(&self, listen: &[SocketAddr], mut new: Vec<Listened>) {
        let mut state = self.lock();
        let is_smeared = |listened: &Listened| listened.timeline == Timeline::Smeared;
        let (smeared, mut old): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.listened).into_iter().partition(is_smeared);
        let mut take = |asked: &SocketAddr| {
            let is_it = |listened: &Listened| listened.asked == *asked;
            let kept = old.iter().position(is_it).map(|at| old.remove(at));
            kept.or_else(|| new.iter().position(is_it).map(|at| new.remove(at)))
        };
        state.listened = listen.iter().filter_map(&mut take).collect();
        state.listened.extend(smeared);
        self.shared.store(Arc::new(state.addresses()));
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
    let start = |(asked, listener): (SocketAddr, Listener)| {
        let (address, timeline) = (listener.address(), listener.timeline());
        let engine = SocketEngine::start(listener, config, &alone(surroundings))?;
        Ok(Listened { asked, address, timeline, engine })
    };
    opened.0.into_iter().map(start).collect()
}

/// For threads that can be told to stop alone.
fn alone(surroundings: &Surroundings) -> Surroundings {
    Surroundings { stop: Arc::new(AtomicBool::new(false)), ..surroundings.clone() }
}

/// The option `listen` of a running server.
pub(crate) struct ListenPart(pub(crate) Arc<Listening>);

impl Part for ListenPart {
    fn adopt(&self, in_force: &mut ServerConfig, new: &ServerConfig) -> &'static [&'static str] {
        in_force.listen.clone_from(&new.listen);
        &["listen"]
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
            if let Some(old) =
                own.stepped.iter().chain(&own.smeared).find(|old| overlap(**old, *new))
            {
                return Err(ReloadError::Overlap(*new, *old));
            }
        }
        let opened = Opened::open_some(&added, Timeline::Stepped, next)?;
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
