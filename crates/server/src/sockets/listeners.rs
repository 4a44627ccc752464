//! Listen addresses of a running server, each with its own socket engine, so that a reload can add
//! or remove one without affecting the others.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_time::leap::LeapSecondRepresentation;
use serde::{Deserialize, Serialize};

use super::counters::SocketEngineCounts;
use super::engine::{ListenAddressSockets, SocketEngine};
use super::listen::{ListenAddressesByTimeline, SharedListenAddresses};
use super::worker::WorkerContext;
use crate::config::ServerConfig;
use crate::operation::reload::{PreparedReload, ReloadError, Reloader};
use crate::start_error::StartError;
use crate::xdp::queues::AfXdpQueue;

/// Counts of one thread of the socket engine, as reported by `horolog status`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Listen address of the thread; absent if it answers requests redirected by XDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Index of the thread among those of its address, or among those for `AF_XDP` sockets.
    pub thread: usize,
    /// Core to which the thread is pinned; null if there is none.
    pub core: Option<usize>,
    /// Datagrams received.
    pub received: u64,
    /// Replies passed to the kernel.
    pub answered: u64,
}

/// Listen address with its running engine.
#[derive(Debug)]
struct ActiveListener {
    /// Configured address, whose port may be 0.
    requested: SocketAddr,
    /// Address with its actual port.
    address: SocketAddr,
    timeline: LeapSecondRepresentation,
    engine: SocketEngine,
}

#[derive(Debug, Default)]
struct ListenersState {
    listeners: Vec<ActiveListener>,
    /// Threads that answer requests redirected to `AF_XDP` sockets.
    af_xdp_engine: Option<SocketEngine>,
    /// Counts of engines that have been stopped.
    ended_counts: SocketEngineCounts,
}

impl ListenersState {
    fn engines(&self) -> impl Iterator<Item = &SocketEngine> {
        self.listeners.iter().map(|listened| &listened.engine).chain(&self.af_xdp_engine)
    }

    fn addresses(&self) -> ListenAddressesByTimeline {
        group_addresses(self.listeners.iter().map(|listened| (listened.address, listened.timeline)))
    }
}

/// Running engines of all listen addresses. Dropping it ends their threads.
#[derive(Debug)]
pub(crate) struct Listeners {
    state: Mutex<ListenersState>,
    context: WorkerContext,
    shared: SharedListenAddresses,
}

/// Open sockets that are not served yet, with the configured address of each.
pub(crate) struct OpenListeners(Vec<(SocketAddr, ListenAddressSockets)>);

impl OpenListeners {
    /// Opens the sockets of all configured addresses. On an error, none remains open.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, StartError> {
        let Self(mut opened) =
            Self::open_addresses(&config.listen, LeapSecondRepresentation::Stepped, config)?;
        let smeared = &config.leap_seconds.smear_listen;
        opened.extend(Self::open_addresses(smeared, LeapSecondRepresentation::Smeared, config)?.0);
        Ok(Self(opened))
    }

    fn open_addresses(
        listen: &[SocketAddr],
        timeline: LeapSecondRepresentation,
        config: &ServerConfig,
    ) -> Result<Self, StartError> {
        let open = |requested: &SocketAddr| {
            Ok((*requested, ListenAddressSockets::open(*requested, timeline, config)?))
        };
        listen.iter().map(open).collect::<Result<_, StartError>>().map(Self)
    }

    /// Returns the addresses with their actual ports.
    pub(crate) fn addresses(&self) -> ListenAddressesByTimeline {
        group_addresses(
            self.0.iter().map(|(_, listener)| (listener.address(), listener.timeline())),
        )
    }
}

fn group_addresses(
    addresses: impl Iterator<Item = (SocketAddr, LeapSecondRepresentation)>,
) -> ListenAddressesByTimeline {
    let mut grouped = ListenAddressesByTimeline::default();
    for (address, timeline) in addresses {
        match timeline {
            LeapSecondRepresentation::Stepped => grouped.stepped.push(address),
            LeapSecondRepresentation::Smeared => grouped.smeared.push(address),
        }
    }
    grouped
}

impl Listeners {
    /// Starts the engines of these sockets and of the `AF_XDP` queues. `shared` must hold their
    /// addresses already; it is updated at every change.
    pub(crate) fn start(
        opened: OpenListeners,
        af_xdp_queues: Vec<AfXdpQueue>,
        config: &ServerConfig,
        context: WorkerContext,
        shared: SharedListenAddresses,
    ) -> io::Result<Self> {
        let listeners = start_engines(opened, config, &context)?;
        let af_xdp_engine = match af_xdp_queues {
            none if none.is_empty() => None,
            devices => Some(SocketEngine::start_af_xdp(devices, &with_own_stop(&context))?),
        };
        let state = ListenersState {
            listeners,
            af_xdp_engine,
            ended_counts: SocketEngineCounts::default(),
        };
        Ok(Self { state: Mutex::new(state), context, shared })
    }

