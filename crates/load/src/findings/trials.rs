//! Findings about trials, one function for each.

use horolog_record::{
    CompliantClientsResult, Finding, FindingCode, InvalidReplyReason, LossLocation, RequestMode,
    Severity, Trial,
};
use horolog_stats::buckets::MAX_VALUE;

use super::{RunFindingInputs, TrialWithCounts, finding, worst_trial, worst_trial_finding};
use crate::ptp::PtpRequestKind;

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

pub(super) fn no_replies(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    let sent: u64 = trials.iter().map(|observed| observed.trial.sent).sum();
    let unanswered = trials.iter().all(|observed| {
        let Trial { received, late, responses, .. } = observed.trial;
        // A NetSync Monitor request with only part of its answers does not count as received.
        let parts = responses.delay + responses.sync_follow_up + responses.granted_messages;
        received + late + observed.trial.invalid_total() + parts == 0
    });
    if sent == 0 || !unanswered {
        return None;
    }
    let message = format!("none of {sent} requests received a reply");
    let closed = trials.iter().any(|observed| observed.port_closed > 0);
    let advice = match &context.return_route {
        _ if closed => {
            "the target's port is closed; check that the server runs and that the port is right"
                .to_owned()
        }
        Some(command) => format!(
            "the server needs a route back to the simulated clients: run '{command}' there, and \
             check that it serves that network"
        ),
        None => {
            "check that the server runs, that it serves this address, and that no firewall drops \
             packets"
                .into()
        }
    };
    let advice = match &context.ptp {
        None => advice,
        Some(ptp) => {
            let domain = format!("check that it is a PTP master in domain {}", ptp.domain);
            let contract = if ptp.kind == PtpRequestKind::Delay && ptp.replies_to_client_address() {
                " and replies without unicast negotiation: a master of profile g8275.2 replies \
                 only to clients with a grant for Delay_Resp, which 'horolog load ptp unicast' \
                 requests"
            } else {
                ""
            };
            format!("{advice}; {domain}{contract}")
        }
    };
    Some(finding(FindingCode::NoReplies, Severity::Error, message, &advice))
}

/// Reports a master that replies to requests with NetSync Monitor as if they had none.
pub(super) fn monitor_unsupported(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    if context.ptp.is_none_or(|ptp| ptp.kind != PtpRequestKind::Nsm) {
        return None;
    }
    let sum = |count: fn(&Trial) -> u64| -> u64 {
        trials.iter().map(|observed| count(observed.trial)).sum()
    };
    let answered = sum(|trial| trial.received + trial.late + trial.responses.sync_follow_up);
    let plain = sum(|trial| {
        trial.responses.delay
            + trial.invalid.get(&InvalidReplyReason::Monitor).copied().unwrap_or(0)
    });
    if answered > 0 || plain == 0 {
        return None;
    }
    let message = format!(
        "{plain} requests were answered with a Delay_Resp without NetSync Monitor, none with a Sync"
    );
    let advice = "NetSync Monitor is disabled on the master, or for these clients: for horolog, \
                  run serve with --ptp-netsync-monitor, and add other client networks to \
                  --ptp-unicast-allow";
    Some(finding(FindingCode::NoReplies, Severity::Error, message, advice))
}

pub(super) fn generator_behind(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    let missing = |observed: &TrialWithCounts<'_>| {
        let share = observed.achieved_share(context.spacing);
        if share < ACHIEVED_SHARE_MIN { 1.0 - share } else { 0.0 }
    };
    let is_refused = worst_trial(trials, missing).is_some_and(|(_, observed, _)| {
        // True if failed sends explain at least half of the missing requests; a slow generator also
        // omits requests.
        let missing = observed.planned.saturating_sub(observed.trial.sent);
        observed.refused > 0 && observed.refused.saturating_mul(2) >= missing
    });
    let advice = if is_refused {
        "a firewall, a route or the link of this host refuses them: see 'nft list ruleset', 'ip \
         route get ADDRESS' and 'ip -s link'; all other values refer to the requests sent"
    } else {
        "use a faster engine or more cores, or use the achieved rate, which all other values refer \
         to"
    };
    worst_trial_finding(
        trials,
        missing,
        (FindingCode::GeneratorBehind, Severity::Warning),
        |observed| {
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
        },
        advice,
    )
}

