//! Rules for the calibration options.

use horolog_source::CalibrationConfig;

use super::ConfigError;

/// Returns the first rule that the options break.
pub(super) fn check(calibration: Option<&CalibrationConfig>) -> Result<(), ConfigError> {
    let checked = calibration.map_or(Ok(()), CalibrationConfig::check);
    checked.map_err(|error| ConfigError::Calibration(error.to_string()))
}
