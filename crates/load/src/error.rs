//! Why a run cannot begin or go on, and whose fault it is.

use std::io;
use std::time::Duration;

use horolog_counters::RemoteError;
use horolog_record::Engine;
use horolog_stats::search::ConfigError;
use thiserror::Error;

use crate::capture::CaptureError;
use crate::clients::{ClientsError, LANES_MAX};
use crate::course::CourseError;
use crate::engine::EngineError;
use crate::establishment::CONNECTIONS_MAX;
use crate::mix::MixError;
use crate::nts::NtsError;
use crate::ramp::RampError;
use crate::target::{TargetError, TargetNameError};

/// Why a run cannot begin or go on.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The target cannot be loaded.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The clients cannot be what was asked for.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// The engine cannot be opened, or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The ramp cannot be.
    #[error(transparent)]
    Ramp(#[from] RampError),
    /// The mix cannot be.
    #[error(transparent)]
    Mix(#[from] MixError),
    /// The course cannot be.
    #[error(transparent)]
    Course(#[from] CourseError),
    /// The search cannot be.
    #[error(transparent)]
    Search(#[from] ConfigError),
    /// Requests cannot be authenticated.
    #[error(transparent)]
    Nts(#[from] NtsError),
    /// The page of counters cannot be read.
    #[error(transparent)]
    Counters(#[from] RemoteError),
    /// What was sent and received cannot be kept.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A version of NTP that has no such requests.
    #[error("NTP version {0} cannot be asked for; give 1 to 4")]
    Version(u8),
    /// A number of clients for key establishment that cannot be.
    #[error("the number of connections must be from 1 to {CONNECTIONS_MAX}, not {0}")]
    Connections(usize),
    /// A number of threads that cannot be.
    #[error("the number of threads must be from 1 to {LANES_MAX}, not {0}")]
    Threads(usize),
    /// Clients that never come back, or a target that keeps nothing.
    #[error(
        "interleaved mode takes clients that ask again and a time server; leave out random sources"
    )]
    Interleaved,
    /// PTP's ports are what they are.
    #[error("PTP has the ports 319 and 320; leave out the target's port")]
    PtpPort,
    /// What PTP has no messages for.
    #[error("{0}")]
    Ptp(&'static str),
    /// Clients that are not told apart.
    #[error("single clients cannot be counted among random sources; leave out one of the two")]
    Fairness,
    /// Well-behaved clients that cannot be.
    #[error("well-behaved clients cannot be asked for: {0}")]
    WellBehaved(&'static str),
    /// A reply timeout that cannot be.
    #[error("a reply timeout must be from 1 ms to 60 s, not {0:?}")]
    ReplyTimeout(Duration),
    /// Simulated clients were asked for and no engine for them works.
    #[error(
        "no engine with simulated clients works: {0}; without a source network, sockets are used"
    )]
    NoSimulation(String),
    /// The kernel refused something on the way.
    #[error("cannot {action}: {source}")]
    System {
        /// What was attempted, as a verb phrase.
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
    /// Whether other options would help, rather than another environment.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Target(error) => matches!(
                error,
                TargetError::Name(
                    TargetNameError::Syntax(_)
                        | TargetNameError::OtherFamily(..)
                        | TargetNameError::NotUnicast(_)
                ) | TargetError::Public(_)
                    | TargetError::NeedsInterface(_)
            ),
            Self::Clients(error) => !matches!(error, ClientsError::NoDefault),
            Self::Engine(error) => {
                matches!(error, EngineError::Rate { .. } | EngineError::Window(_))
            }
            Self::Ramp(_)
            | Self::Course(_)
            | Self::Mix(_)
            | Self::Search(_)
            | Self::Version(_)
            | Self::Threads(_)
            | Self::Connections(_)
            | Self::Interleaved
            | Self::PtpPort
            | Self::Ptp(_)
            | Self::Fairness
            | Self::WellBehaved(_)
            | Self::ReplyTimeout(_) => true,
            Self::Nts(error) => error.is_usage(),
            Self::Counters(error) => error.is_usage(),
            Self::NoSimulation(_) | Self::Capture(_) | Self::System { .. } => false,
        }
    }
}

/// Engines that cannot be used, as a list of names, with what stands against all of them: told once
/// where it is the same.
pub(crate) fn by_reason(refused: &[(Engine, String)]) -> Vec<(String, &str)> {
    let mut told: Vec<(String, &str)> = Vec::new();
    for (engine, message) in refused {
        let name = format!("'{}'", engine.name());
        let prefix = format!("engine {name} cannot be used: ");
        let reason = message.strip_prefix(&prefix).unwrap_or(message);
        match told.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => *names = format!("{names} or {name}"),
            None => told.push((name, reason)),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_against_several_engines_is_told_once() {
        let unfit = |engine: Engine, why| {
            (engine, format!("engine '{}' cannot be used: {why}", engine.name()))
        };
        let refused = [
            unfit(Engine::Xdp, "no way; walk"),
            unfit(Engine::Packet, "no way; walk"),
            (Engine::Udp, "cannot open a socket".to_owned()),
        ];
        let told = by_reason(&refused);
        let expected = [("'xdp' or 'packet'", "no way; walk"), ("'udp'", "cannot open a socket")];
        assert_eq!(told.iter().map(|(names, why)| (&**names, *why)).collect::<Vec<_>>(), expected);
    }
}
