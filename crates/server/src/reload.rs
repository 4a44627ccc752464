//! Changing a running server: the pattern that all parts follow which can take a new configuration
//! over without a restart. It reads no file and no signal; it is told a whole new configuration.
//!
//! A [`Part`] of the server changes options while it runs in two phases, so that a reload happens
//! wholly or not at all:
//!
//! 1. [`Part::adopt`] copies the fields of the options that it can change from the new
//!    configuration into the one that is to be in force, and says which they are. What no part
//!    adopts stays as it was until a restart. The result must pass the same checks as a
//!    configuration at the start.
//! 2. [`Part::prepare`] does everything that can fail (reads files, opens sockets) and changes
//!    nothing that runs. It returns a [`Change`] that cannot fail.
//!
//! Only when every part has prepared are the changes made, in the order of the parts. A part keeps
//! what it changes behind an [`arc_swap::ArcSwap`] (or an atomic) that its threads read, so nobody
//! waits and no request is lost. It is prepared at every reload, also when its options are the
//! same: a file may have new content under its old name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use serde::Serialize;

use crate::clock::NextConfig;
use crate::renewal::adopt_reply_values;
use crate::{CheckError, ServerConfig, StartError, check};

/// Why a server did not change; its text is one line for the user. Everything is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The new configuration is not right, by itself or with what stays as it is.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Something new could not be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An address that covers one that this server has, or is covered by it: the kernel gives the
    /// port to one of them only.
    #[error("{0} overlaps {1}, which this server listens on; to change this, restart it")]
    Overlap(std::net::SocketAddr, std::net::SocketAddr),
    /// Clients of key establishment are told a port that is chosen by the kernel, and only later.
    #[error(
        "the port that NTS clients are to ask at is not known before the first address of --listen \
         is open; give that one a port, or restart the server"
    )]
    UnknownPort,
    /// A part of the server cannot change as it is told.
    #[error("{0}")]
    Other(String),
}

/// What a reload did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadReport {
    /// The options that are in force as the new configuration has them, changed or not, by their
    /// names without hyphens in front. All others wait for a restart.
    pub adopted: Vec<&'static str>,
    /// Those of them that are in force anew.
    pub applied: Vec<&'static str>,
    /// The options that were changed and wait for a restart.
    pub restart_needed: Vec<String>,
}

/// How reloading went so far, as `horolog status` tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReloadHealth {
    /// Reloads that were done.
    pub done: u64,
    /// Reloads that were refused.
    pub failed: u64,
    /// Why the last one was refused; absent when it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reload_error: Option<String>,
    /// Options that were changed and wait for a restart.
    pub restart_needed: Vec<String>,
}

/// A prepared change, which cannot fail.
pub(crate) struct Change {
    /// The options that are in force anew afterwards.
    pub(crate) keys: Vec<&'static str>,
    /// Makes the change.
    pub(crate) apply: Box<dyn FnOnce() + Send>,
}

/// A part of the server that can change while it runs.
pub(crate) trait Part: Send + Sync {
    /// Copies the fields of the options that it can change to what the new configuration has, and
    /// returns their names without hyphens in front.
    fn adopt(&self, in_force: &mut ServerConfig, new: &ServerConfig) -> &'static [&'static str];

    /// Does everything that can fail and changes nothing yet; `None` when there is nothing to
    /// change.
    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<Change>, ReloadError>;
}

/// All that can change, and the configuration in force.
pub(crate) struct Reloadable {
    in_force: ArcSwap<ServerConfig>,
    parts: Vec<Box<dyn Part>>,
    /// Also the lock that lets one reload happen at a time.
    health: Mutex<ReloadHealth>,
}

impl std::fmt::Debug for Reloadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloadable").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

impl Reloadable {
    /// With the configuration that the server was started with. The part that opens sockets comes
    /// last: what it prepared is answered from at once.
    pub(crate) fn new(config: &ServerConfig, parts: Vec<Box<dyn Part>>) -> Self {
        let in_force = ArcSwap::from_pointee(config.clone());
        Self { in_force, parts, health: Mutex::default() }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.in_force.load_full()
    }

    /// How it went so far.
    pub(crate) fn health(&self) -> ReloadHealth {
        self.lock().clone()
    }

    /// Notes that a new configuration could not even be read.
    pub(crate) fn refused(&self, reason: &str) {
        let mut health = self.lock();
        health.failed += 1;
        health.last_reload_error = Some(reason.to_owned());
    }

    /// Changes everything that can change, or nothing. `changed` are the names of all options that
    /// differ from those in force.
    pub(crate) fn reload(
        &self,
        new: &ServerConfig,
        changed: Vec<String>,
    ) -> Result<ReloadReport, ReloadError> {
        let mut health = self.lock();
        match self.change(new) {
            Ok(mut report) => {
                report.restart_needed = changed;
                report.restart_needed.retain(|key| !report.adopted.contains(&key.as_str()));
                health.done += 1;
                health.last_reload_error = None;
                health.restart_needed.clone_from(&report.restart_needed);
                Ok(report)
            }
            Err(error) => {
                health.failed += 1;
                health.last_reload_error = Some(error.to_string());
                Err(error)
            }
        }
    }

    fn change(&self, new: &ServerConfig) -> Result<ReloadReport, ReloadError> {
        check(new)?;
        let in_force = self.config();
        let mut next = (*in_force).clone();
        let mut report = ReloadReport::default();
        for part in &self.parts {
            report.adopted.extend(part.adopt(&mut next, new));
        }
        // The new with what stays of the old is a third configuration.
        check(&next)?;
        let mut changes = Vec::new();
        for part in &self.parts {
            changes.extend(part.prepare(&in_force, &next)?);
        }
        for change in changes {
            (change.apply)();
            report.applied.extend(change.keys);
        }
        self.in_force.store(Arc::new(next));
        Ok(report)
    }

    /// A reload that panicked has said so on stderr; counts and texts are whole all the same.
    fn lock(&self) -> MutexGuard<'_, ReloadHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of options that differ.
pub(crate) fn changed_keys(keys: &[&'static str], changed: &[bool]) -> Vec<&'static str> {
    keys.iter().zip(changed).filter(|(_, changed)| **changed).map(|(key, _)| *key).collect()
}

/// In the order in which [`ReplyValues`] compares them.
const REPLY_KEYS: [&str; 6] =
    ["local", "stratum", "refid", "leap", "root-delay", "root-dispersion"];

/// What replies say of the server, which the clock thread writes into its pages.
pub(crate) struct ReplyValues {
    next: Arc<NextConfig>,
}

impl ReplyValues {
    pub(crate) fn new(next: NextConfig) -> Self {
        Self { next: Arc::new(next) }
    }
}

impl Part for ReplyValues {
    fn adopt(&self, in_force: &mut ServerConfig, new: &ServerConfig) -> &'static [&'static str] {
        adopt_reply_values(in_force, new);
        &REPLY_KEYS
    }

    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<Change>, ReloadError> {
        let changed = [
            in_force.trust != next.trust,
            in_force.stratum != next.stratum,
            in_force.reference_id != next.reference_id,
            in_force.leap != next.leap,
            in_force.root_delay != next.root_delay,
            in_force.root_dispersion != next.root_dispersion,
        ];
        let keys = changed_keys(&REPLY_KEYS, &changed);
        let (mailbox, config) = (Arc::clone(&self.next), Arc::new(next.clone()));
        Ok(Some(Change { keys, apply: Box::new(move || mailbox.put(config)) }))
    }
}
