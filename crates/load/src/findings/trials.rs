//! Findings about one trial, one function for each. Of each kind of finding, a run reports that
//! about the trial with the largest measure.

use horolog_record::{
    CompliantClientsResult, FindingCode, InvalidReplyReason, LossLocation, RequestMode, Severity,
    Trial,
};
use horolog_stats::buckets::MAX_VALUE;

use super::all_trials::TrialSums;
use super::{RunConditions, TrialFinding, TrialWithCounts, trial_finding};
use crate::request_kind::UnsynchronisedDescription;

/// Smallest share of the planned requests that counts as complete; below it the generator is
/// behind.
const ACHIEVED_SHARE_MIN: f64 = 0.999;

/// Ratio of the p99 of send lateness to the p99 of the round trip above which lateness is reported.
const LATENESS_SHARE: f64 = 0.25;

/// Largest share of basic replies that is tolerated in interleaved mode.
const BASIC_SHARE_MAX: f64 = 0.1;

/// Largest loss ratio at which basic replies are reported: after losses, servers reply in basic
/// mode.
const BASIC_LOSS_MAX: f64 = 0.01;

/// Number of values from which a 99.99th percentile is meaningful.
const SAMPLES_FOR_P99_99: u64 = 10_000;

pub(super) fn generator_behind(
    observed: &TrialWithCounts<'_>,
    conditions: &RunConditions,
) -> Option<TrialFinding> {
    let share = observed.achieved_share(conditions.spacing);
    let missing = if share < ACHIEVED_SHARE_MIN { 1.0 - share } else { 0.0 };
    // True if failed sends explain at least half of the missing requests; a slow generator also
    // omits requests.
    let unsent = observed.planned.saturating_sub(observed.trial.sent);
    let is_refused = observed.refused > 0 && observed.refused.saturating_mul(2) >= unsent;
    let advice = if is_refused {
        "a firewall, a route or the link of this host refuses them: see 'nft list ruleset', 'ip \
         route get ADDRESS' and 'ip -s link'; all other values refer to the requests sent"
    } else {
        "use a faster engine or more cores, or use the achieved rate, which all other values refer \
         to"
    };
    let message = || {
        let Trial { intended_rate, achieved_rate, sent, .. } = observed.trial;
        let refused = match observed.refused {
            0 => String::new(),
            refused => format!("; sending failed for {refused}"),
        };
        if *achieved_rate < ACHIEVED_SHARE_MIN * intended_rate {
            format!(
                "the generator sent {achieved_rate:.0} of {intended_rate:.0} requests/s{refused}"
            )
        } else {
            let planned = observed.planned;
            format!("the generator sent {sent} of {planned} requests{refused}")
        }
    };
    trial_finding(missing, (FindingCode::GeneratorBehind, Severity::Warning), message, advice)
}

pub(super) fn late_requests(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let trial = observed.trial;
    let p99 = trial.lateness_ns.as_ref().map_or(0, |lateness| lateness.p99) as f64;
    let rtt = trial.rtt_ns.as_ref().map_or(f64::INFINITY, |rtt| rtt.p99 as f64);
    let message = || {
        let late = match p99 / 1e3 {
            us if us < 1e3 => format!("{us:.1} µs"),
            us => format!("{:.1} ms", us / 1e3),
        };
        format!(
            "one request in a hundred was sent at least {late} late, which its latency includes"
        )
    };
    trial_finding(
        if p99 > LATENESS_SHARE * rtt { p99 } else { 0.0 },
        (FindingCode::RequestsLate, Severity::Warning),
        message,
        "latency counts from the intended send time; keep other work off the generator's cores",
    )
}

pub(super) fn ring_overflow(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let at_ring = observed.trial.lost_at.get(&LossLocation::OwnRing).copied().unwrap_or(0);
    let (dropped, sent) = (at_ring.max(observed.ring_dropped), observed.trial.sent);
    trial_finding(
        dropped as f64,
        (FindingCode::ReceiveRingOverflow, Severity::Warning),
        || format!("the generator's receive ring dropped {dropped} replies to {sent} requests"),
        "these losses are the generator's own; use a faster engine, more cores or a longer receive \
         ring",
    )
}

pub(super) fn invalid_replies(
    observed: &TrialWithCounts<'_>,
    conditions: &RunConditions,
) -> Option<TrialFinding> {
    let others = observed.trial.invalid.iter();
    let others = others.filter(|(reason, count)| reason.kiss_code().is_none() && **count > 0);
    let named = |(reason, count): (&InvalidReplyReason, &u64)| (reason.to_string(), *count);
    let others: Vec<_> = others.map(named).collect();
    trial_finding(
        total(&others),
        (FindingCode::InvalidReplies, Severity::Warning),
        || format!("some replies were invalid: {}", format_counts(&others, "by ")),
        conditions.explaining_behaviour().invalid_replies_advice(),
    )
}

