//! Kalman filter of a free-running clock with three states: phase (ns), frequency (ppb, that is, ns
//! per second) and the drift of the frequency with temperature (ppb per second). The drift decays
//! with the time constant of the temperature cycle, so that extrapolation stays bounded.
//!
//! The first two states are the usual model of a clock with white and random-walk frequency noise
//! (Zucca and Tavella 2005, see [`OscillatorModel::random_walk_density`]). Flicker noise has no
//! finite state-space model; a random walk of the same size at [`FLICKER_TIME_S`] represents it.

use horolog_time::{Monotonic, Timestamp};

use crate::OscillatorModel;
use crate::holdover::PhaseFrequencyCovariance;

/// Averaging time at which flicker noise is as large as the random walk that represents it.
const FLICKER_TIME_S: f64 = 100.0;
/// Longest prediction step, in seconds. Within a step the process noise is computed as if the drift
/// did not decay.
const STEP_MAX_S: f64 = 10.0;

const STEPS_MAX: f64 = 10_000.0;

type Matrix3x3 = [[f64; 3]; 3];

/// Process noise of the three states.
#[derive(Clone, Copy, Debug)]
struct ProcessNoise {
    /// White FM: growth of the phase's variance, in ns² per second.
    white: f64,
    /// Random-walk and flicker FM: growth of the frequency's variance, in ppb² per second.
    walk: f64,
    /// Growth of the drift's variance, in (ppb/s)² per second.
    drift: f64,
    /// Time in which the drift decays to 1/e, in seconds.
    drift_time: f64,
}

impl ProcessNoise {
    fn from_oscillator(oscillator: &OscillatorModel) -> Self {
        let flicker = 3.0 * oscillator.flicker_fm_ppb.powi(2) / FLICKER_TIME_S;
        let omega = oscillator.temperature.angular_frequency();
        // Variance of the derivative of the temperature sine, and 1/ω as its correlation time.
        let drift_variance = (oscillator.temperature.amplitude_ppb * omega).powi(2) / 2.0;
        let drift_time = omega.recip();
        Self {
            white: oscillator.white_fm_ppb.powi(2),
            walk: oscillator.random_walk_density() + flicker,
            drift: 2.0 * drift_variance / drift_time,
            drift_time,
        }
    }

    fn drift_variance(&self) -> f64 {
        self.drift * self.drift_time / 2.0
    }
}

/// Difference between a pulse and its prediction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Innovation {
    /// Measured minus predicted phase, in ns.
    pub(crate) value: f64,
    /// Expected variance of the value, in ns²: that of the prediction plus that of the measurement.
    pub(crate) variance: f64,
}

impl Innovation {
    /// Returns the value in standard deviations.
    pub(crate) fn normalised(&self) -> f64 {
        self.value / self.variance.sqrt()
    }
}

/// Kalman filter of one clock.
#[derive(Clone, Debug)]
pub(crate) struct KalmanFilter {
    at: Timestamp<Monotonic>,
    state: [f64; 3],
    covariance: Matrix3x3,
    noise: ProcessNoise,
}

impl KalmanFilter {
    /// Creates a filter from the phase (ns) and frequency (ppb) of a clock at `at`, and their
    /// variances.
    pub(crate) fn new(
        oscillator: &OscillatorModel,
        at: Timestamp<Monotonic>,
        (phase, frequency): (f64, f64),
        (phase_variance, frequency_variance): (f64, f64),
    ) -> Self {
        let noise = ProcessNoise::from_oscillator(oscillator);
        let mut covariance = [[0.0; 3]; 3];
        covariance[0][0] = phase_variance;
        covariance[1][1] = frequency_variance;
        covariance[2][2] = noise.drift_variance();
        Self { at, state: [phase, frequency, 0.0], covariance, noise }
    }

    pub(crate) fn phase(&self) -> f64 {
        self.state[0]
    }

    pub(crate) fn frequency(&self) -> f64 {
        self.state[1]
    }

    pub(crate) fn holdover_start(&self) -> PhaseFrequencyCovariance {
        PhaseFrequencyCovariance {
            phase_variance: self.covariance[0][0],
            frequency_variance: self.covariance[1][1],
            covariance: self.covariance[0][1],
        }
    }

    /// Predicts the state at `to`, if that is later.
    pub(crate) fn advance(&mut self, to: Timestamp<Monotonic>) {
        let mut remaining_s = (to - self.at).as_seconds();
        // After days the uncertainty is so large that longer steps make no difference.
        let step_max = STEP_MAX_S.max(remaining_s / STEPS_MAX);
        while remaining_s > 0.0 {
            let step = remaining_s.min(step_max);
            self.step(step);
            remaining_s -= step;
        }
        self.at = self.at.max(to);
    }

