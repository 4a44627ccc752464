//! Errors for which a UDP path run cannot begin, and their class. Errors during a run are in the
//! result.

use horolog_sys::explain::explain_to;
use std::io;
use std::net::{IpAddr, SocketAddr};

use horolog_io::target::TargetNameError;
use thiserror::Error;

use super::options::{COUNT_MAX, FLOWS_MAX, LENGTH_MAX};

/// Reason for which a run cannot begin.
#[derive(Debug, Error)]
pub enum UdpPathError {
    /// Target without an address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Length out of range for a request.
    #[error(
        "a datagram cannot have {length} bytes here; choose lengths from {min} to \
             {LENGTH_MAX}"
    )]
    Length {
        /// Requested length.
        length: u64,
        /// Least length that holds a request.
        min: u64,
    },
    /// Far end of an older version, which does not echo probes this short.
    #[error(
        "the far end at {address} does not echo datagrams of {length} bytes; update it, or choose \
         lengths of at least {min}"
    )]
    TooShort {
        /// Far end.
        address: SocketAddr,
        /// Requested length.
        length: u64,
        /// Least length that it echoes.
        min: u64,
    },
    /// No rows, or too many.
    #[error("a run has from 1 to 1000 rows, not {0}")]
    Rows(usize),
    /// Number of flows out of range.
    #[error("the number of flows must be from 1 to {FLOWS_MAX}, not {0}")]
    Flows(u64),
    /// Number of requests out of range.
    #[error("a row has from 1 to {COUNT_MAX} requests, not {0}")]
    Count(u64),
    /// Rate out of range.
    #[error("the rate must be from 1 to 10M requests/s, not {0}")]
    Rate(f64),
    /// Load out of range.
    #[error("the load must be from 0 to 10000 datagrams for each valid one, not {0}")]
    LoadRatio(f64),
    /// DSCP out of range.
    #[error("a DSCP is from 0 to 63, not {0}")]
    Dscp(u8),
    /// Reply timeout out of range.
    #[error("a reply timeout must be from 1 ms to 60 s")]
    Timeout,
    /// Load to a STAMP reflector.
    #[error(
        "STAMP does not support --load-destination: a reflector would answer it; use 'horolog path serve' \
             as the far end"
    )]
    StampLoad,
    /// Public reflector without confirmation of ownership.
    #[error(
        "{0} is a public address whose owner may not have agreed to probes; confirm that it is \
         yours with --i-own-this-target"
    )]
    Public(IpAddr),
    /// Missing interface.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoInterface(String),
    /// No reply.
    #[error("no reply from {0}; check that {1} runs there and that firewalls pass UDP")]
    NoReply(SocketAddr, &'static str),
    /// No listener.
    #[error("no program listens at {0}; start {1} there, or specify its port as HOST:PORT")]
    Refused(SocketAddr, &'static str),
    /// Reply of another program.
    #[error("{0} does not answer as a far end of this kind; specify the port of {1}")]
    Foreign(SocketAddr, &'static str),
    /// Far end at its session limit.
    #[error("the far end at {0} is busy with other clients; try again in some seconds")]
    Full(SocketAddr),
    /// Socket error.
    #[error("cannot send to {address}: {why}", why = explain_to(.source, .address.ip()))]
    Socket {
        /// Far end.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// Link without a usable broadcast.
    #[error("cannot load the path to {0} by broadcast: {1}; use --load-destination unicast")]
    Broadcast(SocketAddr, String),
}

impl UdpPathError {
    /// Returns true if other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage_error(),
            Self::NoInterface(_)
            | Self::NoReply(..)
            | Self::Refused(..)
            | Self::Foreign(..)
            | Self::Full(_)
            | Self::TooShort { .. }
            | Self::Socket { .. }
            | Self::Broadcast(..) => false,
            _ => true,
        }
    }
}
