//! chronyd as a daemon of the source `system`: requests the data of `chronyc tracking` over its
//! command socket.

use horolog_time::Span;
use horolog_wire::chrony::Tracking;
use horolog_wire::ntp::{LeapIndicator, STRATUM_UNSYNCHRONISED};

use super::slew_estimate::SlewEstimate;
use super::{Daemon, query_error};
use crate::{ChronydAddress, ChronydSocket, ClockReadings, SourceError, SourceEstimate};

/// Client of a running chronyd.
pub(super) struct Chronyd {
    socket: ChronydSocket,
    corrections: SlewEstimate,
}

impl Chronyd {
    pub(super) fn new(address: ChronydAddress) -> Self {
        Self { socket: ChronydSocket::new(address), corrections: SlewEstimate::default() }
    }
}

impl Daemon for Chronyd {
    fn query(&mut self, readings: &ClockReadings) -> Result<SourceEstimate, SourceError> {
        let reply = self
            .socket
            .tracking()
            .map_err(|error| query_error(&self.socket.address_text(), &error))?;
        let unusable =
            |what: String| SourceError::Unusable(format!("{} {what}", self.socket.address_text()));
        match reply.tracking {
            Err(status) => Err(unusable(format!("refuses to report its state (status {status})"))),
            Ok(tracking) if is_synchronised(&tracking) => {
                Ok(report(&tracking, readings, &mut self.corrections))
            }
            Ok(_) => Err(unusable("reports that it is not synchronised".into())),
        }
    }
}

fn is_synchronised(tracking: &Tracking) -> bool {
    tracking.leap != LeapIndicator::Unsynchronised
        && (1..STRATUM_UNSYNCHRONISED).contains(&tracking.stratum)
}

fn report(
    tracking: &Tracking,
    readings: &ClockReadings,
    corrections: &mut SlewEstimate,
) -> SourceEstimate {
    let (slew, uncertainty) = corrections.next(readings, tracking.correction);
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
