//! Errors for which a run cannot begin or continue, and their cause: usage or environment.

use horolog_sys::explain::explain;
use std::io;
use std::time::Duration;

use horolog_counters::RemoteSnapshotError;
use horolog_record::LoadEngineKind;
use horolog_stats::search::SearchConfigError;
use horolog_time::Span;
use thiserror::Error;

use crate::capture::CaptureError;
use crate::clients::{LANES_MAX, SimulatedClientsError};
use crate::engine::EngineError;
use crate::load_profile::LoadProfileError;
use crate::mix::MixError;
use crate::nts::NtsError;
use crate::nts_ke::CONNECTIONS_MAX;
use crate::ramp::RampError;
use crate::target::{TargetError, TargetNameError};

/// Reason for which a run cannot begin or continue.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The target cannot be loaded.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The requested clients are invalid.
    #[error(transparent)]
    Clients(#[from] SimulatedClientsError),
    /// The engine cannot be opened, or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The ramp is invalid.
    #[error(transparent)]
    Ramp(#[from] RampError),
    /// The mix is invalid.
    #[error(transparent)]
    Mix(#[from] MixError),
    /// The load profile is invalid.
    #[error(transparent)]
    Profile(#[from] LoadProfileError),
    /// The search settings are invalid.
    #[error(transparent)]
    Search(#[from] SearchConfigError),
    /// NTS sessions for the requests are unavailable, or the options exclude NTS.
    #[error(transparent)]
    Nts(#[from] NtsError),
    /// The remote counters cannot be read.
    #[error(transparent)]
    Counters(#[from] RemoteSnapshotError),
    /// The packet capture failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The NTP version is not 1 to 4.
    #[error("NTP version {0} is not supported; choose 1 to 4")]
    Version(u8),
    /// Number of NTS-KE clients out of range.
    #[error("the number of connections must be from 1 to {CONNECTIONS_MAX}, not {0}")]
    Connections(usize),
    /// Number of threads out of range.
    #[error("the number of threads must be from 1 to {LANES_MAX}, not {0}")]
    Threads(usize),
    /// Interleaved mode with random sources.
    #[error(
        "interleaved mode requires an NTP server and clients that send more than once; omit random \
         sources"
    )]
    Interleaved,
    /// The PTP ports are fixed.
    #[error("PTP uses ports 319 and 320; omit the target's port")]
    PtpPort,
    /// PTP does not support a combination of options.
    #[error("{0}")]
    Ptp(&'static str),
    /// Per-client counts were requested for random sources.
    #[error("per-client counts are unavailable with random sources; omit one of the two")]
    Fairness,
    /// The compliant clients are invalid.
    #[error("invalid compliant clients: {0}")]
    CompliantClients(&'static str),
    /// Reply timeout out of range.
    #[error("a reply timeout must be from 1 ms to 60 s, not {}", Span::from(*.0))]
    ReplyTimeout(Duration),
    /// Simulated clients were requested and no engine for them works.
    #[error(
        "no engine supports simulated clients here: {0}; omit the source network to use sockets"
    )]
    NoSimulation(String),
    /// The kernel refused an operation.
    #[error("cannot {action}: {why}", why = explain(.source))]
    System {
        /// Attempted operation, as a verb phrase.
        action: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl From<TargetNameError> for LoadError {
    fn from(error: TargetNameError) -> Self {
        Self::Target(error.into())
    }
}

impl LoadError {
    /// Returns true if other options can avoid the error; false if the environment must change.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(TargetError::Name(error)) => error.is_usage_error(),
            Self::Target(error) => matches!(error, TargetError::Public(_)),
            Self::Clients(error) => !matches!(error, SimulatedClientsError::NoDefault),
            Self::Engine(error) => {
                matches!(error, EngineError::Rate { .. } | EngineError::Window(_))
            }
            Self::Ramp(_)
            | Self::Profile(_)
            | Self::Mix(_)
            | Self::Search(_)
            | Self::Version(_)
            | Self::Threads(_)
            | Self::Connections(_)
            | Self::Interleaved
            | Self::PtpPort
            | Self::Ptp(_)
            | Self::Fairness
            | Self::CompliantClients(_)
            | Self::ReplyTimeout(_) => true,
            Self::Nts(error) => error.is_usage(),
            Self::Counters(error) => error.is_usage(),
            Self::NoSimulation(_) | Self::Capture(_) | Self::System { .. } => false,
        }
    }
}

/// Groups unusable engines by reason. Returns pairs of the engines' names, joined by "or", and
/// their common reason.
pub(crate) fn group_by_reason(refused: &[(LoadEngineKind, String)]) -> Vec<(String, &str)> {
    let mut grouped: Vec<(String, &str)> = Vec::new();
    for (engine, message) in refused {
        let name = format!("'{}'", engine.name());
        let prefix = format!("engine {name} is unavailable: ");
        let reason = message.strip_prefix(&prefix).unwrap_or(message);
        match grouped.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => *names = format!("{names} or {name}"),
            None => grouped.push((name, reason)),
        }
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_engines_is_reported_once() {
        let unfit = |engine: LoadEngineKind, why| {
            (engine, format!("engine '{}' is unavailable: {why}", engine.name()))
        };
        let refused = [
            unfit(LoadEngineKind::Xdp, "no way; walk"),
            unfit(LoadEngineKind::Packet, "no way; walk"),
            (LoadEngineKind::Udp, "cannot open a socket".to_owned()),
        ];
        let grouped = group_by_reason(&refused);
        let expected = [("'xdp' or 'packet'", "no way; walk"), ("'udp'", "cannot open a socket")];
        assert_eq!(
            grouped.iter().map(|(names, why)| (&**names, *why)).collect::<Vec<_>>(),
            expected
        );
    }
}
