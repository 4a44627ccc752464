//! Findings of a query, from its record and context. Each kind is reported once, with the servers
//! that it concerns. Pure.

use horolog_record::{
    Finding, FindingCode, InvalidReplyReason, QueryCounts, QueryEndReason, QueryResult,
    QueryServerResult, Severity, TimestampCounts,
};

use super::figures::has_impossible_delay;

mod losses;

/// Context of a run, not part of its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryRunContext<'a> {
    /// True if the kernel reports this host's clock as synchronised; `None` if unknown.
    pub(crate) clock_synchronised: Option<bool>,
    /// Context of each server.
    pub(crate) servers: &'a [QueryServerContext],
}

/// Context of a server, not part of its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryServerContext {
    /// Reason why no PHC is used, if one was requested.
    pub(crate) nic_clock_error: Option<String>,
    /// Number of unanswered requests since the last valid reply.
    pub(crate) unanswered_at_end: u64,
    /// Requests that the server's host rejected with ICMP "port unreachable".
    pub(crate) port_unreachable: u64,
    /// Advice on the end of its polls, if more specific than the general one.
    pub(crate) hint: Option<&'static str>,
}

/// Returns all findings, in no order.
pub(crate) fn all_findings(
    result: &QueryResult,
    run_context: &QueryRunContext<'_>,
) -> Vec<Finding> {
    let servers = &result.servers;
    let mut findings = Vec::new();
    findings.extend(no_reply_finding(servers, run_context));
    findings.extend(losses::unsent_finding(servers));
    findings.extend(losses::outage_finding(result, run_context));
    findings.extend(losses::loss_finding(result, run_context));
    findings.extend(kiss_finding(servers));
    findings.extend(no_keys_finding(servers, run_context));
    findings.extend(keys_renewed_finding(servers));
    findings.extend(algorithm_finding(servers));
    findings.extend(interrupted_finding(servers));
    findings.extend(invalid_finding(servers));
    findings.extend(duplicate_finding(servers));
    findings.extend(negative_delay_finding(servers));
    findings.extend(unsynchronised_finding(servers));
    findings.extend(basic_mode_finding(result));
    findings.extend(timestamps_missing_finding(servers, run_context));
    findings.extend(contradiction_finding(result));
    if run_context.clock_synchronised == Some(false) {
        findings.push(finding(
            FindingCode::ClockUnsynchronised,
            Severity::Note,
            "This host's clock is not synchronised: offsets are relative to it, not to UTC, and \
             drifts include its own."
                .to_owned(),
            "Compare the servers with one another, or run chronyd or ntpd here first.",
        ));
    }
    findings
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// Joins `NAME: statement` of the servers for which `what` returns a statement; `None` if there is
/// none.
fn join_servers(
    servers: &[QueryServerResult],
    what: impl Fn(&QueryServerResult) -> Option<String>,
) -> Option<String> {
    let each = servers
        .iter()
        .filter_map(|server| Some(format!("{}: {}", polled_server(server), what(server)?)));
    let texts: Vec<_> = each.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Returns the name of the polled server; if NTS-KE named it, with the target.
fn polled_server(server: &QueryServerResult) -> String {
    match server.nts.as_ref().and_then(|nts| nts.server.as_ref()) {
        Some(named) => format!("{named} (for {})", server.name),
        None => server.name.clone(),
    }
}

fn no_reply_finding(
    servers: &[QueryServerResult],
    run_context: &QueryRunContext<'_>,
) -> Option<Finding> {
    let closed =
        servers.iter().zip(run_context.servers).filter(|(_, context)| context.port_unreachable > 0);
    let closed: Vec<&str> = closed.map(|(server, _)| server.name.as_str()).collect();
    let is_closed = |server: &QueryServerResult| closed.contains(&server.name.as_str());
    let why = |server: &QueryServerResult| {
        let counts = &server.counts;
        if counts.received > 0 || has_no_keys(server) {
            return None;
        }
        Some(match &server.ended {
            Some(end) if end.reason != QueryEndReason::Interrupted => end.message.clone(),
            _ if other_replies(counts) > 0 => {
                let (others, sent) = (other_replies(counts), counts.sent);
                format!("{others} other datagrams were received for {sent} requests")
            }
            _ if counts.late > 0 => format!("{} replies were late", counts.late),
            _ if is_closed(server) => "no program listens on this port".to_owned(),
            _ if counts.unreachable > 0 => "no route or host unreachable".to_owned(),
            _ if counts.sent == 0 => "no request could be sent".to_owned(),
            _ => format!("none of {} requests received a reply", counts.sent),
        })
    };
    let all = servers.iter().all(|server| server.counts.received == 0);
    let is_unanswered = |server: &QueryServerResult| {
        why(server).is_some() && other_replies(&server.counts) + server.counts.late == 0
    };
    Some(finding(
        FindingCode::NoReplies,
        if all { Severity::Error } else { Severity::Warning },
        format!("No valid reply: {}.", join_servers(servers, why)?.trim_end_matches('.')),
        if servers.iter().filter(|server| is_unanswered(server)).all(is_closed)
            && servers.iter().any(is_unanswered)
        {
            "Check that a server runs there, and at which port."
        } else if servers.iter().any(is_unanswered) {
            "Check the address, the port and firewalls on the path, and that a server runs."
        } else if servers.iter().any(|server| server.counts.late > 0) {
            "Use a longer --timeout; see the other findings for other datagrams received."
        } else {
            "The server, or another program in its place, replies; see the other findings for the \
             datagrams received."
        },
    ))
}

/// Returns the number of invalid datagrams and kisses received.
fn other_replies(counts: &QueryCounts) -> u64 {
    counts.invalid.values().chain(counts.kisses.values()).fold(0, |sum, n| sum.saturating_add(*n))
}

fn kiss_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
        let kisses = server.counts.kisses.iter().map(|(code, count)| format!("{code} {count}"));
        let kisses: Vec<_> = kisses.collect();
        (!kisses.is_empty()).then(|| kisses.join(", "))
    };
    Some(finding(
        FindingCode::KissOfDeath,
        Severity::Warning,
        format!("Kiss-o'-death packets: {}.", join_servers(servers, what)?),
        &kiss_advice(servers),
    ))
}