/// Reports kiss-o'-death replies. The advice depends on those of all trials.
pub(super) fn kiss_of_death(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let invalid = observed.trial.invalid.iter().filter(|(_, count)| **count > 0);
    let kisses: Vec<_> = invalid
        .filter_map(|(reason, count)| Some((reason.kiss_code()?.to_owned(), *count)))
        .collect();
    let message = || {
        let (listed, sent) = (format_counts(&kisses, ""), observed.trial.sent);
        format!("of {sent} requests the server answered with kiss-o'-death packets: {listed}")
    };
    let code = (FindingCode::KissOfDeath, Severity::Warning);
    trial_finding(total(&kisses), code, message, "")
}

fn total(counts: &[(String, u64)]) -> f64 {
    counts.iter().map(|(_, count)| *count as f64).sum()
}

fn format_counts(counts: &[(String, u64)], before: &str) -> String {
    let each = counts.iter().map(|(name, count)| format!("{count} {before}{name}"));
    each.collect::<Vec<_>>().join(", ")
}

pub(super) fn duplicate_replies(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let duplicate = observed.trial.duplicate;
    trial_finding(
        duplicate as f64,
        (FindingCode::DuplicateReplies, Severity::Warning),
        || format!("{duplicate} duplicate replies were received"),
        "the network duplicates packets, or two servers reply; each request counts once",
    )
}

/// Reports an unsynchronised server.
pub(super) fn server_unsynchronised(
    observed: &TrialWithCounts<'_>,
    conditions: &RunConditions,
) -> Option<TrialFinding> {
    let (unsynchronised, all) = (observed.server_unsynchronised, observed.trial.received);
    let UnsynchronisedDescription { severity, server, state, advice } =
        conditions.explaining_behaviour().unsynchronised_description();
    trial_finding(
        unsynchronised as f64,
        (FindingCode::ServerUnsynchronised, severity),
        || format!("{server} reports in {unsynchronised} of {all} replies that {state}"),
        advice,
    )
}

/// Reports a PTP master that denied requests for unicast messages and granted none.
pub(super) fn unicast_denied(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let denied = match observed.trial.responses.grant {
        0 => observed.trial.responses.denial,
        _ => 0,
    };
    trial_finding(
        denied as f64,
        (FindingCode::UnicastDenied, Severity::Warning),
        || format!("the master denied all {denied} requests it answered"),
        "results describe denials only; add the clients to the master's unicast access list \
         (horolog: --ptp-unicast-allow), and check its limits on grants, rate and intervals",
    )
}

/// Returns the interleaved part of a mix; the trial itself if it is not a mix.
pub(super) fn interleaved_part(trial: &Trial) -> &Trial {
    let part = trial.parts.iter().find(|part| part.mode == RequestMode::NtpInterleaved);
    part.map_or(trial, |part| &part.trial)
}

/// Reports basic replies in interleaved mode. Considers only trials before which clients had
/// received two replies each on average, since servers may keep no state after a client's first
/// request, and that lost almost nothing, since a client that misses a reply refers to a timestamp
/// that the server may have discarded. `before` are the sums over the earlier trials.
pub(super) fn basic_replies(
    observed: &TrialWithCounts<'_>,
    conditions: &RunConditions,
    before: &TrialSums,
) -> Option<TrialFinding> {
    let trial = interleaved_part(observed.trial);
    let is_warm = before.interleaved_received >= trial.clients.saturating_mul(2);
    if !conditions.has_mode(RequestMode::NtpInterleaved)
        || !is_warm
        || trial.loss_ratio() > BASIC_LOSS_MAX
    {
        return None;
    }
    let share = trial.responses.basic as f64 / trial.received.max(1) as f64;
    trial_finding(
        if share > BASIC_SHARE_MAX { share } else { 0.0 },
        (FindingCode::InterleavedNotUsed, Severity::Warning),
        || {
            let percent = share * 100.0;
            format!("interleaved mode was requested, but {percent:.1}% of the replies were basic")
        },
        "the server lacks interleaved mode, lacks memory for these clients, or receives the next \
         request before it sent the reply: use fewer or more clients, or a larger client table",
    )
}

