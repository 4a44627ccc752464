//! Errors that prevent a query. Errors of individual servers are in the result.

use std::net::IpAddr;
use std::time::Duration;

use horolog_io::target::TargetNameError;
use horolog_time::Span;
use thiserror::Error;

use super::options::{COUNT, COUNT_MAX, INTERVAL_LONG, INTERVAL_MIN, INTERVAL_POLITE, TARGETS_MAX};

/// Reason why a query cannot start.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No target has an address, or a target's address is not unicast.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Number of targets out of range.
    #[error("the number of servers must be from 1 to {TARGETS_MAX}, not {0}")]
    TargetCount(usize),
    /// Number of exchanges out of range.
    #[error("the number of exchanges must be from 1 to {COUNT_MAX}, not {0}")]
    ExchangeCount(u64),
    /// Interval between exchanges out of range.
    #[error("the interval must be from {} to an hour, not {}", Span::from(INTERVAL_MIN), Span::from(*.0))]
    Interval(Duration),
    /// Reply timeout out of range.
    #[error("a reply timeout must be from 1 ms to 60 s, not {}", Span::from(*.0))]
    Timeout(Duration),
    /// Unsupported NTP version.
    #[error("NTP version {0} is not supported; choose 1 to 4")]
    Version(u8),
    /// NTS with an NTP version other than 4.
    #[error("NTS is defined for NTP version 4 only, not for version {0}")]
    NtsVersion(u8),
    /// Interval too short for a public server.
    #[error(
        "{0} is a public address: the minimum interval is {polite}, and {long} for more than \
         {COUNT} exchanges (--interval); or confirm that it is yours with --i-own-this-target",
        polite = Span::from(INTERVAL_POLITE),
        long = Span::from(INTERVAL_LONG)
    )]
    IntervalTooShort(IpAddr),
    /// Interface that does not exist on this host.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoInterface(String),
    /// NTS options that cannot be used, with the reason.
    #[error("cannot request NTS keys: {0}")]
    Nts(String),
    /// Random numbers not available.
    #[error("cannot read random numbers: {0}")]
    Random(String),
}

impl QueryError {
    /// Returns true if the error can be fixed by other options.
    #[must_use]
    pub const fn is_usage_error(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage_error(),
            Self::NoInterface(_) | Self::Random(_) => false,
            _ => true,
        }
    }
}
