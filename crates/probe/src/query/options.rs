//! Options of a query, with their bounds.

use std::time::Duration;

use horolog_io::target::{AddressFamily, TargetName};
use horolog_ke::TrustAnchors;
use horolog_nts::AeadAlgorithm;

/// Default number of exchanges: the size of NTP's clock filter (RFC 5905, section 7.2, NSTAGE).
pub const COUNT: u64 = 8;
/// Maximum number of exchanges per server.
pub const COUNT_MAX: u64 = 1_000_000;
/// Maximum number of servers, each of which has a thread.
pub const TARGETS_MAX: usize = 64;
/// Default interval between exchanges with servers at private addresses, or at public ones that the
/// user has confirmed to own.
pub const INTERVAL_PRIVATE: Duration = Duration::from_millis(200);
/// Minimum and default interval between exchanges with a public server.
pub const INTERVAL_POLITE: Duration = Duration::from_secs(1);
/// Minimum interval between exchanges with a public server for more than [`COUNT`] exchanges (RFC
/// 5905, section 7.2, MINPOLL).
pub(super) const INTERVAL_LONG: Duration = Duration::from_secs(16);
/// Minimum interval between exchanges with any server; shorter ones are a load.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// NTS options of a query.
#[derive(Clone, Debug)]
pub struct QueryNtsOptions {
    /// NTS-KE server; `None` for the target itself, at [`horolog_ke::PORT`].
    pub ke_server: Option<TargetName>,
    /// Name expected in the NTS-KE server's certificate; `None` for the server's host name.
    pub name: Option<String>,
    /// Certificates that are trusted for NTS-KE servers.
    pub trust: TrustAnchors,
    /// AEAD algorithms to offer, in order of preference.
    pub algorithms: Vec<AeadAlgorithm>,
}

/// Options of a query; [`QueryOptions::new`] returns the defaults.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Servers, at least one.
    pub targets: Vec<TargetName>,
    /// Address family to resolve names to.
    pub family: Option<AddressFamily>,
    /// Interface to send on; `None` follows the routes.
    pub interface: Option<String>,
    /// Confirmation that public targets belong to the user.
    pub i_own_this_target: bool,
    /// Exchanges with each server.
    pub count: u64,
    /// Interval between exchanges; `None` for the default for the servers' addresses.
    pub interval: Option<Duration>,
    /// Timeout of a reply.
    pub timeout: Duration,
    /// NTP version of the requests, 1 to 4.
    pub version: u8,
    /// Interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// NTS options; `None` sends unauthenticated requests.
    pub nts: Option<QueryNtsOptions>,
    /// True to use hardware timestamps if available.
    pub hardware_timestamps: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

impl QueryOptions {
    /// Returns the default options for these servers.
    #[must_use]
    pub fn new(targets: Vec<TargetName>) -> Self {
        Self {
            targets,
            family: None,
            interface: None,
            i_own_this_target: false,
            count: COUNT,
            interval: None,
            timeout: Duration::from_secs(1),
            version: 4,
            interleaved: false,
            nts: None,
            hardware_timestamps: false,
            command: Vec::new(),
        }
    }
}
