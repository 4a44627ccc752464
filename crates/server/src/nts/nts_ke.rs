//! NTS-KE listener of a server: its configuration, its reload, and the cookies that it issues. The
//! NTS-KE exchanges are handled by `horolog-ke`.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use horolog_ke::{CookieProvider, NtsKeConfig, NtsKeCounts, NtsKeError, NtsKeServer};
use horolog_nts::{AeadAlgorithm, COOKIE_LEN_MAX, CookieKeys, NonceStream, SessionKeys};
use horolog_wire::ntp::PORT;
use serde::{Deserialize, Serialize};

use crate::config::ServerConfig;
use crate::operation::reload::{PreparedReload, ReloadError, Reloader, changed_keys};
use crate::sockets::listeners::Listeners;

/// Status of the NTS-KE listener of a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NtsKeStatus {
    /// Listen addresses.
    pub listen: Vec<SocketAddr>,
    /// Counts of connections by outcome.
    pub counters: NtsKeCounts,
}

impl NtsKeStatus {
    pub(crate) fn from_listener(listener: &NtsKeServer) -> Self {
        Self { listen: listener.listen_addresses(), counters: listener.counts() }
    }
}

/// Returns the configuration of the listener, if enabled. `ntp_port` is the port of the server's
/// first listen address.
fn ke_config(config: &ServerConfig, ntp_port: Option<u16>) -> Option<NtsKeConfig> {
    let nts = &config.nts;
    let (certificate, key) = (nts.certificate.clone()?, nts.key.clone()?);
    let with_default_port = |address: &SocketAddr| SocketAddr::new(address.ip(), horolog_ke::PORT);
    let mut listen = nts.ke_listen.clone();
    if listen.is_empty() {
        listen = config.all_listen().iter().map(with_default_port).collect();
        listen.sort_unstable();
        listen.dedup();
    }
    let first = *listen.first()?;
    Some(NtsKeConfig {
        listen,
        ntp_server: nts.ke_server.clone(),
        ntp_port: ntp_port.filter(|port| *port != PORT && nts.ke_server.is_none()),
        limits: nts.ke_limits,
        ..NtsKeConfig::new(first, certificate, key)
    })
}

/// Starts the listener; `None` if it is not enabled or there are no cookie keys.
pub(crate) fn start(
    config: &ServerConfig,
    ntp_port: Option<u16>,
    cookies: Option<&Arc<ArcSwap<CookieKeys>>>,
) -> Result<Option<NtsKeServer>, NtsKeError> {
    let (Some(ke_settings), Some(cookies)) = (ke_config(config, ntp_port), cookies) else {
        return Ok(None);
    };
    NtsKeServer::start(ke_settings, Arc::new(CookieFactory::new(cookies)?)).map(Some)
}

/// Reload of all options of the listener, and of the contents of its files. Enabling or disabling
/// the listener requires a restart.
pub(crate) struct NtsKeReloader {
    pub(crate) listener: Arc<NtsKeServer>,
    /// Listeners of the server, whose port is sent to clients.
    pub(crate) sockets: Arc<Listeners>,
}

impl Reloader for NtsKeReloader {
    fn adopt_options(
        &self,
        in_force: &mut ServerConfig,
        new: &ServerConfig,
    ) -> &'static [&'static str] {
        if new.nts.certificate.is_none() {
            return &[];
        }
        let (nts, new) = (&mut in_force.nts, new.nts.clone());
        nts.certificate = new.certificate;
        nts.key = new.key;
        nts.ke_listen = new.ke_listen;
        nts.ke_server = new.ke_server;
        nts.ke_limits = new.ke_limits;
        &NTS_KE_KEYS
    }

    fn prepare(
        &self,
        in_force: &ServerConfig,
        next: &ServerConfig,
    ) -> Result<Option<PreparedReload>, ReloadError> {
        let ntp_port = self.sockets.first_port(next);
        if ntp_port.is_none() && next.nts.ke_server.is_none() {
            return Err(ReloadError::UnknownPort);
        }
        let Some(ke_settings) = ke_config(next, ntp_port) else { return Ok(None) };
        let failed = |error: NtsKeError| ReloadError::Other(error.to_string());
        let prepared = self.listener.prepare(ke_settings).map_err(failed)?;
        let (old, new) = (&in_force.nts, &next.nts);
        let (old_limits, new_limits) = (old.ke_limits, new.ke_limits);
        let changed = [
            old.certificate != new.certificate,
            old.key != new.key,
            old.ke_listen != new.ke_listen,
            old.ke_server != new.ke_server,
            old_limits.connections != new_limits.connections,
            old_limits.connections_per_prefix != new_limits.connections_per_prefix,
            old_limits.rate_per_prefix != new_limits.rate_per_prefix,
        ];
        let keys = changed_keys(&NTS_KE_KEYS, &changed);
        let listener = Arc::clone(&self.listener);
        Ok(Some(PreparedReload { keys, apply: Box::new(move || listener.apply(prepared)) }))
    }
}

