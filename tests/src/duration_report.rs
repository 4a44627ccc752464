//! The scenarios of a group that took longest.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Scenarios that are named.
const NAMED: usize = 12;

static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// One took so long.
pub(crate) fn record(name: &str, took: Duration) {
    TIMES.lock().unwrap_or_else(PoisonError::into_inner).push((took, name.to_owned()));
}

/// Those that took longest in this process, the longest first, with the sum of all; `None` where
/// none ran.
pub(crate) fn report() -> Option<String> {
    of(TIMES.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

fn of(mut times: Vec<(Duration, String)>) -> Option<String> {
    if times.is_empty() {
        return None;
    }
    let sum: Duration = times.iter().map(|(took, _)| *took).sum();
    let mut text = format!("{} scenarios took {:.0} s:", times.len(), sum.as_secs_f64());
    times.sort_by(|a, b| b.cmp(a));
    for (took, name) in times.iter().take(NAMED) {
        // Writing to memory does not fail.
        let _ = write!(text, "\n{:6.1} s  {name}", took.as_secs_f64());
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first() {
        let all = [(1_500, "b"), (3_000, "a")];
        let times = all.map(|(ms, name)| (Duration::from_millis(ms), name.to_owned()));
        let text = "2 scenarios took 4 s:\n   3.0 s  a\n   1.5 s  b";
        assert_eq!(of(times.into()).as_deref(), Some(text));
        assert_eq!(of(Vec::new()), None);
    }
}
