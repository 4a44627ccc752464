//! Summary of a completed UDP row for the observer. Pure.

use horolog_record::{LiveCounts, PartSummary, PathRow, Percentiles};

use super::options::RowPlan;

/// Returns the name of a row.
pub(super) fn name(plan: &RowPlan) -> String {
    format!("{} bytes, R {}", plan.length, plan.load_ratio)
}

/// Returns its counts.
pub(super) fn counts(row: &PathRow) -> LiveCounts {
    LiveCounts {
        sent: row.counts.sent,
        received: row.counts.received,
        late: row.counts.late,
        duplicate: row.counts.duplicate,
        invalid: row.counts.invalid,
        refused: row.counts.refused,
        ..LiveCounts::default()
    }
}

/// Returns its summary.
pub(super) fn ended(row: &PathRow) -> PartSummary {
    PartSummary {
        intended_rate: row.intended_rate,
        achieved_rate: row.achieved_rate,
        duration_s: row.duration_s,
        sent: row.counts.sent,
        received: row.counts.received,
        lost: row.counts.lost,
        late: row.counts.late,
        invalid: row.counts.invalid,
        latency_ns: row.rtt_ns.as_ref().map(Percentiles::from_distribution),
        ..PartSummary::default()
    }
}
