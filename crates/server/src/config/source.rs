//! Options for time sources, and their rules.

use horolog_source::{CalibrationConfig, SourceSpec};

use super::ConfigError;

/// Options for time sources.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceConfig {
    /// Time sources to compare. Without any, the kernel's report is used, read at each page update;
    /// with [`crate::ClockTrust::Local`] none.
    pub sources: Vec<SourceSpec>,
    /// True if the configured stratum is claimed instead of the sources'.
    pub keep_stratum: bool,
    /// True if the configured root delay is claimed instead of the sources'.
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
