//! What a server is told of the receiver that it is calibrated by, and the rules that this must
//! keep.

use horolog_source::CalibrationConfig;

use super::ConfigError;

/// Finds the first rule that the options break.
pub(super) fn check(calibration: Option<&CalibrationConfig>) -> Result<(), ConfigError> {
    let checked = calibration.map_or(Ok(()), CalibrationConfig::check);
    checked.map_err(|error| ConfigError::Calibration(error.to_string()))
}
