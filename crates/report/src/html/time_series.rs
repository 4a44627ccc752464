//! Lines over time: with gaps where values are missing, and reduced to the lowest and highest point
//! of each group if there are many points.

use super::plot::PlotSeries;

/// Maximum number of points of a line in a plot: more than a screen can show separately.
const POINTS_MAX: usize = 2_000;

/// Limits for drawing a time series: distance of joined points, and number of points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSeriesDrawingLimits {
    /// Time between two consecutive points, in seconds; if that is not known, the median.
    pub(crate) interval_s: Option<f64>,
    /// Largest distance of two points that a line joins, as a multiple of the interval.
    pub(crate) joined: f64,
    /// Maximum number of drawn points.
    pub(crate) points_max: usize,
}

impl TimeSeriesDrawingLimits {
    /// Creates settings for points at this interval, in seconds.
    pub(crate) const fn of(interval_s: f64) -> Self {
        Self { interval_s: Some(interval_s), ..Self::EVEN }
    }

    /// Settings for evenly spaced points, at the median distance.
    pub(crate) const EVEN: Self = Self { interval_s: None, joined: 1.5, points_max: POINTS_MAX };

    /// Settings for unevenly spaced points.
    pub(crate) const UNEVEN: Self = Self { joined: 6.0, ..Self::EVEN };

    /// Returns the line, interrupted where points are missing.
    pub(crate) fn line(self, label: String, points: Vec<(f64, f64)>) -> PlotSeries {
        let all = PlotSeries::new(label.clone(), points).points;
        let interval_s = self.interval_s.unwrap_or_else(|| median_step(&all));
        let stretch = stretch(all.len(), self.points_max);
        let missing = |pair: &[(f64, f64)]| {
            let (from, to) = (pair[0].0, pair[1].0);
            // A gap that is narrower than a group of points is not visible.
            let is_gap = to - from > interval_s * self.joined.max(stretch as f64);
            is_gap.then(|| f64::midpoint(from, to))
        };
        let gaps = all.windows(2).filter_map(missing).collect();
        PlotSeries { gaps, ..PlotSeries::new(label, thinned(all, self.points_max)) }
    }
}

/// Returns the median distance of two points.
fn median_step(points: &[(f64, f64)]) -> f64 {
    let mut steps: Vec<_> = points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// Returns the number of points in a group, of which two are drawn at most.
const fn stretch(points: usize, points_max: usize) -> usize {
    if points <= points_max { 1 } else { points.div_ceil(points_max / 2) }
}

/// Returns the lowest and the highest point of each group, if there are more than a screen shows.
pub(crate) fn downsample(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    thinned(points, POINTS_MAX)
}

fn thinned(points: Vec<(f64, f64)>, points_max: usize) -> Vec<(f64, f64)> {
    let stretch = stretch(points.len(), points_max);
    if stretch == 1 {
        return points;
    }
    let extremes = |points: &[(f64, f64)]| {
        let lowest = points.iter().min_by(|a, b| a.1.total_cmp(&b.1)).copied();
        let highest = points.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied();
        [lowest, highest]
    };
    points.chunks(stretch).flat_map(extremes).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(
        settings: TimeSeriesDrawingLimits,
        positions: impl IntoIterator<Item = u32>,
    ) -> PlotSeries {
        let points = positions.into_iter().map(|at| (f64::from(at), f64::from(at % 7)));
        settings.line(String::new(), points.collect())
    }

    #[test]
    fn a_line_has_gaps_where_points_are_missing() {
        let positions = (0..5).chain(8..12);
        assert_eq!(line(TimeSeriesDrawingLimits::of(1.0), positions.clone()).gaps, [6.0]);
        assert_eq!(line(TimeSeriesDrawingLimits::EVEN, positions).gaps, [6.0]);
        assert_eq!(line(TimeSeriesDrawingLimits::of(1.0), 0..9).gaps, [0.0; 0]);
        assert_eq!(line(TimeSeriesDrawingLimits::EVEN, [3]).gaps, [0.0; 0]);
    }

    #[test]
    fn a_long_run_is_thinned_and_keeps_its_extremes_and_its_gaps() {
        let mut points: Vec<_> = (0..100_000).map(|at| (f64::from(at), 0.0)).collect();
        points[54_321].1 = 9.0;
        points[12_345].1 = -9.0;
        points.drain(70_000..80_000);
        points.remove(30_000);
        let series = TimeSeriesDrawingLimits::of(1.0).line(String::new(), points);
        assert!(series.points.len() <= POINTS_MAX, "{}", series.points.len());
        assert!(series.points.contains(&(54_321.0, 9.0)));
        assert!(series.points.contains(&(12_345.0, -9.0)));
        assert_eq!(series.gaps, [74_999.5], "one point less is not to be seen");
    }
}
