//! How noisy the pulses are, from the pulses themselves, and whether the filter lags behind them.

use std::collections::VecDeque;

use crate::kalman::Innovation;

/// Differences that are kept, and how many there must be before they count.
const DIFFERENCES_MAX: usize = 128;
const DIFFERENCES_MIN: usize = 16;
/// Standard deviations in a median of absolute deviations, for a normal distribution.
const DEVIATION_PER_MEDIAN: f64 = 1.482_6;
/// No timestamp of an edge is better than this, in ns.
const NOISE_MIN_NS: f64 = 1.0;

/// The noise of pulses, by the median of the absolute differences of two innovations in a row. The
/// difference leaves out what is slow, such as a filter that lags, and the median what is rare.
#[derive(Clone, Debug)]
pub(crate) struct PulseNoise {
    last: Option<f64>,
    differences: VecDeque<f64>,
    deviation: f64,
    is_measured: bool,
}

impl PulseNoise {
    pub(crate) fn new(initial_ns: f64) -> Self {
        let deviation = initial_ns.max(NOISE_MIN_NS);
        Self { last: None, differences: VecDeque::new(), deviation, is_measured: false }
    }

    /// Takes the innovation of a pulse, whether or not that was believed.
    pub(crate) fn take(&mut self, innovation: Innovation) {
        if let Some(last) = self.last.replace(innovation.value) {
            if self.differences.len() == DIFFERENCES_MAX {
                self.differences.pop_front();
            }
            self.differences.push_back((innovation.value - last).abs());
        }
        if self.differences.len() >= DIFFERENCES_MIN {
            let mut sorted: Vec<_> = self.differences.iter().copied().collect();
            let middle = sorted.len() / 2;
            let (_, median, _) = sorted.select_nth_unstable_by(middle, f64::total_cmp);
            // A difference has twice the variance.
            let deviation = DEVIATION_PER_MEDIAN * *median / 2_f64.sqrt();
            self.deviation = deviation.max(NOISE_MIN_NS);
            self.is_measured = true;
        }
    }

    /// The next innovation has nothing to do with the last one.
    pub(crate) fn interrupt(&mut self) {
        self.last = None;
    }

    /// The standard deviation of a pulse, in ns.
    pub(crate) fn deviation_ns(&self) -> f64 {
        self.deviation
    }

    /// Whether that comes of the pulses.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }
}

/// Part of each new innovation in the mean.
const WEIGHT: f64 = 0.1;
/// The mean of innovations without a lag has a standard deviation of 0.23 (the root of w / (2 -
/// w)), so a larger one than this is no chance.
const LAG: f64 = 1.0;

/// Whether innovations have a mean: the filter lags behind a clock that changes faster than its
/// oscillator's model says.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lag {
    mean: f64,
}

impl Lag {
    /// Takes an innovation that was believed; says whether the filter lags.
    pub(crate) fn take(&mut self, innovation: Innovation) -> bool {
        self.mean += WEIGHT * (innovation.normalised() - self.mean);
        let lags = self.mean.abs() > LAG;
        if lags {
            self.mean = 0.0;
        }
        lags
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::SplitMix64;

    use super::*;

    fn of(value: f64) -> Innovation {
        Innovation { value, variance: 1.0 }
    }

    #[test]
    fn noise_is_measured_past_outliers_and_slow_changes() {
        let mut random = SplitMix64::new(1);
        let mut noise = PulseNoise::new(2_000.0);
        for count in 0..1_000_u32 {
            // Twelve uniform numbers have the variance of one.
            let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            let outlier = if count % 50 == 0 { 1e6 } else { 0.0 };
            noise.take(of(100.0 * normal + 5.0 * f64::from(count) + outlier));
        }
        assert!((75.0..130.0).contains(&noise.deviation_ns()), "{noise:?}");
    }

    #[test]
    fn few_pulses_measure_nothing() {
        let mut noise = PulseNoise::new(2_000.0);
        (0..16).for_each(|_| noise.take(of(0.0)));
        assert!((noise.deviation_ns() - 2_000.0).abs() < 1e-9 && !noise.is_measured());
        noise.take(of(0.0));
        assert!((noise.deviation_ns() - NOISE_MIN_NS).abs() < 1e-9 && noise.is_measured());
    }

    #[test]
    fn a_lag_is_seen_and_noise_is_not_one() {
        let mut lag = Lag::default();
        assert!(!(0..1_000).any(|count| lag.take(of(if count % 2 == 0 { 2.0 } else { -2.0 }))));
        let first = (0..100).find(|_| lag.take(of(1.5)));
        assert!(first.is_some_and(|count| (8..16).contains(&count)), "{first:?}");
    }
}
