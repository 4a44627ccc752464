//! Calibration of a server: opened while privileges are available, started with those that remain,
//! and from then on one more time source.

use horolog_source::{Calibration, OpenCalibration, PlausibilityRules};
use horolog_sys::affinity::allowed_cores;

use crate::sources::OpenSources;
use crate::{ServerConfig, StartError};

/// Opens the receiver and the pulse, if configured. Times are judged by `basis`.
pub(crate) fn open(
    config: &ServerConfig,
    basis: PlausibilityRules,
) -> Result<Option<OpenCalibration>, StartError> {
    let Some(calibration) = &config.calibration else { return Ok(None) };
    let has_sources = !config.source.sources.is_empty();
    let opened = OpenCalibration::open(calibration, has_sources, basis);
    opened.map(Some).map_err(|fault| StartError::Source(calibration.name(), fault))
}

/// Starts its thread and adds it to the time sources.
pub(crate) fn start(
    opened: Option<OpenCalibration>,
    sources: OpenSources,
    config: &ServerConfig,
) -> Result<(Option<Calibration>, OpenSources), StartError> {
    let Some(opened) = opened else { return Ok((None, sources)) };
    let started = opened.start(own_core(config)).map_err(StartError::Thread)?;
    let sources = sources.with(started.source());
    Ok((Some(started), sources))
}

/// Returns a core without a pinned socket thread, if there are more cores than such threads.
fn own_core(config: &ServerConfig) -> Option<usize> {
    let cores = allowed_cores().ok()?;
    cores.last().copied().filter(|_| config.threads < cores.len())
}