/// Returns advice on the received kiss codes (RFC 5905, section 7.4; RFC 8915, section 5.7).
fn kiss_advice(servers: &[QueryServerResult]) -> String {
    const ADVICE: [(&[&str], &str); 3] = [
        (&["RATE"], "RATE requests a lower rate: use a longer --interval."),
        (
            &["DENY", "RSTR"],
            "DENY and RSTR refuse access: request access for this address from the \
                             operator.",
        ),
        (&["NTSN"], "NTSN refuses the cookies: the server's keys changed after NTS-KE."),
    ];
    let has_kiss =
        |code: &str| servers.iter().any(|server| server.counts.kisses.contains_key(code));
    let known = |code: &String| ADVICE.iter().any(|(codes, _)| codes.contains(&code.as_str()));
    let of_each = ADVICE.iter().filter(|(codes, _)| codes.iter().any(|code| has_kiss(code)));
    let mut advice: Vec<_> = of_each.map(|(_, advice)| *advice).collect();
    if servers.iter().flat_map(|server| server.counts.kisses.keys()).any(|code| !known(code)) {
        advice.push(
            "The server refuses service; for the reason, see its log and RFC 5905, section \
                     7.4.",
        );
    }
    advice.join(" ")
}

fn no_keys_finding(
    servers: &[QueryServerResult],
    run_context: &QueryRunContext<'_>,
) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
        server.ended.as_ref().filter(|_| has_no_keys(server)).map(|end| end.message.clone())
    };
    let all = servers.iter().all(|server| server.counts.received == 0);
    let concerned =
        servers.iter().zip(run_context.servers).filter(|(server, _)| has_no_keys(server));
    let mut hints: Vec<_> = concerned.filter_map(|(_, context)| context.hint).collect();
    hints.dedup();
    Some(finding(
        FindingCode::NtsKeFailed,
        if all { Severity::Error } else { Severity::Warning },
        format!("No NTS keys: {}.", join_servers(servers, what)?.trim_end_matches('.')),
        &to_sentence(&hints.join("; ")),
    ))
}

