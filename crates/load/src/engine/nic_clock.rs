//! PHC of a NIC that timestamps received packets: the switch for hardware timestamps, and the
//! clock's lead over UTC in whole seconds.

use std::io;
use std::path::PathBuf;

use horolog_record::LoadEngineKind as Kind;
use horolog_sys::hardware_timestamps::EnabledHardwareTimestamps;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::Span;

use super::{EngineError, unavailable_error};
use crate::offset::{self, ServerOffsetParameters};
use crate::plan::RunPlan;
use crate::target::Route;

/// Remedy if the interface does not support hardware timestamps.
const REMEDY: &str = "omit hardware timestamps to use kernel timestamps";

/// Enabled hardware timestamps of an interface and the PHC that takes them. Dropping restores the
/// previous setting.
pub(crate) struct TimestampingPhc {
    clock: PhcDevice,
    path: PathBuf,
    _hardware_timestamps: EnabledHardwareTimestamps,
}

impl TimestampingPhc {
    /// Enables hardware timestamps on the interface of the plan's route; `None` if the plan does
    /// not request them.
    pub(crate) fn open(plan: &RunPlan, engine: Kind) -> Result<Option<Self>, EngineError> {
        if !plan.offset.is_some_and(|offset| offset.hardware) {
            return Ok(None);
        }
        let Route::Link(link) = &plan.route else {
            let reason =
                format!("the route to {}, an address of this host, has no NIC", plan.target.ip());
            return Err(unavailable_error(engine, reason, REMEDY));
        };
        let purpose = plan.requests.behaviour().timestamp_purpose();
        let hardware_timestamps = EnabledHardwareTimestamps::enable(&link.interface, purpose)
            .map_err(|error| unavailable_error(engine, error.to_string(), REMEDY))?;
        if !hardware_timestamps.received() {
            let reason = format!("'{}' does not timestamp received NTP packets", link.interface);
            return Err(unavailable_error(engine, reason, REMEDY));
        }
        let path = PathBuf::from(format!("/dev/ptp{}", hardware_timestamps.clock()));
        let clock = PhcDevice::open(&path)
            .map_err(EngineError::system(format!("open the PHC {}", path.display())))?;
        Ok(Some(Self { clock, path, _hardware_timestamps: hardware_timestamps }))
    }

    fn read_lead(&mut self) -> io::Result<Span> {
        self.clock.read().map(|reading| lead_in_seconds(&reading))
    }
}

/// Returns the offset parameters of one trial; `None` if the plan does not measure offsets.
pub(crate) fn trial_offset_plan(
    plan: &RunPlan,
    nic_clock: Option<&mut TimestampingPhc>,
) -> Result<Option<ServerOffsetParameters>, EngineError> {
    let Some(options) = plan.offset else { return Ok(None) };
    let phc_ahead = match nic_clock {
        None => Span::ZERO,
        Some(clock) => clock
            .read_lead()
            .map_err(EngineError::system(format!("read the PHC {}", clock.path.display())))?,
    };
    Ok(Some(ServerOffsetParameters { options, phc_ahead }))
}

/// Returns the PHC's lead over the system clock, rounded to whole seconds: the difference of their
/// timescales. The rest shows in the measured offsets.
fn lead_in_seconds(reading: &PhcReading) -> Span {
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
            assert_eq!(lead_in_seconds(&reading(phc_ns)), Span::from_ns(seconds * NS_PER_S));
        }
    }
}
