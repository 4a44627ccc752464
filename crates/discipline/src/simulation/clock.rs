//! Two clocks on one oscillator: the one that the servo steers, and the one that is set at every
//! pulse.

use horolog_time::NS_PER_S;

/// Clock represented by its error against true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelledClock {
    /// Clock minus true time, in ns.
    pub(super) error: f64,
    /// Frequency correction, in ppb.
    pub(super) correction: f64,
    at: i64,
}

impl ModelledClock {
    pub(super) fn new(error: f64) -> Self {
        Self { error, correction: 0.0, at: 0 }
    }

    /// Advances the clock to `at`, in ns of true time, on an oscillator with this frequency error.
    pub(super) fn advance(&mut self, at: i64, frequency_ppb: f64) {
        let seconds = (at - self.at) as f64 / NS_PER_S as f64;
        self.error += (frequency_ppb + self.correction) * seconds;
        self.at = at;
    }
}

/// Clock by the method of Liu, Wu and Wang 2020, section 2.2.3: at every pulse the interrupt
/// handler sets the seconds to those of the last sentence plus one, and the nanoseconds to 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct PulseSteppedClock {
    pub(super) clock: ModelledClock,
    /// Second that the last sentence named.
    last_named: Option<i64>,
}

impl PulseSteppedClock {
    pub(super) fn new(error: f64) -> Self {
        Self { clock: ModelledClock::new(error), last_named: None }
    }

    pub(super) fn record_sentence(&mut self, named_second: i64) {
        self.last_named = Some(named_second);
    }

    /// Sets the clock at a pulse at `at`, in ns of true time.
    pub(super) fn set_at_pulse(&mut self, at: i64) {
        if let Some(last) = self.last_named {
            self.clock.error = ((last + 1) * NS_PER_S - at) as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_drifts_until_the_next_pulse() {
        let mut method = PulseSteppedClock::new(5e6);
        method.set_at_pulse(2 * NS_PER_S);
        assert!((method.clock.error - 5e6).abs() < 1e-9, "no sentence yet");
        method.record_sentence(2);
        method.set_at_pulse(3 * NS_PER_S + 40);
        assert!((method.clock.error + 40.0).abs() < 1e-9, "set 40 ns late");
        method.clock.advance(3 * NS_PER_S, 0.0);
        method.clock.advance(3 * NS_PER_S + NS_PER_S / 2, 20_000.0);
        assert!((method.clock.error - 9_960.0).abs() < 1e-6, "{}", method.clock.error);
    }

    #[test]
    fn it_believes_whatever_comes() {
        let mut method = PulseSteppedClock::new(0.0);
        method.record_sentence(100);
        method.set_at_pulse(3 * NS_PER_S);
        assert!((method.clock.error - 98e9).abs() < 1.0);
    }
}
