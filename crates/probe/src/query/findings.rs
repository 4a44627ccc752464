//! The doubts about a query, from its record alone and what little stands beside it. Each kind is
//! told once, with the servers that it is about. Pure.

use horolog_record::{
    Code, Finding, LeapState, QueryCounts, QueryEndReason, QueryResult, ServerResult, Severity,
    StampCounts,
};

use super::figures::is_impossible;

/// What is known of a run besides its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// The kernel says that this machine's clock is synchronised; `None` where it does not say.
    pub(crate) clock_synchronised: Option<bool>,
    /// Why there is no card's clock for each server, where one was asked for.
    pub(crate) no_cards: &'a [Option<String>],
}

/// All doubts, in no order.
pub(crate) fn all(result: &QueryResult, about: &Circumstances<'_>) -> Vec<Finding> {
    let servers = &result.servers;
    let mut findings = Vec::new();
    findings.extend(silent(servers));
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
    for (server, no_card) in servers.iter().zip(about.no_cards) {
        let hardware = server.hardware_clock.is_some();
        told_each.extend(no_card.as_ref().map(|why| format!("{}: {why}", server.name)));
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
mod tests {
    use std::collections::BTreeMap;

    use horolog_record::{Difference, Host, InvalidReason, QUERY_SCHEMA, QueryEnd, ServerState};

    use super::super::figures;
    use super::*;

    fn server(name: &str) -> ServerResult {
        ServerResult {
            name: name.to_owned(),
            address: None,
            port: 123,
            nts: None,
            hardware_clock: None,
            says: None,
            counts: QueryCounts { sent: 8, received: 8, ..QueryCounts::default() },
            ended: None,
            transmit_stamps: StampCounts { kernel: 8, ..StampCounts::default() },
            receive_stamps: StampCounts { kernel: 8, ..StampCounts::default() },
            offset_ns: None,
            delay_ns: None,
            dispersion_ns: None,
            best: None,
            jitter_ns: None,
            drift: None,
            allan: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn silent_server(name: &str) -> ServerResult {
        let counts = QueryCounts { sent: 8, lost: 8, ..QueryCounts::default() };
        ServerResult { counts, ..server(name) }
    }

    fn findings(servers: Vec<ServerResult>) -> Vec<Finding> {
        findings_of(servers, false, Vec::new(), None)
    }

    fn findings_of(
        servers: Vec<ServerResult>,
        interleaved: bool,
        differences: Vec<Difference>,
        no_card: Option<&str>,
    ) -> Vec<Finding> {
        let no_cards = vec![no_card.map(str::to_owned); servers.len()];
        let result = QueryResult {
            schema: QUERY_SCHEMA.to_owned(),
            started: String::new(),
            command: Vec::new(),
            host: Host::default(),
            ntp_version: 4,
            interleaved,
            count: 8,
            interval_ns: 1,
            reply_timeout_ns: 1,
            servers,
            differences,
            findings: Vec::new(),
        };
        all(&result, &Circumstances { clock_synchronised: Some(true), no_cards: &no_cards })
    }

    fn only(findings: &[Finding], code: Code) -> &Finding {
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].code, code);
        &findings[0]
    }

    #[test]
    fn a_clean_run_has_no_doubt() {
        assert_eq!(findings(vec![server("a"), server("b")]), []);
    }

    #[test]
    fn one_silent_server_is_a_doubt_and_nothing_but_silence_an_error() {
        let found = findings(vec![server("a"), silent_server("b")]);
        let one = only(&found, Code::NoReplies);
        assert_eq!(one.severity, Severity::Warning);
        assert_eq!(one.message, "No valid reply: b: none of 8 requests was answered.");
        let found = findings(vec![silent_server("a"), silent_server("b")]);
        assert_eq!(only(&found, Code::NoReplies).severity, Severity::Error);
        let end = QueryEnd { reason: QueryEndReason::Unresolved, message: "no such name".into() };
        let found = findings(vec![ServerResult { ended: Some(end), ..silent_server("c") }]);
        assert!(only(&found, Code::NoReplies).message.ends_with("c: no such name."));
    }

    #[test]
    fn kisses_and_invalid_replies_are_named() {
        let mut kissed = server("a");
        kissed.counts.kisses = BTreeMap::from([("RATE".to_owned(), 3)]);
        let found = findings(vec![kissed, server("b")]);
        assert_eq!(only(&found, Code::KissOfDeath).message, "Kisses of death: a: RATE 3.");
        let mut broken = server("a");
        broken.counts.invalid = BTreeMap::from([(InvalidReason::Origin, 2)]);
        let found = findings(vec![broken]);
        assert!(only(&found, Code::InvalidReplies).message.ends_with("a: origin 2."));
    }

    #[test]
    fn a_delay_below_zero_is_a_doubt() {
        let samples = [10, -60_000].map(|delay| figures::tests::sample(0, 0, delay)).to_vec();
        let found = findings(vec![ServerResult { samples, ..server("a") }]);
        assert!(only(&found, Code::NegativeDelay).message.ends_with("a: 1 of 2."));
    }

    #[test]
    fn what_a_server_says_of_itself_is_a_doubt() {
        let says = ServerState {
            leap: LeapState::Unsynchronised,
            version: 4,
            stratum: 16,
            reference_id: "INIT".to_owned(),
            root_delay_ns: 0,
            root_dispersion_ns: 0,
            precision: -20,
        };
        let found = findings(vec![ServerResult { says: Some(says), ..server("a") }]);
        assert!(only(&found, Code::ServerUnsynchronised).message.contains("a: stratum 16"));
    }

    #[test]
    fn basic_replies_are_a_doubt_where_interleaved_ones_were_asked_for() {
        let found = findings_of(vec![server("a")], true, Vec::new(), None);
        assert!(only(&found, Code::BasicReplies).message.contains("a: 8 of 8"));
        let mut all = server("a");
        all.counts.interleaved = 6;
        assert_eq!(findings_of(vec![all], true, Vec::new(), None), []);
    }

    #[test]
    fn timestamps_by_less_than_was_asked_for_are_named() {
        let stamps = StampCounts { kernel: 6, user: 2, ..StampCounts::default() };
        let found = findings(vec![ServerResult { transmit_stamps: stamps, ..server("a") }]);
        assert!(only(&found, Code::StampsMissing).message.contains("a T1: 2 of 8 by this program"));
        let found = findings_of(vec![server("a")], false, Vec::new(), Some("'lo' has none"));
        assert!(only(&found, Code::StampsMissing).message.contains("a: 'lo' has none"));
        let clock = horolog_record::HardwareClock {
            interface: "eth0".to_owned(),
            clock: 0,
            conversion_uncertainty_ns: 100,
        };
        let found = findings(vec![ServerResult { hardware_clock: Some(clock), ..server("a") }]);
        assert!(only(&found, Code::StampsMissing).message.contains("8 of 8 by the kernel"));
    }

    #[test]
    fn servers_that_contradict_one_another_are_named() {
        let difference = Difference {
            first: 0,
            second: 1,
            pairs: 1,
            offset_ns: 500,
            bound_ns: 100,
            mean_ns: 500.0,
            contradiction: true,
        };
        let found = findings_of(vec![server("a"), server("b")], false, vec![difference], None);
        assert!(only(&found, Code::ServersDisagree).message.contains("a and b"));
    }
}
