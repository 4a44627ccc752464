//! Statistics of the samples of one server. Pure.

use std::time::Duration;

use horolog_record::{AllanDeviation, BestSample, ClockDrift, ExactSummary, ExchangeSample};

use crate::stability;

/// Maximum number of time grid slots for which an Allan deviation is computed.
const SLOTS_MAX: u64 = 4_000_000;
/// Tolerated negative delay beyond the dispersion, in ns: error of the software timestamps at both
/// ends.
const CLOCK_READ_ERROR_NS: i64 = 10_000;

/// Returns the summary of one quantity of all samples; `None` without samples.
pub(crate) fn summary(
    samples: &[ExchangeSample],
    quantity: fn(&ExchangeSample) -> i64,
) -> Option<ExactSummary> {
    ExactSummary::from_values(samples.iter().map(quantity))
}

/// Returns true if the delay is negative by more than its possible error.
pub(crate) const fn has_impossible_delay(sample: &ExchangeSample) -> bool {
    let least = -CLOCK_READ_ERROR_NS;
    sample.delay_ns.saturating_add_unsigned(sample.dispersion_ns) < least
}

/// Returns the sample with the smallest delay (RFC 5905, section 10), and of equal ones that with
/// the smallest error bound. One with an impossible delay is returned only if there is no other.
pub(crate) fn best_sample(samples: &[ExchangeSample]) -> Option<BestSample> {
    let rank = |sample: &&ExchangeSample| {
        (has_impossible_delay(sample), sample.delay_ns, sample.error_bound_ns())
    };
    let best = samples.iter().min_by_key(rank)?;
    Some(BestSample {
        offset_ns: best.offset_ns,
        delay_ns: best.delay_ns,
        dispersion_ns: best.dispersion_ns,
        bound_ns: best.error_bound_ns(),
    })
}

/// Returns the jitter ψ in ns: root mean square of the other samples' distance from `offset_ns`
/// (RFC 5905, section 10); `None` for one sample.
pub(crate) fn jitter_ns(samples: &[ExchangeSample], offset_ns: i64) -> Option<f64> {
    let others = samples.len().checked_sub(1).filter(|others| *others > 0)?;
    let square = |sample: &ExchangeSample| (sample.offset_ns.abs_diff(offset_ns) as f64).powi(2);
    Some((samples.iter().map(square).sum::<f64>() / others as f64).sqrt())
}

/// Fits a line through the offsets; `None` for too few samples.
pub(crate) fn fit_drift(samples: &[ExchangeSample]) -> Option<ClockDrift> {
    let first = samples.first()?;
    let point = |sample: &ExchangeSample| {
        let seconds = sample.t1_ns.saturating_sub(first.t1_ns) as f64 / 1e9;
        // Relative to the first sample, so that the double loses little precision.
        (seconds, sample.offset_ns.saturating_sub(first.offset_ns) as f64)
    };
    stability::fit_drift(&samples.iter().map(point).collect::<Vec<_>>())
}

/// Returns the Allan deviation of the offsets at octaves of the interval; none for more than
/// [`SLOTS_MAX`] slots.
pub(crate) fn allan_deviations(
    samples: &[ExchangeSample],
    interval: Duration,
) -> Vec<AllanDeviation> {
    let slots = samples.last().map_or(0, |last| last.sequence.saturating_add(1));
    if slots > SLOTS_MAX {
        return Vec::new();
    }
    let mut phase_s = vec![None; slots as usize];
    // A common offset cancels in second differences but would cost digits.
    let base_ns = samples.first().map_or(0, |first| first.offset_ns);
    for sample in samples {
        let offset_ns = sample.offset_ns.saturating_sub(base_ns);
        phase_s[sample.sequence as usize] = Some(offset_ns as f64 / 1e9);
    }
    stability::allan_deviations(&phase_s, interval)
}

