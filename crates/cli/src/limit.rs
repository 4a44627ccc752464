//! Limits of `--fail-if`: the name of a metric, `>` or `<`, and a bound, such as `p99>100us`. Pure.

use horolog_record::{LimitResult, LimitUnit};
use horolog_report::{MeasuredResult, Metric, NamedValue};

/// Limit on a metric of a kind of result. It fails if its expression is true for a measured value.
#[derive(Debug)]
pub(crate) struct MetricLimit<R> {
    expression: String,
    metric: Metric<R>,
    is_below: bool,
    bound: f64,
}

impl<R> Clone for MetricLimit<R> {
    fn clone(&self) -> Self {
        Self { expression: self.expression.clone(), metric: self.metric.clone(), ..*self }
    }
}

impl<R: MeasuredResult + 'static> MetricLimit<R> {
    /// Parses a limit on a metric of the result. `<` is accepted for rates and factors only. The
    /// error names the metrics, or the notation of the bound.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::parse_for(text, R::limit_metrics())
    }
}

impl<R: 'static> MetricLimit<R> {
    fn parse_for(text: &str, metrics: Vec<Metric<R>>) -> Result<Self, String> {
        let notation = notation(&metrics);
        let Some(at) = text.find(['<', '>']) else { return Err(notation) };
        let (name, is_below) = (text[..at].trim(), text[at..].starts_with('<'));
        let is_named =
            |one: &Metric<R>| one.name == name && (!is_below || allows_lower_bound(one.unit));
        let Some(metric) = metrics.into_iter().find(is_named) else { return Err(notation) };
        let bound = metric.unit.parse_bound(name, text[at + 1..].trim());
        let bound = bound.map_err(|error| error.to_string())?;
        Ok(Self { expression: text.to_owned(), metric, is_below, bound })
    }

    /// Returns the limit that this metric must not be below `bound`.
    pub(crate) fn at_least(bound: f64, metric: Metric<R>) -> Self {
        Self { expression: format!("{}<{bound}", metric.name), metric, is_below: true, bound }
    }

    /// Evaluates the limit on a result; the outcome contains the worst value and the item that has
    /// it. The limit fails if a value is `None` (not measured) or if there are no values.
    pub(crate) fn evaluate(&self, result: &R) -> LimitResult {
        let mut values = self.metric.values(result);
        let worst = self.worst(&values).map(|index| values.swap_remove(index));
        let (scope, value) = worst.unwrap_or_default();
        let holds = |value| if self.is_below { value < self.bound } else { value > self.bound };
        LimitResult {
            expression: self.expression.clone(),
            unit: self.metric.unit,
            bound: self.bound,
            value,
            trial: None,
            scope: Some(scope).filter(|scope| !scope.is_empty()),
            failed: value.is_none_or(holds),
        }
    }

    /// Returns the index of the worst value. The first value that is `None` counts as the worst.
    fn worst(&self, measured: &[NamedValue]) -> Option<usize> {
        let mut worst: Option<(usize, f64)> = None;
        for (index, (_, value)) in measured.iter().enumerate() {
            let Some(value) = *value else { return Some(index) };
            let is_worse = |(_, other)| if self.is_below { value <= other } else { value >= other };
            if worst.is_none_or(is_worse) {
                worst = Some((index, value));
            }
        }
        worst.map(|(index, _)| index)
    }
}

/// Describes the notation of limits on these metrics, for error messages.
fn notation<R>(metrics: &[Metric<R>]) -> String {
    let names = metrics.iter().map(|metric| &metric.name[..]).collect::<Vec<_>>().join(", ");
    let has_lower_bound = metrics.iter().any(|metric| allows_lower_bound(metric.unit));
    let signs = if has_lower_bound { "'>' or '<'" } else { "'>'" };
    let example =
        metrics.first().map_or_else(String::new, |one| example_expression(&one.name, one.unit));
    format!("name a metric ({names}), {signs} and a bound, such as '{example}'")
}

/// Returns true if a metric of this unit can have a lower bound (`<`): rates and factors, of which
/// a lower value may be worse.
fn allows_lower_bound(unit: LimitUnit) -> bool {
    matches!(unit, LimitUnit::PerSecond | LimitUnit::BytesPerSecond | LimitUnit::Factor)
}

