//! Why a query cannot begin, and whose fault it is. What happens to single servers is in the
//! result.

use std::net::IpAddr;
use std::time::Duration;

use horolog_io::target::TargetNameError;
use thiserror::Error;

use super::options::{COUNT, COUNT_MAX, INTERVAL_LONG, INTERVAL_MIN, INTERVAL_POLITE, TARGETS_MAX};

/// Why a query cannot begin.
#[derive(Debug, Error)]
pub enum QueryError {
    /// None of the targets has an address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// A number of targets that cannot be.
    #[error("the number of servers must be from 1 to {TARGETS_MAX}, not {0}")]
    Targets(usize),
    /// A number of exchanges that cannot be.
    #[error("the number of exchanges must be from 1 to {COUNT_MAX}, not {0}")]
    Count(u64),
    /// A time between exchanges that cannot be.
    #[error("the interval must be from {INTERVAL_MIN:?} to an hour, not {0:?}")]
    Interval(Duration),
    /// A reply timeout that cannot be.
    #[error("a reply timeout must be from 1 ms to 60 s, not {0:?}")]
    Timeout(Duration),
    /// A version of NTP that has no such requests.
    #[error("NTP version {0} cannot be asked for; give 1 to 4")]
    Version(u8),
    /// NTS is for version 4.
    #[error("NTS is defined for NTP version 4 only, not for version {0}")]
    NtsVersion(u8),
    /// A public server is not to be asked so often.
    #[error(
        "{0} is a public address: ask it no more often than every {INTERVAL_POLITE:?}, and every \
         {INTERVAL_LONG:?} for more than {COUNT} exchanges (--interval), or say that it is yours \
         with --i-own-this-target"
    )]
    Impolite(IpAddr),
    /// A link-local address means nothing without an interface.
    #[error("{0} is a link-local address; say on which interface with -i")]
    NeedsInterface(IpAddr),
    /// The interface does not exist.
    #[error("there is no interface '{0}'; 'ip link' shows which there are")]
    NoInterface(String),
    /// Whoever has to be asked for keys cannot be.
    #[error("cannot ask for NTS keys: {0}")]
    Nts(String),
    /// No random numbers for requests.
    #[error("cannot read random numbers: {0}")]
    Random(String),
}

impl QueryError {
    /// Whether other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => !matches!(error, TargetNameError::Unresolved { .. }),
            Self::NoInterface(_) | Self::Random(_) => false,
            _ => true,
        }
    }
}
