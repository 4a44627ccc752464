//! Why a connection that was made is of no more use, in words and as a finding.

use std::io;
use std::net::SocketAddr;

use horolog_record::{Code, Finding, Severity};

use super::client::STALLED;
use super::error::PathError;
use super::protocol::{Bound, Report};
use super::run::finding;

/// Why a connection that was made is of no more use.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The run is to end.
    Ended,
    /// The far end has given what it gives; its report is of what came before.
    Bound(Bound, Box<Report>),
    /// The far end or the path has gone.
    Gone(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl Lost {
    /// As a result tells it; `None` where nothing is wrong.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let gone = |reason: String| Some(Loss { reason, bound: None });
        match self {
            Self::Ended => None,
            Self::Bound(bound, report) => {
                let bytes = report.bound_bytes;
                let reason = match bound {
                    Bound::Connection => format!("a connection may carry {bytes} bytes there"),
                    Bound::Hour => {
                        format!("all connections may carry {bytes} bytes in an hour there")
                    }
                };
                Some(Loss { reason, bound: Some(*bound) })
            }
            Self::Gone(error) => match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    gone(format!("nothing came or went for {} s", STALLED.as_secs()))
                }
                io::ErrorKind::UnexpectedEof => gone("it closed the connection".to_owned()),
                _ => gone(error.to_string()),
            },
        }
    }
}

impl Report {
    /// Itself, where the far end did all that was asked for and did not end at a bound of its own.
    pub(super) fn whole(self) -> Result<Box<Self>, Lost> {
        let report = Box::new(self);
        match report.bound {
            None => Ok(report),
            Some(bound) => Err(Lost::Bound(bound, report)),
        }
    }
}

/// Why a measurement ended before it was whole, and nobody asked it to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Loss {
    reason: String,
    /// The bound of the far end's that was reached, where that is why.
    bound: Option<Bound>,
}

impl From<PathError> for Loss {
    fn from(error: PathError) -> Self {
        let bound = matches!(error, PathError::Spent { .. }).then_some(Bound::Hour);
        Self { reason: error.to_string(), bound }
    }
}

impl Loss {
    /// As a finding; `part` is what the measurement is made of, such as a row.
    pub(crate) fn finding(&self, address: SocketAddr, part: &str) -> Finding {
        let (code, what, advice) = match self.bound {
            None => (
                Code::FarEndVanished,
                "was lost in the middle of the measurement",
                "See whether it still runs.",
            ),
            Some(Bound::Connection) => (
                Code::FarEndLimit,
                "gave no more",
                "Measure for a shorter time, or have it give more with --tcp-bytes.",
            ),
            Some(Bound::Hour) => (
                Code::FarEndLimit,
                "gave no more",
                "Measure later, or have it give more with --tcp-bytes-hour.",
            ),
        };
        let message = format!(
            "The far end {address} {what}: {}. The last {part} is of what came before, and {part}s \
             behind it are missing.",
            self.reason
        );
        finding(code, Severity::Error, message, advice)
    }
}
