//! Violations of the rules of a configuration, with messages for the user.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_ptp::PtpConfigError;
use horolog_time::Span;
use horolog_xdp::LIST_PREFIXES_MAX;

use super::limits::{BURST_DAYS_MAX, CLIENTS_MAX};
use super::{
    DRIFT_MAX_PPB, NtsConfigError, PAGE_LIVES, SMEARS, THREADS_MAX, TimestampsConfigError,
};

/// Error in a configuration; its text is one line for the user.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// No listen address.
    #[error("no address to listen on; add one with --listen ADDR:PORT")]
    NoListenAddress,
    /// Multicast or broadcast listen address.
    #[error(
        "{0} is not the address of one host; --listen takes an address of this host, 0.0.0.0 \
             or [::]"
    )]
    ListenAddress(SocketAddr),
    /// Duplicate listen address.
    #[error("{0} is specified twice; specify each --listen address once")]
    ListenTwice(SocketAddr),
    /// IPv4-mapped IPv6 listen address.
    #[error("{0} is an IPv4-mapped IPv6 address; write it as --listen {1}")]
    ListenMapped(SocketAddr, SocketAddr),
    /// Link-local listen address without an interface.
    #[error("{0} is link-local and needs its interface; add it, as in \
             --listen '[{ip}%eth0]:{port}'", ip = .0.ip(), port = .0.port())]
    ListenScope(SocketAddr),
    /// Too few or too many threads.
    #[error("unsupported number of threads {0}; --threads takes 1 to {THREADS_MAX}")]
    Threads(usize),
    /// Stratum that must not be claimed.
    #[error("unsupported stratum {0}; --stratum takes 1 (a primary server) to 15")]
    Stratum(u8),
    /// Calibration options that violate a rule.
    #[error("{0}")]
    Calibration(String),
    /// Duplicate time source.
    #[error("the source {0} is specified twice; specify each --source once")]
    SourceTwice(String),
    /// Serial line that two options read.
    #[error(
        "--source {0} would read a serial line that another option reads; omit one of --gnss and \
         --source"
    )]
    LineTwice(String),
    /// Negative root delay or root dispersion.
    #[error("{option} cannot be negative; specify the seconds to the reference clock")]
    NegativeRoot {
        /// Option name.
        option: &'static str,
    },
    /// Test offset beyond half an NTP era.
    #[error("a test offset of {} ns is out of range; --test-offset takes up to 68 \
             years", .0.as_ns())]
    TestOffset(Span),
    /// Test drift above the maximum.
    #[error("a test drift of {0} ppb is out of range; --test-drift takes up to {DRIFT_MAX_PPB}")]
    TestDrift(i64),
    /// Test offset or drift at a publicly reachable address.
    #[error(
        "--test-offset and --test-drift serve wrong time, which {0} could give to third parties; \
         listen on loopback, private, link-local or documentation addresses only"
    )]
    TestInPublic(SocketAddr),
    /// PTP options that violate a rule.
    #[error(transparent)]
    Ptp(#[from] PtpConfigError),
    /// Contradictory timestamp options.
    #[error(transparent)]
    Timestamps(#[from] TimestampsConfigError),
    /// Incompatible options of Network Time Security.
    #[error(transparent)]
    Nts(#[from] NtsConfigError),
    /// Page life that is out of range.
    #[error(
        "the lifetime of a clock page is out of range: {} ms; choose {} to {} ms",
        .0.as_millis(), PAGE_LIVES.start().as_millis(), PAGE_LIVES.end().as_millis()
    )]
    PageLife(Duration),
    /// Limit per client that is out of range.
    #[error(
        "a limit of {0} requests per second is out of range; --limit-rate takes one in an hour \
             to 500k"
    )]
    LimitRate(f64),
    /// Limit for new clients that is out of range.
    #[error(
        "a limit of {0} requests per second is out of range; --limit-new-clients takes 1 to \
             100M"
    )]
    NewClientRate(f64),
    /// Burst that is out of range.
    #[error("a burst of {0} is out of range; --limit-burst takes 1 to 10000")]
    LimitBurst(u32),
    /// Burst that takes too long to accumulate.
    #[error(
        "{burst} requests at {rate} per second take {days:.0} days, and limits cover \
         {BURST_DAYS_MAX}; raise --limit-rate or lower --limit-burst"
    )]
    LimitBurstTime {
        /// Requests at once.
        burst: u32,
        /// Requests per second.
        rate: f64,
        /// Days that the burst takes to accumulate at the rate.
        days: f64,
    },
    /// Idle time that is out of range.
    #[error("an idle time of {} s is out of range; --limit-idle takes 1s to 2592000s (30 \
             days)", .0.as_secs_f64())]
    LimitIdle(Duration),
    /// Too few or too many clients.
    #[error("a table of {0} clients is out of range; --limit-clients takes 1 to {CLIENTS_MAX}")]
    LimitClients(usize),
    /// Prefix lengths that are out of range.
    #[error("--limit-ipv4-prefix takes 8 to 32 and --limit-ipv6-prefix 16 to 128")]
    LimitPrefix,
    /// Prefix that is both allowed and denied.
    #[error("{0} is both allowed and denied; remove it from --allow or --deny")]
    ListedTwice(String),
    /// Too many prefixes.
    #[error("{0} prefixes exceed the limit; --allow and --deny take {LIST_PREFIXES_MAX} together")]
    ListTooLong(usize),
    /// Too many clients.
    #[error(
        "a table of {0} clients is out of range; --interleaved-clients takes 0 to \
             {CLIENTS_MAX}"
    )]
    InterleavedClients(usize),
    /// Smear that is too fast or too slow.
    #[error("a smear of {} s is out of range; --leap-smear takes {} to {} s", .0.as_secs(),
            SMEARS.start().as_secs(), SMEARS.end().as_secs())]
    Smear(Duration),
    /// Smeared time without a list of leap seconds.
    #[error("smeared time at {0} needs the leap seconds in advance; name a list with --leap-file")]
    SmearWithoutFile(SocketAddr),
    /// Smeared listen address although the system clock is smeared already.
    #[error(
        "with --leap-system smears the system clock is already smeared; serve it at {0} with \
         --listen"
    )]
    SmearedTwice(SocketAddr),
    /// Multicast address for metrics.
    #[error("{0} is not the address of one host; --metrics takes an address of this host")]
    MetricsAddress(SocketAddr),
    /// Multicast address for the live page.
    #[error("{0} is not the address of one host; --web takes an address of this host")]
    WebAddress(SocketAddr),
    /// Live page on an address that other hosts can reach, without a token.
    #[error(
        "{0} is reachable from other hosts; add --web-token-file FILE, or use a --web address such \
         as 127.0.0.1:{port}",
        port = .0.port()
    )]
    WebToken(SocketAddr),
}
