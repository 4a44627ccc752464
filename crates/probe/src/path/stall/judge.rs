//! Classification of exchanges as stalled, and of the mechanism that held data back. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use horolog_record::{
    AckCounts, Distribution, HeldDataSampleCounts, StallMeasurement, StallMechanism,
};
use horolog_stats::Histogram;

use super::cell::{WritePatternExchange, WritePatternOutcome};
use super::plan::WritePatternPlan;

/// Typical duration of stalls by delayed acknowledgements, in ns.
pub(super) const DELAYED_ACK_BAND_NS: std::ops::RangeInclusive<u64> = 38_000_000..=42_000_000;

pub(super) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the exchange time from which an exchange counts as stalled: the median of `plain`
/// (exchanges without a wait) plus `stall_min`.
pub(super) fn stall_threshold(plain: &[WritePatternExchange], stall_min: Duration) -> Duration {
    let mut times: Vec<_> = plain.iter().map(|exchange| exchange.duration).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(Duration::ZERO).saturating_add(stall_min)
}

/// Returns the record of a pattern; exchanges of `threshold` or longer count as stalled. `acks` is
/// `None` without a packet capture.
pub(super) fn measurement(
    plan: &WritePatternPlan,
    outcome: &WritePatternOutcome,
    threshold: Duration,
    acks: Option<AckCounts>,
) -> StallMeasurement {
    let mut times = Histogram::new();
    outcome.exchanges.iter().for_each(|exchange| times.record(saturating_ns(exchange.duration)));
    let stalled: Vec<_> =
        outcome.exchanges.iter().filter(|exchange| exchange.duration >= threshold).collect();
    let in_band = outcome
        .exchanges
        .iter()
        .filter(|exchange| DELAYED_ACK_BAND_NS.contains(&saturating_ns(exchange.duration)))
        .count();
    let mut reads = BTreeMap::new();
    for exchange in &stalled {
        *reads.entry(exchange.longest_read).or_insert(0_u32) += 1;
    }
    // On a tie the lowest read number.
    let read = reads.into_iter().rev().max_by_key(|(_, count)| *count).map(|(read, _)| read);
    let report = outcome.report.as_ref();
    let mechanism = (!stalled.is_empty()).then(|| main_mechanism(outcome, threshold));
    StallMeasurement {
        pattern: plan.pattern,
        writes: plan.writes,
        write_bytes: plan.write_bytes.into(),
        option: plan.option,
        exchanges: outcome.exchanges.len() as u64,
        first_ns: outcome.exchanges.first().map(|exchange| saturating_ns(exchange.duration)),
        exchange_ns: Distribution::from_histogram(&times),
        stalled: stalled.len() as u64,
        in_band: in_band as u64,
        stalled_read: read.filter(|_| plan.reads().0 > 1),
        mechanism,
        held: combined_samples(
            outcome.held_samples,
            report.map(|report| report.held_samples).unwrap_or_default(),
        ),
        service_max_ns: report.map(|report| report.service_max_ns),
        near_tcp: outcome.near_tcp,
        far_tcp: report.map(|report| report.tcp),
        acks,
    }
}

/// Adds the held-data samples of both ends. `delivered` is the near end's only: delivered data at
/// one end proves nothing while the other end holds data back.
fn combined_samples(near: HeldDataSampleCounts, far: HeldDataSampleCounts) -> HeldDataSampleCounts {
    HeldDataSampleCounts {
        nagle: near.nagle.saturating_add(far.nagle),
        window: near.window.saturating_add(far.window),
        cork: near.cork.saturating_add(far.cork),
        delivered: near.delivered,
    }
}

