//! A network card whose own clock stamps what it receives: the switch for that, and how many whole
//! seconds the clock is ahead of UTC.

use std::io;
use std::path::PathBuf;

use horolog_record::Engine as Kind;
use horolog_sys::hardware_timestamps::{HardwareTimestamps, Purpose};
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::Span;

use super::{EngineError, unfit};
use crate::offset::{self, OffsetPlan};
use crate::plan::RunPlan;
use crate::target::Route;

/// What to do without such a card.
const REMEDY: &str = "leave out hardware timestamps to use the kernel's";

/// Hardware timestamps that are on; dropping it puts back what was before.
pub(crate) struct Card {
    clock: PhcDevice,
    path: PathBuf,
    _switched: HardwareTimestamps,
}

impl Card {
    /// Switches them on at the interface of a plan's route, where the plan asks for them.
    pub(crate) fn open(plan: &RunPlan, engine: Kind) -> Result<Option<Self>, EngineError> {
        if !plan.offset.is_some_and(|offset| offset.hardware) {
            return Ok(None);
        }
        let Route::Link(link) = &plan.route else {
            let reason = format!("no card lies before {}, this machine's own", plan.target.ip());
            return Err(unfit(engine, reason, REMEDY));
        };
        let purpose = if plan.ptp.is_some() { Purpose::Ptp } else { Purpose::Ntp };
        let switched = HardwareTimestamps::switch_on(&link.interface, purpose)
            .map_err(|error| unfit(engine, error.to_string(), REMEDY))?;
        if !switched.received() {
            let reason = format!("'{}' stamps no NTP packets that it receives", link.interface);
            return Err(unfit(engine, reason, REMEDY));
        }
        let path = PathBuf::from(format!("/dev/ptp{}", switched.clock()));
        let clock = PhcDevice::open(&path)
            .map_err(EngineError::system(format!("open the card's clock {}", path.display())))?;
        Ok(Some(Self { clock, path, _switched: switched }))
    }

    fn ahead(&mut self) -> io::Result<Span> {
        self.clock.read().map(|reading| seconds_ahead(&reading))
    }
}

/// How one trial takes offsets, where the plan asks for them.
pub(crate) fn offset_plan(
    plan: &RunPlan,
    card: Option<&mut Card>,
) -> Result<Option<OffsetPlan>, EngineError> {
    let Some(options) = plan.offset else { return Ok(None) };
    let card_ahead = match card {
        None => Span::ZERO,
        Some(card) => card.ahead().map_err(EngineError::system(format!(
            "read the card's clock {}",
            card.path.display()
        )))?,
    };
    Ok(Some(OffsetPlan { options, card_ahead }))
}

/// What the card's clock is ahead of the system's, to the nearest second: the difference of their
/// timescales, since what is left is for the offsets to tell.
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
