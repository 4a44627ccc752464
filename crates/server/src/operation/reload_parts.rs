//! Reloaders of a server, other than those of listen addresses, NTS-KE and reply values: rate
//! limits and prefix lists, keys and secrets, and the list of leap seconds. See [`super::reload`].

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use horolog_xdp::Responder;

use super::reload::{PreparedReload, ReloadError, Reloader, changed_keys};
use crate::clock::leap_file::LeapFile;
use crate::clock::sources::SharedSourceState;
use crate::config::ServerConfig;
use crate::nts::authenticate::Secrets;
use crate::nts::secrets::{LoadedSecrets, SecretsError};
use crate::reply::limits::Limiter;

/// Reload of limits and lists, if the server was started with any: their tables are created only at
/// start.
pub(crate) struct LimitsReloader {
    /// Limiter of the socket threads.
    pub(crate) limiter: Arc<ArcSwapOption<Limiter>>,
    /// Responder of the XDP engine, if it runs.
    pub(crate) responder: Option<Arc<Responder>>,
    /// Recipient of notices about failures.
    pub(crate) notices: Arc<SharedSourceState>,
}

/// Option names, in the order in which [`LimitsReloader`] compares the options.
const LIMIT_KEYS: [&str; 10] = [
    "limit-rate",
    "limit-burst",
    "limit-new-clients",
    "limit-idle",
    "allow",
    "allow-file",
    "deny",
    "deny-file",
    "kiss-rate",
    "kiss-deny",
];

impl Reloader for LimitsReloader {
    fn adopt_options(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str] {
        let old = &in_force.limits;
        // The table size and the prefix lengths that define a client change only at a restart.
        let (clients, ipv4_prefix, ipv6_prefix) = (old.clients, old.ipv4_prefix, old.ipv6_prefix);
        in_force.limits = new.limits.clone();
        in_force.limits.clients = clients;
        in_force.limits.ipv4_prefix = ipv4_prefix;
        in_force.limits.ipv6_prefix = ipv6_prefix;
        &LIMIT_KEYS
    }

    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
        let (old, new) = (&in_force.limits, next.limits.clone());
        if *old == new {
            return Ok(None);
        }
        let changed = [
            old.rate != new.rate,
            old.burst != new.burst,
            old.new_client_rate != new.new_client_rate,
            old.idle != new.idle,
            old.allow != new.allow,
            false,
            old.deny != new.deny,
            false,
            old.kiss_rate != new.kiss_rate,
            old.kiss_deny != new.kiss_deny,
        ];
        let keys = changed_keys(&LIMIT_KEYS, &changed);
        let limiter = Arc::clone(&self.limiter);
        let (responder, notices) = (self.responder.clone(), Arc::clone(&self.notices));
        let apply = move || {
            let followed = limiter.load_full().map(|old| Arc::new(old.successor(&new)));
            limiter.store(followed);
            let limited =
                responder.map(|kernel| kernel.set_limits(&new.rules(), &new.listed_prefixes()));
            if let Some(Err(error)) = limited {
                notices.push_notice(format!("the in-kernel limits were not updated: {error}"));
            }
        };
        Ok(Some(PreparedReload { keys, apply: Box::new(apply) }))
    }
}

/// Reload of the files of symmetric keys and of the master secret. A secret that the server
/// generated itself does not change.
pub(crate) struct SecretsReloader {
    secrets: Secrets,
    notices: Arc<SharedSourceState>,
}

impl SecretsReloader {
    /// Creates the reloader with the secrets loaded at start, and the notice about their files.
    pub(crate) fn new(
        secrets: Secrets,
        notice: Option<String>,
        notices: &Arc<SharedSourceState>,
    ) -> Self {
        if let Some(notice) = notice {
            notices.push_notice(notice);
        }
        Self { secrets, notices: Arc::clone(notices) }
    }
}

impl Reloader for SecretsReloader {
    fn adopt_options(&self, _: &mut ServerConfig, _: &ServerConfig) -> &'static [&'static str] {
        &[]
    }

    fn prepare(
        &self,
        _: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
        let failed = |error: SecretsError| ReloadError::Other(error.to_string());
        let read = LoadedSecrets::read(&next.nts).map_err(failed)?;
        let (secrets, notices) = (self.secrets.clone(), Arc::clone(&self.notices));
        let apply = Box::new(move || {
            if let Some(notice) = &read.notice {
                notices.push_notice(notice.clone());
            }
            read.replace(&secrets);
        });
        Ok(Some(PreparedReload { keys: Vec::new(), apply }))
    }
}

/// Reload of the file with the list of leap seconds.
pub(crate) struct LeapFileReloader(pub(crate) LeapFile);

impl Reloader for LeapFileReloader {
    fn adopt_options(&self, _: &mut ServerConfig, _: &ServerConfig) -> &'static [&'static str] {
        &[]
    }

    fn prepare(
        &self,
        _: &ServerConfig,
        _: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
        let list = self.0.read().map_err(|error| ReloadError::Other(error.to_string()))?;
        let file = self.0.clone();
        let apply = Box::new(move || file.replace(list));
        Ok(Some(PreparedReload { keys: Vec::new(), apply }))
    }
}
