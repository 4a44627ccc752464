//! Errors for which a query cannot begin, and their class. Errors of single servers are in the
//! result.

use std::net::IpAddr;
use std::time::Duration;

use horolog_io::target::TargetNameError;
use horolog_time::Span;
use thiserror::Error;

use super::options::{COUNT, COUNT_MAX, INTERVAL_LONG, INTERVAL_MIN, INTERVAL_POLITE, TARGETS_MAX};

/// Reason for which a query cannot begin.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No target has an address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Number of targets out of range.
    #[error("the number of servers must be from 1 to {TARGETS_MAX}, not {0}")]
    Targets(usize),
    /// Number of exchanges out of range.
    #[error("the number of exchanges must be from 1 to {COUNT_MAX}, not {0}")]
    Count(u64),
    /// Interval between exchanges out of range.
    #[error("the interval must be from {} to an hour, not {}", Span::from(INTERVAL_MIN), Span::from(*.0))]
    Interval(Duration),
    /// Reply timeout out of range.
    #[error("a reply timeout must be from 1 ms to 60 s, not {}", Span::from(*.0))]
    Timeout(Duration),
    /// NTP version without such requests.
    #[error("NTP version {0} is not supported; choose 1 to 4")]
    Version(u8),
    /// Version other than 4 with NTS, which requires version 4.
    #[error("NTS is defined for NTP version 4 only, not for version {0}")]
    NtsVersion(u8),
    /// Interval too short for a public server.
    #[error(
        "{0} is a public address: the minimum interval is {polite}, and {long} for more than \
         {COUNT} exchanges (--interval); or confirm that it is yours with --i-own-this-target",
        polite = Span::from(INTERVAL_POLITE),
        long = Span::from(INTERVAL_LONG)
    )]
    Impolite(IpAddr),
    /// Missing interface.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoInterface(String),
    /// Unusable NTS-KE server.
    #[error("cannot request NTS keys: {0}")]
    Nts(String),
    /// No random numbers for requests.
    #[error("cannot read random numbers: {0}")]
    Random(String),
}

impl QueryError {
    /// Returns true if other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage_error(),
            Self::NoInterface(_) | Self::Random(_) => false,
            _ => true,
        }
    }
}
