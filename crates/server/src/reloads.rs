//! Parts of a running server that take a new configuration over, beside its addresses, key
//! establishment and the values of its replies: limits and lists, keys and secrets, the list of
//! leap seconds. The pattern stands in [`crate::reload`].

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use horolog_xdp::Responder;

use crate::authenticate::Secrets;
use crate::reload::{Change, Part, ReloadError, changed_keys};
use crate::secrets::FromFiles;
use crate::sources::SharedSources;
use crate::{LeapFile, Limiter, ServerConfig};

/// Limits and lists, of a server that was started with any: what they are kept in is made once.
pub(crate) struct LimitsPart {
    /// Of the threads that answer from sockets.
    pub(crate) limiter: Arc<ArcSwapOption<Limiter>>,
    /// Of the XDP body.
    pub(crate) responder: Option<Arc<Responder>>,
    /// Where to say what cannot be done.
    pub(crate) notices: Arc<SharedSources>,
}

/// In the order in which [`LimitsPart`] compares them.
const LIMIT_KEYS: [&str; 10] = [
    "limit-rate",
    "limit-burst",
    "limit-newcomers",
    "limit-idle",
    "allow",
    "allow-file",
    "deny",
    "deny-file",
    "kiss-rate",
    "kiss-deny",
];

impl Part for LimitsPart {
    fn adopt(&self, in_force: &mut ServerConfig, new: &ServerConfig) -> &'static [&'static str] {
        let old = &in_force.limits;
        // The size of the tables and what counts as one client stay until a restart.
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
    ) -> Result<Option<Change>, ReloadError> {
        let (old, new) = (&in_force.limits, next.limits.clone());
        if *old == new {
            return Ok(None);
        }
        let changed = [
            old.rate != new.rate,
            old.burst != new.burst,
            old.newcomers != new.newcomers,
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
            let followed = limiter.load_full().map(|old| Arc::new(old.followed_by(&new)));
            limiter.store(followed);
            let limited = responder.map(|kernel| kernel.limit(&new.rules(), &new.listed()));
            if let Some(Err(error)) = limited {
                notices.notify(format!("the limits in the kernel are not the new ones: {error}"));
            }
        };
        Ok(Some(Change { keys, apply: Box::new(apply) }))
    }
}

/// Symmetric keys and the secret of the cookie keys, whose files may have new content. A secret of
/// this server's own stays until it ends.
pub(crate) struct SecretsPart(pub(crate) Secrets);

impl Part for SecretsPart {
    fn adopt(&self, _: &mut ServerConfig, _: &ServerConfig) -> &'static [&'static str] {
        &[]
    }

    fn prepare(
        &self,
        _: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<Change>, ReloadError> {
        let failed = |error: crate::SecretsError| ReloadError::Other(error.to_string());
        let read = FromFiles::read(&next.nts).map_err(failed)?;
        let secrets = self.0.clone();
        let apply = Box::new(move || read.replace(&secrets));
        Ok(Some(Change { keys: Vec::new(), apply }))
    }
}

/// The list of leap seconds, of which the file may have new content.
pub(crate) struct LeapFilePart(pub(crate) LeapFile);

impl Part for LeapFilePart {
    fn adopt(&self, _: &mut ServerConfig, _: &ServerConfig) -> &'static [&'static str] {
        &[]
    }

    fn prepare(&self, _: &ServerConfig, _: &ServerConfig) -> Result<Option<Change>, ReloadError> {
        let list = self.0.read().map_err(|error| ReloadError::Other(error.to_string()))?;
        let file = self.0.clone();
        let apply = Box::new(move || file.replace(list));
        Ok(Some(Change { keys: Vec::new(), apply }))
    }
}