fn example_expression(name: &str, unit: LimitUnit) -> String {
    let bound = match unit {
        LimitUnit::Ratio => ">1%",
        LimitUnit::Ns => ">100us",
        LimitUnit::PerSecond | LimitUnit::BytesPerSecond => "<1G",
        LimitUnit::Factor => "<2",
    };
    format!("{name}{bound}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result with the values of each metric.
    type Values = Vec<Option<f64>>;

    fn metrics() -> Vec<Metric<Values>> {
        let metric = |name, unit| {
            Metric::new(name, unit, |values: &Values| {
                let named = values.iter().enumerate();
                named.map(|(index, value)| (index.to_string(), *value)).collect()
            })
        };
        vec![
            metric("p99", LimitUnit::Ns),
            metric("missed", LimitUnit::Ratio),
            metric("bandwidth", LimitUnit::BytesPerSecond),
        ]
    }

    fn limit(text: &str) -> MetricLimit<Values> {
        MetricLimit::parse_for(text, metrics()).unwrap()
    }

    #[test]
    fn bounds_have_the_unit_of_their_figure() {
        for (text, figure, bound) in [
            ("p99>100us", "p99", 100e3),
            ("p99 > 1s", "p99", 1e9),
            ("p99>0", "p99", 0.0),
            ("missed>0.1%", "missed", 0.001),
            ("missed>0", "missed", 0.0),
            ("bandwidth<1.5G", "bandwidth", 1.5e9),
            ("bandwidth > 45k", "bandwidth", 45e3),
        ] {
            let limit = limit(text);
            assert_eq!(limit.metric.name, figure, "{text}");
            assert!((limit.bound - bound).abs() < 1e-6, "{text}");
        }
    }

    #[test]
    fn figures_are_held_against_their_bounds() {
        let judged = |text: &str, value| {
            let result = limit(text).evaluate(&vec![value]);
            (result.failed, result.value, result.trial)
        };
        assert_eq!(judged("p99>100us", Some(1e5)), (false, Some(1e5), None));
        assert_eq!(judged("p99 > 100us", Some(100_001.0)), (true, Some(100_001.0), None));
        assert_eq!(judged("missed>0.1%", Some(0.002)), (true, Some(0.002), None));
        assert_eq!(judged("bandwidth<1k", Some(999.0)), (true, Some(999.0), None));
        assert_eq!(judged("bandwidth<1k", Some(1e3)), (false, Some(1e3), None));
        assert_eq!(judged("p99>1s", None), (true, None, None), "what was not measured breaks it");
    }

    #[test]
    fn worst_value_is_named_and_requires_all_values() {
        let judged = |text: &str, values: &[Option<f64>]| {
            let named = limit(text).evaluate(&values.to_vec());
            (named.scope, named.value)
        };
        assert_eq!(judged("p99>1s", &[Some(3.0), Some(1.0)]), (Some("0".to_owned()), Some(3.0)));
        assert_eq!(judged("p99>1s", &[Some(3.0), None]), (Some("1".to_owned()), None));
        assert_eq!(
            judged("bandwidth<1", &[Some(3.0), Some(1.0)]),
            (Some("1".to_owned()), Some(1.0))
        );
        assert_eq!(judged("p99>1s", &[]), (None, None));
        assert!(limit("p99>1s").evaluate(&Vec::new()).failed, "nothing measured breaks a limit");
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        let wrong = |text: &str| MetricLimit::parse_for(text, metrics()).unwrap_err();
        for text in ["", "p99", "p99<1us", "missed<1%", "median>1us", ">1us", "p99-1us>1us"] {
            let error = wrong(text);
            assert!(error.starts_with("name a metric (p99, missed, bandwidth)"), "{error}");
        }
        for text in
            ["p99>", "p99>1", "p99>1%", "missed>1us", "missed>200%", "bandwidth<fast", "p99>=1us"]
        {
            assert!(wrong(text).contains("invalid bound"), "{text}");
        }
        assert!(wrong("missed>1us").starts_with("invalid bound '1us' for missed: write a share"));
    }
}
