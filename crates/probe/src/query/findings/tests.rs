//! Doubts about records that are made here.

use std::collections::BTreeMap;

use horolog_record::{
    EarlyQueryEnd, Host, InvalidReplyReason, LeapState, NtsUseSummary, QUERY_SCHEMA,
    QueriedServerState, ServerOffsetDifference,
};

use super::super::figures;
use super::*;

fn server(name: &str) -> QueryServerResult {
    QueryServerResult {
        name: name.to_owned(),
        address: None,
        port: 123,
        nts: None,
        hardware_clock: None,
        server_state: None,
        counts: QueryCounts { sent: 8, received: 8, ..QueryCounts::default() },
        ended: None,
        transmit_timestamps: TimestampCounts { kernel: 8, ..TimestampCounts::default() },
        receive_timestamps: TimestampCounts { kernel: 8, ..TimestampCounts::default() },
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

fn unanswered_server(name: &str) -> QueryServerResult {
    let counts = QueryCounts { sent: 8, lost: 8, ..QueryCounts::default() };
    QueryServerResult { counts, ..server(name) }
}

fn findings(servers: Vec<QueryServerResult>) -> Vec<Finding> {
    findings_of(servers, false, Vec::new(), None)
}

fn findings_of(
    servers: Vec<QueryServerResult>,
    interleaved: bool,
    differences: Vec<ServerOffsetDifference>,
    no_nic_clock: Option<&str>,
) -> Vec<Finding> {
    let context = QueryServerContext {
        nic_clock_error: no_nic_clock.map(str::to_owned),
        unanswered_at_end: 0,
        port_unreachable: 0,
        hint: None,
    };
    let contexts = vec![context; servers.len()];
    findings_in_context(servers, interleaved, differences, &contexts)
}

fn findings_in_context(
    servers: Vec<QueryServerResult>,
    interleaved: bool,
    differences: Vec<ServerOffsetDifference>,
    contexts: &[QueryServerContext],
) -> Vec<Finding> {
    let result = QueryResult {
        schema: QUERY_SCHEMA.to_owned(),
        started: String::new(),
        command: Vec::new(),
        host: Host::default(),
        ntp_version: 4,
        interleaved,
        count: 8,
        interval_ns: 200_000_000,
        reply_timeout_ns: 1,
        servers,
        differences,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    all_findings(&result, &QueryRunContext { clock_synchronised: Some(true), servers: contexts })
}

fn only(findings: &[Finding], code: FindingCode) -> &Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].code, code);
    &findings[0]
}

#[test]
fn a_clean_run_has_no_finding() {
    assert_eq!(findings(vec![server("a"), server("b")]), []);
}

#[test]
fn one_unanswered_server_is_a_warning_and_no_reply_at_all_an_error() {
    let found = findings(vec![server("a"), unanswered_server("b")]);
    let one = only(&found, FindingCode::NoReplies);
    assert_eq!(one.severity, Severity::Warning);
    assert_eq!(one.message, "No valid reply: b: none of 8 requests received a reply.");
    let found = findings(vec![unanswered_server("a"), unanswered_server("b")]);
    assert_eq!(only(&found, FindingCode::NoReplies).severity, Severity::Error);
    let end = EarlyQueryEnd { reason: QueryEndReason::Unresolved, message: "no such name".into() };
    let found = findings(vec![QueryServerResult { ended: Some(end), ..unanswered_server("c") }]);
    assert!(only(&found, FindingCode::NoReplies).message.ends_with("c: no such name."));
}

#[test]
fn an_outage_is_reported_with_the_last_answered_request() {
    let half = |lost| {
        let counts = QueryCounts { sent: 20, received: 20 - lost, lost, ..Default::default() };
        let samples = (0..20 - lost).map(|at| figures::tests::sample(at, 0, 10)).collect();
        QueryServerResult { counts, samples, ..server("a") }
    };
    let found = |lost, unanswered| {
        let contexts = [
            QueryServerContext { unanswered_at_end: unanswered, ..QueryServerContext::default() },
            QueryServerContext::default(),
        ];
        findings_in_context(vec![half(lost), server("b")], false, Vec::new(), &contexts)
    };
    let ended = found(12, 12);
    let one = only(&ended, FindingCode::ServerOutage);
    assert_eq!(one.severity, Severity::Warning);
    assert!(one.message.contains(": a: 12 of 20, the last answered one at 1.4 s"), "{one:?}");
    let scattered = found(3, 1);
    let one = only(&scattered, FindingCode::PathLoss);
    assert_eq!(one.severity, Severity::Warning);
    assert!(one.message.ends_with("in time: a: 3 of 20."), "{one:?}");
}

