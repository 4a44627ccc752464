//! Reasons for the loss of an established connection, as text and as a finding.

use std::io;
use std::net::SocketAddr;

use horolog_record::{Finding, FindingCode, Severity};

use super::client::IDLE_TIMEOUT;
use super::error::TcpPathError;
use super::protocol::{ByteBudget, FarEndReport};
use super::run::finding;

/// Reason for which an established connection is unusable.
#[derive(Debug)]
pub(crate) enum ConnectionLoss {
    /// Run is to end.
    Ended,
    /// Bound of the far end reached; its report covers the time before.
    Bound(ByteBudget, Box<FarEndReport>),
    /// Far end or path lost.
    Gone(io::Error),
}

impl From<io::Error> for ConnectionLoss {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl ConnectionLoss {
    /// Returns the loss for the result; `None` if nothing is wrong.
    pub(crate) fn loss(&self) -> Option<EarlyEnd> {
        let gone = |reason: String| Some(EarlyEnd { reason, bound: None });
        match self {
            Self::Ended => None,
            Self::Bound(bound, report) => {
                let bytes = report.bound_bytes;
                let reason = match bound {
                    ByteBudget::Connection => {
                        format!("its limit for a connection is {bytes} bytes")
                    }
                    ByteBudget::Hour => {
                        format!("its limit for all connections is {bytes} bytes in an hour")
                    }
                };
                Some(EarlyEnd { reason, bound: Some(*bound) })
            }
            Self::Gone(error) => match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    gone(format!("no data in either direction for {} s", IDLE_TIMEOUT.as_secs()))
                }
                io::ErrorKind::UnexpectedEof => gone("it closed the connection".to_owned()),
                _ => gone(error.to_string()),
            },
        }
    }
}

impl FarEndReport {
    /// Returns the report if the far end completed the work and did not end at a bound of its own.
    pub(super) fn whole(self) -> Result<Box<Self>, ConnectionLoss> {
        let report = Box::new(self);
        match report.bound {
            None => Ok(report),
            Some(bound) => Err(ConnectionLoss::Bound(bound, report)),
        }
    }
}

/// Reason for which a measurement ended before it was complete, without a request to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EarlyEnd {
    reason: String,
    /// Bound of the far end that was reached, if that is the reason.
    bound: Option<ByteBudget>,
}

impl From<TcpPathError> for EarlyEnd {
    fn from(error: TcpPathError) -> Self {
        let bound = matches!(error, TcpPathError::Spent { .. }).then_some(ByteBudget::Hour);
        Self { reason: error.to_string(), bound }
    }
}

impl EarlyEnd {
    /// Returns the finding; `part` names a part of the measurement, such as a row.
    pub(crate) fn finding(&self, address: SocketAddr, part: &str) -> Finding {
        let (code, what, advice) = match self.bound {
            None => (
                FindingCode::FarEndUnreachable,
                "was lost during the measurement",
                "Check that it still runs.",
            ),
            Some(ByteBudget::Connection) => (
                FindingCode::FarEndLimit,
                "reached its limit",
                "Measure for a shorter time, or raise its --tcp-bytes.",
            ),
            Some(ByteBudget::Hour) => (
                FindingCode::FarEndLimit,
                "reached its limit",
                "Measure later, or raise its --tcp-bytes-per-hour.",
            ),
        };
        let message = format!(
            "The far end {address} {what}: {}. The last {part} covers the time until then, and \
             later {part}s are missing.",
            self.reason
        );
        finding(code, Severity::Error, message, advice)
    }
}
