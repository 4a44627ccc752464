//! Limits of `--fail-if`: the name of a metric, `>` or `<`, and a bound, such as `p99>100us`. Each
//! command defines its metrics and how they are read from its result. Pure.

use horolog_record::{Distribution, LimitResult, LimitUnit};

use crate::values;

/// Metric that `--fail-if` accepts: its name, its unit, and the key by which the command reads it
/// from its result.
pub(crate) type LimitedMetric<F> = (&'static str, LimitUnit, F);

/// Function that returns a metric of a distribution of times, in ns.
pub(crate) type DistributionMetric = fn(&Distribution) -> f64;

pub(crate) const MEAN: DistributionMetric = |times| times.mean;
pub(crate) const P99: DistributionMetric = |times| times.p99 as f64;
pub(crate) const MAX: DistributionMetric = |times| times.max as f64;

/// Returns the metrics of a distribution of times (mean, percentiles, maximum); `key_of` converts
/// each to the key of the command.
pub(crate) fn time_metrics<F>(key_of: fn(DistributionMetric) -> F) -> [LimitedMetric<F>; 6] {
    let all: [(&str, DistributionMetric); 6] = [
        ("mean", MEAN),
        ("p50", |times| times.p50 as f64),
        ("p90", |times| times.p90 as f64),
        ("p99", P99),
        ("p99.9", |times| times.p99_9 as f64),
        ("max", MAX),
    ];
    all.map(|(name, metric)| (name, LimitUnit::Ns, key_of(metric)))
}

/// Parsed `--fail-if` expression. The limit fails if the expression is true for a measured value.
#[derive(Clone, Debug)]
pub(crate) struct Limit<F> {
    expression: String,
    unit: LimitUnit,
    /// Key by which the command reads the metric from its result.
    pub(crate) metric: F,
    is_below: bool,
    bound: f64,
}

impl<F> Limit<F> {
    /// Parses a limit on one of these metrics. `<` is accepted for rates and factors only. The
    /// error names the metrics, or the notation of the bound.
    pub(crate) fn parse(
        text: &str,
        metrics: impl IntoIterator<Item = LimitedMetric<F>>,
    ) -> Result<Self, String> {
        let metrics: Vec<_> = metrics.into_iter().collect();
        let notation = notation(&metrics);
        let Some(at) = text.find(['<', '>']) else { return Err(notation) };
        let (name, is_below) = (text[..at].trim(), text[at..].starts_with('<'));
        let is_named = |(known, unit, _): &LimitedMetric<F>| {
            *known == name && (!is_below || allows_lower_bound(*unit))
        };
        let Some((_, unit, key)) = metrics.into_iter().find(is_named) else { return Err(notation) };
        let bound = parse_bound(unit, text[at + 1..].trim()).map_err(|why| {
            let (kind, example) = (unit_noun(unit), example_expression(name, unit));
            format!("{name} is a {kind}, such as '{example}': {why}")
        })?;
        Ok(Self { expression: text.to_owned(), unit, metric: key, is_below, bound })
    }

    /// Evaluates the limit on measured values; the result contains the worst one. The limit fails
    /// if a value is `None` (not measured) or if there are no values.
    pub(crate) fn evaluate(&self, measured: impl IntoIterator<Item = Option<f64>>) -> LimitResult {
        self.limit_result(None, self.worst(measured).1)
    }

    /// Evaluates the limit as [`Self::evaluate`] does; the result also contains the name of the
    /// worst value as its scope.
    pub(crate) fn evaluate_named(
        &self,
        measured: impl IntoIterator<Item = (String, Option<f64>)>,
    ) -> LimitResult {
        let (mut names, values): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
        let (index, value) = self.worst(values);
        self.limit_result(index.map(|index| names.swap_remove(index)), value)
    }

    /// Returns the index and the value of the worst measurement. The first value that is `None`
    /// counts as the worst.
    fn worst(
        &self,
        measured: impl IntoIterator<Item = Option<f64>>,
    ) -> (Option<usize>, Option<f64>) {
        let mut worst = None;
        for (index, value) in measured.into_iter().enumerate() {
            let Some(value) = value else { return (Some(index), None) };
            let is_worse = |(_, other)| if self.is_below { value <= other } else { value >= other };
            if worst.is_none_or(is_worse) {
                worst = Some((index, value));
            }
        }
        worst.unzip()
    }

    fn limit_result(&self, scope: Option<String>, value: Option<f64>) -> LimitResult {
        let holds = |value| if self.is_below { value < self.bound } else { value > self.bound };
        LimitResult {
            expression: self.expression.clone(),
            unit: self.unit,
            bound: self.bound,
            value,
            trial: None,
            scope,
            failed: value.is_none_or(holds),
        }
    }
}

/// Describes the notation of limits on these metrics, for error messages.
fn notation<F>(metrics: &[LimitedMetric<F>]) -> String {
    let names = metrics.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let has_lower_bound = metrics.iter().any(|(_, unit, _)| allows_lower_bound(*unit));
    let signs = if has_lower_bound { "'>' or '<'" } else { "'>'" };
    let example =
        metrics.first().map_or_else(String::new, |(name, unit, _)| example_expression(name, *unit));
    format!("name a metric ({names}), {signs} and a bound, such as '{example}'")
}

/// Returns true if a metric of this unit can have a lower bound (`<`): rates and factors, of which
/// a lower value may be worse.
fn allows_lower_bound(unit: LimitUnit) -> bool {
    matches!(unit, LimitUnit::PerSecond | LimitUnit::BytesPerSecond | LimitUnit::Factor)
}

const fn unit_noun(unit: LimitUnit) -> &'static str {
    match unit {
        LimitUnit::Ratio => "share",
        LimitUnit::Ns => "time",
        LimitUnit::PerSecond | LimitUnit::BytesPerSecond => "rate",
        LimitUnit::Factor => "factor",
    }
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

/// Parses a bound; times are converted to ns, shares to a ratio from 0 to below 1.
fn parse_bound(unit: LimitUnit, text: &str) -> Result<f64, String> {
    match unit {
        LimitUnit::Ratio => values::ratio(text),
        // `values::duration` would read a bare number as seconds, which is hardly intended.
        LimitUnit::Ns if text.parse().is_ok_and(|number: f64| number > 0.0) => {
            Err(format!("give the unit of {text}: ns, us, ms or s"))
        }
        LimitUnit::Ns => values::duration(text).map(|time| time.as_secs_f64() * 1e9),
        LimitUnit::Factor => {
            let factor =
                text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
            factor.ok_or_else(|| "write a positive number, such as 1.5".into())
        }
        LimitUnit::PerSecond | LimitUnit::BytesPerSecond => {
            let (number, factor) = text.strip_suffix('G').map_or((text, 1.0), |text| (text, 1e9));
            let rate = values::rate(number).map(|number| number * factor);
            let rate = rate.ok().filter(|rate| rate.is_finite());
            rate.ok_or_else(|| "write a positive number, such as 950, 45k or 1.5G".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: [LimitedMetric<char>; 3] = [
        ("p99", LimitUnit::Ns, 't'),
        ("missed", LimitUnit::Ratio, 's'),
        ("bandwidth", LimitUnit::BytesPerSecond, 'r'),
    ];

    fn limit(text: &str) -> Limit<char> {
        Limit::parse(text, FIGURES).unwrap()
    }

    #[test]
    fn bounds_have_the_unit_of_their_figure() {
        for (text, figure, bound) in [
            ("p99>100us", 't', 100e3),
            ("p99 > 1s", 't', 1e9),
            ("p99>0", 't', 0.0),
            ("missed>0.1%", 's', 0.001),
            ("missed>0", 's', 0.0),
            ("bandwidth<1.5G", 'r', 1.5e9),
            ("bandwidth > 45k", 'r', 45e3),
        ] {
            let limit = limit(text);
            assert_eq!(limit.metric, figure, "{text}");
            assert!((limit.bound - bound).abs() < 1e-6, "{text}");
        }
    }

    #[test]
    fn figures_are_held_against_their_bounds() {
        let judged = |text: &str, value| {
            let result = limit(text).evaluate([value]);
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
            let named = values.iter().enumerate();
            let named =
                limit(text).evaluate_named(named.map(|(index, value)| (index.to_string(), *value)));
            assert_eq!(limit(text).evaluate(values.iter().copied()).value, named.value);
            (named.scope, named.value)
        };
        assert_eq!(judged("p99>1s", &[Some(3.0), Some(1.0)]), (Some("0".to_owned()), Some(3.0)));
        assert_eq!(judged("p99>1s", &[Some(3.0), None]), (Some("1".to_owned()), None));
        assert_eq!(
            judged("bandwidth<1", &[Some(3.0), Some(1.0)]),
            (Some("1".to_owned()), Some(1.0))
        );
        assert_eq!(judged("p99>1s", &[]), (None, None));
        assert!(limit("p99>1s").evaluate([]).failed, "nothing measured breaks a limit");
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        let wrong = |text: &str| Limit::parse(text, FIGURES).unwrap_err();
        for text in ["", "p99", "p99<1us", "missed<1%", "median>1us", ">1us", "p99-1us>1us"] {
            let error = wrong(text);
            assert!(error.starts_with("name a metric (p99, missed, bandwidth)"), "{error}");
        }
        for text in
            ["p99>", "p99>1", "p99>1%", "missed>1us", "missed>200%", "bandwidth<fast", "p99>=1us"]
        {
            assert!(wrong(text).contains(" is a "), "{text}");
        }
        assert!(wrong("missed>1us").starts_with("missed is a share, such as 'missed>1%': "));
    }
}