pub(super) fn late_requests(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let lateness = |observed: &TrialWithCounts<'_>| {
        let trial = observed.trial;
        let p99 = trial.lateness_ns.as_ref().map_or(0, |lateness| lateness.p99) as f64;
        let rtt = trial.rtt_ns.as_ref().map_or(f64::INFINITY, |rtt| rtt.p99 as f64);
        if p99 > LATENESS_SHARE * rtt { p99 } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        lateness,
        (FindingCode::RequestsLate, Severity::Warning),
        |observed| {
            let late = match lateness(observed) / 1e3 {
                us if us < 1e3 => format!("{us:.1} µs"),
                us => format!("{:.1} ms", us / 1e3),
            };
            format!(
                "one request in a hundred was sent at least {late} late, which its latency includes"
            )
        },
        "latency counts from the intended send time; keep other work off the generator's cores",
    )
}

pub(super) fn ring_overflow(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let dropped = |observed: &TrialWithCounts<'_>| {
        let at_ring = observed.trial.lost_at.get(&LossLocation::OwnRing).copied().unwrap_or(0);
        at_ring.max(observed.ring_dropped)
    };
    worst_trial_finding(
        trials,
        |observed| dropped(observed) as f64,
        (FindingCode::ReceiveRingOverflow, Severity::Warning),
        |observed| {
            let (dropped, sent) = (dropped(observed), observed.trial.sent);
            format!("the generator's receive ring dropped {dropped} replies to {sent} requests")
        },
        "these losses are the generator's own; use a faster engine, more cores or a longer receive \
         ring",
    )
}

pub(super) fn invalid_replies(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    let advice = if context.ptp.is_some() {
        "they count as lost; the name after each number is the invalid field of the message"
    } else {
        "they count as lost; the name after each number is the field that does not match the \
         request, for example the length or the server's version"
    };
    let others = |observed: &TrialWithCounts<'_>| {
        let all = observed.trial.invalid.iter();
        let others = all.filter(|(reason, count)| reason.kiss_code().is_none() && **count > 0);
        let named = |(reason, count): (&InvalidReplyReason, &u64)| (reason.to_string(), *count);
        others.map(named).collect::<Vec<_>>()
    };
    worst_trial_finding(
        trials,
        |observed| total(&others(observed)),
        (FindingCode::InvalidReplies, Severity::Warning),
        |observed| {
            format!("some replies were invalid: {}", format_counts(&others(observed), "by "))
        },
        advice,
    )
}

/// Reports kiss-o'-death replies, each kind with its effect on a client (RFC 5905, section 7.4).
pub(super) fn kiss_of_death(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let kisses = |observed: &TrialWithCounts<'_>| {
        let all = observed.trial.invalid.iter().filter(|(_, count)| **count > 0);
        all.filter_map(|(reason, count)| Some((reason.kiss_code()?.to_owned(), *count)))
            .collect::<Vec<_>>()
    };
    let has_invalid = |reason| {
        trials.iter().any(|observed| observed.trial.invalid.get(&reason).is_some_and(|n| *n > 0))
    };
    let mut advice = vec!["they count as lost"];
    if has_invalid(InvalidReplyReason::KissRate) {
        advice.push("RATE: the server limits client rates; use more clients or a lower rate");
    }
    if has_invalid(InvalidReplyReason::KissDeny) || has_invalid(InvalidReplyReason::KissRstr) {
        advice.push(
            "DENY and RSTR: the server's configuration refuses these clients; allow their \
                     network",
        );
    }
    if has_invalid(InvalidReplyReason::KissNtsn) {
        advice.push("NTSN: the server cannot decrypt the cookies; run NTS-KE again");
    }
    if has_invalid(InvalidReplyReason::KissOther) {
        advice.push(
            "other codes: service refused for a reason RFC 5905 does not define; see the \
                     server's log",
        );
    }
    worst_trial_finding(
        trials,
        |observed| total(&kisses(observed)),
        (FindingCode::KissOfDeath, Severity::Warning),
        |observed| {
            let (listed, sent) = (format_counts(&kisses(observed), ""), observed.trial.sent);
            format!("of {sent} requests the server answered with kiss-o'-death packets: {listed}")
        },
        &advice.join("; "),
    )
}

fn total(counts: &[(String, u64)]) -> f64 {
    counts.iter().map(|(_, count)| *count as f64).sum()
}

fn format_counts(counts: &[(String, u64)], before: &str) -> String {
    let each = counts.iter().map(|(name, count)| format!("{count} {before}{name}"));
    each.collect::<Vec<_>>().join(", ")
}

pub(super) fn duplicate_replies(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    worst_trial_finding(
        trials,
        |observed| observed.trial.duplicate as f64,
        (FindingCode::DuplicateReplies, Severity::Warning),
        |observed| format!("{} duplicate replies were received", observed.trial.duplicate),
        "the network duplicates packets, or two servers reply; each request counts once",
    )
}

