//! `--fail-if` of clocks, simulated and compared: limits on how far they are off. Pure.

use std::str::FromStr;

use horolog_record::{ClockMethod, ComparedClock, Figures, LimitResult, LimitUnit};

use crate::values;

/// A limit, such as `stddev>1us`: it is broken where it holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limit {
    expression: String,
    metric: Metric,
    bound_ns: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Mean,
    Stddev,
    Rms,
    P99,
    Max,
    Recovery,
}

const METRICS: [(&str, Metric); 6] = [
    ("mean", Metric::Mean),
    ("stddev", Metric::Stddev),
    ("rms", Metric::Rms),
    ("p99", Metric::P99),
    ("max", Metric::Max),
    ("recovery", Metric::Recovery),
];

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write a metric (mean, stddev, rms, p99, max or recovery), '>' and a time, such \
                    as 'stddev>1us' or 'recovery>60s'";
        let (name, bound) = text.split_once('>').ok_or(form)?;
        let metric = METRICS.iter().find(|(known, _)| *known == name.trim()).ok_or(form)?.1;
        let bound = values::duration(bound.trim()).map_err(|_| form)?;
        let bound_ns = bound.as_secs_f64() * 1e9;
        Ok(Self { expression: text.to_owned(), metric, bound_ns })
    }
}

impl Limit {
    /// A limit on what a comparison measures, which has no outages to recover from.
    pub(super) fn of_comparison(text: &str) -> Result<Self, String> {
        let limit = text.parse::<Self>()?;
        if limit.metric == Metric::Recovery {
            return Err("a comparison has no outages; limit mean, stddev, rms, p99 or max".into());
        }
        Ok(limit)
    }

    /// Holds a method against the limit. What was not measured breaks it.
    pub(super) fn judge(&self, method: &ClockMethod) -> LimitResult {
        self.result(self.metric.of(method))
    }

    /// Holds the offsets of all clocks against the limit, the worst of which is told.
    pub(super) fn judge_clocks(&self, clocks: &[ComparedClock]) -> LimitResult {
        let value = |clock: &ComparedClock| Some(self.metric.of_figures(&clock.offset_ns?));
        let values = clocks.iter().map(value).collect::<Option<Vec<_>>>();
        self.result(values.and_then(|values| values.into_iter().reduce(f64::max)))
    }

    fn result(&self, value: Option<f64>) -> LimitResult {
        LimitResult {
            expression: self.expression.clone(),
            unit: LimitUnit::Ns,
            bound: self.bound_ns,
            value,
            trial: None,
            failed: value.is_none_or(|value| value > self.bound_ns),
        }
    }
}

impl Metric {
    /// The figure in ns, either way from 0.
    fn of(self, method: &ClockMethod) -> Option<f64> {
        if self == Self::Recovery {
            let times = method.outages.iter().map(|outage| outage.recovered_after_s);
            let slowest = times.collect::<Option<Vec<_>>>()?.into_iter().max()?;
            return Some(slowest as f64 * 1e9);
        }
        Some(self.of_figures(&method.error_ns?))
    }

    fn of_figures(self, figures: &Figures) -> f64 {
        let Figures { mean, stddev, rms, min, p1, p99, max, .. } = *figures;
        let worse = |low: i64, high: i64| low.unsigned_abs().max(high.unsigned_abs()) as f64;
        match self {
            Self::Mean => mean.abs(),
            Self::Stddev => stddev,
            Self::Rms => rms,
            Self::P99 => worse(p1, p99),
            Self::Max | Self::Recovery => worse(min, max),
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::{ClockMethodKind, ClockOutage, ComparedKind};
    use horolog_stats::Spread;

    use super::*;

    fn method(recovered_after_s: Option<u64>) -> ClockMethod {
        ClockMethod {
            kind: ClockMethodKind::Servo,
            error_ns: Spread::of([-3_000, 1_000]).map(Figures::from),
            allan: Vec::new(),
            outages: vec![ClockOutage {
                begin_s: 1,
                length_s: 2,
                error_max_ns: 3,
                recovered_after_s,
            }],
            series: Vec::new(),
        }
    }

    fn judged(expression: &str, method: &ClockMethod) -> (Option<f64>, bool) {
        let limit = expression.parse::<Limit>().unwrap().judge(method);
        (limit.value, limit.failed)
    }

    #[test]
    fn figures_are_held_against_their_limits_either_way() {
        let method = method(Some(22));
        assert_eq!(judged("mean>1us", &method), (Some(1_000.0), false));
        assert_eq!(judged("stddev>1.9us", &method), (Some(2_000.0), true));
        assert_eq!(judged("max > 3us", &method), (Some(3_000.0), false));
        assert_eq!(judged("p99>2us", &method), (Some(3_000.0), true));
        assert_eq!(judged("recovery>21s", &method), (Some(22e9), true));
    }

    #[test]
    fn what_was_not_measured_breaks_its_limit() {
        let never = ClockMethod { error_ns: None, ..method(None) };
        assert_eq!(judged("rms>1s", &never), (None, true));
        assert_eq!(judged("recovery>60s", &never), (None, true));
        let steady = ClockMethod { outages: Vec::new(), ..method(None) };
        assert_eq!(judged("recovery>60s", &steady), (None, true));
    }

    #[test]
    fn the_worst_of_all_clocks_is_told_and_one_without_offsets_breaks_a_limit() {
        let clock = |offsets: &[i64]| ComparedClock {
            name: String::new(),
            kind: ComparedKind::Phc,
            from_first: false,
            missed: 0,
            error: None,
            offset_ns: Spread::of(offsets.iter().copied()).map(Figures::from),
            doubt_ns: None,
            drift: None,
            allan: Vec::new(),
            samples: Vec::new(),
        };
        let limit = Limit::of_comparison("max>5us").unwrap();
        let judged = |clocks: &[ComparedClock]| {
            let result = limit.judge_clocks(clocks);
            (result.value, result.failed)
        };
        assert_eq!(judged(&[clock(&[10, -4_000]), clock(&[300])]), (Some(4_000.0), false));
        assert_eq!(judged(&[clock(&[10]), clock(&[-6_000])]), (Some(6_000.0), true));
        assert_eq!(judged(&[clock(&[10]), clock(&[])]), (None, true));
        assert!(Limit::of_comparison("recovery>1s").is_err());
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for wrong in ["", "stddev", "stddev<1us", "median>1us", "max>", "max>fast"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }
}
