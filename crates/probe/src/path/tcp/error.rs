//! Why a path cannot be measured, and whose fault it is. What happens in the middle of a
//! measurement is in its result.

use std::io;
use std::net::SocketAddr;

use horolog_io::target::TargetNameError;
use thiserror::Error;

use super::options::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX, SIZES_MAX, TIME_MAX};
use super::protocol::{Verdict, Welcome};

/// Why a path cannot be measured.
#[derive(Debug, Error)]
pub enum PathError {
    /// The target has no address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Sizes that cannot be.
    #[error("messages have from 1 to {MESSAGE_BYTES_MAX} bytes, not {0}")]
    Size(u64),
    /// Too many or none of them.
    #[error("from 1 to {SIZES_MAX} sizes can be measured, not {0}")]
    Sizes(usize),
    /// A number of connections that cannot be.
    #[error("the number of connections must be from 1 to {CONNECTIONS_MAX}, not {0}")]
    Connections(u32),
    /// A time that cannot be.
    #[error("a measurement takes from 10 ms to {TIME_MAX:?}, not {0:?}")]
    Time(std::time::Duration),
    /// A number of something else that cannot be.
    #[error("{0}")]
    Number(String),
    /// Nothing listens there.
    #[error("nothing listens at {0}; start 'horolog path serve' there, or name its port")]
    Closed(SocketAddr),
    /// Nothing answers there.
    #[error(
        "{0} does not answer within {wait:?}; is it up, and does a firewall let TCP through?",
        wait = super::client::CONNECT_PATIENCE
    )]
    Silent(SocketAddr),
    /// Something else answers there.
    #[error("what listens at {0} is no 'horolog path serve' of this version")]
    Foreign(SocketAddr),
    /// The far end has enough to do.
    #[error(
        "{address} refuses: it takes {limit} connection{}{} at a time; ask for fewer with \
         --connections, or try later",
        if *.limit == 1 { "" } else { "s" },
        if *.of_address { " of one address" } else { "" }
    )]
    Busy {
        /// Where it is.
        address: SocketAddr,
        /// How many it takes.
        limit: u32,
        /// Whether only this address has too many.
        of_address: bool,
    },
    /// The far end has carried what it carries in an hour.
    #[error(
        "{address} has carried all the bytes that it carries in an hour; try again in {seconds} s"
    )]
    Spent {
        /// Where it is.
        address: SocketAddr,
        /// When there is more.
        seconds: u32,
    },
    /// The far end gives less than was asked for.
    #[error("{address} refuses: {reason}")]
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// Its limit in words.
        reason: String,
    },
    /// The connection could not be made or used.
    #[error("{address}: {source}{}", crate::path::way_out(.source, *.address))]
    Connection {
        /// Where it leads.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// This machine lacks something.
    #[error("{0}")]
    Environment(String),
}

impl PathError {
    /// Whether other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => !matches!(error, TargetNameError::Unresolved { .. }),
            Self::Size(_)
            | Self::Sizes(_)
            | Self::Connections(_)
            | Self::Time(_)
            | Self::Number(_)
            | Self::Refused { .. } => true,
            _ => false,
        }
    }

    /// What the system said of a connection, as a person needs it.
    pub(crate) fn connection(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ConnectionRefused => Self::Closed(address),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Silent(address),
            _ => Self::Connection { address, source },
        }
    }

    /// What the far end said.
    pub(crate) fn verdict(address: SocketAddr, welcome: Welcome) -> Option<Self> {
        let limit = welcome.limit;
        let refused = |reason: String| Some(Self::Refused { address, reason });
        match welcome.verdict {
            Verdict::Accepted => None,
            Verdict::Busy => Some(Self::Busy { address, limit, of_address: false }),
            Verdict::BusyForAddress => Some(Self::Busy { address, limit, of_address: true }),
            Verdict::TooLong => refused(format!(
                "it lets a connection last {limit} ms; ask for less, or have it allow more with \
                     --tcp-time"
            )),
            Verdict::TooLarge => refused(format!("it takes messages of up to {limit} bytes")),
            Verdict::Malformed => Some(Self::Foreign(address)),
            Verdict::Spent => Some(Self::Spent { address, seconds: limit }),
        }
    }
}
