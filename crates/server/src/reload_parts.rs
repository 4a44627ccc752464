//! Parts of a running server that adopt a new configuration, other than its addresses, key
//! establishment and reply values: limits and lists, keys and secrets, the list of leap seconds.
//! The pattern is described in [`crate::reload`].

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use horolog_xdp::Responder;

use crate::authenticate::Secrets;
use crate::reload::{PreparedReload, ReloadError, ReloadPart, changed_keys};
use crate::secrets::FromFiles;
use crate::sources::SharedSources;
use crate::{LeapFile, Limiter, ServerConfig};

/// Limits and lists of a server that was started with any: their tables are created once.
pub(crate) struct LimitsPart {
    /// Limiter of the socket threads.
    pub(crate) limiter: Arc<ArcSwapOption<Limiter>>,
    /// Responder of the XDP engine.
    pub(crate) responder: Option<Arc<Responder>>,
    /// Sink for notices about failures.
    pub(crate) notices: Arc<SharedSources>,
}

/// Keys in the order in which [`LimitsPart`] compares them.
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

impl ReloadPart for LimitsPart {
    fn adopt_fixed(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str] {
        let old = &in_force.limits;
        // The size of the tables and the definition of a client do not change until a restart.
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
            let limited = responder.map(|kernel| kernel.set_limits(&new.rules(), &new.listed()));
            if let Some(Err(error)) = limited {
                notices.push_notice(format!("the in-kernel limits were not updated: {error}"));
            }
        };
        Ok(Some(PreparedReload { keys, apply: Box::new(apply) }))
    }
}

/// Symmetric keys and the secret of the cookie keys, whose files may have new content. A server's
/// own secret does not change until it ends.
pub(crate) struct SecretsPart {
    secrets: Secrets,
    notices: Arc<SharedSources>,
}

impl SecretsPart {
    /// Creates the part with the secrets read at start, and the notice about their files.
    pub(crate) fn new(
        secrets: Secrets,
        notice: Option<String>,
        notices: &Arc<SharedSources>,
    ) -> Self {
        if let Some(notice) = notice {
            notices.push_notice(notice);
        }
        Self { secrets, notices: Arc::clone(notices) }
    }
}

impl ReloadPart for SecretsPart {
    fn adopt_fixed(&self, _: &mut ServerConfig, _: &ServerConfig) -> &'static [&'static str] {
        &[]
    }

    fn prepare(
        &self,
        _: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
        let failed = |error: crate::SecretsError| ReloadError::Other(error.to_string());
        let read = FromFiles::read(&next.nts).map_err(failed)?;
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

/// List of leap seconds, whose file may have new content.
pub(crate) struct LeapFilePart(pub(crate) LeapFile);

impl ReloadPart for LeapFilePart {
    fn adopt_fixed(&self, _: &mut ServerConfig, _: &ServerConfig) -> &'static [&'static str] {
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
