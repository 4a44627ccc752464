//! Merge of load results: trials of all generators with the same index and intended rate become one
//! trial, as if one generator had sent all requests.

use std::collections::BTreeMap;

use horolog_record::{
    CampaignCapacity, CampaignTrial, Distribution, LimitingRate, LimitingSide, LoadResult,
    MergedResults, ReplyKindCounts, RequestClassCounts, Trial,
};

use super::{InstanceOutcome, MergeFailureCollector};

/// Largest loss ratio of a trial whose rate counts as answered.
const LOSS_MAX: f64 = 0.001;
/// Smallest ratio of achieved to intended rate of a trial that the generators do not limit.
const SENT_MIN: f64 = 0.99;

/// Key of concurrent trials: index of the trial, and class of its intended rate ([`rate_class`]).
type TrialKey = (usize, u64);

pub(super) fn merge(
    role_parts: &[&InstanceOutcome<'_>],
    failures: &mut MergeFailureCollector<'_>,
) -> MergedResults {
    let results: Vec<LoadResult> =
        role_parts.iter().filter_map(|part| part.parse_result(failures)).collect();
    let mut by_key: BTreeMap<TrialKey, Vec<&Trial>> = BTreeMap::new();
    for result in &results {
        for (index, trial) in result.trials.iter().enumerate() {
            by_key.entry((index, rate_class(trial.intended_rate))).or_default().push(trial);
        }
    }
    let key_count = by_key.len();
    let trials = by_key.into_iter().map(|((index, _), trials)| CampaignTrial {
        index,
        generators: trials.len() as u64,
        trial: merge_trials(&trials, failures),
    });
    let trials: Vec<_> = trials.collect();
    let longest = results.iter().map(|result| result.trials.len()).max().unwrap_or(0);
    if key_count > longest {
        failures.add_finding(
            "generators ran different rates at the same time; each rate is listed \
                              separately",
        );
    }
    let capacity = capacity(&trials, results.len() as u64);
    MergedResults::Load { trials, capacity }
}

/// Returns the highest achieved rate below the first limit, from the trials in which all generators
/// took part. `None` if these are fewer than two, or their intended rates do not increase.
fn capacity(trials: &[CampaignTrial], generators: u64) -> Option<CampaignCapacity> {
    let shared: Vec<_> = trials.iter().take_while(|one| one.generators == generators).collect();
    let rates = shared.iter().map(|one| one.trial.intended_rate);
    if shared.len() < 2 || !rates.is_sorted_by(|one, next| one < next) {
        return None;
    }
    let limits: Vec<_> = shared.iter().map(|one| exceeded_limit(&one.trial)).collect();
    let answered = limits.iter().take_while(|limit| limit.is_none()).count();
    Some(CampaignCapacity {
        loss_max: LOSS_MAX,
        answered_rate: answered.checked_sub(1).map(|last| shared[last].trial.achieved_rate),
        limit: limits.into_iter().flatten().next(),
    })
}

/// Returns the limit that a trial exceeded; `None` if it is within both.
fn exceeded_limit(trial: &Trial) -> Option<LimitingRate> {
    let loss = if trial.sent > 0 { trial.lost as f64 / trial.sent as f64 } else { 0.0 };
    let side = if loss > LOSS_MAX {
        LimitingSide::Servers
    } else if trial.achieved_rate < trial.intended_rate * SENT_MIN {
        LimitingSide::Generators
    } else {
        return None;
    };
    let [planned_rate, sent_rate] = [trial.intended_rate, trial.achieved_rate];
    Some(LimitingRate { limited_by: side, intended_rate: planned_rate, sent_rate, loss })
}

/// Returns a class of rates, about 0.1 % wide: ln(rate) in thousandths, rounded. Equal rates have
/// the same class.
fn rate_class(rate: f64) -> u64 {
    if rate > 0.0 { (rate.ln() * 1_000.0).round().max(0.0) as u64 } else { 0 }
}

/// Merges concurrent trials into one.
fn merge_trials(trials: &[&Trial], failures: &mut MergeFailureCollector<'_>) -> Trial {
    let sum = |count: fn(&Trial) -> u64| {
        trials.iter().fold(0_u64, |sum, trial| sum.saturating_add(count(trial)))
    };
    let rates = |rate: fn(&Trial) -> f64| trials.iter().map(|trial| rate(trial)).sum();
    let mut distribution = |distribution_of: fn(&Trial) -> Option<&Distribution>| {
        let all: Vec<_> = trials.iter().filter_map(|trial| distribution_of(trial)).collect();
        failures.merge_distributions(&all)
    };
    Trial {
        phase: trials.first().and_then(|trial| trial.phase.clone()),
        intended_rate: rates(|trial| trial.intended_rate),
        achieved_rate: rates(|trial| trial.achieved_rate),
        duration_s: trials.iter().map(|trial| trial.duration_s).fold(0.0, f64::max),
        clients: sum(|trial| trial.clients),
        sent: sum(|trial| trial.sent),
        received: sum(|trial| trial.received),
        lost: sum(|trial| trial.lost),
        duplicate: sum(|trial| trial.duplicate),
        late: sum(|trial| trial.late),
        unsynchronised: sum(|trial| trial.unsynchronised),
        invalid: sum_counts(trials.iter().map(|trial| &trial.invalid)),
        responses: sum_responses(trials),
        authenticated: sum_authenticated(trials),
        cookies_reused: sum_present(trials.iter().map(|trial| trial.cookies_reused)),
        // Fairness is known only for the clients of each generator.
        fairness: None,
        compliant_clients: None,
        rtt_ns: distribution(|trial| trial.rtt_ns.as_ref()),
        response_time_ns: distribution(|trial| trial.response_time_ns.as_ref()),
        // Each is measured by its own host's clock.
        tx_offset_ns: None,
        timestamped: sum_present(trials.iter().map(|trial| trial.timestamped)),
        lateness_ns: distribution(|trial| trial.lateness_ns.as_ref()),
        lost_at: sum_counts(trials.iter().map(|trial| &trial.lost_at)),
        parts: Vec::new(),
    }
}

/// Sums counts by key.
pub(super) fn sum_counts<'a, K: Clone + Ord + 'a>(
    all: impl Iterator<Item = &'a BTreeMap<K, u64>>,
) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    for (key, count) in all.flatten() {
        let sum: &mut u64 = sums.entry(key.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    sums
}

/// Returns the sum of the values present; `None` if there are none.
fn sum_present(all: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    all.flatten().reduce(u64::saturating_add)
}

fn sum_responses(trials: &[&Trial]) -> ReplyKindCounts {
    let add = |sum: ReplyKindCounts, trial: &&Trial| {
        let one = trial.responses;
        ReplyKindCounts {
            basic: sum.basic.saturating_add(one.basic),
            interleaved: sum.interleaved.saturating_add(one.interleaved),
            nts: sum.nts.saturating_add(one.nts),
            delay: sum.delay.saturating_add(one.delay),
            sync_follow_up: sum.sync_follow_up.saturating_add(one.sync_follow_up),
            grant: sum.grant.saturating_add(one.grant),
            denial: sum.denial.saturating_add(one.denial),
            cancellation: sum.cancellation.saturating_add(one.cancellation),
            granted_messages: sum.granted_messages.saturating_add(one.granted_messages),
        }
    };
    trials.iter().fold(ReplyKindCounts::default(), add)
}

fn sum_authenticated(trials: &[&Trial]) -> Option<RequestClassCounts> {
    let all = trials.iter().filter_map(|trial| trial.authenticated);
    all.reduce(|sum, one| RequestClassCounts {
        sent: sum.sent.saturating_add(one.sent),
        received: sum.received.saturating_add(one.received),
        lost: sum.lost.saturating_add(one.lost),
    })
}
