//! Early end of a measurement on an established connection: reason, text and finding.

use std::io;
use std::net::SocketAddr;

use horolog_record::{Finding, FindingCode, Severity};

use super::client::IDLE_TIMEOUT;
use super::error::TcpPathError;
use super::protocol::{ByteBudgetKind, FarEndReport};
use super::run::finding;

/// Reason why an established connection can no longer be used.
#[derive(Debug)]
pub(crate) enum ConnectionEndReason {
    /// Requested end of the run.
    RunEnded,
    /// Byte budget of the far end exhausted; its report covers the time before.
    BudgetReached(ByteBudgetKind, Box<FarEndReport>),
    /// Connection or far end lost.
    ConnectionLost(io::Error),
}

impl From<io::Error> for ConnectionEndReason {
    fn from(error: io::Error) -> Self {
        Self::ConnectionLost(error)
    }
}

impl ConnectionEndReason {
    /// Returns the early end for the result; `None` if the end was requested.
    pub(crate) fn early_end(&self) -> Option<MeasurementEarlyEndReason> {
        let gone = |reason: String| Some(MeasurementEarlyEndReason { reason, budget: None });
        match self {
            Self::RunEnded => None,
            Self::BudgetReached(bound, report) => {
                let bytes = report.budget_bytes;
                let reason = match bound {
                    ByteBudgetKind::Connection => {
                        format!("its limit for a connection is {bytes} bytes")
                    }
                    ByteBudgetKind::Hour => {
                        format!("its limit for all connections is {bytes} bytes in an hour")
                    }
                };
                Some(MeasurementEarlyEndReason { reason, budget: Some(*bound) })
            }
            Self::ConnectionLost(error) => match error.kind() {
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
    /// Returns the report, or an error if a byte budget was exhausted before the job was complete.
    pub(super) fn into_complete(self) -> Result<Box<Self>, ConnectionEndReason> {
        let report = Box::new(self);
        match report.exhausted_budget {
            None => Ok(report),
            Some(bound) => Err(ConnectionEndReason::BudgetReached(bound, report)),
        }
    }
}

/// Reason why a measurement ended before it was complete, other than a requested end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MeasurementEarlyEndReason {
    reason: String,
    /// Exhausted byte budget of the far end, if that is the reason.
    budget: Option<ByteBudgetKind>,
}

impl From<TcpPathError> for MeasurementEarlyEndReason {
    fn from(error: TcpPathError) -> Self {
        let bound =
            matches!(error, TcpPathError::BudgetExhausted { .. }).then_some(ByteBudgetKind::Hour);
        Self { reason: error.to_string(), budget: bound }
    }
}

impl MeasurementEarlyEndReason {
    /// Returns the finding; `part` is what the measurement consists of, such as "row".
    pub(crate) fn finding(&self, address: SocketAddr, part: &str) -> Finding {
        let (code, what, advice) = match self.budget {
            None => (
                FindingCode::FarEndUnreachable,
                "was lost during the measurement",
                "Check that it still runs.",
            ),
            Some(ByteBudgetKind::Connection) => (
                FindingCode::FarEndLimit,
                "reached its limit",
                "Measure for a shorter time, or raise its --tcp-bytes.",
            ),
            Some(ByteBudgetKind::Hour) => (
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
