//! The doubts about a query, from its record alone and what little stands beside it. Each kind is
//! told once, with the servers that it is about. Pure.

use horolog_record::{
    Code, Finding, LeapState, QueryCounts, QueryEndReason, QueryResult, ServerResult, Severity,
    StampCounts,
};

use super::figures::is_impossible;

/// The share of requests that may be without an answer before that is a warning.
const NOTED_LOSS: f64 = 0.01;

/// What is known of a run besides its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// The kernel says that this machine's clock is synchronised; `None` where it does not say.
    pub(crate) clock_synchronised: Option<bool>,
    /// The same of each server.
    pub(crate) servers: &'a [Beside],
}

/// What is known of a server besides its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Why there is no card's clock, where one was asked for.
    pub(crate) no_card: Option<String>,
    /// Requests behind the last valid reply that had none.
    pub(crate) silent: u64,
}

/// All doubts, in no order.
pub(crate) fn all(result: &QueryResult, about: &Circumstances<'_>) -> Vec<Finding> {
    let servers = &result.servers;
    let mut findings = Vec::new();
    findings.extend(silent(servers));
    findings.extend(ceased(result, about));
    findings.extend(unanswered(result, about));
    findings.extend(kisses(servers));
    findings.extend(no_keys(servers));
    findings.extend(interrupted(servers));
    findings.extend(invalid(servers));
    findings.extend(duplicates(servers));
    findings.extend(negative(servers));
    findings.extend(unsynchronised(servers));
    findings.extend(basic(result));
    findings.extend(missing_stamps(servers, about));
    findings.extend(contradictions(result));
    if about.clock_synchronised == Some(false) {
        findings.push(finding(
            Code::ClockUnsynchronised,
            Severity::Note,
            "This machine's clock is not synchronised: offsets say how far servers are from it, not \
             from UTC, and drifts include its own."
                .to_owned(),
            "Compare servers with one another, or run chronyd or ntpd here first.",
        ));
    }
    findings
}

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// Names of the servers that something is said of, with what; `None` where it is said of none.
fn told(
    servers: &[ServerResult],
    what: impl Fn(&ServerResult) -> Option<String>,
) -> Option<String> {
    let each =
        servers.iter().filter_map(|server| Some(format!("{}: {}", server.name, what(server)?)));
    let told: Vec<_> = each.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn silent(servers: &[ServerResult]) -> Option<Finding> {
    let why = |server: &ServerResult| {
        let counts = &server.counts;
        if counts.received > 0 || has_no_keys(server) {
            return None;
        }
        Some(match &server.ended {
            Some(end) if end.reason != QueryEndReason::Interrupted => end.message.clone(),
            _ if counts.unreachable > 0 => {
                "nobody listens at this port, or it cannot be reached".to_owned()
            }
            _ if counts.sent == 0 => "nothing could be sent".to_owned(),
            _ => format!("none of {} requests was answered", counts.sent),
        })
    };
    let all = servers.iter().all(|server| server.counts.received == 0);
    Some(finding(
        Code::NoReplies,
        if all { Severity::Error } else { Severity::Warning },
        format!("No valid reply: {}.", told(servers, why)?.trim_end_matches('.')),
        "Check the address and the port, what filters packets on the way, and that a server runs.",
    ))
}

/// Whether a server answered and then no more, a single loss aside.
const fn has_ceased(server: &ServerResult, beside: &Beside) -> bool {
    beside.silent > 1 && server.counts.received > 0
}

/// Requests without a reply of any kind, of a server that gave others valid ones.
fn missing(server: &ServerResult) -> Option<u64> {
    let QueryCounts { received, lost, invalid, kisses, .. } = &server.counts;
    let others = invalid.values().chain(kisses.values()).sum();
    let missing = lost.saturating_sub(others);
    (*received > 0 && missing > 0).then_some(missing)
}

fn ceased(result: &QueryResult, about: &Circumstances<'_>) -> Option<Finding> {
    let each = result.servers.iter().zip(about.servers);
    let each = each.filter(|(server, beside)| has_ceased(server, beside));
    let what = |(server, _): (&ServerResult, &Beside)| {
        let (missing, last) = (missing(server)?, server.samples.last());
        let since = last.map_or_else(String::new, |last| {
            let ns = last.sequence.saturating_mul(result.interval_ns);
            format!(", none later than {:.1} s after the start", ns as f64 / 1e9)
        });
        Some(format!("{}: {missing} of {}{since}", server.name, server.counts.sent))
    };
    let told: Vec<_> = each.filter_map(what).collect();
    (!told.is_empty()).then(|| {
        finding(
            Code::ServerSilent,
            Severity::Warning,
            format!("Answers ceased; requests without one: {}.", told.join("; ")),
            "The server ended or the way to it broke; figures are of the time before.",
        )
    })
}

fn unanswered(result: &QueryResult, about: &Circumstances<'_>) -> Option<Finding> {
    let each = result.servers.iter().zip(about.servers);
    let each = each.filter(|(server, beside)| !has_ceased(server, beside));
    let each = each.filter_map(|(server, _)| Some((server, missing(server)?)));
    let each: Vec<_> = each.collect();
    let is_much = |(server, missing): &(&ServerResult, u64)| {
        *missing as f64 > NOTED_LOSS * server.counts.sent as f64
    };
    let severity = if each.iter().any(is_much) { Severity::Warning } else { Severity::Note };
    let told = each
        .iter()
        .map(|(server, missing)| format!("{}: {missing} of {}", server.name, server.counts.sent));
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| {
        finding(
            Code::PathLoss,
            severity,
            format!("Requests were not answered in time: {}.", told.join("; ")),
            "Requests or replies were lost on the way, or the server limits how often it answers; \
             figures are of the others.",
        )
    })
}

