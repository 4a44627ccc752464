//! What a query is asked to do, as flags say it, before anything is found out.

use std::time::Duration;

use horolog_io::target::{Family, TargetName};
use horolog_ke::Trust;
use horolog_nts::Algorithm;

/// Exchanges unless a number is asked for: as many as NTP's clock filter holds (RFC 5905, section
/// 7.2, NSTAGE).
pub const COUNT: u64 = 8;
/// The most exchanges.
pub const COUNT_MAX: u64 = 1_000_000;
/// The most servers: each has a thread.
pub const TARGETS_MAX: usize = 64;
/// The time between exchanges with servers of private addresses unless one is asked for.
pub const INTERVAL_PRIVATE: Duration = Duration::from_millis(200);
/// The least time between exchanges with somebody else's server, and what is taken there.
pub const INTERVAL_POLITE: Duration = Duration::from_secs(1);
/// The least time between exchanges with somebody else's server where they are more than
/// [`COUNT`] (RFC 5905, section 7.2, MINPOLL).
pub(super) const INTERVAL_LONG: Duration = Duration::from_secs(16);
/// The least time between exchanges at all: faster is a load.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// How requests are to be authenticated.
#[derive(Clone, Debug)]
pub struct NtsOptions {
    /// The server for key establishment; `None` takes each target, at [`horolog_ke::PORT`].
    pub establishment: Option<TargetName>,
    /// The name that its certificate is for; `None` takes the one that it is called by.
    pub name: Option<String>,
    /// Whose certificates are trusted.
    pub trust: Trust,
    /// The AEAD algorithms to offer, the most wanted first.
    pub algorithms: Vec<Algorithm>,
}

/// A query as it is asked for. [`QueryOptions::new`] gives defaults to change where needed.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// The servers, at least one.
    pub targets: Vec<TargetName>,
    /// Which addresses of names to take.
    pub family: Option<Family>,
    /// The interface to ask by; `None` follows the routes.
    pub interface: Option<String>,
    /// The user says that public targets are theirs.
    pub i_own_this_target: bool,
    /// Exchanges with each server.
    pub count: u64,
    /// The time between them; `None` takes what suits the servers' addresses.
    pub interval: Option<Duration>,
    /// How long a reply may take.
    pub timeout: Duration,
    /// NTP version of the requests, 1 to 4.
    pub version: u8,
    /// Ask in interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// Authenticate requests.
    pub nts: Option<NtsOptions>,
    /// Take timestamps by the card's own clock where it has one.
    pub hardware_timestamps: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl QueryOptions {
    /// A few plain exchanges with these servers.
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
