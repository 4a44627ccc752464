//! chronyd for the source `system`: requests the data of `chronyc tracking` over the command
//! socket.

use horolog_time::Span;
use horolog_wire::chrony::ChronydTracking;
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

use super::slew_estimate::SlewRateEstimator;
use super::{TimeDaemon, query_error};
use crate::{ChronydAddress, ChronydSocket, ClockReadings, SourceError, SourceEstimate};

/// Client of a running chronyd.
pub(super) struct ChronydClient {
    socket: ChronydSocket,
    slew_estimate: SlewRateEstimator,
}

impl ChronydClient {
    pub(super) fn new(address: ChronydAddress) -> Self {
        Self { socket: ChronydSocket::new(address), slew_estimate: SlewRateEstimator::default() }
    }
}

impl TimeDaemon for ChronydClient {
    fn query(&mut self, readings: &ClockReadings) -> Result<SourceEstimate, SourceError> {
        let reply = self
            .socket
            .tracking()
            .map_err(|error| query_error(&self.socket.address_text(), &error))?;
        let unusable_error =
            |what: String| SourceError::Unusable(format!("{} {what}", self.socket.address_text()));
        match reply.tracking {
            Err(status) => {
                Err(unusable_error(format!("refuses to report its state (status {status})")))
            }
            Ok(tracking) if is_synchronised(&tracking) => {
                Ok(source_estimate(&tracking, readings, &mut self.slew_estimate))
            }
            Ok(_) => Err(unusable_error("reports that it is not synchronised".into())),
        }
    }
}

fn is_synchronised(tracking: &ChronydTracking) -> bool {
    tracking.leap != LeapIndicator::Unsynchronised
        && (1..STRATUM_UNSYNCHRONISED).contains(&tracking.stratum)
}

fn source_estimate(
    tracking: &ChronydTracking,
    readings: &ClockReadings,
    slew_estimate: &mut SlewRateEstimator,
) -> SourceEstimate {
    let (slew, uncertainty) = slew_estimate.update(readings, tracking.correction);
    SourceEstimate {
        at: readings.monotonic,
        offset: tracking.correction,
        frequency_ppb: 0,
        slew,
        uncertainty,
        leap: tracking.leap,
        tai_minus_utc_s: None,
        next_leap: None,
        stratum: tracking.stratum,
        reference_id: tracking.reference_id,
        reference: tracking.reference,
        root_delay: tracking.root_delay.max(Span::ZERO),
        root_dispersion: tracking.root_dispersion.max(Span::ZERO),
        is_unconfirmed: false,
        host_clock: None,
    }
}
