//! Allan deviation of a clock against its pulses: of the clock as it is disciplined, and of its
//! free-running oscillator, which shows its class.

use std::collections::VecDeque;

use horolog_stats::allan::{self, AllanPoint};
use horolog_time::{Monotonic, Timestamp};

/// Number of retained seconds: 4 h, enough for averaging times up to 1 h.
const SECONDS_MAX: usize = 4 * 3_600;

/// Offsets at the pulse of one second, in ns: of the disciplined clock, and of its oscillator
/// without corrections.
#[derive(Clone, Copy, Debug)]
struct ClockAndOscillatorOffsets {
    clock: f64,
    oscillator: f64,
}

/// Offsets at the pulses of the last 4 h, one slot for each second, from which Allan deviations are
/// computed.
#[derive(Clone, Default, Debug)]
pub struct PulseOffsetHistory {
    first_pulse_at: Option<Timestamp<Monotonic>>,
    /// Second of the latest slot.
    latest: i64,
    seconds: VecDeque<Option<ClockAndOscillatorOffsets>>,
}

impl PulseOffsetHistory {
    /// Adds the offsets of an accepted pulse, in ns.
    pub(crate) fn add_offsets(&mut self, at: Timestamp<Monotonic>, clock: f64, oscillator: f64) {
        let first_pulse_at = *self.first_pulse_at.get_or_insert(at);
        let second = ((at - first_pulse_at).as_seconds()).round() as i64;
        let offsets = Some(ClockAndOscillatorOffsets { clock, oscillator });
        if let Some(latest) = self.seconds.back_mut()
            && second <= self.latest
        {
            // Two pulses can round to one second when the clock drifts against the first pulse.
            *latest = offsets;
            return;
        }
        let missing = (second - self.latest - 1).max(0) as usize;
        if missing >= SECONDS_MAX {
            self.seconds.clear();
        } else {
            self.seconds.extend(std::iter::repeat_n(None, missing));
        }
        self.seconds.push_back(offsets);
        self.latest = second;
        let surplus = self.seconds.len().saturating_sub(SECONDS_MAX);
        self.seconds.drain(..surplus);
    }

    /// Returns the overlapping Allan deviation of the disciplined clock, at averaging times of 1,
    /// 2, 4 … s, in ppb.
    #[must_use]
    pub fn clock_allan_deviations(&self) -> Vec<AllanPoint> {
        self.allan_deviations(|offsets| offsets.clock)
    }

    /// Returns the overlapping Allan deviation of the free-running oscillator, as
    /// [`Self::clock_allan_deviations`] does.
    #[must_use]
    pub fn oscillator_allan_deviations(&self) -> Vec<AllanPoint> {
        self.allan_deviations(|offsets| offsets.oscillator)
    }

    fn allan_deviations(
        &self,
        offset_of: impl Fn(&ClockAndOscillatorOffsets) -> f64,
    ) -> Vec<AllanPoint> {
        let phases: Vec<_> =
            self.seconds.iter().map(|second| second.as_ref().map(&offset_of)).collect();
        allan::octave_deviations(&phases)
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::NS_PER_S;

    use super::*;

    fn feed(stability: &mut PulseOffsetHistory, seconds: impl Iterator<Item = i64>) {
        for second in seconds {
            let wave = if second % 2 == 0 { 1.0 } else { -1.0 };
            let at = Timestamp::from_ns(second * NS_PER_S + 300);
            stability.add_offsets(at, wave, 2.0 * wave + 500.0 * second as f64);
        }
    }

    #[test]
    fn the_steered_clock_and_its_oscillator_have_separate_deviations() {
        let mut stability = PulseOffsetHistory::default();
        feed(&mut stability, 0..1_000);
        let (clock, oscillator) =
            (stability.clock_allan_deviations(), stability.oscillator_allan_deviations());
        // Second differences of ±1 are ±4, and those of a steady frequency are 0.
        assert!((clock[0].deviation - 8_f64.sqrt()).abs() < 1e-9, "{clock:?}");
        assert!((oscillator[0].deviation - 2.0 * 8_f64.sqrt()).abs() < 1e-6, "{oscillator:?}");
    }

    #[test]
    fn gaps_stay_gaps_and_old_seconds_go() {
        let mut stability = PulseOffsetHistory::default();
        feed(&mut stability, (0..1_000).chain(1_100..2_000));
        assert_eq!(stability.seconds.len(), 2_000);
        assert_eq!(stability.clock_allan_deviations()[0].terms, 1_998 - 102);
        feed(&mut stability, 2_000..20_000);
        assert_eq!(stability.seconds.len(), SECONDS_MAX);
        feed(&mut stability, 900_000..900_003);
        assert_eq!(stability.seconds.len(), 3);
    }
}
