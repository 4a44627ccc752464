//! Errors that prevent a UDP path run. Errors during a run are in the result.

use horolog_sys::explain::explain_to;
use std::io;
use std::net::{IpAddr, SocketAddr};

use horolog_io::target::TargetNameError;
use thiserror::Error;

use super::options::{COUNT_MAX, FLOWS_MAX, LENGTH_MAX};

/// Reason why a run cannot start.
#[derive(Debug, Error)]
pub enum UdpPathError {
    /// Target without an address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Datagram length out of range.
    #[error(
        "a datagram cannot have {length} bytes here; choose lengths from {min} to \
             {LENGTH_MAX}"
    )]
    Length {
        /// Requested length in bytes.
        length: u64,
        /// Minimum length of a request in bytes.
        min: u64,
    },
    /// Length below the minimum of the far end, an older version.
    #[error(
        "the far end at {address} does not echo datagrams of {length} bytes; update it, or choose \
         lengths of at least {min}"
    )]
    TooShort {
        /// Address of the far end.
        address: SocketAddr,
        /// Requested length in bytes.
        length: u64,
        /// Minimum length in bytes that the far end echoes.
        min: u64,
    },
    /// No rows, or too many.
    #[error("a run has from 1 to 1000 rows, not {0}")]
    RowCount(usize),
    /// Number of flows out of range.
    #[error("the number of flows must be from 1 to {FLOWS_MAX}, not {0}")]
    FlowCount(u64),
    /// Number of requests out of range.
    #[error("a row has from 1 to {COUNT_MAX} requests, not {0}")]
    RequestCount(u64),
    /// Rate out of range.
    #[error("the rate must be from 1 to 10M requests/s, not {0}")]
    Rate(f64),
    /// Load ratio out of range.
    #[error("the load must be from 0 to 10000 datagrams for each valid one, not {0}")]
    LoadRatio(f64),
    /// DSCP out of range.
    #[error("a DSCP is from 0 to 63, not {0}")]
    Dscp(u8),
    /// Reply timeout out of range.
    #[error("a reply timeout must be from 1 ms to 60 s")]
    Timeout,
    /// Load requested with a STAMP reflector, which would answer it.
    #[error(
        "STAMP does not support --load-destination: a reflector would answer it; use 'horolog path serve' \
             as the far end"
    )]
    StampLoad,
    /// Public STAMP reflector without confirmation that the user owns it.
    #[error(
        "{0} is a public address whose owner may not have agreed to probes; confirm that it is \
         yours with --i-own-this-target"
    )]
    PublicReflector(IpAddr),
    /// Interface that does not exist on this host.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoInterface(String),
    /// No reply from this address, at which the named program should run.
    #[error("no reply from {0}; check that {1} runs there and that firewalls pass UDP")]
    NoReply(SocketAddr, &'static str),
    /// Port closed: no program listens on this address, where the named one should run.
    #[error("no program listens on {0}; start {1} there, or specify its port as HOST:PORT")]
    NothingListens(SocketAddr, &'static str),
    /// Answer of another protocol from this address, where the named program should run.
    #[error("{0} does not answer as a far end of this kind; specify the port of {1}")]
    OtherProtocol(SocketAddr, &'static str),
    /// Far end at its session limit.
    #[error("the far end at {0} is busy with other clients; try again in some seconds")]
    SessionLimitReached(SocketAddr),
    /// Socket that could not be opened, configured or used for sending.
    #[error("cannot send to {address}: {why}", why = explain_to(.source, .address.ip()))]
    Socket {
        /// Address of the far end.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// Broadcast load not possible on the link to the far end.
    #[error("cannot load the path to {0} by broadcast: {1}; use --load-destination unicast")]
    BroadcastUnavailable(SocketAddr, String),
}

impl UdpPathError {
    /// Returns true if the error can be fixed by other options.
    #[must_use]
    pub const fn is_usage_error(&self) -> bool {
        match self {
            Self::Target(error) => error.is_usage_error(),
            Self::NoInterface(_)
            | Self::NoReply(..)
            | Self::NothingListens(..)
            | Self::OtherProtocol(..)
            | Self::SessionLimitReached(_)
            | Self::TooShort { .. }
            | Self::Socket { .. }
            | Self::BroadcastUnavailable(..) => false,
            _ => true,
        }
    }
}
