//! Dispersion of a clock in holdover: the standard deviation of its phase as a function of the time
//! since the last pulse, by the model of its oscillator. Pure.

use std::f64::consts::LN_2;

use crate::OscillatorModel;
use crate::oscillator::DAY_S;

/// Uncertainty of a clock at its last pulse: variances of phase (ns²) and frequency (ppb²), and
/// their covariance (ns · ppb).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PhaseFrequencyCovariance {
    pub(crate) phase_variance: f64,
    pub(crate) frequency_variance: f64,
    pub(crate) covariance: f64,
}

/// Returns the standard deviation of the phase `elapsed` seconds after the last pulse, in ns.
///
/// White, flicker and random-walk FM contribute the squares of τσ(τ), τσ(τ)/√ln 2 and τσ(τ) (D. W.
/// Allan, "Time and frequency (time-domain) characterization, estimation, and prediction of
/// precision clocks and oscillators", IEEE Trans. UFFC 34(6), 1987). Ageing counts at its full
/// rate; temperature is averaged over the phase of its cycle at which holdover begins.
pub(crate) fn dispersion_ns(
    oscillator: &OscillatorModel,
    initial: &PhaseFrequencyCovariance,
    elapsed: f64,
) -> f64 {
    let initial_variance = initial.phase_variance
        + 2.0 * initial.covariance * elapsed
        + initial.frequency_variance * elapsed.powi(2);
    let white = oscillator.white_fm_ppb.powi(2) * elapsed;
    let flicker = (oscillator.flicker_fm_ppb * elapsed).powi(2) / LN_2;
    let random_walk = oscillator.random_walk_density() * elapsed.powi(3) / 3.0;
    let ageing = (oscillator.ageing_ppb_per_day / DAY_S * elapsed.powi(2) / 2.0).powi(2);
    (initial_variance
        + white
        + flicker
        + random_walk
        + ageing
        + temperature_variance(oscillator, elapsed))
    .max(0.0)
    .sqrt()
}

/// Returns the variance of the phase due to temperature, in ns²: the mean, over the initial angle φ
/// of the cycle, of the square of ∫ A (sin(ωt + φ) − sin φ) dt.
fn temperature_variance(oscillator: &OscillatorModel, elapsed: f64) -> f64 {
    let omega = oscillator.temperature.angular_frequency();
    let angle = omega * elapsed;
    let (sine, cosine) = ((angle.sin() - angle) / omega, (1.0 - angle.cos()) / omega);
    oscillator.temperature.amplitude_ppb.powi(2) / 2.0 * (sine.powi(2) + cosine.powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TemperatureCycle;

    const STILL: OscillatorModel = OscillatorModel {
        name: "still",
        frequency_ppb: 0.0,
        white_fm_ppb: 0.0,
        flicker_fm_ppb: 0.0,
        random_walk_fm_ppb: 0.0,
        ageing_ppb_per_day: 0.0,
        temperature: TemperatureCycle { amplitude_ppb: 0.0, period_s: 3_600.0 },
    };
    const EXACT: PhaseFrequencyCovariance =
        PhaseFrequencyCovariance { phase_variance: 0.0, frequency_variance: 0.0, covariance: 0.0 };

    fn after_100_s(oscillator: OscillatorModel) -> f64 {
        dispersion_ns(&oscillator, &EXACT, 100.0)
    }

    #[test]
    fn each_noise_component_grows_by_its_own_law() {
        let near = |value: f64, expected: f64| {
            assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
        };
        near(after_100_s(OscillatorModel { white_fm_ppb: 2.0, ..STILL }), 20.0);
        near(after_100_s(OscillatorModel { flicker_fm_ppb: 2.0, ..STILL }), 200.0 / LN_2.sqrt());
        near(after_100_s(OscillatorModel { random_walk_fm_ppb: 2.0, ..STILL }), 2_000.0);
        near(after_100_s(OscillatorModel { ageing_ppb_per_day: DAY_S, ..STILL }), 5_000.0);
        let known =
            PhaseFrequencyCovariance { phase_variance: 9.0, frequency_variance: 0.16, ..EXACT };
        near(dispersion_ns(&STILL, &known, 10.0), 5.0);
    }

    /// After whole periods only the frequency at which it began is left.
    #[test]
    fn temperature_moves_the_clock_by_its_phase_in_the_period() {
        let temperature = TemperatureCycle { amplitude_ppb: 100.0, period_s: 50.0 };
        let moved = after_100_s(OscillatorModel { temperature, ..STILL });
        assert!((moved - 100.0 * 100.0 / 2_f64.sqrt()).abs() < 1e-6, "{moved}");
    }

    #[test]
    fn a_better_oscillator_holds_over_for_longer() {
        let of = |oscillator: &OscillatorModel| dispersion_ns(oscillator, &EXACT, 3_600.0);
        let [plain, compensated, oven] = OscillatorModel::ALL.each_ref().map(of);
        assert!(plain > 4.0 * compensated && compensated > 20.0 * oven, "{plain} {oven}");
    }
}
