//! `--fail-if` of measurements: a figure by its name, `>` and a bound, such as `p99>100us`. Which
//! figures may be limited, and where they stand in a result, is each command's to say. Pure.

use horolog_record::{Distribution, LimitResult, LimitUnit};

use crate::values;

/// A figure that may be limited: its name, what it is, and by what a command finds it.
pub(crate) type Limited<F> = (&'static str, LimitUnit, F);

/// A figure of a distribution of times, in ns.
pub(crate) type TimeOf = fn(&Distribution) -> f64;

pub(crate) const MEAN: TimeOf = |times| times.mean;
pub(crate) const P99: TimeOf = |times| times.p99 as f64;
pub(crate) const MAX: TimeOf = |times| times.max as f64;

/// The figures of a distribution of times, each by what a command makes of it.
pub(crate) fn times<F>(figure: fn(TimeOf) -> F) -> [Limited<F>; 6] {
    let all: [(&str, TimeOf); 6] = [
        ("mean", MEAN),
        ("p50", |times| times.p50 as f64),
        ("p90", |times| times.p90 as f64),
        ("p99", P99),
        ("p99.9", |times| times.p99_9 as f64),
        ("max", MAX),
    ];
    all.map(|(name, of)| (name, LimitUnit::Ns, figure(of)))
}

/// A limit: it is broken where it holds.
#[derive(Clone, Debug)]
pub(crate) struct Limit<F> {
    expression: String,
    unit: LimitUnit,
    /// By what the command finds the figure.
    pub(crate) figure: F,
    is_below: bool,
    bound: f64,
}

impl<F> Limit<F> {
    /// Reads a limit on one of these figures.
    pub(crate) fn parse(
        text: &str,
        figures: impl IntoIterator<Item = Limited<F>>,
    ) -> Result<Self, String> {
        let figures: Vec<_> = figures.into_iter().collect();
        let form = form(&figures);
        let Some(at) = text.find(['<', '>']) else { return Err(form) };
        let (name, is_below) = (text[..at].trim(), text[at..].starts_with('<'));
        let is_meant =
            |(known, unit, _): &Limited<F>| *known == name && (!is_below || goes_both_ways(*unit));
        let Some((_, unit, figure)) = figures.into_iter().find(is_meant) else { return Err(form) };
        let bound = bound(unit, text[at + 1..].trim()).map_err(|why| {
            let (kind, example) = (kind(unit), example(name, unit));
            format!("{name} is a {kind}, such as '{example}': {why}")
        })?;
        Ok(Self { expression: text.to_owned(), unit, figure, is_below, bound })
    }

    /// Holds what was measured against it, the worst of which is told. What was not measured breaks
    /// it.
    pub(crate) fn judge(&self, measured: impl IntoIterator<Item = Option<f64>>) -> LimitResult {
        self.result(None, self.worst(measured).1)
    }

    /// The same for what has a name, which is told too.
    pub(crate) fn judge_named(
        &self,
        measured: impl IntoIterator<Item = (String, Option<f64>)>,
    ) -> LimitResult {
        let (mut names, values): (Vec<_>, Vec<_>) = measured.into_iter().unzip();
        let (place, value) = self.worst(values);
        self.result(place.map(|place| names.swap_remove(place)), value)
    }

    /// The worst figure and where it stands; the first that is missing is worse than any.
    fn worst(
        &self,
        measured: impl IntoIterator<Item = Option<f64>>,
    ) -> (Option<usize>, Option<f64>) {
        let mut worst = None;
        for (place, value) in measured.into_iter().enumerate() {
            let Some(value) = value else { return (Some(place), None) };
            let is_worse = |(_, other)| if self.is_below { value <= other } else { value >= other };
            if worst.is_none_or(is_worse) {
                worst = Some((place, value));
            }
        }
        worst.unzip()
    }

    fn result(&self, of: Option<String>, value: Option<f64>) -> LimitResult {
        let holds = |value| if self.is_below { value < self.bound } else { value > self.bound };
        LimitResult {
            expression: self.expression.clone(),
            unit: self.unit,
            bound: self.bound,
            value,
            trial: None,
            of,
            failed: value.is_none_or(holds),
        }
    }
}

/// How limits on these figures are written.
fn form<F>(figures: &[Limited<F>]) -> String {
    let names = figures.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let both = figures.iter().any(|(_, unit, _)| goes_both_ways(*unit));
    let sign = if both { "'>' or '<'" } else { "'>'" };
    let example = figures.first().map_or_else(String::new, |(name, unit, _)| example(name, *unit));
    format!("write a figure ({names}), {sign} and a bound, such as '{example}'")
}

/// Whether too little of it may be what is not wanted.
fn goes_both_ways(unit: LimitUnit) -> bool {
    matches!(unit, LimitUnit::PerSecond | LimitUnit::BytesPerSecond | LimitUnit::Factor)
}

const fn kind(unit: LimitUnit) -> &'static str {
    match unit {
        LimitUnit::Ratio => "share",
        LimitUnit::Ns => "time",
        LimitUnit::PerSecond | LimitUnit::BytesPerSecond => "rate",
        LimitUnit::Factor => "factor",
    }
}

