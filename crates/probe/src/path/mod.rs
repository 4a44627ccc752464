//! Measurements of the network path between two hosts: the far end, which replies ([`serve`], and
//! [`tcp`] for TCP), and the near ends that measure ([`udp`], [`tcp`], [`stall`]). Each returns a
//! record and prints nothing.

pub mod serve;
pub mod stall;
pub mod tcp;
pub mod udp;

use horolog_record::{LiveCounts, LivePartSummary, LiveSampler, PartPlan, RequestValues};

/// Reports a completed row and its counts to the observer.
fn report_row(
    sampler: &mut LiveSampler<'_>,
    plan: &PartPlan,
    (part_counts, row): (LiveCounts, LivePartSummary),
) {
    let LivePartSummary { byte_rate, latency_ns, .. } = row;
    let ended = RequestValues { part_counts, byte_rate, latency_ns, ..RequestValues::default() };
    sampler.finish(plan, row.duration_s, &part_counts, ended);
    let row = LivePartSummary { index: plan.index, name: plan.name.clone(), ..row };
    sampler.observer.part_ended(plan.index, &row);
}

/// Formats a time in ns with three significant digits and its unit.
pub(crate) fn format_time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..999_500 => (ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_keeps_them_short() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.50 µs"),
            (99_960, "100 µs"),
            (999_600, "1.00 ms"),
            (14_614_500, "14.6 ms"),
            (999_600_000, "1.00 s"),
            (120_000_000_000, "120 s"),
        ] {
            assert_eq!(format_time(ns), text);
        }
    }
}
