//! Why a run over a path cannot begin, and whose fault it is. What happens on the way is in the
//! result.

use std::io;
use std::net::{IpAddr, SocketAddr};

use horolog_io::target::TargetNameError;
use thiserror::Error;

use super::options::{COUNT_MAX, FLOWS_MAX, LENGTH_MAX};

/// Why a run cannot begin.
#[derive(Debug, Error)]
pub enum PathError {
    /// The target has no address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// A length that no request can have.
    #[error("a datagram cannot have {length} bytes here; give lengths from {min} to {LENGTH_MAX}")]
    Length {
        /// What was asked for.
        length: u64,
        /// The least that holds what a request has to tell.
        min: u64,
    },
    /// No rows, or too many.
    #[error("a run has from 1 to 1000 rows, not {0}")]
    Rows(usize),
    /// A number of flows that cannot be.
    #[error("the number of flows must be from 1 to {FLOWS_MAX}, not {0}")]
    Flows(u64),
    /// A number of requests that cannot be.
    #[error("a row has from 1 to {COUNT_MAX} requests, not {0}")]
    Count(u64),
    /// A rate that cannot be.
    #[error("the rate must be from 1 to 10M requests/s, not {0}")]
    Rate(f64),
    /// A load that cannot be.
    #[error("the load must be from 0 to 10000 datagrams for each valid one, not {0}")]
    LoadRatio(f64),
    /// A DSCP that cannot be.
    #[error("a DSCP is from 0 to 63, not {0}")]
    Dscp(u8),
    /// A reply timeout that cannot be.
    #[error("a reply timeout must be from 1 ms to 60 s")]
    Timeout,
    /// Load at a reflector of others.
    #[error("load is for the far end of 'horolog path serve'; STAMP would answer it")]
    StampLoad,
    /// A stranger's reflector.
    #[error(
        "{0} is a public address: nothing shows that its owner wants to be asked; say that it is \
         yours with --i-own-this-target"
    )]
    Public(IpAddr),
    /// A link-local address means nothing without an interface.
    #[error("{0} is a link-local address; say on which interface with -i")]
    NeedsInterface(IpAddr),
    /// The interface does not exist.
    #[error("there is no interface '{0}'; 'ip link' shows which there are")]
    NoInterface(String),
    /// Nobody answers.
    #[error("nothing answers at {0}: is {1} running there, and does a firewall let UDP through?")]
    Silent(SocketAddr, &'static str),
    /// Nobody listens.
    #[error("nobody listens at {0}: start {1} there, or give its port as HOST:PORT")]
    Refused(SocketAddr, &'static str),
    /// Somebody else answers.
    #[error("what answers at {0} is no far end of this kind; give the port of {1}")]
    Foreign(SocketAddr, &'static str),
    /// The far end has as many sessions as it takes.
    #[error("the far end at {0} is busy with others; wait some seconds and try again")]
    Full(SocketAddr),
    /// The system refuses.
    #[error("cannot ask {address}: {source}{}", crate::path::way_out(.source, *.address))]
    Socket {
        /// The far end.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The link has no broadcast that could be used.
    #[error("cannot load the path to {0} by broadcast: {1}; give --load unicast")]
    Broadcast(SocketAddr, String),
}

impl PathError {
    /// Whether other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => !matches!(error, TargetNameError::Unresolved { .. }),
            Self::NoInterface(_)
            | Self::Silent(..)
            | Self::Refused(..)
            | Self::Foreign(..)
            | Self::Full(_)
            | Self::Socket { .. }
            | Self::Broadcast(..) => false,
            _ => true,
        }
    }
}
