//! Running relay: its threads, and changes of its table. All checks and sockets of a change come
//! first; then the new table replaces the old one in one step, between two batches of packets. Only
//! if a thread does not respond after that is the outcome unknown.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use horolog_sys::explain::explain;
use horolog_sys::netlink::{Netlink, NetlinkError};

use crate::group_socket::GroupSocket;
use crate::memberships::{HostInterfaces, JoinedInterfaceState};
use crate::path_monitor::{ChildRouteMonitor, PollDoneSender};
use crate::route_cache::RouteCache;
use crate::worker::RelayWorker;
use crate::{
    GroupSocketError, LocalAddresses, LocalSenderInterface, MembershipEvent, RelayListing,
    RelayRateLimiter, RoutingTable, RoutingTableError, RoutingTableSpec, SocketEngineKind,
    XdpEngine,
};

/// Timeout for the worker to adopt a changed plan, normally after the current batch of packets.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the XDP engine to take a change over: for each changed group the kernel waits until
/// all program runs that began before have ended, which takes some hundredths of a second.
const XDP_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Longest wait of a change for an earlier one to finish.
const CHANGE_LOCK_TIMEOUT: Duration = APPLY_TIMEOUT.saturating_add(XDP_TIMEOUT);
const CHANGE_LOCK_INTERVAL: Duration = Duration::from_millis(2);
/// Longest time from the request of a change until its outcome is known.
pub(crate) const CHANGE_TIMEOUT: Duration = CHANGE_LOCK_TIMEOUT.saturating_add(CHANGE_LOCK_TIMEOUT);

/// Reason for which a relay does not run, or not as requested.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The table is invalid.
    #[error(transparent)]
    Table(#[from] RoutingTableError),
    /// The socket of a group cannot be opened.
    #[error("group '{0}': {1}")]
    GroupSocket(String, GroupSocketError),
    /// No netlink socket can be opened.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A thread or what it needs cannot be created, or the worker cannot be woken.
    #[error("cannot start a relay thread: {why}", why = explain(.0))]
    Thread(#[from] io::Error),
    /// Other changes have been in progress for too long.
    #[error("another change is in progress; try again later")]
    Busy,
    /// A thread has not applied the change in time, or has ended.
    #[error("a relay thread has not applied the change in time; it may still do so")]
    NotApplied,
}

impl RelayError {
    /// Returns true if the request is invalid, rather than this host lacking something.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Table(_))
    }
}

/// Table with the sockets of its groups, in the same order.
#[derive(Debug)]
pub(crate) struct ForwardingPlan {
    pub(crate) table: RoutingTable,
    pub(crate) sockets: Vec<Arc<GroupSocket>>,
    /// Sequence number of the plan among those of this relay.
    pub(crate) number: u64,
}

impl ForwardingPlan {
    /// Makes the plan for `spec`, with the sockets of `before` as far as they can be reused.
    fn new(
        spec: &RoutingTableSpec,
        before: Option<&Self>,
        send_interface_index: Option<u32>,
    ) -> Result<Self, RelayError> {
        let table = RoutingTable::new(spec, before.map(|before| &before.table))?;
        let old = before.map_or(&[][..], |before| &before.sockets[..]);
        let mut sockets: Vec<Arc<GroupSocket>> = Vec::with_capacity(spec.groups.len());
        // If the kernel does not report the interfaces, they are assumed to be unchanged.
        let mut interfaces = if has_multicast(spec) { HostInterfaces::query().ok() } else { None };
        for group in &spec.groups {
            let is_reusable = |one: &&Arc<GroupSocket>| {
                let join_state = interfaces.as_mut().map(|all| one.join_state(group, all));
                join_state != Some(JoinedInterfaceState::Changed)
            };
            let socket = old.iter().find(|one| one.is_for_group(group)).filter(is_reusable);
            let open = || {
                let others: Vec<&GroupSocket> =
                    old.iter().chain(&sockets).map(|one| &**one).collect();
                let failed = |error| RelayError::GroupSocket(group.name.clone(), error);
                GroupSocket::open(group, send_interface_index, &others)
                    .map(Arc::new)
                    .map_err(failed)
            };
            sockets.push(socket.map_or_else(open, |retained| Ok(Arc::clone(retained)))?);
        }
        Ok(Self { table, sockets, number: before.map_or(1, |before| before.number + 1) })
    }
}

fn has_multicast(spec: &RoutingTableSpec) -> bool {
    spec.groups.iter().any(|group| group.listen.ip().is_multicast())
}

