//! Findings about offsets of the server's transmit timestamps.

use horolog_record::{Finding, FindingCode, Severity, Trial};
use horolog_stats::buckets::MAX_VALUE;

use super::{TrialWithCounts, worst_trial_finding};

/// Reports replies without a receive timestamp.
pub(super) fn missing_timestamps(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    // Of a mix, only the kinds of requests for which offsets are measured.
    let counted = |trial: &Trial| {
        let parts = trial.parts.iter().map(|part| &part.trial);
        let all = if trial.parts.is_empty() { vec![trial] } else { parts.collect() };
        let reply_counts = all.iter().filter_map(|one| Some((one.received, one.timestamped?)));
        reply_counts.fold((0, 0), |(received, timestamped): (u64, u64), one| {
            (received.saturating_add(one.0), timestamped.saturating_add(one.1))
        })
    };
    let missing = |trial: &Trial| {
        let (received, timestamped) = counted(trial);
        received.saturating_sub(timestamped)
    };
    worst_trial_finding(
        trials,
        |observed| missing(observed.trial) as f64,
        (FindingCode::RepliesWithoutTimestamp, Severity::Warning),
        |observed| {
            let (missing, (received, _)) = (missing(observed.trial), counted(observed.trial));
            format!(
                "{missing} of {received} replies had no receive timestamp, and therefore no \
                     offset"
            )
        },
        "a NIC timestamps a limited number of packets per second; omit hardware timestamps, or \
         lower the rate",
    )
}

/// Reports offsets outside the range of the histogram.
pub(super) fn offsets_out_of_range(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let largest = |trial: &Trial| {
        let offset = trial.tx_offset_ns.as_ref();
        offset.map_or(0, |offset| offset.min.unsigned_abs().max(offset.max.unsigned_abs()))
    };
    worst_trial_finding(
        trials,
        |observed| f64::from(u8::from(largest(observed.trial) >= MAX_VALUE)),
        (FindingCode::OffsetsTooLarge, Severity::Error),
        |_| "offsets exceed 68 s and are reported as that value".to_owned(),
        "the clock of the server or of this host is not set; set it first",
    )
}
