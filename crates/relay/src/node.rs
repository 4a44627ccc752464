//! A running relay: its threads, and changes of its table. A change happens wholly or not at all:
//! all that can fail is done first, and then the new table takes the place of the old one in one
//! step, between two batches of packets.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use horolog_sys::netlink::{Netlink, NetlinkError};

use crate::joins::{Ground, Interfaces};
use crate::outlet::Outlet;
use crate::paths::{Looked, Paths};
use crate::ways::Ways;
use crate::worker::Worker;
use crate::{
    EngineKind, JoinNews, Kernel, Limits, Listing, OutletError, Own, SendInterface, Spec, Table,
    TableError,
};

/// How long a change may take to come into force; it takes as long as a batch of packets.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where the kernel's programs take it over: for each group that changes the kernel waits
/// until none of them runs that began before, which is some hundredths of a second.
const KERNEL_PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// How long a change waits for one that was asked for before: no longer than that may take.
const TURN_PATIENCE: Duration = PATIENCE.saturating_add(KERNEL_PATIENCE);
const TURN_EVERY: Duration = Duration::from_millis(2);
/// What all of a change may take until its outcome is known.
pub(crate) const CHANGE_PATIENCE: Duration = TURN_PATIENCE.saturating_add(TURN_PATIENCE);

/// Why a relay does not run, or not as it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The table cannot be.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A group cannot be listened to.
    #[error("group '{0}': {1}")]
    Outlet(String, OutletError),
    /// The kernel does not tell what the ways to children are like.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A thread cannot be started.
    #[error("cannot start a thread of the relay: {0}")]
    Thread(#[from] io::Error),
    /// Others are changing it.
    #[error("other changes are being made, and take long; ask again")]
    Busy,
    /// A thread does not take a change over.
    #[error("a thread of the relay has not taken the change over in time; it may do so yet")]
    Stuck,
}

impl RelayError {
    /// Whether what was asked for cannot be, rather than this host lacking something.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Table(_))
    }
}

/// A table and the sockets of its groups, in the same order.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) table: Table,
    pub(crate) outlets: Vec<Arc<Outlet>>,
    /// Counts the plans of this relay.
    pub(crate) number: u64,
}

impl Plan {
    /// The plan for `spec`, with the sockets of `before` as far as they can be kept.
    fn new(spec: &Spec, before: Option<&Self>, own: Option<u32>) -> Result<Self, RelayError> {
        let table = Table::new(spec, before.map(|before| &before.table))?;
        let old = before.map_or(&[][..], |before| &before.outlets[..]);
        let mut outlets: Vec<Arc<Outlet>> = Vec::with_capacity(spec.groups.len());
        // Where the kernel does not tell what there is, all is taken to be as it was.
        let mut interfaces = if has_multicast(spec) { Interfaces::look().ok() } else { None };
        for group in &spec.groups {
            let is_firm = |one: &&Arc<Outlet>| {
                let looked = interfaces.as_mut().map(|all| one.ground(group, all));
                looked != Some(Ground::Changed)
            };
            let kept = old.iter().find(|one| one.serves(group)).filter(is_firm);
            let open = || {
                let others: Vec<&Outlet> = old.iter().chain(&outlets).map(|one| &**one).collect();
                let failed = |error| RelayError::Outlet(group.name.clone(), error);
                Outlet::open(group, own, &others).map(Arc::new).map_err(failed)
            };
            outlets.push(kept.map_or_else(open, |kept| Ok(Arc::clone(kept)))?);
        }
        Ok(Self { table, outlets, number: before.map_or(1, |before| before.number + 1) })
    }
}

fn has_multicast(spec: &Spec) -> bool {
    spec.groups.iter().any(|group| group.listen.ip().is_multicast())
}