/// Reports an unsynchronised server. A PTP master whose time is not traceable may be synchronised,
/// so it is reported with a note of its own.
pub(super) fn server_unsynchronised(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    if context.ptp.is_some() {
        return worst_trial_finding(
            trials,
            |observed| observed.server_unsynchronised as f64,
            (FindingCode::ServerUnsynchronised, Severity::Note),
            |observed| {
                let (unsynchronised, all) =
                    (observed.server_unsynchronised, observed.trial.received);
                format!(
                    "the master reports in {unsynchronised} of {all} replies that its time is not traceable \
                     to a primary reference"
                )
            },
            "its time may still be accurate, from its own clock or another server's",
        );
    }
    worst_trial_finding(
        trials,
        |observed| observed.server_unsynchronised as f64,
        (FindingCode::ServerUnsynchronised, Severity::Warning),
        |observed| {
            let (unsynchronised, all) = (observed.server_unsynchronised, observed.trial.received);
            format!(
                "the server reports in {unsynchronised} of {all} replies that it is not synchronised"
            )
        },
        "clients would not use its time; its speed may differ when synchronised",
    )
}

/// Reports a PTP master that denied requests for unicast messages and granted none.
pub(super) fn unicast_denied(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let denied = |observed: &TrialWithCounts<'_>| match observed.trial.responses.grant {
        0 => observed.trial.responses.denial,
        _ => 0,
    };
    worst_trial_finding(
        trials,
        |observed| denied(observed) as f64,
        (FindingCode::UnicastDenied, Severity::Warning),
        |observed| format!("the master denied all {} requests it answered", denied(observed)),
        "results describe denials only; add the clients to the master's unicast access list \
         (horolog: --ptp-unicast-allow), and check its limits on grants, rate and intervals",
    )
}

/// Returns the interleaved part of a mix; the trial itself if it is not a mix.
fn interleaved_part(trial: &Trial) -> &Trial {
    let part = trial.parts.iter().find(|part| part.mode == RequestMode::NtpInterleaved);
    part.map_or(trial, |part| &part.trial)
}

/// Reports basic replies in interleaved mode, or a run with fewer than two requests for each
/// client. Considers only trials before which clients had received two replies each on average,
/// since servers may keep no state after a client's first request, and that lost almost nothing,
/// since a client that misses a reply refers to a timestamp that the server may have discarded.
pub(super) fn basic_replies(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    if !context.interleaved {
        return None;
    }
    let (sent, clients) = trials.iter().fold((0, 0), |(sent, clients), observed| {
        (sent + observed.trial.sent, observed.trial.clients.max(clients))
    });
    if sent > 0 && sent < clients.saturating_mul(2) {
        let message = format!(
            "{sent} requests of {clients} clients are too few for interleaved mode, which each \
             client enters after its first reply"
        );
        let advice = "use fewer clients, or a longer trial duration";
        return Some(finding(FindingCode::InterleavedNotUsed, Severity::Note, message, advice));
    }
    let mut before = 0_u64;
    let ready = trials.iter().map(|observed| {
        let trial = interleaved_part(observed.trial);
        let warm = before >= trial.clients.saturating_mul(2);
        before += trial.received;
        warm && trial.loss_ratio() <= BASIC_LOSS_MAX
    });
    let ready: Vec<_> = ready.collect();
    let basic = |observed: &TrialWithCounts<'_>| {
        let trial = interleaved_part(observed.trial);
        let share = trial.responses.basic as f64 / trial.received.max(1) as f64;
        let index = trials.iter().position(|one| std::ptr::eq(one.trial, observed.trial));
        let judged = index.is_some_and(|index| ready[index]);
        if judged && share > BASIC_SHARE_MAX { share } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        basic,
        (FindingCode::InterleavedNotUsed, Severity::Warning),
        |observed| {
            let share = basic(observed) * 100.0;
            format!("interleaved mode was requested, but {share:.1}% of the replies were basic")
        },
        "the server lacks interleaved mode, lacks memory for these clients, or receives the next \
         request before it sent the reply: use fewer or more clients, or a larger client table",
    )
}

pub(super) fn losses_unattributed(
    trials: &[TrialWithCounts<'_>],
    context: &RunFindingInputs<'_>,
) -> Option<Finding> {
    // Hosts rate-limit ICMP, so if no reply was received, a single port-unreachable message
    // explains all losses.
    let unknown =
        |observed: &TrialWithCounts<'_>| match (observed.port_closed, observed.trial.received) {
            (1.., 0) => 0,
            (closed, _) => {
                let unknown =
                    observed.trial.lost_at.get(&LossLocation::Unknown).copied().unwrap_or(0);
                unknown.saturating_sub(closed)
            }
        };
    let advice = if context.shared_host {
        "no available counter accounts for them"
    } else {
        "also read the counters of the server's host: interface, sockets, server"
    };
    worst_trial_finding(
        trials,
        |observed| unknown(observed) as f64,
        (FindingCode::LossUnattributed, Severity::Note),
        |observed| {
            let (unknown, lost) = (unknown(observed), observed.trial.lost);
            format!("the loss location of {unknown} of {lost} requests is unknown")
        },
        advice,
    )
}

