//! Noise of the pulses, measured from the pulses themselves, and detection of a filter that lags
//! behind them.

use std::collections::VecDeque;

use crate::kalman::Innovation;

/// Maximum number of retained differences of consecutive pulses.
const DIFFERENCES_MAX: usize = 128;
/// Minimum number of differences from which the noise is computed.
const DIFFERENCES_MIN: usize = 16;
/// Standard deviation divided by the median absolute deviation, for a normal distribution.
const DEVIATION_PER_MEDIAN: f64 = 1.482_6;
/// Lower limit of the noise, in ns: no edge is timestamped more precisely.
const NOISE_MIN_NS: f64 = 1.0;

/// Estimator of the pulses' noise: the standard deviation computed from the median absolute
/// difference of consecutive innovations. The difference removes slow errors, such as those of a
/// lagging filter; the median removes outliers.
#[derive(Clone, Debug)]
pub(crate) struct PulseNoiseEstimator {
    last: Option<f64>,
    differences: VecDeque<f64>,
    deviation: f64,
    is_measured: bool,
}

impl PulseNoiseEstimator {
    pub(crate) fn new(initial_ns: f64) -> Self {
        let deviation = initial_ns.max(NOISE_MIN_NS);
        Self { last: None, differences: VecDeque::new(), deviation, is_measured: false }
    }

    /// Adds the innovation of a pulse, whether the filter accepted it or not.
    pub(crate) fn add_innovation(&mut self, innovation: Innovation) {
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
            // The difference of two independent innovations has twice the variance of one.
            let deviation = DEVIATION_PER_MEDIAN * *median / 2_f64.sqrt();
            self.deviation = deviation.max(NOISE_MIN_NS);
            self.is_measured = true;
        }
    }

    /// Marks the next innovation as unrelated to the last one.
    pub(crate) fn interrupt(&mut self) {
        self.last = None;
    }

    /// Returns the standard deviation of a pulse, in ns.
    pub(crate) fn deviation_ns(&self) -> f64 {
        self.deviation
    }

    /// Returns true if the deviation was measured from pulses, and is not the initial value.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }
}

/// Weight of a new innovation in the exponential moving average.
const INNOVATION_WEIGHT: f64 = 0.1;
/// Mean above which the filter lags. Without a lag, the mean of normalised innovations has a
/// standard deviation of 0.23 (√(w / (2 − w)) for the weight w), so 1.0 is more than 4 standard
/// deviations.
const LAG_THRESHOLD: f64 = 1.0;

/// Detector of innovations whose mean is not 0: the filter lags behind a clock whose frequency
/// changes faster than the oscillator's model predicts.
#[derive(Clone, Default, Debug)]
pub(crate) struct FilterLagDetector {
    mean: f64,
}

impl FilterLagDetector {
    /// Adds the innovation of an accepted pulse. Returns true if the filter lags, and then restarts
    /// the mean at 0.
    pub(crate) fn detect_lag(&mut self, innovation: Innovation) -> bool {
        self.mean += INNOVATION_WEIGHT * (innovation.normalised() - self.mean);
        let is_lagging = self.mean.abs() > LAG_THRESHOLD;
        if is_lagging {
            self.mean = 0.0;
        }
        is_lagging
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
        let mut noise = PulseNoiseEstimator::new(2_000.0);
        for count in 0..1_000_u32 {
            // Twelve uniform numbers have the variance of one.
            let normal = (0..12).map(|_| random.next_f64()).sum::<f64>() - 6.0;
            let outlier = if count % 50 == 0 { 1e6 } else { 0.0 };
            noise.add_innovation(of(100.0 * normal + 5.0 * f64::from(count) + outlier));
        }
        assert!((75.0..130.0).contains(&noise.deviation_ns()), "{noise:?}");
    }

    #[test]
    fn few_pulses_measure_nothing() {
        let mut noise = PulseNoiseEstimator::new(2_000.0);
        (0..16).for_each(|_| noise.add_innovation(of(0.0)));
        assert!((noise.deviation_ns() - 2_000.0).abs() < 1e-9 && !noise.is_measured());
        noise.add_innovation(of(0.0));
        assert!((noise.deviation_ns() - NOISE_MIN_NS).abs() < 1e-9 && noise.is_measured());
    }

    #[test]
    fn a_lag_is_detected_and_noise_is_not() {
        let mut lag = FilterLagDetector::default();
        assert!(!(0..1_000).any(|count| lag.detect_lag(of(if count % 2 == 0 {
            2.0
        } else {
            -2.0
        }))));
        let first = (0..100).find(|_| lag.detect_lag(of(1.5)));
        assert!(first.is_some_and(|count| (8..16).contains(&count)), "{first:?}");
    }
}
