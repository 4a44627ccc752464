//! Metrics of a row of `path udp` for `--fail-if`. Pure.

use horolog_record::{LimitUnit, PathRow};

use crate::limit::{Limit, LimitedMetric, TimeOf, time_metrics};

/// A metric of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum UdpMetric {
    /// A share of datagrams.
    Share(fn(&PathRow) -> Option<f64>),
    /// T, half the round trip.
    Delay(TimeOf),
}

const SHARES: [LimitedMetric<UdpMetric>; 3] = [
    (
        "loss",
        LimitUnit::Ratio,
        UdpMetric::Share(|row| (row.counts.sent > 0).then(|| row.loss_ratio())),
    ),
    ("reordered", LimitUnit::Ratio, UdpMetric::Share(|row| Some(1.0 - row.order_ratio()?))),
    ("duplicates", LimitUnit::Ratio, UdpMetric::Share(duplicates)),
];

fn duplicates(row: &PathRow) -> Option<f64> {
    let received = row.counts.received;
    (received > 0).then(|| row.counts.duplicate as f64 / received as f64)
}

pub(super) fn limit(text: &str) -> Result<Limit<UdpMetric>, String> {
    Limit::parse(text, SHARES.into_iter().chain(time_metrics(UdpMetric::Delay)))
}

/// The name that distinguishes a row from the others.
pub(super) fn name(row: &PathRow) -> String {
    let (length, load) = (row.length, row.load.planned_ratio);
    if load > 0.0 { format!("{length} bytes, R {load}") } else { format!("{length} bytes") }
}

impl UdpMetric {
    /// The value of a row; `None` if it was not measured.
    pub(super) fn of(self, row: &PathRow) -> Option<f64> {
        match self {
            Self::Share(of) => of(row),
            Self::Delay(of) => row.delay_ns.as_ref().map(of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_delays_can_be_limited() {
        for text in ["loss>1%", "reordered>0", "duplicates > 0.1%", "p99.9 > 200us", "mean>1ms"] {
            assert!(limit(text).is_ok(), "{text}");
        }
        for wrong in ["", "loss", "loss<1%", "p75>1ms", "p99>", "loss>1ms", "speed>1"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
