//! Reload of a running server: the trait of all parts that can adopt a new configuration without a
//! restart. The caller supplies the complete new configuration.
//!
//! A [`Reloader`] changes some options at run time in two phases, so that a reload takes effect
//! completely or not at all:
//!
//! 1. [`Reloader::adopt_options`] copies its options from the new configuration into the one that
//!    will be in force, and returns their names. Options that no reloader copies stay unchanged
//!    until a restart. The result must pass the same checks as a configuration at start.
//! 2. [`Reloader::prepare`] does everything that can fail, such as reading files and opening
//!    sockets, without changing what runs. It returns a [`PreparedReload`], which cannot fail.
//!
//! Only when all have prepared are the changes applied, in the order of the reloaders. Changeable
//! state is in an [`arc_swap::ArcSwap`] or an atomic that the threads read, so that no thread waits
//! and no request is lost. Every reload prepares all of them, even if their options are unchanged,
//! because a file may have new content.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};

use super::check::{ConfigCheckError, check};
use crate::clock::page_builder::adopt_reply_values;
use crate::clock::thread::NextConfigSlot;
use crate::config::ServerConfig;
use crate::start_error::StartError;

/// Reason for which a reload changed nothing; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Invalid configuration: the new one, or the result of combining it with the unchanged
    /// options.
    #[error(transparent)]
    Check(#[from] ConfigCheckError),
    /// Failure to open a new file, socket or thread.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Listen address that includes one of this server's, or is included in one: the kernel gives
    /// the port to only one of them.
    #[error(
        "{0} overlaps {1}, which this server already listens on; restart the server to change \
             this"
    )]
    Overlap(std::net::SocketAddr, std::net::SocketAddr),
    /// Port for NTS clients that is unknown until the kernel has chosen it.
    #[error(
        "the port for NTS clients is unknown until the first address of --listen is open; specify \
         that port, or restart the server"
    )]
    UnknownPort,
    /// Part of the server that cannot adopt its options.
    #[error("{0}")]
    Other(String),
}

/// Result of a successful reload: which options it could change, changed, and left to a restart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadOutcome {
    /// Names of the options that a reload can change, without leading hyphens. Their values in
    /// force are those of the new configuration.
    pub adopted: Vec<&'static str>,
    /// Options among `adopted` whose values have changed.
    pub applied: Vec<&'static str>,
    /// Changed options that need a restart.
    pub restart_needed: Vec<String>,
}

/// Counts and last error of the reloads, for `horolog status`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReloadStatus {
    /// Successful reloads.
    pub done: u64,
    /// Refused reloads.
    pub failed: u64,
    /// Reason for which the last reload was refused; absent if it succeeded, or there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reload_error: Option<String>,
    /// Options that the last successful reload found changed and that need a restart.
    pub restart_needed: Vec<String>,
}

/// Prepared change, which cannot fail when it is applied.
pub(crate) struct PreparedReload {
    /// Names of the options that the change applies to, without leading hyphens.
    pub(crate) keys: Vec<&'static str>,
    /// Applies the change.
    pub(crate) apply: Box<dyn FnOnce() + Send>,
}

/// Part of the server that can adopt new options at run time.
pub(crate) trait Reloader: Send + Sync {
    /// Copies the options that this reloader changes from `new` into `in_force`, and returns their
    /// names without leading hyphens.
    fn adopt_options(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str];

    /// Does everything that can fail, without changing what runs, for the change from the
    /// configuration `in_force` to `next`. `None` if there is nothing to change.
    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError>;
}

/// Reloaders of a server, and the configuration in force.
pub(crate) struct ReloadManager {
    in_force: ArcSwap<ServerConfig>,
    parts: Vec<Box<dyn Reloader>>,
    /// Counts and last error; the lock is held during a reload, so that reloads do not overlap.
    health: Mutex<ReloadStatus>,
}

impl std::fmt::Debug for ReloadManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReloadManager").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

impl ReloadManager {
    /// Creates the manager with the configuration at start. The reloader that opens listen sockets
    /// must be the last one, because the sockets that it prepares are served at once.
    pub(crate) fn new(config: &ServerConfig, parts: Vec<Box<dyn Reloader>>) -> Self {
        let in_force = ArcSwap::from_pointee(config.clone());
        Self { in_force, parts, health: Mutex::default() }
    }

    /// Returns the configuration in force.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.in_force.load_full()
    }

    /// Returns the counts and the last error of the reloads.
    pub(crate) fn health(&self) -> ReloadStatus {
        self.lock().clone()
    }

    /// Counts a reload whose configuration could not be read.
    pub(crate) fn record_refusal(&self, reason: &str) {
        let mut health = self.lock();
        health.failed += 1;
        health.last_reload_error = Some(reason.to_owned());
    }

    /// Adopts all options that can change, or none. `changed` are the names of all options that
    /// differ from those in force.
    pub(crate) fn reload(
        &self,
        new: &ServerConfig,
        changed: Vec<String>,
    ) -> Result<ReloadOutcome, ReloadError> {
        let mut health = self.lock();
        match self.apply_all(new) {
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

    fn apply_all(&self, new: &ServerConfig) -> Result<ReloadOutcome, ReloadError> {
        check(new)?;
        let in_force = self.config();
        let mut next = (*in_force).clone();
        let mut report = ReloadOutcome::default();
        for part in &self.parts {
            report.adopted.extend(part.adopt_options(&mut next, new));
        }
        // The new options combined with the unchanged old ones form a configuration that was not
        // checked yet.
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

    /// Locks the counts and the last error, which stay consistent even if a reload panics.
    fn lock(&self) -> MutexGuard<'_, ReloadStatus> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns those of `keys` at whose index `changed` is true.
pub(crate) fn changed_keys(keys: &[&'static str], changed: &[bool]) -> Vec<&'static str> {
    keys.iter().zip(changed).filter(|(_, changed)| **changed).map(|(key, _)| *key).collect()
}

/// Option names, in the order in which [`ReplyValuesReloader`] compares the options.
const REPLY_KEYS: [&str; 6] =
    ["local", "stratum", "refid", "leap", "root-delay", "root-dispersion"];

/// Reload of the reply values, which the clock thread puts into its pages.
pub(crate) struct ReplyValuesReloader {
    next_config: Arc<NextConfigSlot>,
}

impl ReplyValuesReloader {
    pub(crate) fn new(next: NextConfigSlot) -> Self {
        Self { next_config: Arc::new(next) }
    }
}

impl Reloader for ReplyValuesReloader {
    fn adopt_options(
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
        let (slot, config) = (Arc::clone(&self.next_config), Arc::new(next.clone()));
        Ok(Some(PreparedReload { keys, apply: Box::new(move || slot.store_config(config)) }))
    }
}
