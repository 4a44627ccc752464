//! Agreement of the actual process starts with the start time and with one another.

use horolog_record::{SignedDistribution, StartAccuracy};
use horolog_stats::SignedRecorder;

use super::MergedPart;

/// Returns the start statistics; `None` if nothing was started at the start time.
pub(super) fn of(instant_ns: i64, parts: &[MergedPart<'_>]) -> Option<StartAccuracy> {
    let mut late = SignedRecorder::new();
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    let mut clock_error_ns = Some(0);
    let outcomes = parts.iter().filter_map(|part| part.outcome.as_ref());
    for outcome in outcomes.filter(|outcome| outcome.intended_ns == Some(instant_ns)) {
        let Some(started_ns) = outcome.started_ns else { continue };
        let ahead_ns = outcome.clock.as_ref().map_or(0, |clock| clock.offset_ns);
        let true_ns = started_ns.saturating_sub(ahead_ns);
        late.record(true_ns.saturating_sub(instant_ns));
        (first, last) = (first.min(true_ns), last.max(true_ns));
        let error_ns = outcome.clock.as_ref().map(|clock| clock.error_ns);
        clock_error_ns = clock_error_ns.zip(error_ns).map(|(one, other)| one.max(other));
    }
    let late_ns = SignedDistribution::from_recorder(&late)?;
    Some(StartAccuracy { instant_ns, late_ns, spread_ns: last.abs_diff(first), clock_error_ns })
}
