//! PHC of a NIC that timestamps received packets: the switch for hardware timestamps, and the
//! clock's lead over UTC in whole seconds.

use std::io;
use std::path::PathBuf;

use horolog_record::LoadEngineKind as Kind;
use horolog_sys::hardware_timestamps::{HardwareTimestamps, Purpose};
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::Span;

use super::{EngineError, unfit};
use crate::offset::{self, OffsetPlan};
use crate::plan::RunPlan;
use crate::target::Route;

/// Remedy if the NIC does not support it.
const REMEDY: &str = "omit hardware timestamps to use kernel timestamps";

/// Enabled hardware timestamps; dropping it restores the previous setting.
pub(crate) struct EnabledNicClock {
    clock: PhcDevice,
    path: PathBuf,
    _switched: HardwareTimestamps,
}

impl EnabledNicClock {
    /// Enables them at the interface of a plan's route, if the plan requests them.
    pub(crate) fn open(plan: &RunPlan, engine: Kind) -> Result<Option<Self>, EngineError> {
        if !plan.offset.is_some_and(|offset| offset.hardware) {
            return Ok(None);
        }
        let Route::Link(link) = &plan.route else {
            let reason =
                format!("the route to {}, an address of this host, has no NIC", plan.target.ip());
            return Err(unfit(engine, reason, REMEDY));
        };
        let purpose = if plan.ptp.is_some() { Purpose::Ptp } else { Purpose::Ntp };
        let switched = HardwareTimestamps::switch_on(&link.interface, purpose)
            .map_err(|error| unfit(engine, error.to_string(), REMEDY))?;
        if !switched.received() {
            let reason = format!("'{}' does not timestamp received NTP packets", link.interface);
            return Err(unfit(engine, reason, REMEDY));
        }
        let path = PathBuf::from(format!("/dev/ptp{}", switched.clock()));
        let clock = PhcDevice::open(&path)
            .map_err(EngineError::system(format!("open the PHC {}", path.display())))?;
        Ok(Some(Self { clock, path, _switched: switched }))
    }

    fn ahead(&mut self) -> io::Result<Span> {
        self.clock.read().map(|reading| seconds_ahead(&reading))
    }
}

/// Returns the parameters for the offsets of one trial, if the plan requests them.
pub(crate) fn offset_plan(
    plan: &RunPlan,
    nic_clock: Option<&mut EnabledNicClock>,
) -> Result<Option<OffsetPlan>, EngineError> {
    let Some(options) = plan.offset else { return Ok(None) };
    let phc_ahead = match nic_clock {
        None => Span::ZERO,
        Some(clock) => clock
            .ahead()
            .map_err(EngineError::system(format!("read the PHC {}", clock.path.display())))?,
    };
    Ok(Some(OffsetPlan { options, phc_ahead }))
}

/// Returns the PHC's lead over the system clock, to the nearest second: the difference of their
/// timescales; the remainder is left for the offsets to show.
fn seconds_ahead(reading: &PhcReading) -> Span {
    let half = Span::from_ns((reading.after - reading.before).as_ns() / 2);
    let ahead = reading.phc_ns.saturating_sub((reading.before + half).as_ns());
    Span::from_ns(offset::whole_seconds(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_time::{NS_PER_S, Timestamp};

    #[test]
    fn only_the_timescale_is_taken_off() {
        let now = 1_700_000_000 * NS_PER_S;
        let reading = |phc_ns| PhcReading {
            before: Timestamp::from_ns(now - 400),
            phc_ns,
            after: Timestamp::from_ns(now + 400),
        };
        let cases = [
            (now + 37 * NS_PER_S - 12_345, 37),
            (now + 900, 0),
            (now - 37 * NS_PER_S, -37),
            (now + 499_999_999, 0),
            (0, -1_700_000_000),
        ];
        for (phc_ns, seconds) in cases {
            assert_eq!(seconds_ahead(&reading(phc_ns)), Span::from_ns(seconds * NS_PER_S));
        }
    }
}
