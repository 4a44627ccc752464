//! The doubts that trials give rise to, one function for each.

use horolog_record::{Code, Finding, InvalidReason, Mode, Place, Severity, Trial};

use super::{Circumstances, Observed, about_worst, finding};
use crate::ptp::PtpKind;

/// The share of the planned rate below which a generator is behind.
const BEHIND: f64 = 0.999;

/// Requests late by more than this share of the round trip are seen in the latency.
const LATENESS_SHARE: f64 = 0.25;

/// The share of basic replies from which on a load in interleaved mode is none.
const BASIC_SHARE_MAX: f64 = 0.1;

/// The share of lost requests beyond which basic replies are no wonder.
const BASIC_LOSS_MAX: f64 = 0.01;

/// Values without which the 99.99th percentile rests on less than one of them.
const SAMPLES_FOR_P99_99: u64 = 10_000;

pub(super) fn no_replies(trials: &[Observed<'_>], about: &Circumstances<'_>) -> Option<Finding> {
    let sent: u64 = trials.iter().map(|observed| observed.trial.sent).sum();
    let silent = trials.iter().all(|observed| {
        let Trial { received, late, responses, .. } = observed.trial;
        // A request of NetSync Monitor that got a part of its answers only was not received.
        let parts = responses.delay + responses.sync_follow_up + responses.granted_messages;
        received + late + observed.trial.invalid_total() + parts == 0
    });
    if sent == 0 || !silent {
        return None;
    }
    let message = format!("{sent} requests were sent and not one reply came back");
    let closed = trials.iter().any(|observed| observed.port_closed > 0);
    let advice = match &about.return_route {
        _ if closed => {
            "nobody listens on the target's port; check that the server runs and the port"
                .to_owned()
        }
        Some((network, gateway)) => format!(
            "the server needs a route back to the simulated clients: run there 'ip route add \
             {network} via {gateway}', and check that it serves that network"
        ),
        None => {
            "check that the server runs, serves this address, and no firewall is between".into()
        }
    };
    let advice = match &about.ptp {
        None => advice,
        Some(ptp) => {
            let domain = format!("check that it is a PTP master in domain {}", ptp.domain);
            let contract = if ptp.kind == PtpKind::Delay && ptp.has_addresses() {
                " and answers without a contract: one of g8275.2 answers those alone whom it \
                 granted Delay_Resp, which 'horolog load ptp unicast' asks for"
            } else {
                ""
            };
            format!("{advice}; {domain}{contract}")
        }
    };
    Some(finding(Code::NoReplies, Severity::Error, message, &advice))
}

/// A master that answers as if NetSync Monitor had not been asked for.
pub(super) fn no_monitor(trials: &[Observed<'_>], about: &Circumstances<'_>) -> Option<Finding> {
    if about.ptp.is_none_or(|ptp| ptp.kind != PtpKind::Nsm) {
        return None;
    }
    let sum = |count: fn(&Trial) -> u64| -> u64 {
        trials.iter().map(|observed| count(observed.trial)).sum()
    };
    let answered = sum(|trial| trial.received + trial.late + trial.responses.sync_follow_up);
    let plain = sum(|trial| {
        trial.responses.delay + trial.invalid.get(&InvalidReason::Monitor).copied().unwrap_or(0)
    });
    if answered > 0 || plain == 0 {
        return None;
    }
    let message = format!(
        "{plain} requests were answered by a Delay_Resp without NetSync Monitor, and none by a Sync"
    );
    let advice = "the master has NetSync Monitor off, or not for these clients: of horolog, serve \
                  with --ptp-netsync-monitor, and name clients of other networks in \
                  --ptp-unicast-allow";
    Some(finding(Code::NoReplies, Severity::Error, message, advice))
}

pub(super) fn behind(trials: &[Observed<'_>], about: &Circumstances<'_>) -> Option<Finding> {
    let missing = |observed: &Observed<'_>| {
        let share = observed.achieved_share(about.spacing);
        if share < BEHIND { 1.0 - share } else { 0.0 }
    };
    let advice = "use a faster engine or more cores, or take the rate that was really sent, which \
                  is what all other figures refer to";
    about_worst(
        trials,
        missing,
        (Code::GeneratorBehind, Severity::Warning),
        |observed| {
            let Trial { offered_rate, achieved_rate, sent, .. } = observed.trial;
            let refused = match observed.refused {
                0 => String::new(),
                refused => format!("; {refused} were refused on the way out"),
            };
            if *achieved_rate < BEHIND * offered_rate {
                format!(
                    "the generator sent {achieved_rate:.0} of {offered_rate:.0} requests/s{refused}"
                )
            } else {
                let planned = observed.planned;
                format!("the generator sent {sent} of {planned} requests{refused}")
            }
        },
        advice,
    )
}

pub(super) fn late_requests(trials: &[Observed<'_>]) -> Option<Finding> {
    let lateness = |observed: &Observed<'_>| {
        let trial = observed.trial;
        let p99 = trial.lateness_ns.as_ref().map_or(0, |lateness| lateness.p99) as f64;
        let rtt = trial.rtt_ns.as_ref().map_or(f64::INFINITY, |rtt| rtt.p99 as f64);
        if p99 > LATENESS_SHARE * rtt { p99 } else { 0.0 }
    };
    about_worst(
        trials,
        lateness,
        (Code::RequestsLate, Severity::Warning),
        |observed| {
            let late = match lateness(observed) / 1e3 {
                us if us < 1e3 => format!("{us:.1} µs"),
                us => format!("{:.1} ms", us / 1e3),
            };
            format!(
                "one request in a hundred was sent {late} late or more, and latency includes that"
            )
        },
        "latency counts from the intended instant; keep other work off the generator's cores",
    )
}

pub(super) fn ring_overflow(trials: &[Observed<'_>]) -> Option<Finding> {
    let dropped = |observed: &Observed<'_>| {
        let at_ring = observed.trial.lost_at.get(&Place::OwnRing).copied().unwrap_or(0);
        at_ring.max(observed.ring_dropped)
    };
    about_worst(
        trials,
        |observed| dropped(observed) as f64,
        (Code::ReceiveRingOverflow, Severity::Warning),
        |observed| {
            let (dropped, sent) = (dropped(observed), observed.trial.sent);
            format!("the generator had no room for {dropped} replies to {sent} requests")
        },
        "these losses are the generator's; use a faster engine, more cores or a longer receive ring",
    )
}

pub(super) fn invalid_replies(
    trials: &[Observed<'_>],
    about: &Circumstances<'_>,
) -> Option<Finding> {
    let advice = if about.ptp.is_some() {
        "they count as lost; what stands behind each number is the part of the message that was \
         not as it has to be"
    } else {
        "they count as lost; a kiss of death shows as stratum: the server limits its clients' rate"
    };
    about_worst(
        trials,
        |observed| observed.trial.invalid_total() as f64,
        (Code::InvalidReplies, Severity::Warning),
        |observed| {
            let reasons: Vec<_> = observed
                .trial
                .invalid
                .iter()
                .map(|(reason, count)| {
                    format!("{count} by {}", format!("{reason:?}").to_lowercase())
                })
                .collect();
            format!("some replies were invalid: {}", reasons.join(", "))
        },
        advice,
    )
}

pub(super) fn duplicate_replies(trials: &[Observed<'_>]) -> Option<Finding> {
    about_worst(
        trials,
        |observed| observed.trial.duplicate as f64,
        (Code::DuplicateReplies, Severity::Warning),
        |observed| format!("{} replies came more than once", observed.trial.duplicate),
        "something on the way doubles packets, or two servers answer; each request counts once",
    )
}

/// Of a PTP master that says of its time that it can be traced to nothing that is what is told: it
/// may well be synchronised, by no primary reference.
pub(super) fn server_unsynchronised(
    trials: &[Observed<'_>],
    about: &Circumstances<'_>,
) -> Option<Finding> {
    if about.ptp.is_some() {
        return about_worst(
            trials,
            |observed| observed.server_unsynchronised as f64,
            (Code::ServerUnsynchronised, Severity::Note),
            |observed| {
                let (said, all) = (observed.server_unsynchronised, observed.trial.received);
                format!(
                    "the master says in {said} of {all} answers that its time can be traced to no \
                     primary reference"
                )
            },
            "it may be right all the same, by its own clock or another server's; it says so itself",
        );
    }
    about_worst(
        trials,
        |observed| observed.server_unsynchronised as f64,
        (Code::ServerUnsynchronised, Severity::Warning),
        |observed| {
            let (said, all) = (observed.server_unsynchronised, observed.trial.received);
            format!("the server says in {said} of {all} replies that it is not synchronised")
        },
        "clients would not use its time; its speed may differ once it is synchronised",
    )
}

/// Requests for unicast messages that a PTP master denied, where it granted none.
pub(super) fn denied(trials: &[Observed<'_>]) -> Option<Finding> {
    let denied = |observed: &Observed<'_>| match observed.trial.responses.grant {
        0 => observed.trial.responses.denial,
        _ => 0,
    };
    about_worst(
        trials,
        |observed| denied(observed) as f64,
        (Code::Denied, Severity::Warning),
        |observed| format!("the master denied all {} requests it answered", denied(observed)),
        "the figures are those of denials; put the clients on the master's list of those that may \
         have unicast messages (of horolog: --ptp-unicast-allow), and see its limits on grants, \
         rate and intervals",
    )
}

/// The part of a mix that asks in interleaved mode; of another trial all of it.
fn interleaved(trial: &Trial) -> &Trial {
    let part = trial.parts.iter().find(|part| part.mode == Mode::NtpInterleaved);
    part.map_or(trial, |part| &part.trial)
}

/// Trials that began when every client had been answered twice, as servers want it that keep
/// nothing of a client's first request, and that lost next to nothing: who misses a reply refers
/// to one that the server may have forgotten.
pub(super) fn basic_replies(trials: &[Observed<'_>], about: &Circumstances<'_>) -> Option<Finding> {
    if !about.interleaved {
        return None;
    }
    let (sent, clients) = trials.iter().fold((0, 0), |(sent, clients), observed| {
        (sent + observed.trial.sent, observed.trial.clients.max(clients))
    });
    if sent > 0 && sent < clients.saturating_mul(2) {
        let message = format!(
            "interleaved mode was asked for, and {sent} requests of {clients} clients are too few \
             for it: each has to have been answered before"
        );
        let advice = "take fewer clients (-c), or hold rates longer";
        return Some(finding(Code::BasicReplies, Severity::Note, message, advice));
    }
    let mut before = 0_u64;
    let ready = trials.iter().map(|observed| {
        let trial = interleaved(observed.trial);
        let warm = before >= trial.clients.saturating_mul(2);
        before += trial.received;
        warm && trial.loss_ratio() <= BASIC_LOSS_MAX
    });
    let ready: Vec<_> = ready.collect();
    let basic = |observed: &Observed<'_>| {
        let trial = interleaved(observed.trial);
        let share = trial.responses.basic as f64 / trial.received.max(1) as f64;
        let index = trials.iter().position(|one| std::ptr::eq(one.trial, observed.trial));
        let judged = index.is_some_and(|index| ready[index]);
        if judged && share > BASIC_SHARE_MAX { share } else { 0.0 }
    };
    about_worst(
        trials,
        basic,
        (Code::BasicReplies, Severity::Warning),
        |observed| {
            let share = basic(observed) * 100.0;
            format!("interleaved mode was asked for, and {share:.1}% of the replies were basic")
        },
        "the server has no such mode, no memory for so many clients, or is asked again before the \
         client was answered: take fewer or more clients, or a larger memory",
    )
}

pub(super) fn unexplained(trials: &[Observed<'_>], about: &Circumstances<'_>) -> Option<Finding> {
    let unknown =
        |observed: &Observed<'_>| observed.trial.lost_at.get(&Place::Unknown).copied().unwrap_or(0);
    let advice = if about.shared_machine {
        "no counter that could be read accounts for them"
    } else {
        "read the counters of the server's machine as well: its interface, its sockets, its server"
    };
    about_worst(
        trials,
        |observed| unknown(observed) as f64,
        (Code::LossUnexplained, Severity::Note),
        |observed| {
            let (unknown, lost) = (unknown(observed), observed.trial.lost);
            format!("where {unknown} of {lost} requests or their replies were lost is not known")
        },
        advice,
    )
}

pub(super) fn few_samples(trials: &[Observed<'_>]) -> Option<Finding> {
    let short = |observed: &Observed<'_>| {
        let received = observed.trial.received;
        if (1..SAMPLES_FOR_P99_99).contains(&received) { 1.0 / received as f64 } else { 0.0 }
    };
    about_worst(
        trials,
        short,
        (Code::FewSamples, Severity::Note),
        |observed| {
            let received = observed.trial.received;
            format!("{received} replies are too few for a 99.99th percentile, which takes 10000")
        },
        "the highest percentiles are single replies; hold each rate longer",
    )
}
