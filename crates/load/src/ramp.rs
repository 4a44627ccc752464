//! Ramp: trials at rising rates. Computes the rates and when to end; runs nothing.

use std::time::Duration;

use horolog_time::Span;
use thiserror::Error;

/// Loss ratio above which a ramp ends, because higher rates would lose even more.
const LOSS_LIMIT: f64 = 0.5;

/// Largest number of rates in a ramp; a multiplier close to 1 would make too many.
const STEPS_MAX: usize = 10_000;

/// Reason for which a ramp is invalid.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum RampError {
    /// Rates that are not positive or not in order.
    #[error("{min} to {max} requests/s is not a valid ramp; write MIN-MAX with 0 < MIN <= MAX")]
    Rates {
        /// First rate.
        min: f64,
        /// Last rate.
        max: f64,
    },
    /// A multiplier that does not increase the rate.
    #[error("{0} is not a valid multiplier; choose a number above 1")]
    Multiplier(f64),
    /// More rates than a ramp may have.
    #[error(
        "these rates and this multiplier make more than {STEPS_MAX} trials; choose a larger \
             multiplier"
    )]
    TooMany,
    /// Trials shorter than 1 ms or longer than a day.
    #[error("a trial must last from 1 ms to 1 day, not {}", Span::from(*.0))]
    Duration(Duration),
}

/// Rising rates, each held for the same time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ramp {
    /// First rate, in requests per second.
    pub min: f64,
    /// Upper limit of the rates, in requests per second.
    pub max: f64,
    /// Factor between two consecutive rates.
    pub multiplier: f64,
    /// Duration of each trial.
    pub duration: Duration,
}

impl Ramp {
    /// Returns the rates in rising order, or the reason for which the ramp is invalid. Rates above
    /// 1 are whole numbers: the first is rounded, and the others lose their fraction before the
    /// next rate is computed, as in ntpperf's tables. The last rate may be below `max`.
    pub fn rates(&self) -> Result<Vec<f64>, RampError> {
        let Self { min, max, multiplier, duration } = *self;
        // Written so that NaN fails as well.
        if !(min > 0.0 && min <= max && max.is_finite()) {
            return Err(RampError::Rates { min, max });
        }
        if duration < Duration::from_millis(1) || duration > Duration::from_hours(24) {
            return Err(RampError::Duration(duration));
        }
        if min < max && !(multiplier > 1.0 && multiplier.is_finite()) {
            return Err(RampError::Multiplier(multiplier));
        }
        let mut rates = Vec::new();
        let mut rate = if min > 1.0 { min.round() } else { min };
        // The tolerance of 5e-7 absorbs rounding errors of the multiplication.
        let rate_max = if max > 1.0 { max.round() } else { max };
        while rate <= rate_max * (1.0 + 5e-7) {
            if rates.len() == STEPS_MAX {
                return Err(RampError::TooMany);
            }
            rates.push(rate);
            if min >= max {
                break;
            }
            rate = next_rate(rate, multiplier);
        }
        Ok(rates)
    }

    /// Returns true if a ramp ends after a trial with this loss ratio.
    #[must_use]
    pub fn is_last_trial(loss_ratio: f64) -> bool {
        loss_ratio > LOSS_LIMIT
    }
}

/// Returns the next rate. Above 1 it is the product rounded down, or the next whole number if that
/// is no increase.
fn next_rate(rate: f64, multiplier: f64) -> f64 {
    let product = rate * multiplier;
    if product <= 1.0 {
        return product;
    }
    // Added so that a rounding error does not reduce the result by 1.
    let whole = (product * (1.0 + 1e-12)).floor();
    if whole > rate { whole } else { rate.floor() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ramp(min: f64, max: f64, multiplier: f64) -> Ramp {
        Ramp { min, max, multiplier, duration: Duration::from_secs(2) }
    }

    #[test]
    fn rates_rise_by_the_multiplier() {
        assert_eq!(ramp(1000.0, 5000.0, 1.5).rates().unwrap(), [1000.0, 1500.0, 2250.0, 3375.0]);
        assert_eq!(ramp(1000.0, 4000.0, 2.0).rates().unwrap(), [1000.0, 2000.0, 4000.0]);
    }

    /// The rates of ntpperf's own tables.
    #[test]
    fn fractions_are_dropped_as_they_arise() {
        let rates = [
            1000.0, 1500.0, 2250.0, 3375.0, 5062.0, 7593.0, 11389.0, 17083.0, 25624.0, 38436.0,
            57654.0, 86481.0, 129_721.0, 194_581.0, 291_871.0, 437_806.0, 656_709.0, 985_063.0,
        ];
        assert_eq!(ramp(1000.0, 1e6, 1.5).rates().unwrap(), rates);
        assert_eq!(ramp(1000.0, 1200.0, 1.15).rates().unwrap(), [1000.0, 1150.0]);
        assert_eq!(ramp(7.0, 9.0, 1.01).rates().unwrap(), [7.0, 8.0, 9.0]);
        assert_eq!(ramp(0.5, 2.5, 2.0).rates().unwrap(), [0.5, 1.0, 2.0]);
    }

    #[test]
    fn a_single_rate_needs_no_multiplier() {
        assert_eq!(ramp(700.0, 700.0, 0.0).rates().unwrap(), [700.0]);
    }

    #[test]
    fn ramps_that_cannot_be_are_refused() {
        assert!(matches!(ramp(0.0, 5.0, 2.0).rates(), Err(RampError::Rates { .. })));
        assert!(matches!(ramp(9.0, 5.0, 2.0).rates(), Err(RampError::Rates { .. })));
        assert!(matches!(ramp(f64::NAN, 5.0, 2.0).rates(), Err(RampError::Rates { .. })));
        assert_eq!(ramp(1.0, 5.0, 1.0).rates(), Err(RampError::Multiplier(1.0)));
        assert_eq!(ramp(1.0, 1e9, 1.000_001).rates(), Err(RampError::TooMany));
        let hasty = Ramp { duration: Duration::ZERO, ..ramp(1.0, 5.0, 2.0) };
        assert_eq!(hasty.rates(), Err(RampError::Duration(Duration::ZERO)));
    }

    #[test]
    fn more_than_half_lost_is_the_end() {
        assert!(!Ramp::is_last_trial(0.5));
        assert!(Ramp::is_last_trial(0.500_1));
    }

    proptest! {
        #[test]
        fn rates_stay_in_range_and_rise(min in 1.0..1e4f64, times in 1.0..1e3f64, multiplier in 1.1..10.0f64) {
            let max = min * times;
            let rates = ramp(min, max, multiplier).rates().unwrap();
            prop_assert!(rates.is_sorted_by(|a, b| a < b));
            prop_assert!(rates[0] >= min - 0.5 && rates[rates.len() - 1] <= max + 0.5 + max * 1e-6);
        }
    }
}
