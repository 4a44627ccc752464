//! chronyd, asked over its command socket what `chronyc tracking` shows.

use horolog_time::Span;
use horolog_wire::chrony::Tracking;
use horolog_wire::ntp::{Leap, STRATUM_UNSYNCHRONISED};

use super::corrections::Corrections;
use super::{Daemon, silent};
use crate::{ChronydAddress, CommandSocket, Fault, Look, Report};

/// A running chronyd.
pub(super) struct Chronyd {
    socket: CommandSocket,
    corrections: Corrections,
}

impl Chronyd {
    pub(super) fn new(address: ChronydAddress) -> Self {
        Self { socket: CommandSocket::new(address), corrections: Corrections::default() }
    }
}

impl Daemon for Chronyd {
    fn ask(&mut self, look: &Look) -> Result<Report, Fault> {
        let reply = self.socket.tracking().map_err(|error| silent(&self.socket.whom(), &error))?;
        let unusable = |what: String| Fault::Unusable(format!("{} {what}", self.socket.whom()));
        match reply.tracking {
            Err(status) => Err(unusable(format!("refuses to say its state (status {status})"))),
            Ok(tracking) if is_synchronised(&tracking) => {
                Ok(report(&tracking, look, &mut self.corrections))
            }
            Ok(_) => Err(unusable("says that it is not synchronised".into())),
        }
    }
}

fn is_synchronised(tracking: &Tracking) -> bool {
    tracking.leap != Leap::Unsynchronised && (1..STRATUM_UNSYNCHRONISED).contains(&tracking.stratum)
}

fn report(tracking: &Tracking, look: &Look, corrections: &mut Corrections) -> Report {
    let (slew, uncertainty) = corrections.next(look, tracking.correction);
    Report {
        at: look.monotonic,
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
    }
}
