//! `--fail-if` of a path: limits on what becomes of datagrams, of which the worst row is told.
//! Pure.

use std::str::FromStr;

use horolog_record::{LimitResult, LimitUnit, PathRow};

use crate::values;

const FORM: &str = "write 'loss>1%', 'reordered>1%', 'duplicates>1%', or a figure of T (mean, p50, \
                    p90, p99, p99.9, max), '>' and a time, such as 'p99>200us'";

/// A limit: it is broken where it holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limit {
    expression: String,
    metric: Metric,
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Loss,
    Reordered,
    Duplicates,
    Mean,
    P50,
    P90,
    P99,
    P99_9,
    Max,
}

const METRICS: [(&str, Metric); 9] = [
    ("loss", Metric::Loss),
    ("reordered", Metric::Reordered),
    ("duplicates", Metric::Duplicates),
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p90", Metric::P90),
    ("p99", Metric::P99),
    ("p99.9", Metric::P99_9),
    ("max", Metric::Max),
];

impl Metric {
    const fn unit(self) -> LimitUnit {
        match self {
            Self::Loss | Self::Reordered | Self::Duplicates => LimitUnit::Ratio,
            _ => LimitUnit::Ns,
        }
    }

    /// The figure of a row; `None` where it was not measured.
    fn of(self, row: &PathRow) -> Option<f64> {
        let received = row.counts.received;
        let delay = row.delay_ns.as_ref();
        match self {
            Self::Loss => (row.counts.sent > 0).then(|| row.loss_ratio()),
            Self::Reordered => row.order_ratio().map(|in_order| 1.0 - in_order),
            Self::Duplicates => {
                (received > 0).then(|| row.counts.duplicate as f64 / received as f64)
            }
            Self::Mean => delay.map(|delay| delay.mean),
            Self::P50 => delay.map(|delay| delay.p50 as f64),
            Self::P90 => delay.map(|delay| delay.p90 as f64),
            Self::P99 => delay.map(|delay| delay.p99 as f64),
            Self::P99_9 => delay.map(|delay| delay.p99_9 as f64),
            Self::Max => delay.map(|delay| delay.max as f64),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bound) = text.split_once('>').ok_or(FORM)?;
        let metric = METRICS.iter().find(|(known, _)| *known == name.trim()).ok_or(FORM)?.1;
        let bound = bound.trim();
        let bound = match metric.unit() {
            LimitUnit::Ratio => values::ratio(bound).map_err(|_| FORM)?,
            _ => values::duration(bound).map_err(|_| FORM)?.as_secs_f64() * 1e9,
        };
        Ok(Self { expression: text.to_owned(), metric, bound })
    }
}

impl Limit {
    /// Holds all rows against the limit. What was not measured breaks it.
    pub(super) fn judge(&self, rows: &[PathRow]) -> LimitResult {
        let figures = rows.iter().enumerate().map(|(index, row)| (index, self.metric.of(row)));
        let figures: Vec<_> = figures.collect();
        let missing = figures.iter().find(|(_, figure)| figure.is_none());
        let worst = figures
            .iter()
            .filter_map(|(index, figure)| Some((*index, (*figure)?)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let (trial, value) = match (missing, worst) {
            (Some((index, _)), _) => (Some(*index), None),
            (None, Some((index, value))) => (Some(index), Some(value)),
            (None, None) => (None, None),
        };
        LimitResult {
            expression: self.expression.clone(),
            unit: self.metric.unit(),
            bound: self.bound,
            value,
            trial,
            failed: value.is_none_or(|value| value > self.bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        for (text, unit, bound) in [
            ("loss>1%", LimitUnit::Ratio, 0.01),
            ("reordered>0", LimitUnit::Ratio, 0.0),
            ("p99.9 > 200us", LimitUnit::Ns, 200e3),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit.metric.unit(), unit, "{text}");
            assert!((limit.bound - bound).abs() < 1e-6, "{text}");
        }
        for wrong in ["", "loss", "loss<1%", "p75>1ms", "p99>", "loss>1ms"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_measured_breaks_a_limit() {
        let judged = "p99>1s".parse::<Limit>().unwrap().judge(&[]);
        assert!(judged.failed && judged.value.is_none());
    }
}
