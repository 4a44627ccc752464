//! Measured metric with its goal and its spread: every run, the median, and whether the median
//! reaches the goal.

use serde::Serialize;

/// Goal of a metric.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// At least this value.
    AtLeast(f64),
    /// Less than this value.
    Below(f64),
}

impl Goal {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(goal) => value >= goal,
            Self::Below(goal) => value < goal,
        }
    }
}

/// Metric of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// Measured quantity, for the report.
    pub(crate) name: String,
    /// Unit of the values; empty for a ratio.
    pub(crate) unit: &'static str,
    /// Goal of the median, if there is one.
    pub(crate) goal: Option<Goal>,
    /// All runs, in order.
    pub(crate) runs: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, runs: Vec<f64>) -> Self {
        Self { name: name.into(), unit, goal: None, runs }
    }

    pub(crate) fn with(self, goal: Goal) -> Self {
        Self { goal: Some(goal), ..self }
    }

    /// Returns the ratio, run by run, of two metrics that were measured alternately.
    pub(crate) fn ratio(name: impl Into<String>, of: &Self, to: &Self) -> Self {
        let runs = of.runs.iter().zip(&to.runs).map(|(of, to)| of / to).collect();
        Self::new(name, "", runs)
    }

    /// Returns the ratio of the medians of two metrics, which varies less than that of single runs.
    pub(crate) fn ratio_of_medians(name: impl Into<String>, of: &Self, to: &Self) -> Self {
        Self::new(name, "", vec![of.median() / to.median()])
    }

    /// Returns the median of the runs; for an even number, the mean of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => sorted[count / 2],
            count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
        }
    }

    /// Returns true if the median reaches the goal, or there is no goal.
    pub(crate) fn is_reached(&self) -> bool {
        let median = self.median();
        self.goal.is_none_or(|goal| median.is_finite() && goal.holds(median))
    }

    /// Formats the metric as one line of the report.
    pub(crate) fn line(&self) -> String {
        let goal = match self.goal {
            None => String::new(),
            Some(Goal::AtLeast(goal)) => format!("at least {}", short(goal)),
            Some(Goal::Below(goal)) => format!("below {}", short(goal)),
        };
        let verdict = match (self.goal, self.is_reached()) {
            (None, _) => "",
            (_, true) => "reached",
            (_, false) => "MISSED",
        };
        let runs: Vec<String> = self.runs.iter().map(|run| short(*run)).collect();
        format!(
            "{:<52} {:>9} {:<4} {:<14} {:<8} [{}]",
            self.name,
            short(self.median()),
            self.unit,
            goal,
            verdict,
            runs.join(" ")
        )
    }
}

/// Formats a number with three significant digits, with a multiplier from a thousand on.
fn short(value: f64) -> String {
    let (value, multiplier) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}{multiplier}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides() {
        let figure = Figure::new("rate", "/s", vec![1.0, 9.0, 5.0]);
        assert!(figure.clone().with(Goal::AtLeast(5.0)).is_reached());
        assert!(!figure.clone().with(Goal::Below(5.0)).is_reached());
        let other = Figure::new("other", "/s", vec![2.0, 3.0, 2.5]);
        assert_eq!(Figure::ratio("ratio", &figure, &other).runs, [0.5, 3.0, 2.0]);
        assert!(Figure::new("none", "", vec![]).median().is_nan());
    }

    #[test]
    fn short_numbers() {
        assert_eq!(short(4_123_456.0), "4.12M");
        assert_eq!(short(51_234.0), "51.2k");
        assert_eq!(short(0.0123), "0.0123");
    }
}
