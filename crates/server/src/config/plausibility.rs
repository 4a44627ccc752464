//! Options for the plausibility of times, common to all time sources.

use std::path::PathBuf;

use horolog_source::Plausibility;
use horolog_time::{Span, Timestamp, Utc};

/// Options for the plausibility of times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlausibilityConfig {
    /// Build date; earlier times are implausible.
    pub build: Timestamp<Utc>,
    /// Largest plausible distance after the build date.
    pub reach: Span,
    /// File in which the time is saved while the server is down; none by default.
    pub saved_time: Option<PathBuf>,
}

impl Default for PlausibilityConfig {
    fn default() -> Self {
        let Plausibility { build, reach, .. } = Plausibility::default();
        Self { build, reach, saved_time: None }
    }
}
