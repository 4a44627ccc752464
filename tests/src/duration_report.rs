//! Report of the slowest scenarios of a group.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of scenarios in the report.
const REPORTED_MAX: usize = 12;

static DURATIONS: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Records the duration of a scenario.
pub(crate) fn record(name: &str, took: Duration) {
    DURATIONS.lock().unwrap_or_else(PoisonError::into_inner).push((took, name.to_owned()));
}

/// Returns the slowest scenarios of this process in descending order, with the sum of all
/// durations; `None` if none ran.
pub(crate) fn report() -> Option<String> {
    format_report(DURATIONS.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

fn format_report(mut times: Vec<(Duration, String)>) -> Option<String> {
    if times.is_empty() {
        return None;
    }
    let sum: Duration = times.iter().map(|(took, _)| *took).sum();
    let mut text = format!("{} scenarios took {:.0} s:", times.len(), sum.as_secs_f64());
    times.sort_by(|a, b| b.cmp(a));
    for (took, name) in times.iter().take(REPORTED_MAX) {
        // Writing to memory does not fail.
        let _ = write!(text, "\n{:6.1} s  {name}", took.as_secs_f64());
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_scenarios_are_first() {
        let all = [(1_500, "b"), (3_000, "a")];
        let times = all.map(|(ms, name)| (Duration::from_millis(ms), name.to_owned()));
        let text = "2 scenarios took 4 s:\n   3.0 s  a\n   1.5 s  b";
        assert_eq!(format_report(times.into()).as_deref(), Some(text));
        assert_eq!(format_report(Vec::new()), None);
    }
}