/// Option names, in the order in which [`NtsKeReloader`] compares the options.
const NTS_KE_KEYS: [&str; 7] = [
    "nts-cert",
    "nts-key",
    "nts-ke-listen",
    "nts-ntp-server",
    "nts-ke-connections",
    "nts-ke-connections-per-prefix",
    "nts-ke-rate-per-prefix",
];

/// Factory of cookies sealed with the current key.
struct CookieFactory {
    cookies: Arc<ArcSwap<CookieKeys>>,
    nonces: Mutex<NonceStream>,
}

impl CookieFactory {
    fn new(cookies: &Arc<ArcSwap<CookieKeys>>) -> Result<Self, NtsKeError> {
        let nonces = NonceStream::new().map_err(|error| NtsKeError::System {
            doing: "get random numbers for cookies",
            error: io::Error::other(error),
        })?;
        Ok(Self { cookies: Arc::clone(cookies), nonces: Mutex::new(nonces) })
    }
}

impl CookieProvider for CookieFactory {
    fn algorithms(&self) -> Vec<u16> {
        AeadAlgorithm::ALL.iter().map(|algorithm| algorithm.number()).collect()
    }

    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>> {
        let session = AeadAlgorithm::from_number(algorithm)
            .and_then(|algorithm| SessionKeys::new(algorithm, c2s, s2c).ok());
        let Some(session) = session else { return Vec::new() };
        let keys = self.cookies.load();
        // Nonces stay consistent even if a call panics.
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        let seal_cookie = |_| {
            let (mut nonce, mut cookie) = ([0; 16], vec![0; COOKIE_LEN_MAX]);
            nonces.fill(&mut nonce);
            let len = keys.seal(&session, nonce, &mut cookie);
            cookie.truncate(len);
            cookie
        };
        (0..count).map(seal_cookie).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use horolog_nts::CookieMasterSecret;
    use horolog_time::Timestamp;

    use super::*;

    #[test]
    fn the_listener_follows_the_addresses_of_the_server_unless_it_has_its_own() {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let listen = parse(&["192.0.2.2:123", "192.0.2.1:123", "192.0.2.2:4123"]);
        let mut config = ServerConfig { listen, ..ServerConfig::default() };
        assert_eq!(ke_config(&config, Some(123)), None);
        config.nts.certificate = Some("c".into());
        config.nts.key = Some("k".into());
        config.leap_seconds.smear_listen = parse(&["[::1]:123"]);
        let by_default = ke_config(&config, Some(123)).unwrap();
        assert_eq!(by_default.listen, parse(&["192.0.2.1:4460", "192.0.2.2:4460", "[::1]:4460"]));
        assert_eq!((by_default.ntp_server, by_default.ntp_port), (None, None));
        assert_eq!(ke_config(&config, Some(4123)).unwrap().ntp_port, Some(4123));
        config.nts.ke_listen = parse(&["192.0.2.9:1"]);
        config.nts.ke_server = Some("time.example".into());
        config.nts.ke_limits.connections = 7;
        let own = ke_config(&config, Some(4123)).unwrap();
        assert_eq!(own.listen, config.nts.ke_listen);
        assert_eq!((own.ntp_server.as_deref(), own.ntp_port), (Some("time.example"), None));
        assert_eq!(own.limits.connections, 7);
    }

    #[test]
    fn cookies_hold_the_keys_and_differ() {
        let now = Timestamp::from_timespec(1_700_000_000, 0);
        let secret = CookieMasterSecret::from_bytes([1; 32]);
        let keys = CookieKeys::new(&secret, Duration::from_hours(24), 1, now);
        let baker = CookieFactory::new(&Arc::new(ArcSwap::from_pointee(keys))).unwrap();
        assert_eq!(baker.algorithms(), [30, 15]);
        for (algorithm, len) in [(30, 16), (15, 32)] {
            let (c2s, s2c) = (vec![3; len], vec![4; len]);
            let cookies = baker.cookies(algorithm, &c2s, &s2c, 8);
            assert_eq!(cookies.len(), 8);
            for (index, cookie) in cookies.iter().enumerate() {
                let session = baker.cookies.load().open(cookie).unwrap();
                assert_eq!((session.c2s(), session.s2c()), (&c2s[..], &s2c[..]));
                assert!(!cookies[..index].contains(cookie));
            }
            assert!(baker.cookies(algorithm, &c2s, &[0; 7], 8).is_empty());
        }
        assert!(baker.cookies(29, &[0; 16], &[0; 16], 8).is_empty());
    }
}