/// What the threads of a relay share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: ArcSwap<Plan>,
    pub(crate) own: ArcSwap<Own>,
    /// The other body, where there is one.
    pub(crate) kernel: Option<Kernel>,
    /// By which programs on this host hand packets over, where there is one.
    pub(crate) send_interface: Option<SendInterface>,
    /// It was deleted.
    pub(crate) send_interface_gone: AtomicBool,
    /// The number of the plan that the thread that relays has taken over.
    pub(crate) in_force: AtomicU64,
    pub(crate) receive_errors: AtomicU64,
    pub(crate) changes_refused: AtomicU64,
}

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    engine: EngineKind,
    /// Closing it ends the thread that relays; a byte tells it of a change.
    tell: Option<UnixStream>,
    changing: Mutex<()>,
    worker: Option<JoinHandle<()>>,
    /// Closing it ends the thread that looks at ways.
    look: Option<Sender<Looked>>,
    paths: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay, whose copies the kernel makes as far as it can where it is given. Its
    /// threads live in the network namespace of the calling one.
    pub fn start(
        spec: &Spec,
        engine: EngineKind,
        kernel: Option<Kernel>,
    ) -> Result<Self, RelayError> {
        Self::start_with(spec, engine, kernel, None)
    }

    /// The same, and programs on this host hand packets over by the send interface where there is
    /// one.
    pub fn start_with(
        spec: &Spec,
        engine: EngineKind,
        kernel: Option<Kernel>,
        send_interface: Option<SendInterface>,
    ) -> Result<Self, RelayError> {
        let mut netlink = Netlink::open()?;
        let mut ways = Ways::default();
        ways.renew(&mut netlink);
        let own = send_interface.as_ref().map(SendInterface::index);
        if let (Some(kernel), Some(own)) = (&kernel, own) {
            kernel.set_own(own);
        }
        let limits = kernel.as_ref().map(|kernel| Limits::from(kernel.meters()));
        let shared = Arc::new(Shared {
            plan: ArcSwap::from_pointee(Plan::new(spec, None, own)?),
            own: ArcSwap::from_pointee(ways.own()),
            kernel,
            send_interface,
            send_interface_gone: AtomicBool::new(false),
            in_force: AtomicU64::new(0),
            receive_errors: AtomicU64::new(0),
            changes_refused: AtomicU64::new(0),
        });
        let (tell, told) = UnixStream::pair()?;
        let limits = limits.unwrap_or_default();
        let worker = Worker::new(Arc::clone(&shared), engine.make(), limits, told)?;
        let relay = move || {
            if let Err(error) = worker.run() {
                eprintln!("horolog: relaying has ended: {error}");
            }
        };
        let worker = thread::Builder::new().name("relay".into()).spawn(relay)?;
        let (look, changed) = mpsc::channel();
        let paths = Paths::new(netlink, ways, Arc::clone(&shared));
        let paths =
            thread::Builder::new().name("paths".into()).spawn(move || paths.run(&changed))?;
        let relay = Self {
            shared,
            engine,
            tell: Some(tell),
            changing: Mutex::new(()),
            worker: Some(worker),
            look: Some(look),
            paths: Some(paths),
        };
        relay.look()?;
        Ok(relay)
    }

    /// Changes the table. When this returns without an error the new table alone is in force; with
    /// one the old table is, unless the thread that relays is stuck.
    pub fn change(
        &self,
        edit: impl FnOnce(&mut Spec) -> Result<(), TableError>,
    ) -> Result<(), RelayError> {
        let changed = self.try_change(edit);
        if changed.is_err() {
            self.note_refused();
        }
        changed
    }

    /// Counts a change that was refused before it came to the relay: a file that is no table.
    pub fn note_refused(&self) {
        self.shared.changes_refused.fetch_add(1, Ordering::Relaxed);
    }

    fn try_change(
        &self,
        edit: impl FnOnce(&mut Spec) -> Result<(), TableError>,
    ) -> Result<(), RelayError> {
        let _turn = self.turn()?;
        let before = self.shared.plan.load_full();
        let mut spec = before.table.spec();
        edit(&mut spec)?;
        let own = self.shared.send_interface.as_ref().map(SendInterface::index);
        let plan = Plan::new(&spec, Some(&before), own)?;
        let number = plan.number;
        drop(before);
        self.shared.plan.store(Arc::new(plan));
        if let Some(mut tell) = self.tell.as_ref() {
            tell.write_all(&[0])?;
        }
        let begun = Instant::now();
        while self.shared.in_force.load(Ordering::Acquire) < number {
            if begun.elapsed() > PATIENCE || self.has_died() {
                return Err(RelayError::Stuck);
            }
            thread::sleep(LOOK_EVERY);
        }
        self.look()
    }

    /// Waits until no other change is being made.
    fn turn(&self) -> Result<MutexGuard<'_, ()>, RelayError> {
        let begun = Instant::now();
        loop {
            match self.changing.try_lock() {
                Ok(turn) => return Ok(turn),
                // What it guards has no state that could be left half done.
                Err(TryLockError::Poisoned(turn)) => return Ok(turn.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() > TURN_PATIENCE => {
                    return Err(RelayError::Busy);
                }
                Err(TryLockError::WouldBlock) => thread::sleep(TURN_EVERY),
            }
        }
    }

    /// Joins multicast groups anew whose interface is another one than before, under the same name
    /// or by the same route; to be called every now and then. What has changed since the last call,
    /// and what does not let a group be joined: others go on as they did.
    pub fn keep_joined(&self) -> (Vec<JoinNews>, Result<(), RelayError>) {
        let plan = self.shared.plan.load_full();
        let mut news = Vec::new();
        if !plan.table.groups().iter().any(|group| group.is_multicast()) {
            return (news, Ok(()));
        }
        let Ok(mut interfaces) = Interfaces::look() else { return (news, Ok(())) };
        let mut changed = Vec::new();
        for (group, outlet) in plan.table.groups().iter().zip(&plan.outlets) {
            let group = &group.spec;
            match outlet.ground(group, &mut interfaces) {
                Ground::Firm => {
                    outlet.note_lost(false);
                }
                Ground::Changed => changed.push(JoinNews::Joined(group.name.clone())),
                Ground::Gone if outlet.note_lost(true) => {}
                Ground::Gone => news.push(JoinNews::Lost(group.name.clone())),
            }
        }
        drop(plan);
        if changed.is_empty() {
            return (news, Ok(()));
        }
        let joined = self.try_change(|_| Ok(()));
        if joined.is_ok() {
            news.extend(changed);
        }
        (news, joined)
    }

    /// Has the ways of the present table looked at. Where there is a body in the kernel, it does
    /// what the table says when this returns without an error.
    fn look(&self) -> Result<(), RelayError> {
        let (looked, done) = mpsc::sync_channel(1);
        let told = self.look.as_ref().is_some_and(|look| look.send(looked).is_ok());
        if self.shared.kernel.is_none() {
            return Ok(());
        }
        if told && done.recv_timeout(KERNEL_PATIENCE).is_ok() {
            Ok(())
        } else {
            Err(RelayError::Stuck)
        }
    }

    /// The table and all that was counted.
    #[must_use]
    pub fn listing(&self) -> Listing {
        Listing::new(&self.shared, self.engine)
    }

    /// Why the kernel does not make the copies of each group, `None` where it does; groups of which
    /// that is about to change are left out, and all where no body in the kernel runs. Costs less
    /// than the listing.
    #[must_use]
    pub fn not_in_kernel(&self) -> BTreeMap<String, Option<String>> {
        let Some(kernel) = &self.shared.kernel else { return BTreeMap::new() };
        let (plan, kernel) = (self.shared.plan.load(), kernel.look());
        let settled = plan.table.groups().iter().filter(|group| kernel.is_settled(group));
        settled.map(|group| (group.spec.name.clone(), kernel.refusal(group))).collect()
    }

    /// Whether a thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        [&self.worker, &self.paths]
            .iter()
            .any(|thread| thread.as_ref().is_some_and(JoinHandle::is_finished))
    }
}

impl std::ops::Drop for Relay {
    fn drop(&mut self) {
        drop(self.tell.take());
        drop(self.look.take());
        for thread in [self.worker.take(), self.paths.take()].into_iter().flatten() {
            // A thread that panicked has said so on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}
