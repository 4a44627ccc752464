//! What a user may set of the labeller and the servo.

use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

use crate::Oscillator;

/// 2026-01-01T00:00:00Z: this program did not exist before.
const EARLIEST: Timestamp<Utc> = Timestamp::from_ns(1_767_225_600 * NS_PER_S);

/// How pulses get their seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LabelSettings {
    /// How long an edge is on its way from the antenna to its timestamp: antenna cable, receiver
    /// and interrupt. It is taken off.
    pub delay: Span,
    /// How far a pulse may be from a whole number of seconds after the one before it. A clock that
    /// is 500 ppm off needs half a millisecond.
    pub tolerance: Span,
    /// Sentences in a row that must name the same count of seconds to establish it.
    pub establish: u32,
    /// Sentences in a row that must name another to change an established one.
    pub change: u32,
    /// How soon and how late after its pulse a sentence may begin.
    pub lag_min: Span,
    /// See `lag_min`. A sentence that is later may be one of the next second that is early.
    pub lag_max: Span,
    /// The width of the pulse, where it is known, to tell its edges apart; else it is taken to be
    /// less than half a second.
    pub width: Option<Span>,
    /// How long seconds are counted on while no sentence confirms them.
    pub carry_max: Span,
    /// How long a gap between pulses may be over which seconds are counted by the monotonic clock.
    pub gap_max: Span,
    /// No sentence names an earlier time and is right.
    pub earliest: Timestamp<Utc>,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self {
            delay: Span::ZERO,
            tolerance: Span::from_ms(1),
            establish: 3,
            change: 30,
            lag_min: Span::ZERO,
            lag_max: Span::from_ms(950),
            width: None,
            carry_max: Span::from_ns(3_600 * NS_PER_S),
            // At 100 ppm a tenth of a second.
            gap_max: Span::from_ns(1_000 * NS_PER_S),
            earliest: EARLIEST,
        }
    }
}

/// How the clock is estimated and steered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServoSettings {
    /// What the clock's oscillator does by itself.
    pub oscillator: Oscillator,
    /// Whether commands are carried out. A clock that is not steered is estimated only.
    pub is_steering: bool,
    /// By what the clock's frequency is corrected at the start, in parts per billion.
    pub initial_frequency_ppb: f64,
    /// A larger offset is stepped when pulses are first understood; a smaller one is slewed.
    pub step_at_start: Span,
    /// A larger offset is stepped later as well; `None`: never.
    pub step_later: Option<Span>,
    /// A larger jump of the pulses against what is known is believed only after `jump_pulses`;
    /// until then the clock is unsynchronised.
    pub jump_max: Span,
    /// See `jump_max`.
    pub jump_pulses: u32,
    /// The farthest that the frequency may be set from its nominal value, in parts per billion. The
    /// kernel takes 500 ppm (`adjtimex(2)`).
    pub frequency_max_ppb: f64,
    /// The most by which an offset is slewed, in parts per billion.
    pub slew_max_ppb: f64,
    /// In which time an offset falls to 1/e while the clock is being locked, in seconds.
    pub time_constant_locking_s: f64,
    /// The same for a locked clock.
    pub time_constant_locked_s: f64,
    /// What a pulse's own noise is taken to be until it has been measured, in ns.
    pub noise_initial_ns: f64,
    /// Pulses that are so many standard deviations from what was predicted are not believed.
    pub gate_deviations: f64,
    /// How long after the last good pulse the clock holds over.
    pub holdover_after: Span,
    /// The uncertainty at which a clock that holds over is unsynchronised.
    pub holdover_uncertainty_max: Span,
    /// The time after which it is in any case.
    pub holdover_max: Span,
}

impl Default for ServoSettings {
    fn default() -> Self {
        Self {
            oscillator: Oscillator::RASPBERRY_PI,
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
