//! Doubts about records that are made here.

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
    let beside = Beside { no_card: no_card.map(str::to_owned), silent: 0 };
    let beside = vec![beside; servers.len()];
    findings_beside(servers, interleaved, differences, &beside)
}

fn findings_beside(
    servers: Vec<ServerResult>,
    interleaved: bool,
    differences: Vec<Difference>,
    beside: &[Beside],
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
    all(&result, &Circumstances { clock_synchronised: Some(true), servers: beside })
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
fn answers_that_ceased_are_told_with_since_when() {
    let half = |lost| {
        let counts = QueryCounts { sent: 20, received: 20 - lost, lost, ..Default::default() };
        let samples = (0..20 - lost).map(|at| figures::tests::sample(at, 0, 10)).collect();
        ServerResult { counts, samples, ..server("a") }
    };
    let found = |lost, silent| {
        let beside = [Beside { silent, ..Beside::default() }, Beside::default()];
        findings_beside(vec![half(lost), server("b")], false, Vec::new(), &beside)
    };
    let ended = found(12, 12);
    let one = only(&ended, Code::ServerSilent);
    assert_eq!(one.severity, Severity::Warning);
    assert!(one.message.contains(": a: 12 of 20, none later than 1.4 s"), "{one:?}");
    let scattered = found(3, 1);
    let one = only(&scattered, Code::PathLoss);
    assert_eq!(one.severity, Severity::Warning);
    assert!(one.message.ends_with("in time: a: 3 of 20."), "{one:?}");
}

#[test]
fn a_rare_loss_is_a_note_and_what_was_answered_otherwise_none() {
    let counts = QueryCounts { sent: 1_000, received: 999, lost: 1, ..Default::default() };
    let rare = findings(vec![ServerResult { counts, ..server("a") }]);
    assert_eq!(only(&rare, Code::PathLoss).severity, Severity::Note);
    let mut kissed = server("a");
    kissed.counts.lost = 3;
    kissed.counts.kisses = BTreeMap::from([("RATE".to_owned(), 3)]);
    only(&findings(vec![kissed]), Code::KissOfDeath);
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
