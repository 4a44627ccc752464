//! Configuration of a listener: addresses, certificate, and resource limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::KeError;
use crate::message::is_ntp_server;

/// Configuration of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeConfig {
    /// Addresses to listen on; port 0 lets the system choose. IPv6 addresses accept IPv6 alone, so
    /// `[::]` and `0.0.0.0` can be combined.
    pub listen: Vec<SocketAddr>,
    /// PEM file of the certificate and of the intermediate ones up to an authority that clients
    /// trust.
    pub certificate: PathBuf,
    /// PEM file of the certificate's key.
    pub key: PathBuf,
    /// The NTP server for clients, if it is not the NTS-KE server itself.
    pub ntp_server: Option<String>,
    /// The UDP port of the NTP server, if it is not 123.
    pub ntp_port: Option<u16>,
    /// Number of cookies for a client; 8 is the standard's number (RFC 8915, section 4.1.6).
    pub cookies: usize,
    /// Number of threads; 0 means one for each core.
    pub threads: usize,
    /// Limits of resources for clients.
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

    /// Reports an unusable value.
    pub fn check(&self) -> Result<(), KeError> {
        let wrong = |what: String| Err(KeError::Configuration(what));
        if let Some(name) = self.ntp_server.as_ref().filter(|name| !is_ntp_server(name)) {
            let name = name.escape_debug();
            return wrong(format!(
                "the NTP server '{name}' is neither an address without a zone nor a domain name"
            ));
        }
        if self.listen.is_empty() {
            return wrong("NTS-KE needs an address to listen at".into());
        }
        if !(1..=COOKIES_MAX).contains(&self.cookies) {
            return wrong(format!(
                "invalid number of cookies {}: a client gets 1 to {COOKIES_MAX}",
                self.cookies
            ));
        }
        if self.limits.connections == 0 || self.limits.timeout.is_zero() {
            return wrong("NTS-KE needs connections and time above zero".into());
        }
        Ok(())
    }
}

/// Greatest number of cookies; clients keep fewer.
const COOKIES_MAX: usize = 16;

/// Limits of resources for clients of a listener. A prefix is an IPv4 address or the 64 leading
/// bits of an IPv6 address: about one customer of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeLimits {
    /// Simultaneous connections in total. One takes about 20 kB, half of it in the kernel.
    pub connections: usize,
    /// Simultaneous connections from one prefix; 0 is no limit.
    pub connections_per_prefix: u32,
    /// New connections a second from one prefix; 0 is no limit.
    pub rate_per_prefix: u32,
    /// Burst size of one prefix within that rate, in connections.
    pub burst_per_prefix: u32,
    /// Longest duration of a connection. An honest client needs three round trips.
    pub timeout: Duration,
    /// Age from which a connection is closed in favour of a new one when all connections are in
    /// use; if none is that old, the new one is refused.
    pub eviction_age: Duration,
}

impl Default for KeLimits {
    /// Limits of 1024 connections, 64 from one prefix, of which 20 per second after a burst of 100:
    /// an office behind one address may start all at once. Five seconds for each.
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_prefix: 64,
            rate_per_prefix: 20,
            burst_per_prefix: 100,
            timeout: Duration::from_secs(5),
            eviction_age: Duration::from_secs(1),
        }
    }
}
