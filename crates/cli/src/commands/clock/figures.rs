//! Metrics that `--fail-if` can limit in `horolog clock compare` and `horolog clock simulate`:
//! absolute values of clock offsets, and recovery times. Pure.

use horolog_record::{ComparedClock, DisciplineResult, ExactSummary, LimitResult, LimitUnit};

use crate::limit::{Limit, LimitedMetric};

/// Function that returns a statistic of clock offsets, in ns; `None` if there are too few of them.
pub(super) type OffsetStatistic = fn(&ExactSummary) -> Option<f64>;

const OFFSET_METRICS: [LimitedMetric<OffsetStatistic>; 5] = [
    ("mean", LimitUnit::Ns, |offsets| Some(offsets.mean.abs())),
    ("stddev", LimitUnit::Ns, |offsets| (offsets.count > 1).then_some(offsets.stddev)),
    ("rms", LimitUnit::Ns, |offsets| Some(offsets.rms)),
    ("p99", LimitUnit::Ns, |offsets| Some(larger_magnitude(offsets.p1, offsets.p99))),
    ("max", LimitUnit::Ns, |offsets| Some(larger_magnitude(offsets.min, offsets.max))),
];

/// Returns the larger absolute value of two offsets, in ns.
fn larger_magnitude(low: i64, high: i64) -> f64 {
    low.unsigned_abs().max(high.unsigned_abs()) as f64
}

/// Parses a limit for `horolog clock compare`, which has every metric except `recovery`.
pub(super) fn parse_comparison_limit(text: &str) -> Result<Limit<OffsetStatistic>, String> {
    Limit::parse(text, OFFSET_METRICS)
}

/// Returns the name of each clock and a statistic of its offsets; `None` without offsets. Offsets
/// of a clock with an arbitrary epoch are relative to its first reading, so one reading yields no
/// value.
pub(super) fn clock_metric_values(
    clocks: &[ComparedClock],
    statistic: OffsetStatistic,
) -> impl Iterator<Item = (String, Option<f64>)> {
    clocks.iter().map(move |clock| {
        let offsets = clock.offset_ns.as_ref();
        let offsets = offsets.filter(|offsets| !clock.from_first || offsets.count > 1);
        (clock.name.clone(), offsets.and_then(statistic))
    })
}

/// Metric of a simulated clock that `--fail-if` can limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum SimulatedClockMetric {
    /// Statistic of the clock's error against true time, in ns.
    Error(OffsetStatistic),
    /// Recovery time after an outage of the pulses, in ns.
    Recovery,
}

/// Parses a limit for `horolog clock simulate`.
pub(super) fn parse_simulation_limit(text: &str) -> Result<Limit<SimulatedClockMetric>, String> {
    let errors = OFFSET_METRICS
        .map(|(name, unit, statistic)| (name, unit, SimulatedClockMetric::Error(statistic)));
    let recovery = ("recovery", LimitUnit::Ns, SimulatedClockMetric::Recovery);
    Limit::parse(text, errors.into_iter().chain([recovery]))
}

impl SimulatedClockMetric {
    /// Evaluates a limit on the clock error, or on the recovery time after each outage, of one
    /// discipline method.
    pub(super) fn judge(limit: &Limit<Self>, method: &DisciplineResult) -> LimitResult {
        match limit.metric {
            Self::Error(statistic) => {
                limit.evaluate([method.error_ns.as_ref().and_then(statistic)])
            }
            Self::Recovery => limit.evaluate_named(method.outages.iter().map(|outage| {
                let time = outage.recovered_after_s.map(|time| time as f64 * 1e9);
                (format!("the outage {} s after the start", outage.begin_s), time)
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::{ClockOutage, ComparedClockKind, DisciplineMethod};

    use super::*;

    fn method(recovered_after_s: Option<u64>) -> DisciplineResult {
        DisciplineResult {
            kind: DisciplineMethod::Servo,
            error_ns: ExactSummary::from_values([-3_000, 1_000]),
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

    fn judged(expression: &str, method: &DisciplineResult) -> (Option<f64>, bool) {
        let limit = parse_simulation_limit(expression).unwrap();
        let judged = SimulatedClockMetric::judge(&limit, method);
        (judged.value, judged.failed)
    }

    #[test]
    fn figures_are_held_against_their_limits_either_way() {
        let method = method(Some(22));
        assert_eq!(judged("mean>1us", &method), (Some(1_000.0), false));
        assert_eq!(judged("stddev>1.9us", &method), (Some(2_000.0), true));
        assert_eq!(judged("max > 3us", &method), (Some(3_000.0), false));
        assert_eq!(judged("p99>2us", &method), (Some(3_000.0), true));
        assert_eq!(judged("recovery>21s", &method), (Some(22e9), true));
        let of =
            SimulatedClockMetric::judge(&parse_simulation_limit("recovery>21s").unwrap(), &method)
                .scope;
        assert_eq!(of.as_deref(), Some("the outage 1 s after the start"));
    }

    #[test]
    fn what_was_not_measured_breaks_its_limit() {
        let never = DisciplineResult { error_ns: None, ..method(None) };
        assert_eq!(judged("rms>1s", &never), (None, true));
        assert_eq!(judged("recovery>60s", &never), (None, true));
        let steady = DisciplineResult { outages: Vec::new(), ..method(None) };
        assert_eq!(judged("recovery>60s", &steady), (None, true));
    }

    #[test]
    fn worst_clock_is_named_and_one_without_offsets_fails_a_limit() {
        let clock = |offsets: &[i64]| ComparedClock {
            name: format!("{offsets:?}"),
            kind: ComparedClockKind::Phc,
            from_first: false,
            missed: 0,
            error: None,
            offset_ns: ExactSummary::from_values(offsets.iter().copied()),
            error_bound_ns: None,
            drift: None,
            allan: Vec::new(),
            samples: Vec::new(),
        };
        let limit = parse_comparison_limit("max>5us").unwrap();
        let judged = |clocks: &[ComparedClock]| {
            let result = limit.evaluate_named(clock_metric_values(clocks, limit.metric));
            (result.value, result.failed)
        };
        assert_eq!(judged(&[clock(&[10, -4_000]), clock(&[300])]), (Some(4_000.0), false));
        assert_eq!(judged(&[clock(&[10]), clock(&[-6_000])]), (Some(6_000.0), true));
        assert_eq!(judged(&[clock(&[10]), clock(&[])]), (None, true));
        let worst = limit
            .evaluate_named(clock_metric_values(&[clock(&[10]), clock(&[7_000])], limit.metric));
        assert_eq!(worst.scope.as_deref(), Some("[7000]"));
        assert!(parse_comparison_limit("recovery>1s").is_err());
        // One reading: no deviation, and of a clock as of its first reading nothing at all.
        let missing = |text: &str, from_first| {
            let limit = parse_comparison_limit(text).unwrap();
            let clocks = [ComparedClock { from_first, ..clock(&[0]) }];
            let result = limit.evaluate_named(clock_metric_values(&clocks, limit.metric));
            (result.value.is_none(), result.failed)
        };
        assert_eq!(missing("stddev>1ns", false), (true, true));
        assert_eq!(missing("max>1ns", true), (true, true));
        assert_eq!(missing("max>1ns", false), (false, false));
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for wrong in ["", "stddev", "stddev<1us", "median>1us", "max>", "max>fast"] {
            assert!(parse_simulation_limit(wrong).is_err(), "{wrong}");
        }
    }
}