#[test]
fn what_a_closed_port_explains_is_not_laid_on_the_way() {
    let counts =
        QueryCounts { sent: 8, received: 2, lost: 6, unreachable: 6, ..Default::default() };
    let of = |unanswered, closed| {
        let contexts = [QueryServerContext {
            unanswered_at_end: unanswered,
            port_unreachable: closed,
            ..QueryServerContext::default()
        }];
        let server = QueryServerResult { counts: counts.clone(), ..server("a") };
        findings_in_context(vec![server], false, Vec::new(), &contexts)
    };
    let found = of(1, 6);
    let one = only(&found, FindingCode::PathLoss);
    assert!(one.message.ends_with("a: 6 of 8 (port closed: 6 of 6)."), "{one:?}");
    assert!(!one.advice.contains("lost on the path"), "{one:?}");
    let found = of(1, 2);
    let one = only(&found, FindingCode::PathLoss);
    assert!(
        one.message.contains("port closed: 2 of 6, host or network unreachable: 4 of 6"),
        "{one:?}"
    );
    let contexts = [QueryServerContext { port_unreachable: 8, ..QueryServerContext::default() }];
    let closed = unanswered_server("a");
    let found = findings_in_context(vec![closed], false, Vec::new(), &contexts);
    let one = only(&found, FindingCode::NoReplies);
    assert_eq!(one.message, "No valid reply: a: no program listens on this port.");
    assert!(!one.advice.contains("on the path"), "{one:?}");
    let found = of(6, 6);
    let one = only(&found, FindingCode::ServerOutage);
    assert!(
        one.message.contains("port closed: 6 of 6") && !one.advice.contains("path to it"),
        "{one:?}"
    );
}

#[test]
fn requests_that_are_not_sent_are_reported() {
    let counts = QueryCounts { sent: 3, received: 3, refused: 5, ..Default::default() };
    let found = findings(vec![QueryServerResult { counts, ..server("a") }]);
    let one = only(&found, FindingCode::GeneratorBehind);
    assert_eq!(one.message, "Requests could not be sent: a: 5 of 8.");
    assert!(one.severity == Severity::Warning && one.advice.contains("firewall"), "{one:?}");
}

#[test]
fn a_rare_loss_is_a_note_and_what_was_answered_otherwise_none() {
    let counts = QueryCounts { sent: 1_000, received: 999, lost: 1, ..Default::default() };
    let rare = findings(vec![QueryServerResult { counts, ..server("a") }]);
    assert_eq!(only(&rare, FindingCode::PathLoss).severity, Severity::Note);
    let mut kissed = server("a");
    kissed.counts.lost = 3;
    kissed.counts.kisses = BTreeMap::from([("RATE".to_owned(), 3)]);
    only(&findings(vec![kissed]), FindingCode::KissOfDeath);
}

#[test]
fn kisses_and_invalid_replies_are_named() {
    let mut kissed = server("a");
    kissed.counts.kisses = BTreeMap::from([("RATE".to_owned(), 3)]);
    let found = findings(vec![kissed, server("b")]);
    assert_eq!(only(&found, FindingCode::KissOfDeath).message, "Kiss-o'-death packets: a: RATE 3.");
    let mut broken = server("a");
    broken.counts.invalid = BTreeMap::from([(InvalidReplyReason::Origin, 2)]);
    let found = findings(vec![broken]);
    assert!(only(&found, FindingCode::InvalidReplies).message.ends_with("a: origin 2."));
}

#[test]
fn a_negative_delay_is_a_finding() {
    let samples = [10, -60_000].map(|delay| figures::tests::sample(0, 0, delay)).to_vec();
    let found = findings(vec![QueryServerResult { samples, ..server("a") }]);
    assert!(only(&found, FindingCode::NegativeDelay).message.ends_with("a: 1 of 2."));
}

#[test]
fn an_unsynchronised_server_is_a_finding() {
    let state = QueriedServerState {
        leap: LeapState::Unsynchronised,
        version: 4,
        stratum: 16,
        reference_id: "INIT".to_owned(),
        root_delay_ns: 0,
        root_dispersion_ns: 0,
        precision: -20,
    };
    let mut unsynchronised = QueryServerResult { server_state: Some(state), ..server("a") };
    unsynchronised.counts.unsynchronised = 7;
    let message = |server: &QueryServerResult| {
        only(&findings(vec![server.clone()]), FindingCode::ServerUnsynchronised).message.clone()
    };
    let text = message(&unsynchronised);
    assert!(text.contains("a: not synchronised yet (INIT) in 7 of 8 replies"), "{text}");
    if let Some(state) = &mut unsynchronised.server_state {
        "0.0.0.0".clone_into(&mut state.reference_id);
    }
    assert!(message(&unsynchronised).contains("a: not synchronised in 7 of 8"));
}

#[test]
fn a_server_that_replies_is_not_reported_as_unanswered() {
    let mut refused = unanswered_server("a");
    refused.counts.kisses = BTreeMap::from([("NKEY".to_owned(), 8)]);
    let mut broken = unanswered_server("b");
    broken.counts.invalid = BTreeMap::from([(InvalidReplyReason::Version, 8)]);
    let mut late = unanswered_server("c");
    late.counts.late = 5;
    for (server, why) in [(refused, "8 other"), (broken, "8 other"), (late, "5 replies")] {
        let found = findings(vec![server]);
        let one = found.iter().find(|one| one.code == FindingCode::NoReplies).unwrap();
        assert_eq!(one.severity, Severity::Error);
        assert!(one.message.contains(why) && !one.advice.contains("a server runs"), "{one:?}");
    }
}