/// Returns the main cause of the stalls of a pattern: the mechanism with the most samples of
/// held-back data; without such samples loss, a late answer, or elsewhere.
fn main_mechanism(outcome: &WritePatternOutcome, threshold: Duration) -> StallMechanism {
    let far = outcome.report.as_ref();
    let held = combined_samples(
        outcome.held_samples,
        far.map(|report| report.held_samples).unwrap_or_default(),
    );
    let all = [
        (held.nagle, StallMechanism::NagleDelayedAck),
        (held.window, StallMechanism::WindowDelayedAck),
        (held.cork, StallMechanism::Cork),
    ];
    if let Some((most, mechanism)) = all.into_iter().max_by_key(|(samples, _)| *samples)
        && most > 0
    {
        return mechanism;
    }
    let tcp = [outcome.near_tcp, far.map(|report| report.tcp)];
    let is_late = far.is_none_or(|report| report.service_max_ns >= saturating_ns(threshold) / 2);
    if tcp.into_iter().flatten().any(|tcp| tcp.retransmitted > 0) {
        StallMechanism::Loss
    } else if held.delivered > 0 && is_late {
        StallMechanism::LateAnswer
    } else {
        StallMechanism::Elsewhere
    }
}

#[cfg(test)]
mod tests {
    use horolog_record::{StallSocketOption, TcpInfoSummary, WritePattern};

    use super::*;
    use crate::path::tcp::protocol::FarEndReport;

    fn outcome(times_ms: &[(u64, u32)]) -> WritePatternOutcome {
        let exchange = |(ms, longest_read): &(u64, u32)| WritePatternExchange {
            duration: Duration::from_millis(*ms),
            longest_read: *longest_read,
        };
        WritePatternOutcome {
            exchanges: times_ms.iter().map(exchange).collect(),
            ..WritePatternOutcome::default()
        }
    }

    const PLAN: WritePatternPlan = WritePatternPlan {
        pattern: WritePattern::Batch,
        option: StallSocketOption::None,
        writes: 3,
        write_bytes: 132,
        exchanges: 5,
    };
    const THRESHOLD: Duration = Duration::from_millis(10);

    #[test]
    fn stalls_and_their_reads_are_counted() {
        let ran = outcome(&[(1, 1), (40, 3), (44, 3), (12, 2), (2, 1)]);
        let cell = measurement(&PLAN, &ran, THRESHOLD, None);
        assert_eq!((cell.exchanges, cell.stalled, cell.in_band), (5, 3, 1));
        assert_eq!((cell.stalled_read, cell.first_ns), (Some(3), Some(1_000_000)));
        assert_eq!(cell.mechanism, Some(StallMechanism::Elsewhere));
    }

    #[test]
    fn what_waits_for_nothing_sets_the_threshold() {
        let plain = outcome(&[(1, 1), (2, 1), (90, 1)]).exchanges;
        assert_eq!(stall_threshold(&plain, THRESHOLD), Duration::from_millis(12));
        assert_eq!(stall_threshold(&[], THRESHOLD), THRESHOLD);
    }

    #[test]
    fn what_held_most_is_named() {
        let mut ran = outcome(&[(40, 1)]);
        let report = |held, service_ms: u64, retransmitted| FarEndReport {
            held_samples: held,
            service_max_ns: service_ms * 1_000_000,
            tcp: TcpInfoSummary { retransmitted, ..TcpInfoSummary::default() },
            ..FarEndReport::default()
        };
        let none = HeldDataSampleCounts::default();
        ran.held_samples = HeldDataSampleCounts { delivered: 9, ..none };
        ran.report = Some(report(HeldDataSampleCounts { nagle: 2, delivered: 1, ..none }, 0, 0));
        assert_eq!(main_mechanism(&ran, THRESHOLD), StallMechanism::NagleDelayedAck);
        ran.report = Some(report(HeldDataSampleCounts { window: 2, ..none }, 0, 0));
        assert_eq!(main_mechanism(&ran, THRESHOLD), StallMechanism::WindowDelayedAck);
        ran.report = Some(report(HeldDataSampleCounts { cork: 1, ..none }, 0, 0));
        assert_eq!(main_mechanism(&ran, THRESHOLD), StallMechanism::Cork);
        ran.report = Some(report(none, 30, 0));
        assert_eq!(main_mechanism(&ran, THRESHOLD), StallMechanism::LateAnswer);
        ran.report = Some(report(none, 0, 1));
        assert_eq!(main_mechanism(&ran, THRESHOLD), StallMechanism::Loss);
        ran.report = Some(report(none, 0, 0));
        assert_eq!(main_mechanism(&ran, THRESHOLD), StallMechanism::Elsewhere);
    }
}
