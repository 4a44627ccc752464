//! The listener of NTS key establishment as a part of the server: where it listens, what it tells,
//! and the cookies that it gives away. Handshakes are none of this file's business.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use horolog_ke::{KeConfig, KeCounters, KeError, KeServer, Keeper};
use horolog_nts::{Algorithm, COOKIE_LEN_MAX, CookieKeys, Nonces, SessionKeys};
use horolog_wire::ntp::PORT;
use serde::Serialize;

use crate::NtsConfig;

/// What a server tells about its listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct KeStatus {
    /// Addresses listened on.
    pub listen: Vec<SocketAddr>,
    /// What became of connections.
    pub counters: KeCounters,
}

impl KeStatus {
    pub(crate) fn of(listener: &KeServer) -> Self {
        Self { listen: listener.listen(), counters: listener.counters() }
    }
}

/// Starts the listener if there is to be one, for the server that listens at `listen`.
pub(crate) fn start(
    config: &NtsConfig,
    listen: &[SocketAddr],
    cookies: Option<&Arc<ArcSwap<CookieKeys>>>,
) -> Result<Option<KeServer>, KeError> {
    let (Some(certificate), Some(key), Some(cookies)) = (&config.certificate, &config.key, cookies)
    else {
        return Ok(None);
    };
    let at_default = |address: &SocketAddr| SocketAddr::new(address.ip(), horolog_ke::PORT);
    let mut addresses = config.ke_listen.clone();
    if addresses.is_empty() {
        addresses = listen.iter().map(at_default).collect();
        addresses.sort_unstable();
        addresses.dedup();
    }
    let Some(first) = addresses.first() else { return Ok(None) };
    let ntp_port = listen.first().map(SocketAddr::port).filter(|port| *port != PORT);
    let config = KeConfig {
        ntp_server: config.ke_server.clone(),
        ntp_port: ntp_port.filter(|_| config.ke_server.is_none()),
        limits: config.ke_limits,
        ..KeConfig::new(*first, certificate.clone(), key.clone())
    };
    KeServer::start(KeConfig { listen: addresses, ..config }, Arc::new(Baker::new(cookies)?))
        .map(Some)
}

/// Makes cookies under the present key.
struct Baker {
    cookies: Arc<ArcSwap<CookieKeys>>,
    nonces: Mutex<Nonces>,
}

impl Baker {
    fn new(cookies: &Arc<ArcSwap<CookieKeys>>) -> Result<Self, KeError> {
        let nonces = Nonces::new().map_err(|error| KeError::System {
            doing: "get random numbers for cookies",
            error: io::Error::other(error),
        })?;
        Ok(Self { cookies: Arc::clone(cookies), nonces: Mutex::new(nonces) })
    }
}

impl Keeper for Baker {
    fn algorithms(&self) -> Vec<u16> {
        Algorithm::ALL.iter().map(|algorithm| algorithm.number()).collect()
    }

    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>> {
        let session = Algorithm::from_number(algorithm)
            .and_then(|algorithm| SessionKeys::new(algorithm, c2s, s2c).ok());
        let Some(session) = session else { return Vec::new() };
        let keys = self.cookies.load();
        // Nonces are whole after every call, also after one that panicked.
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        let bake = |_| {
            let (mut nonce, mut cookie) = ([0; 16], vec![0; COOKIE_LEN_MAX]);
            nonces.fill(&mut nonce);
            let len = keys.seal(&session, nonce, &mut cookie);
            cookie.truncate(len);
            cookie
        };
        (0..count).map(bake).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use horolog_nts::MasterSecret;
    use horolog_time::Timestamp;

    use super::*;

    #[test]
    fn cookies_hold_the_keys_and_differ() {
        let now = Timestamp::from_timespec(1_700_000_000, 0);
        let secret = MasterSecret::from_bytes([1; 32]);
        let keys = CookieKeys::new(&secret, Duration::from_hours(24), 1, now);
        let baker = Baker::new(&Arc::new(ArcSwap::from_pointee(keys))).unwrap();
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
