//! What is told of a row of UDP when it is over, to those who look on. Pure.

use horolog_record::{LookCounts, LookEnded, PathRow, Percentiles};

use super::options::RowPlan;

/// What a row is called.
pub(super) fn name(plan: &RowPlan) -> String {
    format!("{} bytes, R {}", plan.length, plan.load_ratio)
}

/// What was counted in it.
pub(super) fn counts(row: &PathRow) -> LookCounts {
    LookCounts {
        sent: row.counts.sent,
        received: row.counts.received,
        late: row.counts.late,
        duplicate: row.counts.duplicate,
        invalid: row.counts.invalid,
        refused: row.counts.refused,
        ..LookCounts::default()
    }
}

/// What it came to.
pub(super) fn ended(row: &PathRow) -> LookEnded {
    LookEnded {
        offered_rate: row.planned_rate,
        achieved_rate: row.achieved_rate,
        duration_s: row.duration_s,
        sent: row.counts.sent,
        received: row.counts.received,
        lost: row.counts.lost,
        late: row.counts.late,
        invalid: row.counts.invalid,
        latency_ns: row.rtt_ns.as_ref().map(Percentiles::of),
        ..LookEnded::default()
    }
}
