//! `--fail-if` of this host's measurements: a figure by its name, `>`, and a time or a share. Which
//! figures there are is each command's to say. Pure.

use horolog_record::{Distribution, LimitResult, LimitUnit};

use crate::values;

/// A limit, such as `p99>100us`: it is broken where it holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound {
    expression: String,
    pub(super) name: String,
    unit: LimitUnit,
    above: f64,
}

/// A figure that can be limited: its name and what it is.
pub(super) type Limited = (&'static str, LimitUnit);

/// The figures of a distribution of times.
pub(super) const TIMES: [Limited; 6] = [
    ("mean", LimitUnit::Ns),
    ("p50", LimitUnit::Ns),
    ("p90", LimitUnit::Ns),
    ("p99", LimitUnit::Ns),
    ("p99.9", LimitUnit::Ns),
    ("max", LimitUnit::Ns),
];

impl Bound {
    /// Reads a limit on one of these figures.
    pub(super) fn parse(text: &str, figures: &[Limited]) -> Result<Self, String> {
        let form = || {
            let names = figures.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            format!("write a figure ({names}), '>' and a bound, such as '{}>100us'", figures[0].0)
        };
        let (name, bound) = text.split_once('>').ok_or_else(form)?;
        let &(name, unit) =
            figures.iter().find(|(known, _)| *known == name.trim()).ok_or_else(form)?;
        let above = if unit == LimitUnit::Ratio {
            values::ratio(bound.trim())
                .map_err(|why| format!("{name} is a share, such as '{name}>0.1%': {why}"))?
        } else {
            let time = values::duration(bound.trim());
            time.map_err(|why| format!("{name} is a time: {why}"))?.as_secs_f64() * 1e9
        };
        Ok(Self { expression: text.to_owned(), name: name.to_owned(), unit, above })
    }

    /// Holds a figure against it. What was not measured breaks it.
    pub(super) fn judge(&self, value: Option<f64>) -> LimitResult {
        LimitResult {
            expression: self.expression.clone(),
            unit: self.unit,
            bound: self.above,
            value,
            trial: None,
            failed: value.is_none_or(|value| value > self.above),
        }
    }
}

/// The figure of [`TIMES`] that is called so.
pub(super) fn time_of(distribution: &Distribution, name: &str) -> Option<f64> {
    Some(match name {
        "mean" => distribution.mean,
        "p50" => distribution.p50 as f64,
        "p90" => distribution.p90 as f64,
        "p99" => distribution.p99 as f64,
        "p99.9" => distribution.p99_9 as f64,
        "max" => distribution.max as f64,
        _ => return None,
    })
}

/// The largest of several figures; none where one of them is missing, or there is none.
pub(super) fn worst(figures: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let figures: Option<Vec<f64>> = figures.into_iter().collect();
    figures?.into_iter().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: [Limited; 2] = [("p99", LimitUnit::Ns), ("missed", LimitUnit::Ratio)];

    #[test]
    fn figures_are_held_against_their_bounds() {
        let judged = |text: &str, value| {
            let result = Bound::parse(text, &FIGURES).unwrap().judge(value);
            (result.failed, result.value)
        };
        assert_eq!(judged("p99>100us", Some(1e5)), (false, Some(1e5)));
        assert_eq!(judged("p99 > 100us", Some(100_001.0)), (true, Some(100_001.0)));
        assert_eq!(judged("missed>0.1%", Some(0.002)), (true, Some(0.002)));
        assert_eq!(judged("p99>1s", None), (true, None), "what was not measured breaks it");
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for wrong in ["", "p99", "p99<1us", "median>1us", "p99>", "p99>1%", "missed>1us"] {
            assert!(Bound::parse(wrong, &FIGURES).is_err(), "{wrong}");
        }
        let error = Bound::parse("x>1us", &FIGURES).unwrap_err();
        assert!(error.contains("p99, missed"), "{error}");
    }

    #[test]
    fn the_worst_needs_all() {
        assert_eq!(worst([Some(1.0), Some(3.0)]), Some(3.0));
        assert_eq!((worst([Some(1.0), None]), worst([])), (None, None));
    }
}
