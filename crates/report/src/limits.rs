//! Limits of a run as text, shared by the terminal, the HTML report and the last line of a command
//! that fails: failed limits with their values and origins.

use std::cmp::Ordering;

use horolog_record::{LimitResult, LimitUnit};

use crate::units::{ABSENT, human_ns, human_rate, per_second};

/// Formats a value of a limit.
fn figure(value: f64, unit: LimitUnit) -> String {
    match unit {
        // More digits than elsewhere, because the value may be close to its bound.
        LimitUnit::Ratio if value.is_finite() => format!("{:.4}%", value * 100.0),
        LimitUnit::Factor if value.is_finite() => format!("{value:.3}"),
        LimitUnit::Ratio | LimitUnit::Factor => ABSENT.to_owned(),
        // Rounded as in tables.
        LimitUnit::Ns => human_ns(value.max(0.0).round() as u64),
        LimitUnit::PerSecond => human_rate(value),
        LimitUnit::BytesPerSecond => per_second(value, "B/s"),
    }
}

/// Returns the measured value of a limit, with its scope or trial.
pub(crate) fn measured(limit: &LimitResult) -> String {
    let value =
        limit.value.map_or_else(|| "not measured".to_owned(), |value| figure(value, limit.unit));
    match (limit.trial, &limit.scope) {
        (Some(trial), _) => format!("{value} in trial {}", trial.saturating_add(1)),
        (None, Some(of)) => format!("{value} ({of})"),
        (None, None) => value,
    }
}

/// Returns a limit with its outcome and the measured value, in one line.
pub(crate) fn line(limit: &LimitResult) -> String {
    let verdict = if limit.failed { "failed" } else { "passed" };
    format!("limit '{}' {verdict}: {}", limit.expression, measured(limit))
}

/// Returns the number of failed limits, for a title; `None` if all passed.
pub(crate) fn failed(limits: &[LimitResult]) -> Option<String> {
    match (limits.iter().filter(|limit| limit.failed).count(), limits.len()) {
        (0, _) => None,
        (_, 1) => Some("failed: limit not met".to_owned()),
        (broken, all) => Some(format!("failed: {broken} of {all} limits not met")),
    }
}

/// Returns the ratio between value and bound, at least 1, by which failed limits are ordered;
/// infinite if the value was not measured.
fn excess(limit: &LimitResult) -> f64 {
    let Some(value) = limit.value else { return f64::INFINITY };
    let (value, bound) = (value.max(f64::MIN_POSITIVE), limit.bound.max(f64::MIN_POSITIVE));
    (value / bound).max(bound / value)
}

/// Returns the worst failed limit and, if there are several, their number, in one line; `None` if
/// all passed.
#[must_use]
pub fn broken(limits: &[LimitResult]) -> Option<String> {
    let broken = || limits.iter().filter(|limit| limit.failed);
    let by_excess = |one: &&LimitResult, other: &&LimitResult| {
        // Among equals, the first.
        excess(one).total_cmp(&excess(other)).then(Ordering::Greater)
    };
    let worst = line(broken().max_by(by_excess)?);
    Some(match broken().count() {
        1 => worst,
        count => format!("{worst}; {count} of {} limits not met", limits.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(expression: &str, unit: LimitUnit, bound: f64, value: Option<f64>) -> LimitResult {
        let expression = expression.to_owned();
        LimitResult { expression, unit, bound, value, trial: Some(2), scope: None, failed: true }
    }

    #[test]
    fn the_worst_is_named_and_the_others_counted() {
        let passed =
            LimitResult { failed: false, ..limit("late>1%", LimitUnit::Ratio, 0.01, None) };
        let slow = limit("p99>200us", LimitUnit::Ns, 200e3, Some(1_234_567.0));
        let lossy = limit("loss>0.1%", LimitUnit::Ratio, 0.001, Some(0.001_04));
        let text = broken(&[passed.clone(), lossy.clone(), slow]).unwrap();
        let expected = "limit 'p99>200us' failed: 1.23 ms in trial 3; 2 of 3 limits not met";
        assert_eq!(text, expected);
        assert_eq!(
            broken(std::slice::from_ref(&lossy)).unwrap(),
            "limit 'loss>0.1%' failed: 0.1040% in trial 3"
        );
        assert_eq!(
            failed(&[passed.clone(), lossy.clone()]).unwrap(),
            "failed: 1 of 2 limits not \
            met"
        );
        assert_eq!(failed(&[lossy]).unwrap(), "failed: limit not met");
        assert_eq!((broken(std::slice::from_ref(&passed)), failed(&[passed])), (None, None));
        let of = Some("core 1".to_owned());
        let of_core = LimitResult {
            scope: of,
            trial: None,
            ..limit("p99>200us", LimitUnit::Ns, 200e3, Some(1e6))
        };
        assert_eq!(broken(&[of_core]).unwrap(), "limit 'p99>200us' failed: 1.00 ms (core 1)");
    }

    #[test]
    fn a_missing_figure_is_the_worst() {
        let slow = limit("p99>1ns", LimitUnit::Ns, 1.0, Some(1e9));
        let missing = limit("ndr<1M", LimitUnit::PerSecond, 1e6, None);
        let missing = LimitResult { trial: None, ..missing };
        let text = broken(&[slow, missing]).unwrap();
        assert!(text.starts_with("limit 'ndr<1M' failed: not measured; "), "{text}");
    }

    #[test]
    fn a_time_is_rounded_as_in_the_table() {
        let near = limit("stddev>1ns", LimitUnit::Ns, 1.0, Some(1.6));
        assert!(line(&near).contains("failed: 2 ns"), "{}", line(&near));
    }

    #[test]
    fn a_rate_below_its_limit_is_worse_the_lower_it_is() {
        let near = limit("rate<10k", LimitUnit::PerSecond, 10e3, Some(9e3));
        let far = limit("rate<10k/s", LimitUnit::PerSecond, 10e3, Some(1e3));
        assert!(broken(&[near, far]).unwrap().contains("'rate<10k/s'"));
    }
}
