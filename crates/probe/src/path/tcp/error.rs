//! Errors for which a TCP path cannot be measured, and their class. Errors during a measurement are
//! in its result.

use horolog_sys::explain::explain_to;
use std::io;
use std::net::SocketAddr;

use horolog_io::target::TargetNameError;
use horolog_time::Span;
use thiserror::Error;

use super::options::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX, SIZES_MAX, TIME_MAX};
use super::protocol::{AdmissionVerdict, TcpWelcome};

/// Reason for which a path cannot be measured.
#[derive(Debug, Error)]
pub enum TcpPathError {
    /// Target without an address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Message size out of range.
    #[error("message sizes are from 1 to {MESSAGE_BYTES_MAX} bytes, not {0}")]
    Size(u64),
    /// Too many sizes, or none.
    #[error("from 1 to {SIZES_MAX} sizes can be measured, not {0}")]
    Sizes(usize),
    /// Number of connections out of range.
    #[error("the number of connections must be from 1 to {CONNECTIONS_MAX}, not {0}")]
    Connections(u32),
    /// Time out of range.
    #[error("a measurement takes from 10 ms to {}, not {}", Span::from(TIME_MAX), Span::from(*.0))]
    Time(std::time::Duration),
    /// Another number out of range.
    #[error("{0}")]
    Number(String),
    /// Connection refused: nothing listens there.
    #[error("no program listens at {0}; start 'horolog path serve' there, or specify its port")]
    Closed(SocketAddr),
    /// Timeout: nothing answers there.
    #[error(
        "no reply from {0} within {wait}; check that it is up and that firewalls pass TCP",
        wait = Span::from(super::client::CONNECT_TIMEOUT)
    )]
    NoReply(SocketAddr),
    /// Another protocol answers there.
    #[error("{0} does not speak the protocol of 'horolog path serve' of this version")]
    Foreign(SocketAddr),
    /// Far end at its connection limit.
    #[error(
        "{address} refused the connection: its limit is {limit} connection{}{}; use fewer \
         --connections, or retry later",
        if *.limit == 1 { "" } else { "s" },
        if *.of_address { " for one address" } else { "" }
    )]
    Busy {
        /// Far end.
        address: SocketAddr,
        /// Its limit of connections.
        limit: u32,
        /// True if only this client's address is at its limit.
        of_address: bool,
    },
    /// Hourly byte budget of the far end used up.
    #[error("{address} has reached its hourly byte limit; try again in {seconds} s")]
    Spent {
        /// Far end.
        address: SocketAddr,
        /// Time until there is more, in seconds.
        seconds: u32,
    },
    /// Limit of the far end below the request.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// Far end.
        address: SocketAddr,
        /// Its limit in words.
        reason: String,
    },
    /// Connection that could not be made or used.
    #[error("{address}: {why}", why = explain_to(.source, .address.ip()))]
    Connection {
        /// Far end.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// Missing prerequisite on this host.
    #[error("{0}")]
    Environment(String),
}

impl TcpPathError {
    /// Returns true if other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage_error(),
            Self::Size(_)
            | Self::Sizes(_)
            | Self::Connections(_)
            | Self::Time(_)
            | Self::Number(_)
            | Self::Refused { .. } => true,
            _ => false,
        }
    }

    /// Converts a system error of a connection to a readable one.
    pub(crate) fn connection(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ConnectionRefused => Self::Closed(address),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::NoReply(address),
            _ => Self::Connection { address, source },
        }
    }

    /// Converts the verdict of the far end.
    pub(crate) fn verdict(address: SocketAddr, welcome: TcpWelcome) -> Option<Self> {
        let limit = welcome.limit;
        let refused = |reason: String| Some(Self::Refused { address, reason });
        match welcome.verdict {
            AdmissionVerdict::Accepted => None,
            AdmissionVerdict::Busy => Some(Self::Busy { address, limit, of_address: false }),
            AdmissionVerdict::BusyForAddress => {
                Some(Self::Busy { address, limit, of_address: true })
            }
            AdmissionVerdict::TooLong => refused(format!(
                "its limit for the duration of a connection is {limit} ms; measure for a shorter \
                 time, or raise its --tcp-time"
            )),
            AdmissionVerdict::TooLarge => {
                refused(format!("its limit for a message is {limit} bytes"))
            }
            AdmissionVerdict::Malformed => Some(Self::Foreign(address)),
            AdmissionVerdict::BudgetExhausted => Some(Self::Spent { address, seconds: limit }),
        }
    }
}
