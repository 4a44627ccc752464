//! Counts of a trial to its record: achieved rates, distributions, and losses by location.

use std::collections::BTreeMap;
use std::time::Duration;

use horolog_record::{
    Distribution, InvalidReplyReason, LossLocation, MixRequestKindResult, ReplyKindCounts,
    RequestClassCounts, SignedDistribution, Trial,
};
use horolog_stats::loss::AchievedRate;

use crate::fairness;
use crate::plan::{MixPartPlan, TrialPlan};
use crate::request_tracker::TrialCounts;

/// Returns the record of a trial, without the name of its phase and without compliant clients.
#[must_use]
pub fn record(
    plan: &TrialPlan,
    counts: &TrialCounts,
    lost_at: BTreeMap<LossLocation, u64>,
) -> Trial {
    let invalid = InvalidReplyReason::ALL.into_iter().zip(counts.invalid);
    Trial {
        phase: None,
        intended_rate: plan.rate,
        achieved_rate: achieved_rate(counts),
        duration_s: duration_s(plan, counts),
        clients: u64::from(plan.clients),
        sent: counts.sent,
        received: counts.received,
        lost: counts.lost(),
        duplicate: counts.duplicate,
        late: counts.late,
        unsynchronised: counts.unsynchronised(),
        invalid: invalid.filter(|&(_, count)| count > 0).collect(),
        responses: ReplyKindCounts {
            basic: basic_replies(counts),
            interleaved: counts.interleaved,
            nts: counts.nts_received,
            delay: counts.ptp.unwrap_or_default().delay,
            sync_follow_up: counts.ptp.unwrap_or_default().sync_follow_up,
            grant: counts.ptp.unwrap_or_default().grant,
            denial: counts.ptp.unwrap_or_default().denial,
            cancellation: counts.ptp.unwrap_or_default().cancellation,
            granted_messages: counts.ptp.unwrap_or_default().granted_messages,
        },
        authenticated: plan.nts.then(|| RequestClassCounts {
            sent: counts.nts_sent,
            received: counts.nts_received,
            lost: counts.nts_sent.saturating_sub(counts.nts_received),
        }),
        cookies_reused: counts.cookies_reused,
        fairness: fairness::client_fairness(&counts.clients),
        compliant_clients: None,
        rtt_ns: Distribution::from_histogram(&counts.rtt),
        response_time_ns: Distribution::from_histogram(&counts.response),
        tx_offset_ns: counts
            .offsets
            .as_ref()
            .and_then(|found| SignedDistribution::from_histogram(&found.offsets)),
        timestamped: counts.offsets.as_ref().map(|found| found.timestamped),
        lateness_ns: Distribution::from_histogram(&counts.lateness),
        lost_at,
        parts: plan
            .parts
            .iter()
            .zip(&counts.parts)
            .map(|(part, counts)| mix_part_result(plan, part, counts))
            .collect(),
    }
}

/// Returns the record of one part of a mix.
fn mix_part_result(
    plan: &TrialPlan,
    part: &MixPartPlan,
    counts: &TrialCounts,
) -> MixRequestKindResult {
    MixRequestKindResult {
        name: part.name.clone(),
        mode: part.mode,
        share: part.share,
        trial: record(&plan.part_plan(part), counts, BTreeMap::new()),
    }
}

/// Returns the number of replies in basic mode, without NTS; 0 for PTP.
fn basic_replies(counts: &TrialCounts) -> u64 {
    match counts.ptp {
        _ if !counts.parts.is_empty() => counts.parts.iter().map(basic_replies).sum(),
        Some(_) => 0,
        // The XDP engine's counts are not read at one instant, so they may be inconsistent.
        None => counts.received.saturating_sub(counts.interleaved + counts.nts_received),
    }
}

/// Returns the plan with the actual duration of a trial that was ended early.
#[must_use]
pub fn truncate_plan(plan: TrialPlan, counts: &TrialCounts) -> TrialPlan {
    let lasted = counts.first_sent.zip(counts.last_sent).map_or(0.0, |(first, last)| {
        // The last request is followed by one interval.
        (last - first).as_seconds() + 1.0 / plan.rate
    });
    let duration = plan.duration.min(Duration::from_secs_f64(lasted.max(0.0)));
    TrialPlan { duration, ..plan }
}

/// Returns the rate from the first to the last request sent, in requests per second; 0 for fewer
/// than two requests.
#[must_use]
pub fn achieved_rate(counts: &TrialCounts) -> f64 {
    let (Some(first), Some(last)) = (counts.first_sent, counts.last_sent) else {
        return 0.0;
    };
    let ns = |instant: i64| u64::try_from(instant).unwrap_or(0);
    AchievedRate::from_span(counts.sent, ns(first.as_ns()), ns(last.as_ns()))
        .map_or(0.0, AchievedRate::per_second)
}

/// Returns the planned duration; if requests were omitted, the time from the first to the last
/// request.
fn duration_s(plan: &TrialPlan, counts: &TrialCounts) -> f64 {
    match (counts.first_sent, counts.last_sent) {
        (Some(first), Some(last)) if counts.sent + counts.refused < counts.planned => {
            (last - first).as_seconds()
        }
        _ => plan.duration.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_time::Timestamp;

    fn plan() -> TrialPlan {
        TrialPlan::constant(1000.0, Duration::from_secs(1), 4)
    }

    fn counts() -> TrialCounts {
        let mut counts = TrialCounts {
            planned: 1000,
            sent: 1000,
            received: 990,
            interleaved: 40,
            first_sent: Some(Timestamp::from_ns(5_000)),
            last_sent: Some(Timestamp::from_ns(999_005_000)),
            ..TrialCounts::default()
        };
        counts.invalid[InvalidReplyReason::Client as usize] = 3;
        counts.rtt.record(77);
        counts
    }

    #[test]
    fn the_rate_is_that_of_what_was_sent() {
        let trial = record(&plan(), &counts(), BTreeMap::from([(LossLocation::Unknown, 10)]));
        assert!((trial.achieved_rate - 1000.0).abs() < 1e-6, "{}", trial.achieved_rate);
        assert!((trial.duration_s - 1.0).abs() < 1e-12);
        assert_eq!(trial.lost, 10);
        assert_eq!(
            trial.responses,
            ReplyKindCounts { basic: 950, interleaved: 40, ..ReplyKindCounts::default() }
        );
        assert_eq!(trial.invalid, BTreeMap::from([(InvalidReplyReason::Client, 3)]));
        assert_eq!(trial.rtt_ns.unwrap().max, 77);
        assert_eq!(trial.response_time_ns, None);
    }

    #[test]
    fn a_trial_cut_short_lasted_as_long_as_it_did() {
        let short = TrialCounts { planned: 2000, ..counts() };
        assert!((record(&plan(), &short, BTreeMap::new()).duration_s - 0.999).abs() < 1e-9);
        let nothing = TrialCounts { planned: 10, ..TrialCounts::default() };
        let trial = record(&plan(), &nothing, BTreeMap::new());
        assert!(trial.achieved_rate.abs() < 1e-12 && trial.rtt_ns.is_none());
    }

    #[test]
    fn reasons_are_numbered_as_they_are_listed() {
        for (number, reason) in InvalidReplyReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