/// Capitalises a text and adds a full stop; empty for an empty text.
fn to_sentence(text: &str) -> String {
    let mut rest = text.chars();
    rest.next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), rest.as_str()))
}

fn keys_renewed_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
        let nts = server.nts.as_ref().filter(|nts| nts.renewals + nts.renewals_failed > 0)?;
        let refused = server.counts.kisses.get("NTSN").copied().unwrap_or(0);
        Some(format!(
            "{} times ({} attempts failed), after {refused} refusals (NTSN)",
            nts.renewals, nts.renewals_failed
        ))
    };
    Some(finding(
        FindingCode::KeysRenewed,
        Severity::Warning,
        format!("NTS keys were renewed: {}.", join_servers(servers, what)?),
        "The server restarted with other keys, or did not reply for some time; persistent keys, \
         shared by all hosts behind one name, avoid this. Requests until then count as lost.",
    ))
}

fn algorithm_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
        let nts = server.nts.as_ref()?;
        let before = nts.abandoned_algorithm.as_ref()?;
        Some(format!("{before}, then {}", nts.algorithm))
    };
    Some(finding(
        FindingCode::AlgorithmAbandoned,
        Severity::Note,
        format!(
            "NTS keys did not match, so keys were negotiated again: {}.",
            join_servers(servers, what)?
        ),
        "RFC 8915 and chrony 4.4 to 4.6 export keys for AES-128-GCM-SIV differently; a server that \
         does not announce RFC conformance with record 1024 is treated as such a chrony.",
    ))
}

/// Returns true if the polls of a server ended, or never began, for lack of NTS keys.
fn has_no_keys(server: &QueryServerResult) -> bool {
    server.ended.as_ref().is_some_and(|end| end.reason == QueryEndReason::NoKeys)
}

fn interrupted_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let cut = |server: &&QueryServerResult| {
        server.ended.as_ref().is_some_and(|end| end.reason == QueryEndReason::Interrupted)
    };
    let sent = servers.iter().filter(cut).map(|server| server.counts.sent).max()?;
    Some(finding(
        FindingCode::Interrupted,
        Severity::Note,
        format!("The run was interrupted after {sent} exchanges."),
        "Results cover the exchanges until then.",
    ))
}

fn invalid_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
        let each = server.counts.invalid.iter().filter(|(_, count)| **count > 0);
        let each: Vec<_> = each.map(|(reason, count)| format!("{reason} {count}")).collect();
        (!each.is_empty()).then(|| each.join(", "))
    };
    Some(finding(
        FindingCode::InvalidReplies,
        Severity::Warning,
        format!("Invalid replies were discarded, by reason: {}.", join_servers(servers, what)?),
        &invalid_advice(servers),
    ))
}

/// Returns advice, depending on whether the invalid replies may come from another host.
fn invalid_advice(servers: &[QueryServerResult]) -> String {
    let mut reasons = servers.iter().flat_map(|server| server.counts.invalid.keys());
    let may_be_forged = reasons
        .any(|reason| matches!(reason, InvalidReplyReason::Origin | InvalidReplyReason::Nts));
    if may_be_forged {
        "Another host may reply in the server's place: such replies do not match any request. The \
         server may also be faulty."
    } else {
        "The server is faulty, or does not support the requested kind of NTP: the reason is the \
         field of the reply that does not match the request."
    }
    .to_owned()
}

fn duplicate_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let count = |count: u64| (count > 0).then(|| count.to_string());
    Some(finding(
        FindingCode::DuplicateReplies,
        Severity::Note,
        format!(
            "Duplicate replies were received: {}.",
            join_servers(servers, |one| count(one.counts.duplicate))?
        ),
        "Only the first one counts; the network duplicated the others.",
    ))
}

fn negative_delay_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
        let impossible =
            server.samples.iter().filter(|sample| has_impossible_delay(sample)).count();
        (impossible > 0).then(|| format!("{impossible} of {}", server.samples.len()))
    };
    Some(finding(
        FindingCode::NegativeDelay,
        Severity::Warning,
        format!("Negative round trips: {}.", join_servers(servers, what)?),
        "The server claims a processing time longer than the round trip, or one of the clocks was \
         stepped during the exchange; offsets of these exchanges are meaningless.",
    ))
}

