//! Clock-error log: one entry for each pulse, for each change of the state and for each second of
//! holdover. The owner of the log writes the lines.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::SynchronisationState;

/// Treatment of a pulse.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PulseVerdict {
    /// The filter used the pulse.
    Accepted,
    /// One of the first pulses, whose phases must fit a straight line before the filter starts.
    Acquiring,
    /// The filter started, or started again, from this pulse and those before it.
    Acquired,
    /// The pulse was too far from its prediction.
    Outlier,
    /// Far from the estimate, like several pulses before it; more of them are needed before the
    /// filter follows.
    Jump,
    /// There was no pulse.
    Missing,
}

impl PulseVerdict {
    /// Returns the name of the verdict in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Acquiring => "awaited",
            Self::Acquired => "acquired",
            Self::Outlier => "outlier",
            Self::Jump => "jump",
            Self::Missing => "missing",
        }
    }
}

/// Entry of the clock-error log: a pulse, its verdict, the estimate of the clock at that instant
/// and the command.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClockErrorLogEntry {
    /// Instant by the monotonic clock, in ns.
    pub monotonic_ns: i64,
    /// UTC of the pulse by its label, in ns since 1970; `None` without a pulse.
    pub utc_ns: Option<i64>,
    /// Clock minus UTC as measured by the pulse, in ns.
    pub measured_ns: Option<i64>,
    /// Measured minus predicted offset, in ns.
    pub innovation_ns: Option<f64>,
    /// Treatment of the pulse.
    pub verdict: PulseVerdict,
    /// Estimate of clock minus UTC before the command, in ns.
    pub offset_ns: Option<i64>,
    /// Standard deviation of `offset_ns`, in ns.
    pub uncertainty_ns: Option<f64>,
    /// Estimated frequency error of the clock without corrections, in ppb.
    pub frequency_ppb: Option<f64>,
    /// Noise of a pulse, as a standard deviation in ns; assumed until it has been measured.
    pub noise_ns: f64,
    /// Frequency correction from this entry on, in ppb.
    pub command_ppb: Option<f64>,
    /// Step made at this entry, in ns.
    pub step_ns: Option<i64>,
    /// Resulting state.
    pub state: SynchronisationState,
}

impl ClockErrorLogEntry {
    /// Returns the entry as one JSON object, without an end of line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // No map, no key that is not a string: serialisation cannot fail. A number that is not
        // finite becomes null.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Display of a value, or of a dash for `None`.
struct ValueOrDash<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for ValueOrDash<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// Fields in the order of the struct, for people to read.
impl fmt::Display for ClockErrorLogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} utc={} measured={}ns innovation={:.1}ns {} offset={}ns ±{:.1}ns \
             frequency={:.3}ppb noise={:.1}ns command={:.3}ppb step={}ns {}",
            self.monotonic_ns,
            ValueOrDash(self.utc_ns),
            ValueOrDash(self.measured_ns),
            ValueOrDash(self.innovation_ns),
            self.verdict.name(),
            ValueOrDash(self.offset_ns),
            ValueOrDash(self.uncertainty_ns),
            ValueOrDash(self.frequency_ppb),
            self.noise_ns,
            ValueOrDash(self.command_ppb),
            ValueOrDash(self.step_ns),
            self.state,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: ClockErrorLogEntry = ClockErrorLogEntry {
        monotonic_ns: 5_000_000_123,
        utc_ns: Some(1_800_000_000_000_000_000),
        measured_ns: Some(-120),
        innovation_ns: Some(-15.25),
        verdict: PulseVerdict::Accepted,
        offset_ns: Some(-107),
        uncertainty_ns: Some(31.5),
        frequency_ppb: Some(19_998.125),
        noise_ns: 101.5,
        command_ppb: Some(-19_985.5),
        step_ns: None,
        state: SynchronisationState::Locked,
    };

    #[test]
    fn an_entry_is_a_line_either_way() {
        assert_eq!(
            ENTRY.to_string(),
            "5000000123 utc=1800000000000000000 measured=-120ns innovation=-15.2ns accepted \
             offset=-107ns ±31.5ns frequency=19998.125ppb noise=101.5ns command=-19985.500ppb \
             step=-ns locked"
        );
        let json = ENTRY.to_json();
        assert!(!json.contains('\n') && json.contains("\"verdict\":\"accepted\""), "{json}");
        assert_eq!(serde_json::from_str::<ClockErrorLogEntry>(&json).unwrap(), ENTRY);
    }
}
