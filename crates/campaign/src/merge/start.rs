//! Differences of the actual start times of processes from the start time and from one another.

use horolog_record::{SignedDistribution, StartAccuracy};
use horolog_stats::SignedRecorder;

use super::InstanceOutcome;

/// Returns the accuracy of the starts at `instant_ns` (UTC, in ns since 1970), corrected for the
/// clock offsets of the agents; `None` if no process was started at this time.
pub(super) fn start_accuracy(
    instant_ns: i64,
    parts: &[InstanceOutcome<'_>],
) -> Option<StartAccuracy> {
    let mut start_offsets = SignedRecorder::new();
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    let mut clock_error_ns = Some(0);
    let outcomes = parts.iter().filter_map(|part| part.outcome.as_ref());
    for outcome in outcomes.filter(|outcome| outcome.intended_ns == Some(instant_ns)) {
        let Some(started_ns) = outcome.started_ns else { continue };
        let ahead_ns = outcome.clock.as_ref().map_or(0, |clock| clock.offset_ns);
        let true_ns = started_ns.saturating_sub(ahead_ns);
        start_offsets.record(true_ns.saturating_sub(instant_ns));
        (first, last) = (first.min(true_ns), last.max(true_ns));
        let error_ns = outcome.clock.as_ref().map(|clock| clock.error_ns);
        clock_error_ns = clock_error_ns.zip(error_ns).map(|(one, other)| one.max(other));
    }
    let late_ns = SignedDistribution::from_recorder(&start_offsets)?;
    Some(StartAccuracy { instant_ns, late_ns, spread_ns: last.abs_diff(first), clock_error_ns })
}
