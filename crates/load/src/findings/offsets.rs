//! The doubts about offsets of the server's transmit timestamps.

use horolog_record::{Code, Finding, Severity, Trial};
use horolog_stats::buckets::MAX_VALUE;

use super::{Observed, about_worst};

/// Replies that nothing stamped.
pub(super) fn unstamped(trials: &[Observed<'_>]) -> Option<Finding> {
    // Of a mix those kinds of requests that offsets are taken of.
    let counted = |trial: &Trial| {
        let parts = trial.parts.iter().map(|part| &part.trial);
        let all = if trial.parts.is_empty() { vec![trial] } else { parts.collect() };
        let stamped = all.iter().filter_map(|one| Some((one.received, one.stamped?)));
        stamped.fold((0, 0), |(received, stamped): (u64, u64), one| {
            (received.saturating_add(one.0), stamped.saturating_add(one.1))
        })
    };
    let missing = |trial: &Trial| {
        let (received, stamped) = counted(trial);
        received.saturating_sub(stamped)
    };
    about_worst(
        trials,
        |observed| missing(observed.trial) as f64,
        (Code::RepliesUnstamped, Severity::Warning),
        |observed| {
            let (missing, (received, _)) = (missing(observed.trial), counted(observed.trial));
            format!("{missing} of {received} replies had no receive timestamp, so no offset")
        },
        "a card keeps up with so many packets only; leave out hardware timestamps, or load by less",
    )
}

/// Offsets that no histogram has room for.
pub(super) fn out_of_range(trials: &[Observed<'_>]) -> Option<Finding> {
    let largest = |trial: &Trial| {
        let offset = trial.tx_offset_ns.as_ref();
        offset.map_or(0, |offset| offset.min.unsigned_abs().max(offset.max.unsigned_abs()))
    };
    about_worst(
        trials,
        |observed| f64::from(u8::from(largest(observed.trial) >= MAX_VALUE)),
        (Code::OffsetsTooLarge, Severity::Error),
        |_| "offsets are larger than 68 s, and are shown as that".to_owned(),
        "the clock of the server or of this machine is not set; set it first",
    )
}
