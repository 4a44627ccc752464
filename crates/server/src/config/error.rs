//! Which rule a configuration breaks, said so that a user knows what to do.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_time::Span;
use horolog_xdp::LIST_PREFIXES_MAX;

use crate::ptp::PtpConfigError;

use super::limits::{BURST_DAYS_MAX, CLIENTS_MAX};
use super::{
    DRIFT_MAX_PPB, NtsConfigError, PAGE_LIVES, SMEARS, THREADS_MAX, TimestampsConfigError,
};

/// What is wrong with a configuration; its text is one line for the user.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// No address to listen on.
    #[error("there is no address to listen on; give one with --listen ADDR:PORT")]
    NoListenAddress,
    /// An address that no host has.
    #[error("{0} names no single host; --listen takes an address of this machine, 0.0.0.0 or [::]")]
    ListenAddress(SocketAddr),
    /// An address twice.
    #[error("{0} is given twice; give each --listen address once")]
    ListenTwice(SocketAddr),
    /// An IPv4 address written as an IPv6 one.
    #[error("{0} is an IPv4 address written as IPv6; write it as --listen {1}")]
    ListenMapped(SocketAddr, SocketAddr),
    /// A link-local address of no particular link.
    #[error("{0} is link-local and needs its interface; add the number that `ip link` shows, as in \
             --listen '[{ip}%2]:{port}'", ip = .0.ip(), port = .0.port())]
    ListenScope(SocketAddr),
    /// Too few threads or too many.
    #[error("{0} threads cannot be; --threads takes 1 to {THREADS_MAX}")]
    Threads(usize),
    /// A stratum that must not be claimed.
    #[error("stratum {0} cannot be claimed; --stratum takes 1 (a primary server) to 15")]
    Stratum(u8),
    /// A receiver or a pulse that cannot be so.
    #[error("{0}")]
    Calibration(String),
    /// A source twice.
    #[error("the source {0} is given twice; give each --source once")]
    SourceTwice(String),
    /// A receiver's line that two would read.
    #[error(
        "--source {0} would read a line that is read already; a line has one reader, so leave out \
         one of --gnss and --source"
    )]
    LineTwice(String),
    /// A root delay or root dispersion that is negative.
    #[error("{option} cannot be negative; give the seconds to the reference clock")]
    NegativeRoot {
        /// The option.
        option: &'static str,
    },
    /// A test offset that is another one modulo the NTP era.
    #[error("a test offset of {} ns is out of reach; --test-offset takes up to 68 years", .0.as_ns())]
    TestOffset(Span),
    /// A drift that no clock has.
    #[error("a test drift of {0} ppb is out of reach; --test-drift takes up to {DRIFT_MAX_PPB}")]
    TestDrift(i64),
    /// Wrong time where strangers could ask for it.
    #[error(
        "--test-offset and --test-drift serve wrong time, which {0} could give to strangers; \
             listen on loopback, private, link-local or documentation addresses only"
    )]
    TestInPublic(SocketAddr),
    /// Options for PTP that cannot be.
    #[error(transparent)]
    Ptp(#[from] PtpConfigError),
    /// Timestamps that contradict one another.
    #[error(transparent)]
    Timestamps(#[from] TimestampsConfigError),
    /// Options of Network Time Security that do not go together.
    #[error(transparent)]
    Nts(#[from] NtsConfigError),
    /// A page that would live too briefly or too long.
    #[error("a clock page cannot live {} ms; give {} to {} ms", .0.as_millis(),
            PAGE_LIVES.start().as_millis(), PAGE_LIVES.end().as_millis())]
    PageLife(Duration),
    /// A limit for each client that is out of range.
    #[error("{0} requests per second cannot be; --limit-rate takes one in an hour to 500k")]
    LimitRate(f64),
    /// A limit for newcomers that is out of range.
    #[error("{0} requests per second cannot be; --limit-newcomers takes 1 to 100M")]
    NewcomerRate(f64),
    /// A burst that is out of range.
    #[error("a burst of {0} cannot be; --limit-burst takes 1 to 10000")]
    LimitBurst(u32),
    /// A burst that takes too long to save up.
    #[error(
        "{burst} requests at {rate} in a second take {days:.0} days, and limits look back for \
         {BURST_DAYS_MAX}; give a higher --limit-rate or a lower --limit-burst"
    )]
    LimitBurstTime {
        /// Requests at once.
        burst: u32,
        /// Requests per second.
        rate: f64,
        /// Both together.
        days: f64,
    },
    /// An idle time that is out of range.
    #[error("{} s of silence cannot be; --limit-idle takes 1s to 2592000s (30 days)", .0.as_secs_f64())]
    LimitIdle(Duration),
    /// Too few clients or too many.
    #[error("room for {0} clients cannot be; --limit-clients takes 1 to {CLIENTS_MAX}")]
    LimitClients(usize),
    /// Prefix lengths that are out of range.
    #[error("--limit-ipv4-prefix takes 8 to 32 and --limit-ipv6-prefix 16 to 128")]
    LimitPrefix,
    /// A prefix that is allowed and denied.
    #[error("{0} is both allowed and denied; take it out of --allow or --deny")]
    ListedTwice(String),
    /// More prefixes than there is room for.
    #[error("{0} prefixes are too many; --allow and --deny take {LIST_PREFIXES_MAX} together")]
    ListTooLong(usize),
    /// Too many clients.
    #[error("room for {0} clients cannot be; --interleaved-clients takes 0 to {CLIENTS_MAX}")]
    InterleavedClients(usize),
    /// A smear that is too fast or too slow.
    #[error("a smear cannot last {} s; --leap-smear takes {} to {} s", .0.as_secs(),
            SMEARS.start().as_secs(), SMEARS.end().as_secs())]
    Smear(Duration),
    /// A smear of leap seconds that nobody knows in time.
    #[error("smeared time at {0} needs the leap seconds in advance; name a list with --leap-file")]
    SmearWithoutFile(SocketAddr),
    /// A smear of a clock that is smeared.
    #[error(
        "with --leap-system smears the system clock is smeared already; serve it at {0} with \
         --listen"
    )]
    SmearedTwice(SocketAddr),
    /// Metrics at an address that no host has.
    #[error("{0} names no single host; --metrics takes an address of this machine")]
    MetricsAddress(SocketAddr),
    /// The same for the live page.
    #[error("{0} names no single host; --web takes an address of this machine")]
    WebAddress(SocketAddr),
    /// A live page that anyone could see.
    #[error(
        "{0} can be reached from other machines; give --web-token-file FILE with it, or give --web \
         an address such as 127.0.0.1:{port}",
        port = .0.port()
    )]
    WebToken(SocketAddr),
}