fn kisses(servers: &[ServerResult]) -> Option<Finding> {
    let what = |server: &ServerResult| {
        let kisses = server.counts.kisses.iter().map(|(code, count)| format!("{code} {count}"));
        let kisses: Vec<_> = kisses.collect();
        (!kisses.is_empty()).then(|| kisses.join(", "))
    };
    Some(finding(
        Code::KissOfDeath,
        Severity::Warning,
        format!("Kisses of death: {}.", told(servers, what)?),
        "RATE asks for fewer requests: give a longer --interval. DENY and RSTR refuse them, NTSN the \
         cookies of NTS.",
    ))
}

fn no_keys(servers: &[ServerResult]) -> Option<Finding> {
    let what = |server: &ServerResult| {
        server.ended.as_ref().filter(|_| has_no_keys(server)).map(|end| end.message.clone())
    };
    let all = servers.iter().all(|server| server.counts.received == 0);
    Some(finding(
        Code::EstablishmentsFailed,
        if all { Severity::Error } else { Severity::Warning },
        format!("No NTS keys: {}.", told(servers, what)?.trim_end_matches('.')),
        "The certificate has to be for the server's name (--nts-name) and trusted (--ca); the port for \
         key establishment is 4460 unless --nts-ke says otherwise.",
    ))
}

/// Whether a server was not asked for want of NTS keys.
fn has_no_keys(server: &ServerResult) -> bool {
    server.ended.as_ref().is_some_and(|end| end.reason == QueryEndReason::NoKeys)
}

fn interrupted(servers: &[ServerResult]) -> Option<Finding> {
    let cut = |server: &&ServerResult| {
        server.ended.as_ref().is_some_and(|end| end.reason == QueryEndReason::Interrupted)
    };
    let sent = servers.iter().filter(cut).map(|server| server.counts.sent).max()?;
    Some(finding(
        Code::Interrupted,
        Severity::Note,
        format!("The run was ended after {sent} exchanges."),
        "Figures are of what was measured until then.",
    ))
}

fn invalid(servers: &[ServerResult]) -> Option<Finding> {
    let what = |server: &ServerResult| {
        let each = server.counts.invalid.iter().filter(|(_, count)| **count > 0);
        let each: Vec<_> = each
            .map(|(reason, count)| format!("{} {count}", format!("{reason:?}").to_lowercase()))
            .collect();
        (!each.is_empty()).then(|| each.join(", "))
    };
    Some(finding(
        Code::InvalidReplies,
        Severity::Warning,
        format!("Replies that are not valid were left out, by reason: {}.", told(servers, what)?),
        "Such a server is broken, or somebody else answers in its place.",
    ))
}