fn example(name: &str, unit: LimitUnit) -> String {
    let bound = match unit {
        LimitUnit::Ratio => ">1%",
        LimitUnit::Ns => ">100us",
        LimitUnit::PerSecond | LimitUnit::BytesPerSecond => "<1G",
        LimitUnit::Factor => "<2",
    };
    format!("{name}{bound}")
}

/// Reads a bound of this unit.
fn bound(unit: LimitUnit, text: &str) -> Result<f64, String> {
    match unit {
        LimitUnit::Ratio => values::ratio(text),
        // A bare number would be seconds, which nobody means.
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

    const FIGURES: [Limited<char>; 3] = [
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
            assert_eq!(limit.figure, figure, "{text}");
            assert!((limit.bound - bound).abs() < 1e-6, "{text}");
        }
    }

    #[test]
    fn figures_are_held_against_their_bounds() {
        let judged = |text: &str, value| {
            let result = limit(text).judge([value]);
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
    fn the_worst_is_told_and_needs_all() {
        let judged = |text: &str, values: &[Option<f64>]| {
            let named = values.iter().enumerate();
            let named =
                limit(text).judge_named(named.map(|(place, value)| (place.to_string(), *value)));
            assert_eq!(limit(text).judge(values.iter().copied()).value, named.value);
            (named.of, named.value)
        };
        assert_eq!(judged("p99>1s", &[Some(3.0), Some(1.0)]), (Some("0".to_owned()), Some(3.0)));
        assert_eq!(judged("p99>1s", &[Some(3.0), None]), (Some("1".to_owned()), None));
        assert_eq!(
            judged("bandwidth<1", &[Some(3.0), Some(1.0)]),
            (Some("1".to_owned()), Some(1.0))
        );
        assert_eq!(judged("p99>1s", &[]), (None, None));
        assert!(limit("p99>1s").judge([]).failed, "nothing measured breaks a limit");
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        let wrong = |text: &str| Limit::parse(text, FIGURES).unwrap_err();
        for text in ["", "p99", "p99<1us", "missed<1%", "median>1us", ">1us", "p99-1us>1us"] {
            let error = wrong(text);
            assert!(error.starts_with("write a figure (p99, missed, bandwidth)"), "{error}");
        }
        for text in
            ["p99>", "p99>1", "p99>1%", "missed>1us", "missed>200%", "bandwidth<fast", "p99>=1us"]
        {
            assert!(wrong(text).contains(" is a "), "{text}");
        }
        assert!(wrong("missed>1us").starts_with("missed is a share, such as 'missed>1%': "));
    }
}