pub(super) fn losses_unattributed(
    observed: &TrialWithCounts<'_>,
    conditions: &RunConditions,
) -> Option<TrialFinding> {
    // Hosts rate-limit ICMP, so if no reply was received, a single port-unreachable message
    // explains all losses.
    let unknown = match (observed.port_closed, observed.trial.received) {
        (1.., 0) => 0,
        (closed, _) => {
            let unknown = observed.trial.lost_at.get(&LossLocation::Unknown).copied().unwrap_or(0);
            unknown.saturating_sub(closed)
        }
    };
    let lost = observed.trial.lost;
    trial_finding(
        unknown as f64,
        (FindingCode::LossUnattributed, Severity::Note),
        || format!("the loss location of {unknown} of {lost} requests is unknown"),
        if conditions.shared_host {
            "no available counter accounts for them"
        } else {
            "also read the counters of the server's host: interface, sockets, server"
        },
    )
}

pub(super) fn few_samples(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let received = observed.trial.received;
    let is_few = (1..SAMPLES_FOR_P99_99).contains(&received);
    trial_finding(
        if is_few { 1.0 / received as f64 } else { 0.0 },
        (FindingCode::FewSamples, Severity::Note),
        || format!("{received} replies are too few for a 99.99th percentile, which needs 10000"),
        "the highest percentiles are single replies; hold each rate longer",
    )
}

/// Reports replies without a receive timestamp.
pub(super) fn missing_timestamps(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    // Of a mix, only the kinds of requests for which offsets are measured.
    let trial = observed.trial;
    let parts = trial.parts.iter().map(|part| &part.trial);
    let all = if trial.parts.is_empty() { vec![trial] } else { parts.collect() };
    let reply_counts = all.iter().filter_map(|one| Some((one.received, one.timestamped?)));
    let (received, timestamped) =
        reply_counts.fold((0, 0), |(received, timestamped): (u64, u64), one| {
            (received.saturating_add(one.0), timestamped.saturating_add(one.1))
        });
    let missing = received.saturating_sub(timestamped);
    trial_finding(
        missing as f64,
        (FindingCode::RepliesWithoutTimestamp, Severity::Warning),
        || {
            format!(
                "{missing} of {received} replies had no receive timestamp, and therefore no offset"
            )
        },
        "a NIC timestamps a limited number of packets per second; omit hardware timestamps, or \
         lower the rate",
    )
}

/// Reports offsets outside the range of the histogram.
pub(super) fn offsets_out_of_range(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let offset = observed.trial.tx_offset_ns.as_ref();
    let largest = offset.map_or(0, |one| one.min.unsigned_abs().max(one.max.unsigned_abs()));
    trial_finding(
        f64::from(u8::from(largest >= MAX_VALUE)),
        (FindingCode::OffsetsTooLarge, Severity::Error),
        || "offsets exceed 68 s and are reported as that value".to_owned(),
        "the clock of the server or of this host is not set; set it first",
    )
}

/// Smallest share of clients without a reply that is reported.
const UNANSWERED_MIN: f64 = 0.001;

/// Smallest loss ratio of compliant clients that is reported; less may be chance.
const COMPLIANT_LOSS_MIN: f64 = 0.001;

/// Reports clients that received no reply while others did.
pub(super) fn unanswered_clients(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let fairness = observed.trial.fairness.as_ref()?;
    let share = fairness.unanswered as f64 / fairness.clients.max(1) as f64;
    let is_reported = fairness.share_max > 0.0 && share >= UNANSWERED_MIN;
    trial_finding(
        if is_reported { share } else { 0.0 },
        (FindingCode::UnfairReplies, Severity::Note),
        || {
            let (share, best) = (share * 100.0, fairness.share_max * 100.0);
            format!(
                "{share:.1}% of the clients received no valid reply; the best client received \
                 {best:.1}% of its replies"
            )
        },
        "per-client rate limits or uneven distribution over server threads are likely causes; with \
         few requests for each client it may be chance",
    )
}

/// Reports loss of compliant clients from [`COMPLIANT_LOSS_MIN`] on.
pub(super) fn compliant_loss(observed: &TrialWithCounts<'_>) -> Option<TrialFinding> {
    let compliant = observed.trial.compliant_clients.as_ref()?;
    let ratio = compliant.loss_ratio();
    trial_finding(
        if ratio >= COMPLIANT_LOSS_MIN { ratio } else { 0.0 },
        (FindingCode::CompliantClientLoss, Severity::Warning),
        || {
            let CompliantClientsResult { lost, sent, clients_affected, clients_active, .. } =
                compliant;
            let others = observed.trial.loss_ratio() * 100.0;
            format!(
                "compliant clients lost {lost} of {sent} requests, {clients_affected} of \
                 {clients_active} clients at least one, while the load lost {others:.1}%"
            )
        },
        "the server's rate limiting, or the lack of it, affects compliant clients; limit single \
         addresses instead of the total, and reserve capacity for new clients",
    )
}
