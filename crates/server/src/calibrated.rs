//! The calibration of a server: opened with everything that needs rights, started with those that
//! are left, and one more source from then on.

use horolog_source::{Calibration, OpenCalibration};
use horolog_sys::affinity::allowed_cores;

use crate::sources::OpenSources;
use crate::{ServerConfig, StartError};

/// Opens the receiver and the pulse, where the configuration names some.
pub(crate) fn open(config: &ServerConfig) -> Result<Option<OpenCalibration>, StartError> {
    let Some(calibration) = &config.calibration else { return Ok(None) };
    let opened = OpenCalibration::open(calibration);
    opened.map(Some).map_err(|fault| StartError::Source(calibration.name(), fault))
}

/// Starts its thread and adds it to the sources.
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

/// A core that no socket thread is tied to, where there are more cores than such threads.
fn own_core(config: &ServerConfig) -> Option<usize> {
    let cores = allowed_cores().ok()?;
    cores.last().copied().filter(|_| config.threads < cores.len())
}
