//! What a listener is told: where, with which certificate, and how much of this machine it may
//! take.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::KeError;
use crate::message::SERVER_LEN_MAX;

/// How a listener is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeConfig {
    /// Where to listen; port 0 lets the system choose. IPv6 addresses take IPv6 alone, so that
    /// `[::]` and `0.0.0.0` go together.
    pub listen: Vec<SocketAddr>,
    /// PEM file of the certificate and those between it and an authority that clients trust.
    pub certificate: PathBuf,
    /// PEM file of the certificate's key.
    pub key: PathBuf,
    /// The host that clients are to ask for the time, if it is not the one that they asked for
    /// keys.
    pub ntp_server: Option<String>,
    /// The UDP port that clients are to ask for the time, if it is not 123.
    pub ntp_port: Option<u16>,
    /// How many cookies a client gets; 8 is the standard's number (RFC 8915, section 4.1.6).
    pub cookies: usize,
    /// How many threads shake hands; 0 stands for one for each core.
    pub threads: usize,
    /// What clients may take.
    pub limits: KeLimits,
}

impl KeConfig {
    /// The defaults, with a certificate and its key, at one address.
    #[must_use]
    pub fn new(listen: SocketAddr, certificate: PathBuf, key: PathBuf) -> Self {
        Self {
            listen: vec![listen],
            certificate,
            key,
            ntp_server: None,
            ntp_port: None,
            cookies: 8,
            threads: 0,
            limits: KeLimits::default(),
        }
    }

    /// Says what cannot be used.
    pub fn check(&self) -> Result<(), KeError> {
        let wrong = |what: String| Err(KeError::Configuration(what));
        if let Some(name) = &self.ntp_server {
            let sound = (1..=SERVER_LEN_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic());
            if !sound {
                return wrong(format!(
                    "the NTP server {name:?} is not 1 to {SERVER_LEN_MAX} printable ASCII characters"
                ));
            }
        }
        if self.listen.is_empty() {
            return wrong("NTS key establishment needs an address to listen at".into());
        }
        if !(1..=COOKIES_MAX).contains(&self.cookies) {
            return wrong(format!("{} cookies: a client gets 1 to {COOKIES_MAX}", self.cookies));
        }
        if self.limits.connections == 0 || self.limits.timeout.is_zero() {
            return wrong("NTS key establishment without connections or time serves nobody".into());
        }
        Ok(())
    }
}

/// More cookies than clients keep.
const COOKIES_MAX: usize = 16;

/// What clients may take of a listener. A prefix is an IPv4 address or the 64 leading bits of an
/// IPv6 address: about one customer of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeLimits {
    /// Connections at a time in all. One takes about 20 kB, half of it in the kernel.
    pub connections: usize,
    /// Connections at a time from one prefix; 0 is no limit.
    pub connections_per_prefix: u32,
    /// New connections a second from one prefix; 0 is no limit.
    pub rate_per_prefix: u32,
    /// How many connections of one prefix may come at once within that rate.
    pub burst_per_prefix: u32,
    /// From the connection to its end. An honest client needs three round trips.
    pub timeout: Duration,
    /// When all connections are taken, one older than this gives way to a new one; without such a
    /// one the new one is refused.
    pub patience: Duration,
}

impl Default for KeLimits {
    /// Rooms for 1024 connections, 64 of one prefix, of which 20 a second come after a burst of
    /// 100: an office behind one address may start all at once. Five seconds for each.
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_prefix: 64,
            rate_per_prefix: 20,
            burst_per_prefix: 100,
            timeout: Duration::from_secs(5),
            patience: Duration::from_secs(1),
        }
    }
}
