//! PTP data of the clock at an instant, and the state of a port (IEEE 1588-2019, clauses 7.6.2 and
//! 9.2.5).

use horolog_time::Span;
use horolog_wire::ptp::message::Grandmaster;
use horolog_wire::ptp::{Announce, PtpFlags, PtpTimestamp};

use crate::settings::ClockSettings;

/// PTP data of the clock at an instant, derived from the clock page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PtpClockProperties {
    /// True if the time can be served; otherwise no port is a master.
    pub usable: bool,
    /// Clock class (table 4).
    pub clock_class: u8,
    /// Clock accuracy code (table 5); see [`accuracy`].
    pub accuracy: u8,
    /// Clock stability: `offsetScaledLogVariance`.
    pub variance: u16,
    /// Time source code (table 6).
    pub time_source: u8,
    /// Low eight flags: valid UTC offset, TAI timescale, traceability, pending leap second.
    pub flags: PtpFlags,
    /// TAI minus UTC, in seconds.
    pub utc_offset: i16,
}

impl PtpClockProperties {
    /// Returns the data by which other clocks rank this one as a grandmaster.
    #[must_use]
    pub const fn grandmaster(&self, settings: &ClockSettings) -> Grandmaster {
        Grandmaster {
            priority1: settings.priority1,
            clock_class: self.clock_class,
            clock_accuracy: self.accuracy,
            variance: self.variance,
            priority2: settings.priority2,
            identity: settings.identity,
        }
    }

    /// Returns the Announce message of this clock.
    #[must_use]
    pub const fn announce(&self, settings: &ClockSettings, origin: PtpTimestamp) -> Announce {
        Announce {
            origin,
            utc_offset: self.utc_offset,
            grandmaster: self.grandmaster(settings),
            steps_removed: 0,
            time_source: self.time_source,
        }
    }

    /// Returns the low eight flags as a byte.
    #[must_use]
    pub const fn time_flags(&self) -> u8 {
        self.flags.0 as u8
    }
}

/// Upper limits of the accuracy codes from 0x20 (25 ns) to 0x30 (10 s), in ns (table 5).
const ACCURACIES_NS: [i64; 17] = [
    25,
    100,
    250,
    1_000,
    2_500,
    10_000,
    25_000,
    100_000,
    250_000,
    1_000_000,
    2_500_000,
    10_000_000,
    25_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Returns the accuracy code of a clock with the error bound `bound`: the code of the next limit
/// above it, 0x31 above 10 s (table 5).
#[must_use]
pub fn accuracy(bound: Span) -> u8 {
    let index = ACCURACIES_NS.partition_point(|&ns| ns < bound.as_ns().saturating_abs());
    0x20 + index as u8
}

/// Returns the error bound of an accuracy code; `None` if the code is not one from 0x20 to 0x30 (25
/// ns to 10 s).
pub(crate) fn accuracy_bound(accuracy: u8) -> Option<Span> {
    let index = usize::from(accuracy).checked_sub(0x20)?;
    ACCURACIES_NS.get(index).copied().map(Span::from_ns)
}

/// State of a port (table 20). A port that yields to a better master is passive, never a slave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PortState {
    /// Interface down or without carrier: nothing can be sent or received.
    Faulty = 2,
    /// Not sending, and receiving the messages of other masters: after the start, after a failure
    /// of the interface or a change of the timescale, and while the clock is unusable.
    Listening = 4,
    /// Sending Announce and Sync messages, and answering requests, as a master.
    Master = 6,
    /// Not sending, because there is a better master.
    Passive = 7,
}

impl PortState {
    /// Returns the name of the state, as in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faulty => "faulty",
            Self::Listening => "listening",
            Self::Master => "master",
            Self::Passive => "passive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_is_the_least_bound_that_holds() {
        for (ns, code) in [
            (0, 0x20),
            (25, 0x20),
            (26, 0x21),
            (-26, 0x21),
            (1_000, 0x23),
            (1_000_001, 0x2a),
            (10_000_000_000, 0x30),
            (10_000_000_001, 0x31),
            (i64::MIN, 0x31),
        ] {
            assert_eq!(accuracy(Span::from_ns(ns)), code, "{ns}");
        }
        let bounds = [0x20, 0x2a, 0x31, 0xfe].map(accuracy_bound);
        let ns = |ns| Some(Span::from_ns(ns));
        assert_eq!(bounds, [ns(25), ns(2_500_000), None, None]);
    }
}
