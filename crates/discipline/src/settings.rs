//! User settings of the labeller and the servo.

use horolog_time::{NS_PER_S, Span};

use crate::OscillatorModel;

/// Settings of the labelling of pulses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PulseLabellerSettings {
    /// Delay of an edge from the antenna to its timestamp: antenna cable, receiver and interrupt. A
    /// pulse is taken to mark its second plus this delay.
    pub delay: Span,
    /// Maximum distance of a pulse from a whole number of seconds after the previous one. A clock
    /// that is 500 ppm off needs 0.5 ms.
    pub tolerance: Span,
    /// Number of consecutive sentences that must agree to establish a count of seconds.
    pub sentences_to_establish: u32,
    /// Number of consecutive sentences that must agree to replace an established count.
    pub sentences_to_change: u32,
    /// Minimum time from a pulse to the start of its sentence.
    pub lag_min: Span,
    /// Maximum time from a pulse to the start of its sentence; a later one may be an early sentence
    /// of the next second.
    pub lag_max: Span,
    /// Width of the pulse, if known, to distinguish its edges; otherwise it is assumed to be less
    /// than half a second.
    pub width: Option<Span>,
    /// Maximum time for which seconds are counted without a confirming sentence.
    pub carry_max: Span,
    /// Maximum gap between pulses over which seconds are counted by the monotonic clock.
    pub gap_max: Span,
}

impl Default for PulseLabellerSettings {
    fn default() -> Self {
        Self {
            delay: Span::ZERO,
            tolerance: Span::from_ms(1),
            sentences_to_establish: 3,
            sentences_to_change: 30,
            lag_min: Span::ZERO,
            lag_max: Span::from_ms(950),
            width: None,
            carry_max: Span::from_ns(3_600 * NS_PER_S),
            // A tenth of a second at 100 ppm.
            gap_max: Span::from_ns(1_000 * NS_PER_S),
        }
    }
}

/// Settings of the estimation and steering of the clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServoSettings {
    /// Model of the clock's oscillator.
    pub oscillator: OscillatorModel,
    /// True if commands are carried out; otherwise the clock is only estimated.
    pub is_steering: bool,
    /// Initial correction of the clock's frequency, in parts per billion.
    pub initial_frequency_ppb: f64,
    /// Offset above which the clock is stepped at the start; a smaller one is slewed.
    pub step_at_start: Span,
    /// Offset above which the clock is stepped later as well; `None`: never.
    pub step_later: Option<Span>,
    /// Largest jump of the pulses against the estimate that is followed as soon as they fit a line.
    /// A larger one is followed after `jump_pulses`; until then the clock is unsynchronised.
    pub jump_max: Span,
    /// Number of consecutive rejected pulses after which a jump above `jump_max` is followed.
    pub jump_pulses: u32,
    /// Maximum deviation of the frequency setting from its nominal value, in parts per billion. The
    /// kernel takes 500 ppm (`adjtimex(2)`).
    pub frequency_max_ppb: f64,
    /// Maximum rate of a slew, in parts per billion.
    pub slew_max_ppb: f64,
    /// Time in which an offset falls to 1/e while the clock is being locked, in seconds.
    pub time_constant_locking_s: f64,
    /// Time in which an offset of a locked clock falls to 1/e, in seconds.
    pub time_constant_locked_s: f64,
    /// Assumed noise of a pulse until it has been measured, in ns.
    pub noise_initial_ns: f64,
    /// Gate: pulses more than this many standard deviations from their prediction are rejected.
    pub gate_deviations: f64,
    /// Time after the last accepted pulse at which holdover begins.
    pub holdover_after: Span,
    /// Uncertainty at which a clock in holdover becomes unsynchronised.
    pub holdover_uncertainty_max: Span,
    /// Time after the last accepted pulse at which the clock becomes unsynchronised in any case.
    pub holdover_max: Span,
}

impl Default for ServoSettings {
    fn default() -> Self {
        Self {
            oscillator: OscillatorModel::RASPBERRY_PI,
            is_steering: true,
            initial_frequency_ppb: 0.0,
            step_at_start: Span::from_ns(10_000),
            step_later: Some(Span::from_ms(500)),
            jump_max: Span::from_ms(100),
            jump_pulses: 64,
            frequency_max_ppb: 500_000.0,
            slew_max_ppb: 400_000.0,
            time_constant_locking_s: 3.0,
            time_constant_locked_s: 8.0,
            noise_initial_ns: 2_000.0,
            gate_deviations: 5.0,
            holdover_after: Span::from_ns(5 * NS_PER_S),
            holdover_uncertainty_max: Span::from_ms(10),
            holdover_max: Span::from_ns(86_400 * NS_PER_S),
        }
    }
}