#[test]
fn each_kiss_has_its_own_advice() {
    let advice = |code: &str| {
        let mut kissed = server("a");
        kissed.counts.kisses = BTreeMap::from([(code.to_owned(), 1)]);
        only(&findings(vec![kissed]), FindingCode::KissOfDeath).advice.clone()
    };
    for code in ["RATE", "DENY", "RSTR", "NTSN"] {
        assert!(advice(code).contains(code), "{}", advice(code));
        assert_eq!(advice(code).contains("--interval"), code == "RATE");
    }
    assert!(advice("AUTH").contains("its log"), "{}", advice("AUTH"));
}

#[test]
fn basic_replies_are_a_finding_if_interleaved_ones_were_requested() {
    let found = findings_of(vec![server("a")], true, Vec::new(), None);
    assert!(only(&found, FindingCode::InterleavedNotUsed).message.contains("a: 8 of 8"));
    let mut all = server("a");
    all.counts.interleaved = 6;
    assert_eq!(findings_of(vec![all], true, Vec::new(), None), []);
}

#[test]
fn timestamps_from_a_worse_source_than_requested_are_reported() {
    let timestamps = TimestampCounts { kernel: 6, user: 2, ..TimestampCounts::default() };
    let found =
        findings(vec![QueryServerResult { transmit_timestamps: timestamps, ..server("a") }]);
    assert!(
        only(&found, FindingCode::TimestampsMissing)
            .message
            .contains("a T1: 2 of 8 by this program")
    );
    let found = findings_of(vec![server("a")], false, Vec::new(), Some("'lo' has none"));
    assert!(only(&found, FindingCode::TimestampsMissing).message.contains("a: 'lo' has none"));
    let clock = horolog_record::PhcTimestampSource {
        interface: "eth0".to_owned(),
        clock: 0,
        conversion_uncertainty_ns: 100,
    };
    let found = findings(vec![QueryServerResult { hardware_clock: Some(clock), ..server("a") }]);
    assert!(only(&found, FindingCode::TimestampsMissing).message.contains("8 of 8 by the kernel"));
}

#[test]
fn servers_that_contradict_one_another_are_named() {
    let difference = ServerOffsetDifference {
        first: 0,
        second: 1,
        pairs: 1,
        offset_ns: 500,
        bound_ns: 100,
        mean_ns: 500.0,
        contradiction: true,
    };
    let found = findings_of(vec![server("a"), server("b")], false, vec![difference], None);
    assert!(only(&found, FindingCode::ServersDisagree).message.contains("a and b"));
}

fn nts(server: Option<&str>, renewals: u64) -> NtsUseSummary {
    NtsUseSummary {
        ke_server: "a:4460".into(),
        algorithm: "AES-SIV-CMAC-256".into(),
        ke_exchanges: 1 + renewals,
        server: server.map(str::to_owned),
        renewals,
        renewals_failed: 0,
        abandoned_algorithm: (renewals > 1).then(|| "AES-128-GCM-SIV".into()),
    }
}

#[test]
fn the_polled_server_is_named_with_its_target() {
    let redirected =
        QueryServerResult { nts: Some(nts(Some("b:1123"), 0)), ..unanswered_server("a") };
    let found = findings(vec![redirected, server("c")]);
    let no_replies = found.iter().find(|finding| finding.code == FindingCode::NoReplies).unwrap();
    assert!(no_replies.message.contains("b:1123 (for a): none of 8"), "{no_replies:?}");
}

#[test]
fn renewed_keys_and_an_abandoned_algorithm_are_reported() {
    let of = |renewals| {
        findings(vec![QueryServerResult { nts: Some(nts(None, renewals)), ..server("a") }])
    };
    let codes = |all: &[Finding]| all.iter().map(|finding| finding.code).collect::<Vec<_>>();
    assert_eq!(codes(&of(0)), []);
    assert_eq!(codes(&of(1)), [FindingCode::KeysRenewed]);
    assert_eq!(codes(&of(2)), [FindingCode::KeysRenewed, FindingCode::AlgorithmAbandoned]);
}

#[test]
fn a_failed_nts_ke_exchange_has_the_hints_of_its_failures() {
    let (reason, message) = (QueryEndReason::NoKeys, "no TLS".to_owned());
    let failed = QueryServerResult {
        ended: Some(EarlyQueryEnd { reason, message }),
        ..unanswered_server("a")
    };
    let hint = |hint| QueryServerContext { hint: Some(hint), ..QueryServerContext::default() };
    let contexts = [hint("update it"), hint("update it"), hint("renew it")];
    let found = findings_in_context(
        vec![failed.clone(), failed.clone(), failed],
        false,
        Vec::new(),
        &contexts,
    );
    let finding = found.iter().find(|one| one.code == FindingCode::NtsKeFailed).unwrap();
    assert_eq!(finding.advice, "Update it; renew it.");
}