    /// Returns the addresses with their actual ports.
    pub(crate) fn addresses(&self) -> ListenAddressesByTimeline {
        self.lock().addresses()
    }

    /// Returns the port of the first address of a configuration. `None` if that is port 0 of a new
    /// address, which has no port before it is opened.
    pub(crate) fn first_port(&self, config: &ServerConfig) -> Option<u16> {
        let requested = *config.all_listen().first()?;
        let state = self.lock();
        let bound = state.listeners.iter().find(|listened| listened.requested == requested);
        let port = bound.map_or(requested, |listened| listened.address).port();
        (port != 0).then_some(port)
    }

    /// Returns the sum of the counts of all running and stopped engines, with the drops at all
    /// sockets.
    pub(crate) fn totals(&self) -> SocketEngineCounts {
        let state = self.lock();
        let mut totals = state.ended_counts;
        for engine in state.engines() {
            totals += engine.totals();
        }
        totals
    }

    /// Returns the counts of each running thread, by address; those for `AF_XDP` sockets last.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        let status = |listen: Option<SocketAddr>, engine: &SocketEngine| {
            let workers = engine.workers().enumerate();
            workers
                .map(|(thread, (core, totals))| {
                    let SocketEngineCounts { received, answered, .. } = totals;
                    WorkerStatus { listen, thread, core, received, answered }
                })
                .collect::<Vec<_>>()
        };
        let state = self.lock();
        let listened = state.listeners.iter().map(|one| (Some(one.address), &one.engine));
        let handed_over = state.af_xdp_engine.iter().map(|engine| (None, engine));
        listened.chain(handed_over).flat_map(|(listen, engine)| status(listen, engine)).collect()
    }

    /// Returns true if a thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.lock().engines().any(SocketEngine::has_died)
    }

    /// Ends all threads. Their counts and the drops remain readable.
    pub(crate) fn stop(&self) {
        self.lock().engines().for_each(SocketEngine::stop);
    }

    /// Adopts the engines `new`, so that there is one for each address of `listen` in this order,
    /// and stops those of other addresses. The engines of smeared time do not change.
    fn replace(&self, listen: &[SocketAddr], mut new: Vec<ActiveListener>) {
        let mut state = self.lock();
        let is_smeared =
            |listened: &ActiveListener| listened.timeline == LeapSecondRepresentation::Smeared;
        let (smeared, mut old): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.listeners).into_iter().partition(is_smeared);
        let mut retained_or_new = |requested: &SocketAddr| {
            let is_it = |listened: &ActiveListener| listened.requested == *requested;
            let retained = old.iter().position(is_it).map(|at| old.remove(at));
            retained.or_else(|| new.iter().position(is_it).map(|at| new.remove(at)))
        };
        state.listeners = listen.iter().filter_map(&mut retained_or_new).collect();
        state.listeners.extend(smeared);
        self.shared.store(Arc::new(state.addresses()));
        for removed in old {
            removed.engine.stop();
            state.ended_counts += removed.engine.totals();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ListenersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start_engines(
    opened: OpenListeners,
    config: &ServerConfig,
    context: &WorkerContext,
) -> io::Result<Vec<ActiveListener>> {
    let start = |(requested, listener): (SocketAddr, ListenAddressSockets)| {
        let (address, timeline) = (listener.address(), listener.timeline());
        let engine = SocketEngine::start(listener, config, &with_own_stop(context))?;
        Ok(ActiveListener { requested, address, timeline, engine })
    };
    opened.0.into_iter().map(start).collect()
}

/// Returns the context with a separate stop flag, so that its threads can be stopped separately.
fn with_own_stop(context: &WorkerContext) -> WorkerContext {
    WorkerContext { stop: Arc::new(AtomicBool::new(false)), ..context.clone() }
}

/// Reload of the option `listen` of a running server.
pub(crate) struct ListenersReloader(pub(crate) Arc<Listeners>);

impl Reloader for ListenersReloader {
    fn adopt_options(
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
        // Port 0 may be configured more than once.
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
                own.stepped.iter().chain(&own.smeared).find(|old| is_overlapping(**old, *new))
            {
                return Err(ReloadError::Overlap(*new, *old));
            }
        }
        let opened =
            OpenListeners::open_addresses(&added, LeapSecondRepresentation::Stepped, next)?;
        let new = start_engines(opened, next, &self.0.context).map_err(StartError::Thread)?;
        let (listening, listen) = (Arc::clone(&self.0), next.listen.clone());
        let apply = Box::new(move || listening.replace(&listen, new));
        Ok(Some(PreparedReload { keys: vec!["listen"], apply }))
    }
}

/// Returns true if one of two addresses is a wildcard that includes the other, with the same port.
fn is_overlapping(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
