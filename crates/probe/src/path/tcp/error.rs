//! Errors that prevent a TCP path measurement. Errors during a measurement are in its result.

use horolog_sys::explain::explain_to;
use std::io;
use std::net::SocketAddr;

use horolog_io::target::TargetNameError;
use horolog_time::Span;
use thiserror::Error;

use super::options::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX, SIZES_MAX, TIME_MAX};
use super::protocol::{AdmissionVerdict, TcpWelcome};

/// Reason why a TCP path cannot be measured.
#[derive(Debug, Error)]
pub enum TcpPathError {
    /// Target without an address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Message size out of range.
    #[error("message sizes are from 1 to {MESSAGE_BYTES_MAX} bytes, not {0}")]
    MessageSize(u64),
    /// Too many sizes, or none.
    #[error("from 1 to {SIZES_MAX} sizes can be measured, not {0}")]
    SizeCount(usize),
    /// Number of connections out of range.
    #[error("the number of connections must be from 1 to {CONNECTIONS_MAX}, not {0}")]
    ConnectionCount(u32),
    /// Time out of range.
    #[error("a measurement takes from 10 ms to {}, not {}", Span::from(TIME_MAX), Span::from(*.0))]
    Duration(std::time::Duration),
    /// Other number out of range; the text says which.
    #[error("{0}")]
    InvalidNumber(String),
    /// Connection refused: no program listens on the address.
    #[error("no program listens on {0}; start 'horolog path serve' there, or specify its port")]
    NothingListens(SocketAddr),
    /// No answer within the timeout.
    #[error(
        "no reply from {0} within {wait}; check that it is up and that firewalls pass TCP",
        wait = Span::from(super::client::CONNECT_TIMEOUT)
    )]
    NoReply(SocketAddr),
    /// Answer of another protocol.
    #[error("{0} does not speak the protocol of 'horolog path serve' of this version")]
    OtherProtocol(SocketAddr),
    /// Far end at its connection limit.
    #[error(
        "{address} refused the connection: its limit is {limit} connection{}{}; use fewer \
         --connections, or retry later",
        if *.limit == 1 { "" } else { "s" },
        if *.of_address { " for one address" } else { "" }
    )]
    ConnectionLimitReached {
        /// Address of the far end.
        address: SocketAddr,
        /// Far end's connection limit.
        limit: u32,
        /// True if only this client's address is at its limit.
        of_address: bool,
    },
    /// Hourly byte budget of the far end exhausted.
    #[error("{address} has reached its hourly byte limit; try again in {seconds} s")]
    BudgetExhausted {
        /// Address of the far end.
        address: SocketAddr,
        /// Time until it suffices for another connection, in seconds.
        seconds: u32,
    },
    /// Request above a limit of the far end.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// Address of the far end.
        address: SocketAddr,
        /// Limit that was exceeded.
        reason: String,
    },
    /// Connection that could not be made or used.
    #[error("{address}: {why}", why = explain_to(.source, .address.ip()))]
    Connection {
        /// Address of the far end.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// Missing prerequisite on this host.
    #[error("{0}")]
    Environment(String),
}

impl TcpPathError {
    /// Returns true if the error can be fixed by other options.
    #[must_use]
    pub const fn is_usage_error(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage_error(),
            Self::MessageSize(_)
            | Self::SizeCount(_)
            | Self::ConnectionCount(_)
            | Self::Duration(_)
            | Self::InvalidNumber(_)
            | Self::Refused { .. } => true,
            _ => false,
        }
    }

    /// Returns the error for an I/O error while connecting or in the exchange of hello and welcome.
    pub(crate) fn from_io_error(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ConnectionRefused => Self::NothingListens(address),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::NoReply(address),
            _ => Self::Connection { address, source },
        }
    }

    /// Returns the error for a refusal of the far end; `None` if it accepted.
    pub(crate) fn from_welcome(address: SocketAddr, welcome: TcpWelcome) -> Option<Self> {
        let limit = welcome.limit;
        let refused = |reason: String| Some(Self::Refused { address, reason });
        match welcome.verdict {
            AdmissionVerdict::Accepted => None,
            AdmissionVerdict::ConnectionLimit => {
                Some(Self::ConnectionLimitReached { address, limit, of_address: false })
            }
            AdmissionVerdict::AddressConnectionLimit => {
                Some(Self::ConnectionLimitReached { address, limit, of_address: true })
            }
            AdmissionVerdict::TooLong => refused(format!(
                "its limit for the duration of a connection is {limit} ms; measure for a shorter \
                 time, or raise its --tcp-time"
            )),
            AdmissionVerdict::TooLarge => {
                refused(format!("its limit for a message is {limit} bytes"))
            }
            AdmissionVerdict::InvalidHello => Some(Self::OtherProtocol(address)),
            AdmissionVerdict::BudgetExhausted => {
                Some(Self::BudgetExhausted { address, seconds: limit })
            }
        }
    }
}