pub(super) fn few_samples(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let short = |observed: &TrialWithCounts<'_>| {
        let received = observed.trial.received;
        if (1..SAMPLES_FOR_P99_99).contains(&received) { 1.0 / received as f64 } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        short,
        (FindingCode::FewSamples, Severity::Note),
        |observed| {
            let received = observed.trial.received;
            format!("{received} replies are too few for a 99.99th percentile, which needs 10000")
        },
        "the highest percentiles are single replies; hold each rate longer",
    )
}

/// Reports replies without a receive timestamp.
pub(super) fn missing_timestamps(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    // Of a mix, only the kinds of requests for which offsets are measured.
    let counted = |trial: &Trial| {
        let parts = trial.parts.iter().map(|part| &part.trial);
        let all = if trial.parts.is_empty() { vec![trial] } else { parts.collect() };
        let reply_counts = all.iter().filter_map(|one| Some((one.received, one.timestamped?)));
        reply_counts.fold((0, 0), |(received, timestamped): (u64, u64), one| {
            (received.saturating_add(one.0), timestamped.saturating_add(one.1))
        })
    };
    let missing = |trial: &Trial| {
        let (received, timestamped) = counted(trial);
        received.saturating_sub(timestamped)
    };
    worst_trial_finding(
        trials,
        |observed| missing(observed.trial) as f64,
        (FindingCode::RepliesWithoutTimestamp, Severity::Warning),
        |observed| {
            let (missing, (received, _)) = (missing(observed.trial), counted(observed.trial));
            format!(
                "{missing} of {received} replies had no receive timestamp, and therefore no \
                     offset"
            )
        },
        "a NIC timestamps a limited number of packets per second; omit hardware timestamps, or \
         lower the rate",
    )
}

/// Reports offsets outside the range of the histogram.
pub(super) fn offsets_out_of_range(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let largest = |trial: &Trial| {
        let offset = trial.tx_offset_ns.as_ref();
        offset.map_or(0, |offset| offset.min.unsigned_abs().max(offset.max.unsigned_abs()))
    };
    worst_trial_finding(
        trials,
        |observed| f64::from(u8::from(largest(observed.trial) >= MAX_VALUE)),
        (FindingCode::OffsetsTooLarge, Severity::Error),
        |_| "offsets exceed 68 s and are reported as that value".to_owned(),
        "the clock of the server or of this host is not set; set it first",
    )
}

/// Smallest share of clients without a reply that is reported.
const UNANSWERED_MIN: f64 = 0.001;

/// Smallest loss ratio of compliant clients that is reported; less may be chance.
const COMPLIANT_LOSS_MIN: f64 = 0.001;

/// Reports clients that received no reply while others did.
pub(super) fn unanswered_clients(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let unanswered = |observed: &TrialWithCounts<'_>| {
        let Some(fairness) = &observed.trial.fairness else { return 0.0 };
        let share = fairness.unanswered as f64 / fairness.clients.max(1) as f64;
        if fairness.share_max > 0.0 && share >= UNANSWERED_MIN { share } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        unanswered,
        (FindingCode::UnfairReplies, Severity::Note),
        |observed| {
            let share = unanswered(observed) * 100.0;
            let best = observed.trial.fairness.as_ref().map_or(0.0, |one| one.share_max) * 100.0;
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
pub(super) fn compliant_loss(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let loss_ratio = |observed: &TrialWithCounts<'_>| {
        let ratio = observed
            .trial
            .compliant_clients
            .as_ref()
            .map_or(0.0, CompliantClientsResult::loss_ratio);
        if ratio >= COMPLIANT_LOSS_MIN { ratio } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        loss_ratio,
        (FindingCode::CompliantClientLoss, Severity::Warning),
        |observed| {
            let (lost, sent, clients, active) =
                observed.trial.compliant_clients.as_ref().map_or((0, 0, 0, 0), |one| {
                    (one.lost, one.sent, one.clients_affected, one.clients_active)
                });
            let others = observed.trial.loss_ratio() * 100.0;
            format!(
                "compliant clients lost {lost} of {sent} requests, {clients} of {active} clients \
                 at least one, while the load lost {others:.1}%"
            )
        },
        "the server's rate limiting, or the lack of it, affects compliant clients; limit single \
         addresses instead of the total, and reserve capacity for new clients",
    )
}
