//! Allan deviation: root mean square of the change of a clock's mean frequency from one interval of
//! length τ to the next, divided by √2. Its dependence on τ separates measurement noise from the
//! clock's wander.
//!
//! Computed from phase, in its overlapping form (NIST Special Publication 1065, section 5.2.4),
//! which uses every sample. Missing samples are skipped, never interpolated.

/// Deviation at one averaging time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllanPoint {
    /// Averaging time τ, in samples.
    pub samples: usize,
    /// Number of second differences of the phase that were used.
    pub terms: usize,
    /// Deviation, in units of phase per sample interval.
    pub deviation: f64,
}

/// Returns the overlapping Allan deviation of evenly spaced `phase` at an averaging time of
/// `samples`; `None` if no three samples are that far apart.
#[must_use]
pub fn overlapping_deviation(phase: &[Option<f64>], samples: usize) -> Option<AllanPoint> {
    let span = samples.checked_mul(2).filter(|reach| (1..phase.len()).contains(reach))?;
    let difference = |start: usize| {
        let (first, middle, last) = (phase[start]?, phase[start + samples]?, phase[start + span]?);
        Some(last - 2.0 * middle + first)
    };
    let (mut terms, mut sum) = (0, 0.0);
    for difference in (0..phase.len() - span).filter_map(difference) {
        terms += 1;
        sum += difference * difference;
    }
    let scale = 2.0 * (samples as f64).powi(2) * terms as f64;
    (terms > 0).then(|| AllanPoint { samples, terms, deviation: (sum / scale).sqrt() })
}

/// Returns the Allan deviations at averaging times of 1, 2, 4, 8 and so on, as far as there are
/// data.
#[must_use]
pub fn octave_deviations(phase: &[Option<f64>]) -> Vec<AllanPoint> {
    let powers = (0..usize::BITS - 1).map(|power| 1_usize << power);
    powers
        .take_while(|samples| samples.saturating_mul(2) < phase.len())
        .filter_map(|samples| overlapping_deviation(phase, samples))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The fractional frequencies of the NBS data set of the test suites of NIST SP 1065.
    const NBS: [f64; 9] = [892.0, 809.0, 823.0, 798.0, 671.0, 644.0, 883.0, 903.0, 677.0];

    /// The 1,000 fractional frequencies of the larger one: the generator
    /// of Park and Miller, from 1,234,567,890 on.
    pub(crate) fn thousand() -> Vec<f64> {
        let mut state = 1_234_567_890_u64;
        std::iter::repeat_with(|| {
            let value = state as f64 / 2_147_483_647.0;
            state = state * 16_807 % 2_147_483_647;
            value
        })
        .take(1_000)
        .collect()
    }

    fn phase(frequency: &[f64]) -> Vec<Option<f64>> {
        let mut sum = 0.0;
        let sums = frequency.iter().map(|one| {
            sum += one;
            Some(sum)
        });
        std::iter::once(Some(0.0)).chain(sums).collect()
    }

    fn deviation(phase: &[Option<f64>], samples: usize) -> f64 {
        overlapping_deviation(phase, samples).unwrap().deviation
    }

    #[test]
    fn the_test_suite_of_nist_sp_1065_is_met() {
        let small = phase(&NBS);
        assert!((deviation(&small, 1) - 91.229_45).abs() < 5e-6);
        assert!((deviation(&small, 2) - 85.952_87).abs() < 5e-6);
        let large = phase(&thousand());
        for (samples, expected) in [(1, 2.922_319e-1), (10, 9.159_953e-2), (100, 3.241_343e-2)] {
            assert!((deviation(&large, samples) - expected).abs() < 5e-8, "{samples}");
        }
    }

    #[test]
    fn octaves_go_as_far_as_the_data() {
        let points = octave_deviations(&phase(&thousand()));
        let taken: Vec<_> = points.iter().map(|point| (point.samples, point.terms)).collect();
        assert_eq!(taken.first(), Some(&(1, 999)));
        assert_eq!(taken.last(), Some(&(256, 1_001 - 512)));
        assert_eq!(taken.len(), 9);
    }

    #[test]
    fn too_few_samples_have_no_deviation() {
        for phase in [vec![], vec![Some(1.0)], vec![Some(1.0); 2], vec![Some(1.0), None, Some(1.0)]]
        {
            assert!(octave_deviations(&phase).is_empty(), "{phase:?}");
        }
        assert_eq!(overlapping_deviation(&[Some(1.0); 9], 0), None);
        assert_eq!(overlapping_deviation(&[Some(1.0); 9], usize::MAX), None);
    }

    proptest! {
        /// A constant frequency has no deviation, with or without gaps.
        #[test]
        fn a_steady_clock_has_no_deviation(
            start in -1e3_f64..1e3, rate in -1e3_f64..1e3,
            kept in prop::collection::vec(any::<bool>(), 3..200),
        ) {
            let at = |(index, kept): (usize, &bool)| kept.then(|| start + rate * index as f64);
            let phase: Vec<_> = kept.iter().enumerate().map(at).collect();
            for point in octave_deviations(&phase) {
                prop_assert!(point.deviation < 1e-6, "{:?}", point);
                prop_assert!(point.terms >= 1);
            }
        }

        /// Each gap costs at most the three differences that it would have been part of.
        #[test]
        fn a_gap_costs_three_terms_at_most(gap in 0_usize..1_001, samples in 1_usize..100) {
            let mut phase = phase(&thousand());
            let whole = overlapping_deviation(&phase, samples).unwrap();
            phase[gap] = None;
            let rest = overlapping_deviation(&phase, samples).unwrap();
            prop_assert!((1..=3).contains(&(whole.terms - rest.terms)));
        }
    }
}