    fn step(&mut self, s: f64) {
        let decay = (-s / self.noise.drift_time).exp();
        let decay_integral = self.noise.drift_time * (1.0 - decay);
        let transition = [
            [1.0, s, self.noise.drift_time * (s - decay_integral)],
            [0.0, 1.0, decay_integral],
            [0.0, 0.0, decay],
        ];
        self.state = transition.map(|row| dot(row, self.state));
        let mut covariance =
            multiply(&multiply(&transition, &self.covariance), &transpose(&transition));
        let ProcessNoise { white, walk, drift, .. } = self.noise;
        covariance[0][0] += white * s + walk * s.powi(3) / 3.0 + drift * s.powi(5) / 20.0;
        covariance[1][1] += walk * s + drift * s.powi(3) / 3.0;
        covariance[2][2] += drift * s;
        for (row, column, noise) in [
            (0, 1, walk * s.powi(2) / 2.0 + drift * s.powi(4) / 8.0),
            (0, 2, drift * s.powi(3) / 6.0),
            (1, 2, drift * s.powi(2) / 2.0),
        ] {
            covariance[row][column] += noise;
            covariance[column][row] += noise;
        }
        self.covariance = covariance;
    }

    /// Returns the innovation of a phase (in ns) measured now, with noise of this variance (in
    /// ns²).
    pub(crate) fn innovation(&self, phase: f64, variance: f64) -> Innovation {
        Innovation { value: phase - self.state[0], variance: self.covariance[0][0] + variance }
    }

    /// Updates the state with an innovation whose measurement has the variance `noise` (in ns²), in
    /// the Joseph form, which keeps the covariance symmetric and positive.
    pub(crate) fn update(&mut self, innovation: Innovation, noise: f64) {
        let gain = self.covariance.map(|row| row[0] / innovation.variance);
        for (state, gain) in self.state.iter_mut().zip(gain) {
            *state += gain * innovation.value;
        }
        let mut i_minus_kh = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        for (row, gain) in i_minus_kh.iter_mut().zip(gain) {
            row[0] -= gain;
        }
        self.covariance =
            multiply(&multiply(&i_minus_kh, &self.covariance), &transpose(&i_minus_kh));
        for (row, row_gain) in self.covariance.iter_mut().zip(gain) {
            for (cell, column_gain) in row.iter_mut().zip(gain) {
                *cell += row_gain * column_gain * noise;
            }
        }
    }

    /// Increases the variance of the frequency by this much (in ppb²): the clock deviates from its
    /// prediction.
    pub(crate) fn inflate_frequency(&mut self, variance: f64) {
        self.covariance[1][1] += variance;
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn transpose(matrix: &Matrix3x3) -> Matrix3x3 {
    [0, 1, 2].map(|column| [matrix[0][column], matrix[1][column], matrix[2][column]])
}

fn multiply(a: &Matrix3x3, b: &Matrix3x3) -> Matrix3x3 {
    let columns = transpose(b);
    a.map(|row| columns.map(|column| dot(row, column)))
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;

    use super::*;

    fn start(oscillator: &OscillatorModel) -> KalmanFilter {
        KalmanFilter::new(oscillator, Timestamp::from_ns(0), (0.0, 0.0), (1e6, 1e8))
    }

    fn second(count: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(count * 1_000_000_000)
    }

    /// Feeds exact phases, one each second.
    fn follow(filter: &mut KalmanFilter, from: i64, to: i64, phase: impl Fn(f64) -> f64) {
        for count in from..to {
            filter.advance(second(count));
            let innovation = filter.innovation(phase(count as f64), 100.0);
            filter.update(innovation, 100.0);
        }
    }

    #[test]
    fn a_steady_frequency_is_found() {
        let mut filter = start(&OscillatorModel::RASPBERRY_PI);
        follow(&mut filter, 1, 100, |s| 500.0 + 12_345.0 * s);
        assert!((filter.frequency() - 12_345.0).abs() < 0.5, "{filter:?}");
        filter.advance(second(109));
        assert!((filter.phase() - 500.0 - 12_345.0 * 109.0).abs() < 20.0, "{filter:?}");
    }

    #[test]
    fn a_drifting_frequency_is_followed_without_a_lag() {
        let mut filter = start(&OscillatorModel::RASPBERRY_PI);
        follow(&mut filter, 1, 300, |s| 0.5 * s * s);
        assert!((filter.phase() - 0.5 * 299.0 * 299.0).abs() < 10.0, "{filter:?}");
        assert!((filter.frequency() - 299.0).abs() < 5.0, "{filter:?}");
    }

    #[test]
    fn one_long_step_is_as_many_short_ones() {
        let mut long = start(&OscillatorModel::TCXO);
        follow(&mut long, 1, 50, |s| 7.0 * s);
        let mut short = long.clone();
        long.advance(second(149));
        (50..=149).for_each(|count| short.advance(second(count)));
        let ratio = long.covariance[0][0] / short.covariance[0][0];
        assert!((ratio - 1.0).abs() < 0.01 && (long.phase() - short.phase()).abs() < 1e-6);
    }

    #[test]
    fn time_does_not_run_back() {
        let mut filter = start(&OscillatorModel::OCXO);
        filter.advance(second(5));
        let before = filter.covariance;
        filter.advance(second(5) - Span::from_ns(1));
        assert_eq!((filter.covariance, filter.at), (before, second(5)));
    }
}
