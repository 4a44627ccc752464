//! Straight line that best fits points, by least squares: for a clock's offset over time its slope
//! is the frequency offset.

/// Straight line fitted to points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedLine {
    /// Units of y per unit of x.
    pub slope: f64,
    /// Value of y at x = 0.
    pub intercept: f64,
    /// Standard error of the slope, if the residuals are white noise; 0 for two points.
    pub slope_error: f64,
    /// Population standard deviation of the residuals.
    pub residual: f64,
}

/// Fits a line to points (x, y); `None` with fewer than two different x.
#[must_use]
pub fn fit_line(points: &[(f64, f64)]) -> Option<FittedLine> {
    let count = points.len() as f64;
    // The means are subtracted first: instants are large and their differences small.
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut xx, mut xy) = (0.0, 0.0);
    for (x, y) in points {
        xx += (x - mean_x).powi(2);
        xy += (x - mean_x) * (y - mean_y);
    }
    if points.len() < 2 || xx <= 0.0 || !xx.is_finite() {
        return None;
    }
    let slope = xy / xx;
    let squared_residual = |(x, y): &(f64, f64)| (y - mean_y - slope * (x - mean_x)).powi(2);
    let residual_sum: f64 = points.iter().map(squared_residual).sum();
    let degrees_of_freedom = count - 2.0;
    Some(FittedLine {
        slope,
        intercept: mean_y - slope * mean_x,
        slope_error: if degrees_of_freedom > 0.0 {
            (residual_sum / degrees_of_freedom / xx).sqrt()
        } else {
            0.0
        },
        residual: (residual_sum / count).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The line through the 1,000 frequencies of its test suite.
    #[test]
    fn the_test_suite_of_nist_sp_1065_is_met() {
        let frequencies = crate::allan::tests::thousand();
        let points: Vec<_> =
            frequencies.iter().enumerate().map(|(at, y)| ((at + 1) as f64, *y)).collect();
        let line = fit_line(&points).unwrap();
        assert!((line.slope - 6.490_910e-6).abs() < 5e-13, "{line:?}");
        assert!((line.intercept - 4.865_258e-1).abs() < 5e-8, "{line:?}");
    }

    #[test]
    fn one_instant_has_no_slope() {
        for points in [vec![], vec![(1.0, 2.0)], vec![(1.0, 2.0), (1.0, 3.0)]] {
            assert_eq!(fit_line(&points), None, "{points:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_is_found(
            slope in -1e3_f64..1e3, intercept in -1e3_f64..1e3,
            xs in prop::collection::btree_set(-10_000_i32..10_000, 2..50),
        ) {
            let at = |x: &i32| (f64::from(*x), intercept + slope * f64::from(*x));
            let line = fit_line(&xs.iter().map(at).collect::<Vec<_>>()).unwrap();
            prop_assert!((line.slope - slope).abs() < 1e-6, "{:?}", line);
            prop_assert!((line.intercept - intercept).abs() < 1e-2, "{:?}", line);
            prop_assert!(line.residual < 1e-3 && line.slope_error < 1e-3, "{:?}", line);
        }
    }
}