/// State shared by the threads of a relay.
#[derive(Debug)]
pub(crate) struct RelaySharedState {
    pub(crate) plan: ArcSwap<ForwardingPlan>,
    pub(crate) local_addresses: ArcSwap<LocalAddresses>,
    /// The XDP engine, if present.
    pub(crate) xdp: Option<XdpEngine>,
    /// Interface by which programs on this host send packets to the relay, if present.
    pub(crate) send_interface: Option<LocalSenderInterface>,
    /// True if the send interface was deleted.
    pub(crate) send_interface_gone: AtomicBool,
    /// Number of the latest plan that the worker has applied.
    pub(crate) applied_plan: AtomicU64,
    pub(crate) receive_errors: AtomicU64,
    pub(crate) changes_refused: AtomicU64,
}

/// Relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<RelaySharedState>,
    engine: SocketEngineKind,
    /// Stream to the worker: closing it ends the worker; a byte wakes it for a change.
    wake_worker: Option<UnixStream>,
    change_lock: Mutex<()>,
    worker: Option<JoinHandle<()>>,
    /// Channel to the path monitor: closing it ends the monitor.
    poll_requests: Option<Sender<PollDoneSender>>,
    path_monitor: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay; an XDP engine, if any, makes its copies as far as possible. Its threads
    /// are in the network namespace of the calling one.
    pub fn start(
        spec: &RoutingTableSpec,
        engine: SocketEngineKind,
        xdp: Option<XdpEngine>,
    ) -> Result<Self, RelayError> {
        Self::start_with_send_interface(spec, engine, xdp, None)
    }

    /// Starts a relay to which programs on this host send packets by the send interface, if any.
    pub fn start_with_send_interface(
        spec: &RoutingTableSpec,
        engine: SocketEngineKind,
        xdp: Option<XdpEngine>,
        send_interface: Option<LocalSenderInterface>,
    ) -> Result<Self, RelayError> {
        let mut netlink = Netlink::open()?;
        let mut route_cache = RouteCache::default();
        route_cache.refresh(&mut netlink);
        let send_interface_index = send_interface.as_ref().map(LocalSenderInterface::index);
        if let (Some(xdp), Some(index)) = (&xdp, send_interface_index) {
            xdp.set_send_interface(index);
        }
        let limits = xdp.as_ref().map(|xdp| RelayRateLimiter::from(xdp.rate_state()));
        let shared = Arc::new(RelaySharedState {
            plan: ArcSwap::from_pointee(ForwardingPlan::new(spec, None, send_interface_index)?),
            local_addresses: ArcSwap::from_pointee(route_cache.local_addresses()),
            xdp,
            send_interface,
            send_interface_gone: AtomicBool::new(false),
            applied_plan: AtomicU64::new(0),
            receive_errors: AtomicU64::new(0),
            changes_refused: AtomicU64::new(0),
        });
        let (wake_worker, wakeups) = UnixStream::pair()?;
        let limits = limits.unwrap_or_default();
        let worker =
            RelayWorker::new(Arc::clone(&shared), engine.create_sender(), limits, wakeups)?;
        let relay = move || {
            if let Err(error) = worker.run() {
                eprintln!("horolog: the relay stopped: {error}");
            }
        };
        let worker = thread::Builder::new().name("relay".into()).spawn(relay)?;
        let (poll_requests, poll_receiver) = mpsc::channel();
        let path_monitor = ChildRouteMonitor::new(netlink, route_cache, Arc::clone(&shared));
        let path_monitor = thread::Builder::new()
            .name("paths".into())
            .spawn(move || path_monitor.run(&poll_receiver))?;
        let relay = Self {
            shared,
            engine,
            wake_worker: Some(wake_worker),
            change_lock: Mutex::new(()),
            worker: Some(worker),
            poll_requests: Some(poll_requests),
            path_monitor: Some(path_monitor),
        };
        relay.request_poll()?;
        Ok(relay)
    }

    /// Changes the table. After success only the new table is in force; after an error the old one
    /// is, unless a thread has not applied the change in time ([`RelayError::NotApplied`]) or could
    /// not be woken.
    pub fn change(
        &self,
        edit: impl FnOnce(&mut RoutingTableSpec) -> Result<(), RoutingTableError>,
    ) -> Result<(), RelayError> {
        let changed = self.try_change(edit);
        if changed.is_err() {
            self.count_refused_change();
        }
        changed
    }

    /// Counts a refused change; for callers that refuse one themselves, such as an invalid file.
    pub fn count_refused_change(&self) {
        self.shared.changes_refused.fetch_add(1, Ordering::Relaxed);
    }

    fn try_change(
        &self,
        edit: impl FnOnce(&mut RoutingTableSpec) -> Result<(), RoutingTableError>,
    ) -> Result<(), RelayError> {
        let _change_guard = self.lock_changes()?;
        let before = self.shared.plan.load_full();
        let mut spec = before.table.spec();
        edit(&mut spec)?;
        let send_interface_index =
            self.shared.send_interface.as_ref().map(LocalSenderInterface::index);
        let plan = ForwardingPlan::new(&spec, Some(&before), send_interface_index)?;
        let number = plan.number;
        drop(before);
        self.shared.plan.store(Arc::new(plan));
        if let Some(mut wake_worker) = self.wake_worker.as_ref() {
            wake_worker.write_all(&[0])?;
        }
        let started_at = Instant::now();
        while self.shared.applied_plan.load(Ordering::Acquire) < number {
            if started_at.elapsed() > APPLY_TIMEOUT || self.has_died() {
                return Err(RelayError::NotApplied);
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.request_poll()
    }

    /// Waits until no other change is in progress, and locks out further ones; an error after
    /// [`CHANGE_LOCK_TIMEOUT`].
    fn lock_changes(&self) -> Result<MutexGuard<'_, ()>, RelayError> {
        let started_at = Instant::now();
        loop {
            match self.change_lock.try_lock() {
                Ok(guard) => return Ok(guard),
                // The mutex guards no state that could be incomplete.
                Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
                Err(TryLockError::WouldBlock) if started_at.elapsed() > CHANGE_LOCK_TIMEOUT => {
                    return Err(RelayError::Busy);
                }
                Err(TryLockError::WouldBlock) => thread::sleep(CHANGE_LOCK_INTERVAL),
            }
        }
    }

    /// Joins multicast groups again whose interface has been replaced, under the same name or by
    /// the same route; to be called periodically. Returns the changes since the last call, and the
    /// error that prevents a group from being joined: others continue unchanged.
    pub fn refresh_memberships(&self) -> (Vec<MembershipEvent>, Result<(), RelayError>) {
        let plan = self.shared.plan.load_full();
        let mut events = Vec::new();
        if !plan.table.groups().iter().any(|group| group.is_multicast()) {
            return (events, Ok(()));
        }
        let Ok(mut interfaces) = HostInterfaces::query() else { return (events, Ok(())) };
        let mut changed = Vec::new();
        for (group, socket) in plan.table.groups().iter().zip(&plan.sockets) {
            let group = &group.spec;
            match socket.join_state(group, &mut interfaces) {
                JoinedInterfaceState::Joined => {
                    socket.set_interface_gone(false);
                }
                JoinedInterfaceState::Changed => {
                    changed.push(MembershipEvent::Joined(group.name.clone()));
                }
                JoinedInterfaceState::Gone if socket.set_interface_gone(true) => {}
                JoinedInterfaceState::Gone => {
                    events.push(MembershipEvent::Lost(group.name.clone()));
                }
            }
        }
        drop(plan);
        if changed.is_empty() {
            return (events, Ok(()));
        }
        let joined = self.try_change(|_| Ok(()));
        if joined.is_ok() {
            events.extend(changed);
        }
        (events, joined)
    }

    /// Requests a poll of the present table's routes. With an XDP engine, waits until it has
    /// applied the table; without one, returns at once.
    fn request_poll(&self) -> Result<(), RelayError> {
        let (poll_done, done) = mpsc::sync_channel(1);
        let is_sent = self
            .poll_requests
            .as_ref()
            .is_some_and(|poll_requests| poll_requests.send(poll_done).is_ok());
        if self.shared.xdp.is_none() {
            return Ok(());
        }
        if is_sent && done.recv_timeout(XDP_TIMEOUT).is_ok() {
            Ok(())
        } else {
            Err(RelayError::NotApplied)
        }
    }

    /// Returns the table and all counts.
    #[must_use]
    pub fn listing(&self) -> RelayListing {
        RelayListing::new(&self.shared, self.engine)
    }

    /// Returns, for each group, the reason for which the XDP engine does not make its copies, or
    /// `None` if it does. Groups about which that is not decided yet are omitted; without an XDP
    /// engine the result is empty. Costs less than the listing.
    #[must_use]
    pub fn xdp_refusals(&self) -> BTreeMap<String, Option<String>> {
        let Some(xdp) = &self.shared.xdp else { return BTreeMap::new() };
        let (plan, xdp_counters) = (self.shared.plan.load(), xdp.lock_counters());
        let settled = plan.table.groups().iter().filter(|group| xdp_counters.is_settled(group));
        settled.map(|group| (group.spec.name.clone(), xdp_counters.refusal(group))).collect()
    }

    /// Returns true if a thread has ended without a request to do so.
    #[must_use]
    pub fn has_died(&self) -> bool {
        [&self.worker, &self.path_monitor]
            .iter()
            .any(|thread| thread.as_ref().is_some_and(JoinHandle::is_finished))
    }
}

impl std::ops::Drop for Relay {
    fn drop(&mut self) {
        drop(self.wake_worker.take());
        drop(self.poll_requests.take());
        for thread in [self.worker.take(), self.path_monitor.take()].into_iter().flatten() {
            // A thread that panicked has reported it on stderr; nothing remains to be added.
            let _ = thread.join();
        }
    }
}