#[cfg(test)]
pub(crate) mod tests {
    use horolog_record::TimestampSource;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn sample(sequence: u64, offset_ns: i64, delay_ns: i64) -> ExchangeSample {
        let t1_ns = 1_700_000_000_000_000_000 + sequence as i64 * 100_000_000;
        ExchangeSample {
            sequence,
            t1_ns,
            t2_ns: t1_ns + delay_ns / 2 + offset_ns,
            t3_ns: t1_ns + delay_ns / 2 + offset_ns,
            t4_ns: t1_ns + delay_ns,
            offset_ns,
            delay_ns,
            dispersion_ns: 10,
            transmit: TimestampSource::Kernel,
            receive: TimestampSource::Kernel,
            interleaved: false,
        }
    }

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn the_least_delay_is_the_best() {
        let samples = [sample(0, 900, 400), sample(1, 100, 80), sample(2, -300, 90)];
        let best = best_sample(&samples).unwrap();
        assert_eq!((best.offset_ns, best.delay_ns, best.bound_ns), (100, 80, 50));
        let jitter = jitter_ns(&samples, best.offset_ns).unwrap();
        assert!((jitter - (f64::from(800 * 800 + 400 * 400) / 2.0).sqrt()).abs() < 1e-9);
        assert_eq!(jitter_ns(&samples[..1], 0), None);
    }

    #[test]
    fn a_delay_below_zero_is_not_the_least() {
        let samples = [sample(0, 7, -50_000), sample(1, 8, -9_000), sample(2, 9, 40_000)];
        assert_eq!(samples.each_ref().map(has_impossible_delay), [true, false, false]);
        assert_eq!(best_sample(&samples).unwrap().offset_ns, 8);
        assert_eq!(best_sample(&samples[..1]).unwrap().offset_ns, 7);
    }

    #[test]
    fn a_drift_is_a_slope() {
        // 5 µs in each tenth of a second are 50 ppm.
        let samples: Vec<_> = (0..50).map(|at| sample(at, at as i64 * 5_000, 100)).collect();
        let drift = fit_drift(&samples).unwrap();
        assert!((drift.ppm - 50.0).abs() < 1e-9, "{drift:?}");
        assert!(drift.error_ppm < 1e-6 && drift.residual_ns < 1e-3, "{drift:?}");
        // A constant drift has no Allan deviation.
        assert!(allan_deviations(&samples, INTERVAL).iter().all(|point| point.deviation < 1e-12));
        assert_eq!(super::fit_drift(&samples[..2]), None);
    }

    #[test]
    fn white_noise_falls_with_the_averaging_time() {
        let noise = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as i64 - 512;
        let samples: Vec<_> = (0..4_096).map(|at| sample(at, noise(at), 100)).collect();
        let points = allan_deviations(&samples, INTERVAL);
        assert!((points[0].tau_s - 0.1).abs() < 1e-12);
        // √3 times the deviation of the noise, some 296 ns, over τ.
        let expected = 3_f64.sqrt() * 296e-9 / 0.1;
        assert!((points[0].deviation / expected - 1.0).abs() < 0.3, "{:?}", points[0]);
        assert!(points[6].deviation < points[0].deviation / 32.0, "{points:?}");
    }

    proptest! {
        #[test]
        fn any_samples_have_figures(
            values in prop::collection::vec((any::<i64>(), any::<i64>(), 1_u64..9), 0..40),
        ) {
            let mut sequence = 0;
            let samples: Vec<_> = values.into_iter().map(|(offset_ns, delay_ns, step)| {
                sequence += step;
                ExchangeSample { offset_ns, delay_ns, ..sample(sequence, 0, 0) }
            }).collect();
            let best = best_sample(&samples);
            prop_assert_eq!(best.is_some(), !samples.is_empty());
            prop_assert_eq!(summary(&samples, |s| s.offset_ns).is_some(), !samples.is_empty());
            let _ = (fit_drift(&samples), jitter_ns(&samples, best.map_or(0, |best| best.offset_ns)));
            let finite = |point: &AllanDeviation| point.deviation.is_finite();
            prop_assert!(allan_deviations(&samples, INTERVAL).iter().all(finite));
        }
    }
}