fn unsynchronised_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let describe = |server: &QueryServerResult| {
        let QueryCounts { received, unsynchronised, .. } = server.counts;
        let state = server.server_state.as_ref().filter(|_| unsynchronised > 0)?;
        let not = match state.reference_id.as_str() {
            id @ ("INIT" | "STEP") if [0, 16].contains(&state.stratum) => {
                format!("not synchronised yet ({id})")
            }
            _ => "not synchronised".to_owned(),
        };
        Some(format!("{not} in {unsynchronised} of {received} replies"))
    };
    Some(finding(
        FindingCode::ServerUnsynchronised,
        Severity::Warning,
        format!(
            "These servers report that they are not synchronised: {}.",
            join_servers(servers, describe)?
        ),
        "The server runs and replies; clients do not use its time until it has a source.",
    ))
}

fn basic_mode_finding(result: &QueryResult) -> Option<Finding> {
    // Basic mode is expected in the first reply, in the second (many servers store state only after
    // the first interleaved request), and after each loss.
    let what = |server: &QueryServerResult| {
        let QueryCounts { received, interleaved, .. } = server.counts;
        let basic = received.saturating_sub(interleaved);
        (basic > 2 + received / 10).then(|| format!("{basic} of {received}"))
    };
    let text = join_servers(&result.servers, what).filter(|_| result.interleaved)?;
    Some(finding(
        FindingCode::InterleavedNotUsed,
        Severity::Warning,
        format!("Replies in basic mode although interleaved mode was requested: {text}."),
        "The server does not support it, or dropped this client's state; T3 is then when the reply \
         was made, not when it left.",
    ))
}

fn timestamps_missing_finding(
    servers: &[QueryServerResult],
    run_context: &QueryRunContext<'_>,
) -> Option<Finding> {
    let mut texts = Vec::new();
    for (server, context) in servers.iter().zip(run_context.servers) {
        let hardware = server.hardware_clock.is_some();
        texts.extend(
            context.nic_clock_error.as_ref().map(|why| format!("{}: {why}", polled_server(server))),
        );
        for (which, counts) in
            [("T1", server.transmit_timestamps), ("T4", server.receive_timestamps)]
        {
            let by_others = worse_timestamps(counts, hardware);
            texts.extend(
                by_others.map(|others| format!("{} {which}: {others}", polled_server(server))),
            );
        }
    }
    (!texts.is_empty()).then(|| {
        finding(
            FindingCode::TimestampsMissing,
            Severity::Warning,
            format!(
                "Timestamps were taken farther from the wire than possible: {}.",
                texts.join("; ")
            ),
            "The time from there to the wire counts as delay and widens the bound; `ethtool -T` \
             shows the interface's capabilities.",
        )
    })
}

/// Describes the timestamps from a worse source than available; `None` if there are none.
fn worse_timestamps(counts: TimestampCounts, hardware: bool) -> Option<String> {
    let TimestampCounts { hardware: by_nic, kernel, user } = counts;
    let all = by_nic + kernel + user;
    let mut texts = Vec::new();
    if hardware && kernel > 0 {
        texts.push(format!("{kernel} of {all} by the kernel"));
    }
    if user > 0 {
        texts.push(format!("{user} of {all} by this program"));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn contradiction_finding(result: &QueryResult) -> Option<Finding> {
    let name =
        |index: usize| result.servers.get(index).map_or_else(|| "?".to_owned(), polled_server);
    let each = result.differences.iter().filter(|difference| difference.contradiction);
    let texts: Vec<_> =
        each.map(|one| format!("{} and {}", name(one.first), name(one.second))).collect();
    (!texts.is_empty()).then(|| {
        finding(
            FindingCode::ServersDisagree,
            Severity::Warning,
            format!(
                "These servers contradict each other, whatever the network delay: {}.",
                texts.join(", ")
            ),
            "At least one of them serves wrong time.",
        )
    })
}

#[cfg(test)]
mod tests;
