//! Reload of a running server: the pattern of all parts that can adopt a new configuration without
//! a restart. It reads no file and no signal; it takes a complete new configuration.
//!
//! A [`ReloadPart`] of the server changes options at run time in two phases, so that a reload
//! happens completely or not at all:
//!
//! 1. [`ReloadPart::adopt_fixed`] copies the fields of the options that it can change from the new
//!    configuration into the one that is to be in force, and returns their names. Options that no
//!    part adopts stay unchanged until a restart. The result must pass the same checks as a
//!    configuration at start.
//! 2. [`ReloadPart::prepare`] does everything that can fail (reads files, opens sockets) and
//!    changes nothing that runs. It returns a [`PreparedReload`] that cannot fail.
//!
//! Only after every part has prepared are the changes applied, in the order of the parts. A part
//! keeps its changeable state in an [`arc_swap::ArcSwap`] (or an atomic) that its threads read, so
//! no thread waits and no request is lost. It is prepared at every reload, even if its options are
//! unchanged: a file may have new content under its old name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use serde::Serialize;

use crate::clock::NextConfig;
use crate::page_builder::adopt_reply_values;
use crate::{CheckError, ServerConfig, StartError, check};

/// Reason for which a server did not change; its text is one line for the user. The previous state
/// stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// New configuration that is invalid, by itself or with the unchanged options.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Failure to open a new resource.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Address that covers one of this server's, or is covered by it: the kernel grants the port to
    /// only one of them.
    #[error(
        "{0} overlaps {1}, which this server already listens on; restart the server to change \
             this"
    )]
    Overlap(std::net::SocketAddr, std::net::SocketAddr),
    /// Port for NTS clients that the kernel chooses, and that is not yet known.
    #[error(
        "the port for NTS clients is unknown until the first address of --listen is open; specify \
         that port, or restart the server"
    )]
    UnknownPort,
    /// Part of the server that cannot change as configured.
    #[error("{0}")]
    Other(String),
}

/// Result of a reload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadReport {
    /// Options in force as in the new configuration, changed or not, by their names without leading
    /// hyphens. All others need a restart.
    pub adopted: Vec<&'static str>,
    /// Options among them with a new value in force.
    pub applied: Vec<&'static str>,
    /// Changed options that need a restart.
    pub restart_needed: Vec<String>,
}

/// History of reloads, as reported by `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReloadHealth {
    /// Successful reloads.
    pub done: u64,
    /// Refused reloads.
    pub failed: u64,
    /// Reason for which the last one was refused; absent if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reload_error: Option<String>,
    /// Changed options that need a restart.
    pub restart_needed: Vec<String>,
}

/// Prepared change, which cannot fail.
pub(crate) struct PreparedReload {
    /// Options with a new value in force afterwards.
    pub(crate) keys: Vec<&'static str>,
    /// Applies the change.
    pub(crate) apply: Box<dyn FnOnce() + Send>,
}

/// Part of the server that can change at run time.
pub(crate) trait ReloadPart: Send + Sync {
    /// Copies the fields of the options that it can change from the new configuration, and returns
    /// their names without leading hyphens.
    fn adopt_fixed(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str];

    /// Does everything that can fail and changes nothing yet; `None` if there is nothing to change.
    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError>;
}

/// Changeable parts, and the configuration in force.
pub(crate) struct ReloadManager {
    in_force: ArcSwap<ServerConfig>,
    parts: Vec<Box<dyn ReloadPart>>,
    /// History of reloads; its lock also serialises reloads.
    health: Mutex<ReloadHealth>,
}

impl std::fmt::Debug for ReloadManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloadable").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

impl ReloadManager {
    /// Creates the manager with the configuration that the server was started with. The part that
    /// opens sockets comes last: its prepared sockets are served at once.
    pub(crate) fn new(config: &ServerConfig, parts: Vec<Box<dyn ReloadPart>>) -> Self {
        let in_force = ArcSwap::from_pointee(config.clone());
        Self { in_force, parts, health: Mutex::default() }
    }

    /// Returns the configuration in force.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.in_force.load_full()
    }

    /// Returns the history of reloads.
    pub(crate) fn health(&self) -> ReloadHealth {
        self.lock().clone()
    }

    /// Records that a new configuration could not even be read.
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
            report.adopted.extend(part.adopt_fixed(&mut next, new));
        }
        // The new options with the unchanged old ones form a third configuration.
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

    /// Locks the history. A reload that panicked has already reported on stderr; counts and texts
    /// are consistent nevertheless.
    fn lock(&self) -> MutexGuard<'_, ReloadHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the names of options that differ.
pub(crate) fn changed_keys(keys: &[&'static str], changed: &[bool]) -> Vec<&'static str> {
    keys.iter().zip(changed).filter(|(_, changed)| **changed).map(|(key, _)| *key).collect()
}

/// Keys in the order in which [`ReplyValues`] compares them.
const REPLY_KEYS: [&str; 6] =
    ["local", "stratum", "refid", "leap", "root-delay", "root-dispersion"];

/// Reload of the reply values, which the clock thread writes into its pages.
pub(crate) struct ReplyValues {
    next: Arc<NextConfig>,
}

impl ReplyValues {
    pub(crate) fn new(next: NextConfig) -> Self {
        Self { next: Arc::new(next) }
    }
}

impl ReloadPart for ReplyValues {
    fn adopt_fixed(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str] {
        adopt_reply_values(in_force, new);
        &REPLY_KEYS
    }

    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
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
        Ok(Some(PreparedReload { keys, apply: Box::new(move || mailbox.put(config)) }))
    }
}