fn duplicates(servers: &[ServerResult]) -> Option<Finding> {
    let count = |count: u64| (count > 0).then(|| count.to_string());
    Some(finding(
        Code::DuplicateReplies,
        Severity::Note,
        format!("Replies came twice: {}.", told(servers, |one| count(one.counts.duplicate))?),
        "Only the first one counts; the network doubled the others.",
    ))
}

fn negative(servers: &[ServerResult]) -> Option<Finding> {
    let what = |server: &ServerResult| {
        let impossible = server.samples.iter().filter(|sample| is_impossible(sample)).count();
        (impossible > 0).then(|| format!("{impossible} of {}", server.samples.len()))
    };
    Some(finding(
        Code::NegativeDelay,
        Severity::Warning,
        format!("Round trips took less than no time: {}.", told(servers, what)?),
        "The server claims to have held a reply for longer than it was away, or one of the clocks \
         was set meanwhile; offsets of these exchanges mean nothing.",
    ))
}

fn unsynchronised(servers: &[ServerResult]) -> Option<Finding> {
    let says = |server: &ServerResult| {
        let says = server.says.as_ref()?;
        (says.leap == LeapState::Unsynchronised).then(|| format!("stratum {}", says.stratum))
    };
    Some(finding(
        Code::ServerUnsynchronised,
        Severity::Warning,
        format!("By its own word it is not synchronised: {}.", told(servers, says)?),
        "No client takes the time from such a server.",
    ))
}

fn basic(result: &QueryResult) -> Option<Finding> {
    // The first reply cannot be interleaved; many servers take note of a client only when it has
    // asked for that, so that the second is not either. Nor is one after a loss.
    let what = |server: &ServerResult| {
        let QueryCounts { received, interleaved, .. } = server.counts;
        let basic = received.saturating_sub(interleaved);
        (basic > 2 + received / 10).then(|| format!("{basic} of {received}"))
    };
    let told = told(&result.servers, what).filter(|_| result.interleaved)?;
    Some(finding(
        Code::BasicReplies,
        Severity::Warning,
        format!("Replies in basic mode where interleaved mode was asked for: {told}."),
        "The server does not speak it, or forgot this client; T3 is then when the reply was made, not \
         when it left.",
    ))
}

fn missing_stamps(servers: &[ServerResult], about: &Circumstances<'_>) -> Option<Finding> {
    let mut told_each = Vec::new();
    for (server, beside) in servers.iter().zip(about.servers) {
        let hardware = server.hardware_clock.is_some();
        told_each.extend(beside.no_card.as_ref().map(|why| format!("{}: {why}", server.name)));
        for (which, counts) in [("T1", server.transmit_stamps), ("T4", server.receive_stamps)] {
            let by_others = others(counts, hardware);
            told_each.extend(by_others.map(|others| format!("{} {which}: {others}", server.name)));
        }
    }
    (!told_each.is_empty()).then(|| {
        finding(
            Code::StampsMissing,
            Severity::Warning,
            format!("Timestamps were taken further from the wire than they could be: {}.", told_each.join("; ")),
            "What the packet takes from there to the wire counts as delay and makes the bound wider; \
             `ethtool -T` shows what an interface offers.",
        )
    })
}

/// The timestamps that were taken by less than what was to be had.
fn others(counts: StampCounts, hardware: bool) -> Option<String> {
    let StampCounts { hardware: by_card, kernel, user } = counts;
    let all = by_card + kernel + user;
    let mut told = Vec::new();
    if hardware && kernel > 0 {
        told.push(format!("{kernel} of {all} by the kernel"));
    }
    if user > 0 {
        told.push(format!("{user} of {all} by this program"));
    }
    (!told.is_empty()).then(|| told.join(", "))
}

fn contradictions(result: &QueryResult) -> Option<Finding> {
    let name = |index: usize| result.servers.get(index).map_or("?", |server| server.name.as_str());
    let each = result.differences.iter().filter(|difference| difference.contradiction);
    let told: Vec<_> =
        each.map(|one| format!("{} and {}", name(one.first), name(one.second))).collect();
    (!told.is_empty()).then(|| {
        finding(
            Code::ServersDisagree,
            Severity::Warning,
            format!("These cannot both be right, whatever the network did: {}.", told.join(", ")),
            "At least one of them serves a wrong time.",
        )
    })
}

#[cfg(test)]
mod tests;
