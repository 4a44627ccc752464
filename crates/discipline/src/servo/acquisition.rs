//! Acquisition: a filter starts from consecutive pulses whose phases fit a straight line. A false
//! pulse among them only delays the start.

use std::collections::VecDeque;

use horolog_stats::line;
use horolog_time::{Monotonic, Timestamp};

/// Number of pulses to which the line is fitted. With fewer, randomly late pulses would fit a line
/// by chance about once a week.
pub(super) const LINE_PULSES: usize = 6;
/// The assumed noise doubles after every this many unsuccessful pulses, at most [`DOUBLINGS_MAX`]
/// times.
const PULSES_PER_DOUBLING: u32 = 8;
const DOUBLINGS_MAX: u32 = 12;

/// Phase (ns) and frequency (ppb) of the uncorrected clock at an instant, with their variances, by
/// a line fit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct AcquisitionEstimate {
    pub(super) at: Timestamp<Monotonic>,
    pub(super) phase: f64,
    pub(super) frequency: f64,
    pub(super) phase_variance: f64,
    pub(super) frequency_variance: f64,
}

/// Latest pulses since the filter last accepted one, with their phases in ns.
#[derive(Clone, Default, Debug)]
pub(super) struct AcquisitionPulses {
    recent: VecDeque<(Timestamp<Monotonic>, f64)>,
    unexplained_pulses: u32,
}

impl AcquisitionPulses {
    /// Adds the phase of a pulse, in ns. Returns the state from which a filter starts if the last
    /// pulses fit a line to within `gate` standard deviations `noise`, with a slope of at most
    /// `frequency_max` ppb.
    pub(super) fn add_pulse(
        &mut self,
        (at, phase): (Timestamp<Monotonic>, f64),
        (gate, noise): (f64, f64),
        frequency_max: f64,
    ) -> Option<AcquisitionEstimate> {
        if self.recent.len() == LINE_PULSES {
            self.recent.pop_front();
        }
        self.recent.push_back((at, phase));
        self.unexplained_pulses += 1;
        if self.recent.len() < LINE_PULSES {
            return None;
        }
        let noise = noise
            * 2_f64.powi((self.unexplained_pulses / PULSES_PER_DOUBLING).min(DOUBLINGS_MAX) as i32);
        let to_point = |other: &(Timestamp<Monotonic>, f64)| ((other.0 - at).as_seconds(), other.1);
        let points: Vec<_> = self.recent.iter().map(to_point).collect();
        let line = line::fit_line(&points)?;
        let residual = |(x, y): &(f64, f64)| (y - line.intercept - line.slope * x).abs();
        let is_line = points.iter().all(|point| residual(point) <= gate * noise);
        // Variances of a line through this many points, at its last point.
        let mean = points.iter().map(|point| point.0).sum::<f64>() / points.len() as f64;
        let sum_of_squares: f64 = points.iter().map(|point| (point.0 - mean).powi(2)).sum();
        let noise = noise.max(line.residual).powi(2);
        (is_line && line.slope.abs() <= frequency_max).then(|| AcquisitionEstimate {
            at,
            phase: line.intercept,
            frequency: line.slope,
            phase_variance: noise * ((points.len() as f64).recip() + mean.powi(2) / sum_of_squares),
            frequency_variance: noise / sum_of_squares,
        })
    }

    /// Returns the number of pulses since the filter last accepted one.
    pub(super) fn unexplained_pulses(&self) -> u32 {
        self.unexplained_pulses
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(phases: &[f64]) -> Vec<Option<AcquisitionEstimate>> {
        let mut acquisition = AcquisitionPulses::default();
        let take = |(second, phase): (usize, &f64)| {
            let at = Timestamp::from_ns(second as i64 * 1_000_000_000);
            acquisition.add_pulse((at, *phase), (5.0, 100.0), 500_000.0)
        };
        phases.iter().enumerate().map(take).collect()
    }

    #[test]
    fn six_pulses_on_a_line_begin_a_filter() {
        let starts = feed(&[0.0, 1_000.0, 2_100.0, 2_950.0, 4_050.0, 4_950.0]);
        assert_eq!(starts[..5], [None; 5]);
        let start = starts[5].unwrap();
        assert!((start.frequency - 1_000.0).abs() < 50.0, "{start:?}");
        assert!((start.phase - 5_000.0).abs() < 100.0 && start.phase_variance >= 5_000.0);
    }

    #[test]
    fn a_false_one_is_waited_out() {
        let starts = feed(&[0.0, 0.0, 900_000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(starts[..8].iter().all(Option::is_none) && starts[8].is_some());
    }

    #[test]
    fn noise_that_was_not_expected_is_accepted_in_the_end() {
        let noisy: Vec<_> = (0..100).map(|count| [0.0, 3_000.0, -4_000.0][count % 3]).collect();
        let first = feed(&noisy).iter().position(Option::is_some);
        assert!(first.is_some_and(|count| count > 8), "{first:?}");
    }

    #[test]
    fn no_clock_is_so_wrong() {
        let steep: Vec<_> = (0..50).map(|count| f64::from(count) * 600_000.0).collect();
        assert!(feed(&steep).iter().all(Option::is_none));
    }
}
