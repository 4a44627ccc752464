//! Doubts about records that are made here.

use std::collections::BTreeMap;

use horolog_record::{
    Difference, Host, InvalidReason, LeapState, NtsUse, QUERY_SCHEMA, QueryEnd, ServerState,
};

use super::super::figures;
use super::*;

fn server(name: &str) -> ServerResult {
    ServerResult {
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
    let beside = QueryServerContext {
        no_nic_clock: no_card.map(str::to_owned),
        unanswered: 0,
        closed: 0,
        hint: None,
    };
    let beside = vec![beside; servers.len()];
    findings_beside(servers, interleaved, differences, &beside)
}

fn findings_beside(
    servers: Vec<ServerResult>,
    interleaved: bool,
    differences: Vec<Difference>,
    beside: &[QueryServerContext],
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
    all(&result, &QueryRunContext { clock_synchronised: Some(true), servers: beside })
}

fn only(findings: &[Finding], code: FindingCode) -> &Finding {
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
    let one = only(&found, FindingCode::NoReplies);
    assert_eq!(one.severity, Severity::Warning);
    assert_eq!(one.message, "No valid reply: b: none of 8 requests received a reply.");
    let found = findings(vec![silent_server("a"), silent_server("b")]);
    assert_eq!(only(&found, FindingCode::NoReplies).severity, Severity::Error);
    let end = QueryEnd { reason: QueryEndReason::Unresolved, message: "no such name".into() };
    let found = findings(vec![ServerResult { ended: Some(end), ..silent_server("c") }]);
    assert!(only(&found, FindingCode::NoReplies).message.ends_with("c: no such name."));
}

#[test]
fn answers_that_ceased_are_told_with_since_when() {
    let half = |lost| {
        let counts = QueryCounts { sent: 20, received: 20 - lost, lost, ..Default::default() };
        let samples = (0..20 - lost).map(|at| figures::tests::sample(at, 0, 10)).collect();
        ServerResult { counts, samples, ..server("a") }
    };
    let found = |lost, silent| {
        let beside = [
            QueryServerContext { unanswered: silent, ..QueryServerContext::default() },
            QueryServerContext::default(),
        ];
        findings_beside(vec![half(lost), server("b")], false, Vec::new(), &beside)
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
    let of = |silent, closed| {
        let beside =
            [QueryServerContext { unanswered: silent, closed, ..QueryServerContext::default() }];
        let server = ServerResult { counts: counts.clone(), ..server("a") };
        findings_beside(vec![server], false, Vec::new(), &beside)
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
    let beside = [QueryServerContext { closed: 8, ..QueryServerContext::default() }];
    let closed = silent_server("a");
    let found = findings_beside(vec![closed], false, Vec::new(), &beside);
    let one = only(&found, FindingCode::NoReplies);
    assert_eq!(one.message, "No valid reply: a: no program listens at this port.");
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
    let found = findings(vec![ServerResult { counts, ..server("a") }]);
    let one = only(&found, FindingCode::GeneratorBehind);
    assert_eq!(one.message, "Requests could not be sent: a: 5 of 8.");
    assert!(one.severity == Severity::Warning && one.advice.contains("firewall"), "{one:?}");
}

#[test]
fn a_rare_loss_is_a_note_and_what_was_answered_otherwise_none() {
    let counts = QueryCounts { sent: 1_000, received: 999, lost: 1, ..Default::default() };
    let rare = findings(vec![ServerResult { counts, ..server("a") }]);
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
    broken.counts.invalid = BTreeMap::from([(InvalidReason::Origin, 2)]);
    let found = findings(vec![broken]);
    assert!(only(&found, FindingCode::InvalidReplies).message.ends_with("a: origin 2."));
}

#[test]
fn a_delay_below_zero_is_a_doubt() {
    let samples = [10, -60_000].map(|delay| figures::tests::sample(0, 0, delay)).to_vec();
    let found = findings(vec![ServerResult { samples, ..server("a") }]);
    assert!(only(&found, FindingCode::NegativeDelay).message.ends_with("a: 1 of 2."));
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
    let mut unsynchronised = ServerResult { server_state: Some(says), ..server("a") };
    unsynchronised.counts.unsynchronised = 7;
    let message = |server: &ServerResult| {
        only(&findings(vec![server.clone()]), FindingCode::ServerUnsynchronised).message.clone()
    };
    let told = message(&unsynchronised);
    assert!(told.contains("a: not synchronised yet (INIT) in 7 of 8 replies"), "{told}");
    if let Some(says) = &mut unsynchronised.server_state {
        "0.0.0.0".clone_into(&mut says.reference_id);
    }
    assert!(message(&unsynchronised).contains("a: not synchronised in 7 of 8"));
}

#[test]
fn a_server_that_answers_is_not_called_silent() {
    let mut refused = silent_server("a");
    refused.counts.kisses = BTreeMap::from([("NKEY".to_owned(), 8)]);
    let mut broken = silent_server("b");
    broken.counts.invalid = BTreeMap::from([(InvalidReason::Version, 8)]);
    let mut late = silent_server("c");
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
fn basic_replies_are_a_doubt_where_interleaved_ones_were_asked_for() {
    let found = findings_of(vec![server("a")], true, Vec::new(), None);
    assert!(only(&found, FindingCode::InterleavedNotUsed).message.contains("a: 8 of 8"));
    let mut all = server("a");
    all.counts.interleaved = 6;
    assert_eq!(findings_of(vec![all], true, Vec::new(), None), []);
}

#[test]
fn timestamps_by_less_than_was_asked_for_are_named() {
    let stamps = TimestampCounts { kernel: 6, user: 2, ..TimestampCounts::default() };
    let found = findings(vec![ServerResult { transmit_timestamps: stamps, ..server("a") }]);
    assert!(
        only(&found, FindingCode::TimestampsMissing)
            .message
            .contains("a T1: 2 of 8 by this program")
    );
    let found = findings_of(vec![server("a")], false, Vec::new(), Some("'lo' has none"));
    assert!(only(&found, FindingCode::TimestampsMissing).message.contains("a: 'lo' has none"));
    let clock = horolog_record::HardwareClock {
        interface: "eth0".to_owned(),
        clock: 0,
        conversion_uncertainty_ns: 100,
    };
    let found = findings(vec![ServerResult { hardware_clock: Some(clock), ..server("a") }]);
    assert!(only(&found, FindingCode::TimestampsMissing).message.contains("8 of 8 by the kernel"));
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
    assert!(only(&found, FindingCode::ServersDisagree).message.contains("a and b"));
}

fn nts(server: Option<&str>, renewals: u64) -> NtsUse {
    NtsUse {
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
fn the_server_that_was_asked_is_named_and_the_target_beside_it() {
    let redirected = ServerResult { nts: Some(nts(Some("b:1123"), 0)), ..silent_server("a") };
    let said = findings(vec![redirected, server("c")]);
    let silent = said.iter().find(|finding| finding.code == FindingCode::NoReplies).unwrap();
    assert!(silent.message.contains("b:1123 (for a): none of 8"), "{silent:?}");
}

#[test]
fn renewed_keys_and_an_abandoned_algorithm_are_told() {
    let of =
        |renewals| findings(vec![ServerResult { nts: Some(nts(None, renewals)), ..server("a") }]);
    let codes = |all: &[Finding]| all.iter().map(|finding| finding.code).collect::<Vec<_>>();
    assert_eq!(codes(&of(0)), []);
    assert_eq!(codes(&of(1)), [FindingCode::KeysRenewed]);
    assert_eq!(codes(&of(2)), [FindingCode::KeysRenewed, FindingCode::AlgorithmAbandoned]);
}

#[test]
fn failed_key_establishment_has_the_hints_of_its_failures() {
    let (reason, message) = (QueryEndReason::NoKeys, "no TLS".to_owned());
    let failed = ServerResult { ended: Some(QueryEnd { reason, message }), ..silent_server("a") };
    let hint = |hint| QueryServerContext { hint: Some(hint), ..QueryServerContext::default() };
    let beside = [hint("update it"), hint("update it"), hint("renew it")];
    let said =
        findings_beside(vec![failed.clone(), failed.clone(), failed], false, Vec::new(), &beside);
    let finding = said.iter().find(|one| one.code == FindingCode::NtsKeFailed).unwrap();
    assert_eq!(finding.advice, "Update it; renew it.");
}
