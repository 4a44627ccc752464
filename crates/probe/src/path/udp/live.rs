//! Name, counts and summary of a UDP row for the live view. Pure.

use horolog_record::{LiveCounts, PartSummary, PathRow, Percentiles};

use super::options::RowPlan;

/// Returns the row's name.
pub(super) fn row_name(plan: &RowPlan) -> String {
    format!("{} bytes, R {}", plan.length, plan.load_ratio)
}

/// Returns the row's counts.
pub(super) fn row_counts(row: &PathRow) -> LiveCounts {
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

/// Returns the row's summary.
pub(super) fn row_summary(row: &PathRow) -> PartSummary {
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
