//! Configuration of a listener: addresses, certificate, and resource limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::NtsKeError;
use crate::message::is_ntp_server;

/// Configuration of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NtsKeConfig {
    /// Addresses to listen on; port 0 lets the system choose. IPv6 addresses accept IPv6 alone, so
    /// `[::]` and `0.0.0.0` can be combined.
    pub listen: Vec<SocketAddr>,
    /// PEM file of the certificate chain: server certificate first, then intermediate ones.
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
    pub limits: NtsKeLimits,
}

impl NtsKeConfig {
    /// Creates a configuration with default values for one address.
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
            limits: NtsKeLimits::default(),
        }
    }

    /// Checks all values; an error names the first unusable one.
    pub fn check(&self) -> Result<(), NtsKeError> {
        let wrong = |what: String| Err(NtsKeError::Configuration(what));
        if let Some(name) = self.ntp_server.as_ref().filter(|name| !is_ntp_server(name)) {
            let name = name.escape_debug();
            return wrong(format!(
                "the NTP server '{name}' is neither an address without a zone nor a domain name"
            ));
        }
        if self.listen.is_empty() {
            return wrong("NTS-KE needs an address to listen on".into());
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

/// Largest number of cookies for a client; clients store at most 8.
const COOKIES_MAX: usize = 16;

/// Limits of resources for clients of a listener. A prefix is an IPv4 address, or the first 64 bits
/// of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NtsKeLimits {
    /// Largest number of open connections. One takes about 20 kB, half of it in the kernel.
    pub connections: usize,
    /// Largest number of open connections from one prefix; 0 is no limit.
    pub connections_per_prefix: u32,
    /// Largest rate of new connections from one prefix, per second; 0 is no limit.
    pub rate_per_prefix: u32,
    /// Number of connections that one prefix may open at once before the rate applies; 0 counts as
    /// 1.
    pub burst_per_prefix: u32,
    /// Longest duration of a connection. A compliant client needs three round trips.
    pub timeout: Duration,
    /// Minimum age of a connection that may be closed to make room for a new one at the limit of
    /// open connections; if the accepting thread has none that old, the new one is refused.
    pub eviction_age: Duration,
}

impl Default for NtsKeLimits {
    /// 1024 connections; 64 from one prefix, at 20 per second after a burst of 100, so that an
    /// office behind one address can start all its clients at once; 5 s per connection, of which 1
    /// s is safe from closure for a new one.
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
