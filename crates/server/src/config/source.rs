//! Options for time sources, calibration and the plausibility of times, and their rules.

use std::path::PathBuf;

use horolog_source::{CalibrationConfig, PlausibilityRuleParameters, SourceSpec};
use horolog_time::{Span, Timestamp, Utc};

use super::ConfigError;

/// Options for time sources: the sources, and what is announced of the selected one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceConfig {
    /// Time sources to select from. Without any, the kernel's report at each page update is used;
    /// with [`crate::ClockTrust::Local`] nothing is.
    pub sources: Vec<SourceSpec>,
    /// True to announce the configured stratum instead of that of the selected source.
    pub keep_stratum: bool,
    /// True to announce the configured root delay instead of that of the selected source.
    pub keep_root_delay: bool,
}

impl SourceConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self, calibration: Option<&CalibrationConfig>) -> Result<(), ConfigError> {
        let mut lines = calibration.map(CalibrationConfig::devices).unwrap_or_default();
        for (index, spec) in self.sources.iter().enumerate() {
            if self.sources[..index].iter().any(|earlier| earlier.text == spec.text) {
                return Err(ConfigError::SourceTwice(spec.text.clone()));
            }
            let own = spec.devices();
            if own.iter().any(|line| lines.contains(line)) {
                return Err(ConfigError::LineTwice(spec.text.clone()));
            }
            lines.extend(own);
        }
        Ok(())
    }
}

/// Returns the first rule that the calibration options break.
pub(super) fn check_calibration(
    calibration: Option<&CalibrationConfig>,
) -> Result<(), ConfigError> {
    let checked = calibration.map_or(Ok(()), CalibrationConfig::check);
    checked.map_err(|error| ConfigError::Calibration(error.to_string()))
}

/// Options for the plausibility of times, common to all time sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlausibilityConfig {
    /// Build date of this program; earlier times are implausible.
    pub build: Timestamp<Utc>,
    /// Time after the build date for which times are plausible.
    pub reach: Span,
    /// File in which the time is saved, so that it is known at the next start; none by default.
    pub saved_time: Option<PathBuf>,
}

impl Default for PlausibilityConfig {
    fn default() -> Self {
        let PlausibilityRuleParameters { build, validity: reach, .. } =
            PlausibilityRuleParameters::default();
        Self { build, reach, saved_time: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_configured_once() {
        let sources = |texts: &[&str]| SourceConfig {
            sources: texts.iter().map(|text| text.parse().unwrap()).collect(),
            ..SourceConfig::default()
        };
        assert_eq!(sources(&["system", "system:kernel"]).check(None), Ok(()));
        assert!(sources(&["system", "system"]).check(None).is_err());
        let line = sources(&["gnss:/dev/ttyS0", "gnss:/dev/ttyS0,baud=115200"]).check(None);
        assert!(matches!(line, Err(ConfigError::LineTwice(_))), "{line:?}");
    }
}
