//! Random numbers with the distributions of clocks: normal ones, and the frequency of an oscillator
//! by its power-law noises.

use std::f64::consts::PI;

use horolog_time::SplitMix64;

use crate::OscillatorModel;
use crate::oscillator::DAY_S;

/// Number of first-order processes that add up to flicker noise. Their time constants are a factor
/// of [`FLICKER_RATIO`] apart, from a second to three days.
const FLICKER_STAGES: u32 = 10;
const FLICKER_RATIO: f64 = 4.0;

/// Numbers with a normal distribution, of mean 0 and deviation 1 (Box and Muller, 1958).
#[derive(Clone, Debug)]
pub(super) struct NormalGenerator {
    random: SplitMix64,
    spare: Option<f64>,
}

impl NormalGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: SplitMix64::new(seed), spare: None }
    }

    pub(super) fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // Above 0, so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.random.next_f64()).ln()).sqrt();
        let angle = 2.0 * PI * self.random.next_f64();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}

/// First-order Gauss-Markov process, one of those that add up to flicker noise.
#[derive(Clone, Copy, Debug)]
struct FlickerNoiseComponent {
    value: f64,
    decay_factor: f64,
    innovation_deviation: f64,
}

/// Simulated oscillator: its frequency, second by second.
#[derive(Clone, Debug)]
pub(super) struct SimulatedOscillator {
    oscillator: OscillatorModel,
    normal: NormalGenerator,
    flicker: Vec<FlickerNoiseComponent>,
    random_walk: f64,
    /// Initial angle of the temperature cycle, in radians.
    temperature_phase: f64,
    elapsed_s: f64,
}

impl SimulatedOscillator {
    pub(super) fn new(oscillator: OscillatorModel, seed: u64) -> Self {
        let mut normal = NormalGenerator::new(seed);
        let temperature_phase = 2.0 * PI * normal.random.next_f64();
        // A sum of processes whose time constants are a factor r apart and whose variances are all
        // v has the spectrum v / (f ln r), and flicker noise of the Allan deviation σ has σ² / (2 f
        // ln 2) (NIST SP 1065, section 3.3): v is σ² for r = 4. (The idea is from J. A. Barnes and
        // S. Jarvis, NBS Technical Note 604, 1971.)
        let variance = oscillator.flicker_fm_ppb.powi(2);
        let stage = |power| {
            let decay_factor = (-FLICKER_RATIO.powi(power as i32).recip()).exp();
            let innovation_deviation = (variance * (1.0 - decay_factor * decay_factor)).sqrt();
            FlickerNoiseComponent {
                value: variance.sqrt() * normal.next(),
                decay_factor,
                innovation_deviation,
            }
        };
        let flicker = (0..FLICKER_STAGES).map(stage).collect();
        Self { oscillator, normal, flicker, random_walk: 0.0, temperature_phase, elapsed_s: 0.0 }
    }

    /// Returns the mean frequency error over the next second, in ppb.
    pub(super) fn next(&mut self) -> f64 {
        let oscillator = &self.oscillator;
        for stage in &mut self.flicker {
            stage.value =
                stage.decay_factor * stage.value + stage.innovation_deviation * self.normal.next();
        }
        let flicker: f64 = self.flicker.iter().map(|stage| stage.value).sum();
        // End of the random walk after a second, and its mean over the second, whose variance about
        // the midpoint is 1/12 of the step's variance (Brownian bridge).
        let deviation = oscillator.random_walk_density().sqrt();
        let walk_step = deviation * self.normal.next();
        let random_walk_mean =
            self.random_walk + walk_step / 2.0 + deviation / 12_f64.sqrt() * self.normal.next();
        self.random_walk += walk_step;
        let white = oscillator.white_fm_ppb * self.normal.next();
        let angle =
            self.temperature_phase + oscillator.temperature.angular_frequency() * self.elapsed_s;
        let temperature = oscillator.temperature.amplitude_ppb * angle.sin();
        let ageing = oscillator.ageing_ppb_per_day / DAY_S * self.elapsed_s;
        self.elapsed_s += 1.0;
        oscillator.frequency_ppb + white + flicker + random_walk_mean + temperature + ageing
    }
}

#[cfg(test)]
mod tests {
    use horolog_stats::allan;

    use super::*;
    use crate::TemperatureCycle;

    const STILL: OscillatorModel = OscillatorModel {
        name: "still",
        frequency_ppb: 100.0,
        white_fm_ppb: 0.0,
        flicker_fm_ppb: 0.0,
        random_walk_fm_ppb: 0.0,
        ageing_ppb_per_day: 0.0,
        temperature: TemperatureCycle { amplitude_ppb: 0.0, period_s: 3_600.0 },
    };

    fn phases(oscillator: OscillatorModel, seconds: usize) -> Vec<Option<f64>> {
        let mut frequency = SimulatedOscillator::new(oscillator, 5);
        let mut phase = 0.0;
        let mut next = || {
            phase += frequency.next();
            Some(phase)
        };
        (0..seconds).map(|_| next()).collect()
    }

    /// Each noise by itself has the slope and the level that define it (NIST SP 1065, table 3).
    #[test]
    fn allan_deviations_match_the_oscillator() {
        let check = |oscillator, law: fn(f64) -> f64| {
            let phases = phases(oscillator, 200_000);
            for samples in [1, 4, 16, 64, 256, 1_024] {
                let found = allan::overlapping_deviation(&phases, samples).unwrap().deviation;
                let ratio = found / (3.0 * law(samples as f64));
                assert!((0.8..1.2).contains(&ratio), "{oscillator:?} {samples} {found}");
            }
        };
        check(OscillatorModel { white_fm_ppb: 3.0, ..STILL }, |time| time.powf(-0.5));
        check(OscillatorModel { flicker_fm_ppb: 3.0, ..STILL }, |_| 1.0);
        check(OscillatorModel { random_walk_fm_ppb: 3.0, ..STILL }, f64::sqrt);
    }

    #[test]
    fn ageing_and_temperature_are_not_random() {
        let phase = |oscillator| phases(oscillator, 86_400).pop().unwrap().unwrap();
        let aged = phase(OscillatorModel { ageing_ppb_per_day: 10.0, ..STILL }) - phase(STILL);
        assert!((aged / (5.0 * DAY_S) - 1.0).abs() < 1e-4, "{aged}");
        let temperature = TemperatureCycle { amplitude_ppb: 50.0, period_s: 3_600.0 };
        let swung = phase(OscillatorModel { temperature, ..STILL }) - phase(STILL);
        assert!(swung.abs() < 1.0, "whole periods: {swung}");
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let mut normal = NormalGenerator::new(3);
        let values: Vec<_> = (0..100_000).map(|_| normal.next()).collect();
        let moment = |power| values.iter().map(|value: &f64| value.powi(power)).sum::<f64>() / 1e5;
        assert!(moment(1).abs() < 0.01 && (moment(2) - 1.0).abs() < 0.02);
        assert!((moment(4) - 3.0).abs() < 0.1, "{}", moment(4));
    }
}
