//! Error of an experiment.

use std::fmt::Display;

use horolog_lab::LabError;
use horolog_load::LoadError;
use horolog_relay::RelayError;

/// Reason why an experiment has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// An option exceeds the limits of the experiment, or contradicts another one.
    #[error("{0}")]
    Options(String),
    /// The host lacks a prerequisite, or a program under test failed.
    #[error("{0}")]
    Host(String),
    /// Lab hosts cannot be created or used.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A load cannot be prepared or run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A relay cannot be started or changed.
    #[error(transparent)]
    Relay(#[from] RelayError),
}

impl ExperimentError {
    pub(crate) fn options(reason: impl Display) -> Self {
        Self::Options(reason.to_string())
    }

    pub(crate) fn host(reason: impl Display) -> Self {
        Self::Host(reason.to_string())
    }

    /// Returns true if the options are wrong, rather than this host lacking something.
    #[must_use]
    pub fn is_usage_error(&self) -> bool {
        match self {
            Self::Options(_) => true,
            Self::Host(_) => false,
            Self::Lab(error) => error.is_usage_error(),
            Self::Load(error) => error.is_usage(),
            Self::Relay(error) => error.is_usage(),
        }
    }
}
