//! `--fail-if` of `path tcp`: limits on latency and bandwidth. Pure.

use std::str::FromStr;

use horolog_record::{Distribution, LimitResult, LimitUnit, PathTcpResult};

use crate::values;

/// A limit, such as `p99>100us`: it is broken where it holds of any row.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    expression: String,
    metric: Metric,
    is_below: bool,
    bound: f64,
}

#[derive(Clone, Copy, Debug)]
enum Metric {
    /// A figure of the latency.
    Time(fn(&Distribution) -> f64),
    Bandwidth,
}

const METRICS: [(&str, Metric); 7] = [
    ("mean", Metric::Time(|times| times.mean)),
    ("p50", Metric::Time(|times| times.p50 as f64)),
    ("p90", Metric::Time(|times| times.p90 as f64)),
    ("p99", Metric::Time(|times| times.p99 as f64)),
    ("p99.9", Metric::Time(|times| times.p99_9 as f64)),
    ("max", Metric::Time(|times| times.max as f64)),
    ("bandwidth", Metric::Bandwidth),
];

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write a metric (mean, p50, p90, p99, p99.9, max or bandwidth), '>' or '<' and a figure, such as 'p99>100us' or 'bandwidth<1G'";
        let at = text.find(['<', '>']).ok_or(form)?;
        let (name, rest) = text.split_at(at);
        let is_below = rest.starts_with('<');
        let figure = rest.get(1..).unwrap_or_default().trim();
        let metric = METRICS.iter().find(|(known, _)| *known == name.trim()).ok_or(form)?.1;
        let bound = match metric {
            Metric::Time(_) => values::duration(figure).map_err(|_| form)?.as_secs_f64() * 1e9,
            Metric::Bandwidth => amount(figure).ok_or(form)?,
        };
        Ok(Self { expression: text.to_owned(), metric, is_below, bound })
    }
}

/// A number with k, M or G behind it.
fn amount(text: &str) -> Option<f64> {
    let (number, factor) = match text.strip_suffix('G') {
        Some(number) => (number, 1e9),
        None => (text, 1.0),
    };
    values::rate(number).ok().map(|number| number * factor).filter(|number| number.is_finite())
}

impl Limit {
    /// Holds all rows against the limit; the worst one is told. What was not measured breaks it.
    pub(super) fn judge(&self, result: &PathTcpResult) -> LimitResult {
        let figures: Vec<Option<f64>> = match self.metric {
            Metric::Time(of) => {
                let half = |times: &Distribution| of(times) / 2.0;
                result.latency.iter().map(|row| row.rtt_ns.as_ref().map(half)).collect()
            }
            Metric::Bandwidth => {
                let measured = |row: &horolog_record::TcpBandwidth| row.received_bytes > 0;
                result.bandwidth.iter().map(|row| measured(row).then_some(row.rate)).collect()
            }
        };
        let worse =
            |one: f64, other: f64| if self.is_below { one.min(other) } else { one.max(other) };
        let value = figures.into_iter().collect::<Option<Vec<_>>>();
        let value = value.and_then(|values| values.into_iter().reduce(worse));
        let breaks = |value| if self.is_below { value < self.bound } else { value > self.bound };
        LimitResult {
            expression: self.expression.clone(),
            unit: match self.metric {
                Metric::Time(_) => LimitUnit::Ns,
                Metric::Bandwidth => LimitUnit::PerSecond,
            },
            bound: self.bound,
            value,
            trial: None,
            failed: value.is_none_or(breaks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let limit: Limit = "p99>100us".parse().unwrap();
        assert_eq!((limit.is_below, limit.bound as u64), (false, 100_000));
        let limit: Limit = "bandwidth < 1.5G".parse().unwrap();
        assert_eq!((limit.is_below, limit.bound as u64), (true, 1_500_000_000));
        for wrong in ["", "p99", "p98>1us", "p99>", "bandwidth<fast", "p99>1", ">1us"] {
            assert!(wrong.parse::<Limit>().is_err() || wrong == "p99>1", "{wrong}");
        }
    }
}
