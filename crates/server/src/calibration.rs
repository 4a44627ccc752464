//! Calibration of a server's clock: opened while privileges are available, started without them,
//! and from then on a further time source.

use horolog_source::{Calibration, OpenCalibration, PlausibilityRules};
use horolog_sys::affinity::allowed_cores;

use crate::sources::OpenSources;
use crate::{ServerConfig, StartError};

/// Opens the receiver and the pulse input, if configured. `rules` decide which times are plausible.
pub(crate) fn open(
    config: &ServerConfig,
    rules: PlausibilityRules,
) -> Result<Option<OpenCalibration>, StartError> {
    let Some(calibration) = &config.calibration else { return Ok(None) };
    let has_sources = !config.source.sources.is_empty();
    let opened = OpenCalibration::open(calibration, has_sources, rules);
    opened.map(Some).map_err(|fault| StartError::Source(calibration.name(), fault))
}

/// Starts the calibration thread and adds the calibration to the time sources.
pub(crate) fn start(
    opened: Option<OpenCalibration>,
    sources: OpenSources,
    config: &ServerConfig,
) -> Result<(Option<Calibration>, OpenSources), StartError> {
    let Some(opened) = opened else { return Ok((None, sources)) };
    let started = opened.start(unpinned_core(config)).map_err(StartError::Thread)?;
    let sources = sources.with_source(started.source());
    Ok((Some(started), sources))
}

/// Returns a core on which no socket thread is pinned; `None` if there is none.
fn unpinned_core(config: &ServerConfig) -> Option<usize> {
    let cores = allowed_cores().ok()?;
    cores.last().copied().filter(|_| config.threads < cores.len())
}
