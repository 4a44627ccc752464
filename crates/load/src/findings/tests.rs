//! Each finding results from the counts that it is for; a clean run has none.

use std::collections::BTreeMap;
use std::time::Duration;

use horolog_record::{InvalidReplyReason, LossLocation, ReplyKindCounts};

use super::*;
use crate::plan::TrialPlan;
use crate::ptp::{PtpLoadTransport, PtpRequestKind, PtpRequestOptions};
use crate::request_kind::NtpRequestOptions;
use crate::trial::record;

fn counts() -> TrialCounts {
    let mut counts = TrialCounts {
        planned: 20_000,
        sent: 20_000,
        received: 20_000,
        first_sent: Some(horolog_time::Timestamp::from_ns(0)),
        last_sent: Some(horolog_time::Timestamp::from_ns(1_999_900_000)),
        ..TrialCounts::default()
    };
    counts.rtt.record(50_000);
    counts.lateness.record(2_000);
    counts
}

fn trial(counts: &TrialCounts, lost_at: &[(LossLocation, u64)]) -> Trial {
    let plan = TrialPlan::constant(10_000.0, Duration::from_secs(2), 16);
    record(&plan, counts, lost_at.iter().copied().collect::<BTreeMap<_, _>>())
}

fn conditions() -> RunConditions {
    RunConditions {
        engine: LoadEngineKind::Packet,
        spacing: RequestSpacing::Constant,
        requests: RequestMix::default(),
        return_route: Some("ip route add 10.64.0.0/10 via 192.0.2.2".into()),
        shared_host: false,
        replies_unopened: false,
        measures_offsets: false,
    }
}

fn about() -> RunFindingInputs<'static> {
    RunFindingInputs {
        remote_counter_errors: None,
        capture: None,
        clock_synchronised: Some(true),
        fallbacks: &[],
        missing_feature: None,
        interrupted: false,
        failure: None,
        search: None,
        outages: &[],
        overload: None,
    }
}

/// Findings about a run of these trials.
fn findings_under(
    conditions: &RunConditions,
    observed: &[TrialWithCounts<'_>],
    inputs: &RunFindingInputs<'_>,
) -> Vec<Finding> {
    let mut findings = TrialFindings::default();
    for one in observed {
        findings.add(one, conditions);
    }
    let trials: Vec<_> = observed.iter().map(|one| one.trial.clone()).collect();
    findings.run_findings(&trials, conditions, inputs)
}

fn run_findings(observed: &[TrialWithCounts<'_>], inputs: &RunFindingInputs<'_>) -> Vec<Finding> {
    findings_under(&conditions(), observed, inputs)
}

fn found(counts: &TrialCounts, lost_at: &[(LossLocation, u64)]) -> Vec<Finding> {
    let trial = trial(counts, lost_at);
    run_findings(&[TrialWithCounts::new(&trial, counts)], &about())
}

fn only(findings: &[Finding], code: FindingCode) -> &Finding {
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [code]);
    &findings[0]
}

#[test]
fn a_clean_trial_has_no_findings() {
    assert_eq!(found(&counts(), &[]), []);
}

#[test]
fn a_generator_that_is_behind_by_a_thousandth_is_reported() {
    let almost = TrialCounts { sent: 19_981, received: 19_981, ..counts() };
    assert_eq!(found(&almost, &[]), []);
    let behind = TrialCounts { sent: 19_970, received: 19_970, refused: 30, ..counts() };
    let findings = found(&behind, &[]);
    let finding = only(&findings, FindingCode::GeneratorBehind);
    assert!(finding.message.contains("sending failed for 30"), "{}", finding.message);
    assert!(finding.advice.contains("firewall"), "{}", finding.advice);
    assert_eq!(finding.trial, Some(0));
    let slow = TrialCounts { sent: 19_000, received: 19_000, refused: 3, ..counts() };
    assert!(found(&slow, &[])[0].advice.contains("faster engine"));
}

#[test]
fn random_spacing_is_held_against_what_it_planned() {
    // 2% fewer instants than the rate has, with a request sent at each.
    let counts = TrialCounts { planned: 19_600, sent: 19_600, received: 19_600, ..counts() };
    let trial = trial(&counts, &[]);
    let random = RunConditions { spacing: RequestSpacing::Exponential, ..conditions() };
    assert_eq!(findings_under(&random, &[TrialWithCounts::new(&trial, &counts)], &about()), []);
}

#[test]
fn an_unreadable_counter_snapshot_is_reported() {
    let mut page = RemoteCounterErrors { readings: 8, ..RemoteCounterErrors::default() };
    let of = |page: &RemoteCounterErrors| {
        run_findings(&[], &RunFindingInputs { remote_counter_errors: Some(page), ..about() })
    };
    assert_eq!(of(&page), []);
    page.unavailable.insert("chronyd: it refuses".to_owned());
    only(&of(&page), FindingCode::CountersUnavailable);
    page.failed = 3;
    page.reason = Some("no counters from http://192.0.2.1:80".to_owned());
    let findings = of(&page);
    assert_eq!(findings.len(), 2);
    assert!(findings[0].message.starts_with("3 of 8 readings"), "{}", findings[0].message);
}

#[test]
fn lateness_matters_where_it_shows_in_the_latency() {
    let mut late = counts();
    late.lateness.record(20_000);
    only(&found(&late, &[]), FindingCode::RequestsLate);
}

#[test]
fn no_replies_of_a_master_name_the_domain() {
    let counts = TrialCounts { received: 0, rtt: horolog_stats::Histogram::default(), ..counts() };
    let trial = trial(&counts, &[]);
    for (kind, contract) in [(PtpRequestKind::Delay, true), (PtpRequestKind::Nsm, false)] {
        let observed = [TrialWithCounts::new(&trial, &counts)];
        let findings = findings_under(&under_ptp(kind), &observed, &about());
        let advice = &only(&findings, FindingCode::NoReplies).advice;
        assert!(advice.contains("domain 24") && advice.contains("10.64.0.0/10"), "{advice}");
        assert_eq!(advice.contains("horolog load ptp unicast"), contract, "{advice}");
    }
}

/// Conditions of a run with PTP requests.
fn under_ptp(kind: PtpRequestKind) -> RunConditions {
    let transport = PtpLoadTransport::Udp;
    let ptp = PtpRequestOptions { kind, domain: 24, minor_version: 1, multicast: false, transport };
    RunConditions { requests: RequestMix::only(ptp), ..conditions() }
}

#[test]
fn a_master_without_netsync_monitor_is_not_called_dead() {
    let mut counts =
        TrialCounts { received: 0, rtt: horolog_stats::Histogram::default(), ..counts() };
    counts.invalid[InvalidReplyReason::Monitor as usize] = 20_000;
    let trial = trial(&counts, &[]);
    let outages = [Outage { trial: 0, from_s: 0.0, to_s: 2.0, ended: false, recovery_ms: None }];
    let about = RunFindingInputs { outages: &outages, ..about() };
    let observed = [TrialWithCounts::new(&trial, &counts)];
    let findings = findings_under(&under_ptp(PtpRequestKind::Nsm), &observed, &about);
    let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [FindingCode::NoReplies, FindingCode::InvalidReplies]);
    assert!(findings[0].advice.contains("--ptp-netsync-monitor"), "{:?}", findings[0]);
    assert!(!findings[1].advice.contains("kiss"), "{:?}", findings[1]);
}

#[test]
fn no_replies_name_the_route_that_is_missing() {
    let counts = TrialCounts { received: 0, rtt: horolog_stats::Histogram::default(), ..counts() };
    let findings = found(&counts, &[]);
    let finding = only(&findings, FindingCode::NoReplies);
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding.advice.contains("ip route add 10.64.0.0/10 via 192.0.2.2"),
        "{}",
        finding.advice
    );
    let closed = TrialCounts { port_closed: 3, ..counts };
    let findings = found(&closed, &[(LossLocation::Unknown, 20_000)]);
    assert!(only(&findings, FindingCode::NoReplies).advice.contains("port is closed"));
}

#[test]
fn each_count_has_its_finding() {
    let mut invalid = TrialCounts { received: 19_990, ..counts() };
    invalid.invalid[InvalidReplyReason::Stratum as usize] = 10;
    assert!(
        only(&found(&invalid, &[]), FindingCode::InvalidReplies).message.contains("10 by stratum")
    );
    let duplicate = TrialCounts { duplicate: 4, ..counts() };
    only(&found(&duplicate, &[]), FindingCode::DuplicateReplies);
    let overflow = TrialCounts { ring_dropped: 5, received: 19_995, ..counts() };
    only(&found(&overflow, &[(LossLocation::OwnRing, 5)]), FindingCode::ReceiveRingOverflow);
    let unsynchronised = TrialCounts { server_unsynchronised: 20_000, ..counts() };
    only(&found(&unsynchronised, &[]), FindingCode::ServerUnsynchronised);
    assert_eq!(trial(&unsynchronised, &[]).unsynchronised, 20_000);
    let unknown = TrialCounts { received: 19_000, ..counts() };
    only(&found(&unknown, &[(LossLocation::Unknown, 1000)]), FindingCode::LossUnattributed);
    let few = TrialCounts { planned: 500, sent: 500, received: 500, ..counts() };
    let few = TrialCounts { last_sent: Some(horolog_time::Timestamp::from_ns(49_900_000)), ..few };
    only(&found(&few, &[]), FindingCode::FewSamples);
}

#[test]
fn each_kiss_of_death_has_its_own_advice() {
    let advice = |reason: InvalidReplyReason| {
        let mut counts = TrialCounts { received: 19_990, ..counts() };
        counts.invalid[reason as usize] = 10;
        let found = found(&counts, &[(LossLocation::Invalid, 10)]);
        let one = only(&found, FindingCode::KissOfDeath);
        let name = reason.kiss_code().unwrap();
        assert!(one.message.ends_with(&format!("kiss-o'-death packets: 10 {name}")), "{one:?}");
        one.advice.clone()
    };
    for reason in InvalidReplyReason::ALL.into_iter().filter(|reason| reason.kiss_code().is_some())
    {
        let limits = advice(reason).contains("limits client rates");
        assert_eq!(limits, reason == InvalidReplyReason::KissRate, "{}", advice(reason));
    }
    assert!(advice(InvalidReplyReason::KissDeny).contains("refuses these clients"));
    assert!(advice(InvalidReplyReason::KissNtsn).contains("cookies"));
}

#[test]
fn a_master_that_denies_everything_is_named_and_one_that_grants_is_not() {
    let denial = ReplyKindCounts { denial: 20_000, ..ReplyKindCounts::default() };
    let findings_for = |responses| {
        let trial = Trial { responses, ..trial(&counts(), &[]) };
        let counts = counts();
        run_findings(&[TrialWithCounts::new(&trial, &counts)], &about())
    };
    let found = findings_for(denial);
    let denied = only(&found, FindingCode::UnicastDenied);
    assert!(denied.message.contains("denied all 20000"), "{denied:?}");
    assert!(denied.advice.contains("--ptp-unicast-allow"), "{denied:?}");
    assert_eq!(findings_for(ReplyKindCounts { grant: 1, ..denial }), []);
}

#[test]
fn a_master_without_a_primary_reference_is_not_called_unsynchronised() {
    let counts = TrialCounts { server_unsynchronised: 20_000, ..counts() };
    let trial = trial(&counts, &[]);
    let observed = [TrialWithCounts::new(&trial, &counts)];
    let found = findings_under(&under_ptp(PtpRequestKind::Nsm), &observed, &about());
    let finding = only(&found, FindingCode::ServerUnsynchronised);
    assert_eq!(finding.severity, Severity::Note);
    assert!(finding.message.contains("not traceable to a primary reference"), "{finding:?}");
}

#[test]
fn one_finding_speaks_for_many_trials() {
    let [small, large] = [3, 9].map(|duplicate| TrialCounts { duplicate, ..counts() });
    let trials = [trial(&small, &[]), trial(&large, &[])];
    let observed =
        [TrialWithCounts::new(&trials[0], &small), TrialWithCounts::new(&trials[1], &large)];
    let findings = run_findings(&observed, &about());
    let finding = only(&findings, FindingCode::DuplicateReplies);
    assert_eq!(finding.trial, Some(1));
    assert!(finding.message.contains("2 trials"), "{}", finding.message);
}

/// As after each trial of a run with a live view.
#[test]
fn findings_of_the_trials_so_far_do_not_change_later_ones() {
    let counts: Vec<_> =
        [2, 9, 0, 9, 4].iter().map(|&duplicate| TrialCounts { duplicate, ..counts() }).collect();
    let trials: Vec<_> = counts.iter().map(|counts| trial(counts, &[])).collect();
    let mut findings = TrialFindings::default();
    let reported = trials.iter().zip(&counts).map(|(trial, counts)| {
        findings.add(&TrialWithCounts::new(trial, counts), &conditions());
        let found = findings.run_findings(&trials, &conditions(), &about());
        (found[0].trial, found[0].message.clone())
    });
    let affected = |count| {
        format!("9 duplicate replies were received; {count} trials are affected, this one most")
    };
    let expected = [
        (Some(0), "2 duplicate replies were received".to_owned()),
        (Some(1), affected(2)),
        (Some(1), affected(2)),
        (Some(3), affected(3)),
        (Some(3), affected(4)),
    ];
    assert_eq!(reported.collect::<Vec<_>>(), expected);
}

#[test]
fn circumstances_have_their_findings() {
    let fallbacks = [(LoadEngineKind::Xdp, "too old a kernel".to_owned())];
    let conditions = RunConditions { shared_host: true, ..conditions() };
    let circumstances = RunFindingInputs {
        clock_synchronised: Some(false),
        fallbacks: &fallbacks,
        interrupted: true,
        ..about()
    };
    let findings = findings_under(&conditions, &[], &circumstances);
    let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(
        codes,
        [
            FindingCode::SharedMachine,
            FindingCode::ClockUnsynchronised,
            FindingCode::EngineFallback,
            FindingCode::Interrupted
        ]
    );
}

#[test]
fn a_search_reports_its_end_and_inconsistent_trials() {
    let search = CapacitySearchResult {
        kind: horolog_record::CapacitySearchGoal::Ndr,
        goal_loss_ratio: 0.0,
        rate: 10_000.0,
        lower: Some(10_000.0),
        upper: Some(20_000.0),
        loss_ratio: 0.0,
        end: SearchEndReason::BudgetSpent,
    };
    let lossy = TrialCounts { received: 19_000, ..counts() };
    let trials = [trial(&counts(), &[]), trial(&lossy, &[])];
    let (clean, lossy) = (counts(), lossy);
    let observed =
        [TrialWithCounts::new(&trials[0], &clean), TrialWithCounts::new(&trials[1], &lossy)];
    let circumstances = RunFindingInputs { search: Some(&search), ..about() };
    let codes: Vec<_> =
        run_findings(&observed, &circumstances).iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [FindingCode::TrialsInconsistent, FindingCode::SearchUnfinished]);
    let limit = CapacitySearchResult { end: SearchEndReason::GeneratorLimit, ..search };
    let circumstances = RunFindingInputs { search: Some(&limit), ..about() };
    let codes: Vec<_> =
        run_findings(&[], &circumstances).iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [FindingCode::GeneratorLimit]);
}

#[test]
fn basic_replies_are_reported_where_interleaved_ones_were_requested() {
    let interleaved = |share: u64| TrialCounts { interleaved: 200 * share, ..counts() };
    let requests = RequestMix::only(NtpRequestOptions::interleaved());
    let in_mode = RunConditions { requests, ..conditions() };
    let codes = |shares: [u64; 2], conditions: &RunConditions| -> Vec<_> {
        let counts = shares.map(interleaved);
        let trials = counts.each_ref().map(|counts| trial(counts, &[]));
        let observed =
            [0, 1].map(|index: usize| TrialWithCounts::new(&trials[index], &counts[index]));
        let findings = findings_under(conditions, &observed, &about());
        findings.iter().map(|finding| (finding.code, finding.trial)).collect()
    };
    // In the first trial, clients have no earlier reply to refer to.
    assert_eq!(codes([0, 95], &in_mode), []);
    assert_eq!(codes([0, 85], &in_mode), [(FindingCode::InterleavedNotUsed, Some(1))]);
    assert_eq!(codes([0, 0], &conditions()), []);
}

#[test]
fn replies_without_a_timestamp_are_counted() {
    let mut offsets =
        crate::offset::ServerOffsetCounts { timestamped: 19_990, ..Default::default() };
    offsets.offsets.record(3_000);
    let some = TrialCounts { offsets: Some(offsets.clone()), ..counts() };
    let findings = found(&some, &[]);
    let message = &only(&findings, FindingCode::RepliesWithoutTimestamp).message;
    assert!(message.starts_with("10 of 20000 replies"), "{message}");
    offsets.timestamped = 20_000;
    let all = TrialCounts { offsets: Some(offsets.clone()), ..counts() };
    assert_eq!(found(&all, &[]), []);
    offsets.offsets.record(i64::MIN);
    let far = TrialCounts { offsets: Some(offsets), ..counts() };
    only(&found(&far, &[]), FindingCode::OffsetsTooLarge);
}

#[test]
fn offsets_require_a_synchronised_clock() {
    let counts = counts();
    let trial = trial(&counts, &[]);
    let found = |offsets| {
        let conditions = RunConditions { measures_offsets: offsets, ..conditions() };
        let about = RunFindingInputs { clock_synchronised: Some(false), ..about() };
        let observed = [TrialWithCounts::new(&trial, &counts)];
        let findings = findings_under(&conditions, &observed, &about);
        let finding = only(&findings, FindingCode::ClockUnsynchronised);
        (finding.severity, finding.message.contains("offsets are measured against"))
    };
    assert_eq!(found(false), (Severity::Note, false));
    assert_eq!(found(true), (Severity::Warning, true));
}

fn single_outage(trial: usize, ended: bool, recovery_ms: Option<f64>) -> Outage {
    Outage { trial, from_s: 0.25, to_s: 1.0, ended, recovery_ms }
}

/// Message about the outages of a run of two trials, the second of which was answered or not.
fn outage_message(outages: &[Outage], answered: bool) -> String {
    let (first, mut second) = (counts(), counts());
    if !answered {
        (second.received, second.rtt) = (0, horolog_stats::Histogram::default());
    }
    let trials = [trial(&first, &[]), trial(&second, &[])];
    let observed =
        [TrialWithCounts::new(&trials[0], &first), TrialWithCounts::new(&trials[1], &second)];
    let findings = run_findings(&observed, &RunFindingInputs { outages, ..about() });
    let outage_finding = findings.iter().find(|finding| finding.code == FindingCode::ServerOutage);
    outage_finding.map(|finding| finding.message.clone()).unwrap_or_default()
}

#[test]
fn an_outage_is_reported_with_what_followed() {
    let first = outage_message(&[single_outage(0, true, Some(200.0))], true);
    assert!(first.starts_with("the server sent no reply for 0.750 s, from 0.250 s"), "{first}");
    assert!(first.ends_with("recovery took 200 ms"), "{first}");
    assert!(
        outage_message(&[single_outage(0, true, None)], true).ends_with("replies resumed then")
    );
    assert!(
        outage_message(&[single_outage(0, false, None)], true)
            .ends_with("resumed in a later trial")
    );
    assert!(
        outage_message(&[single_outage(0, false, None)], false).ends_with("replies did not resume")
    );
    assert!(
        outage_message(&[single_outage(1, false, None)], true).ends_with("replies did not resume")
    );
    let longer = Outage { to_s: 1.5, ..single_outage(1, true, None) };
    let two = outage_message(&[single_outage(0, true, None), longer], true);
    assert!(two.contains("1.250 s") && two.ends_with("the longest of 2 outages"), "{two}");
    assert_eq!(outage_message(&[], true), "");
}

#[test]
fn a_server_that_does_not_recover_from_an_overload_is_reported() {
    let overload = OverloadResult {
        base_rate: 5e3,
        overload_rate: 30e3,
        overload_s: 2.0,
        answered_rate: 9e3,
        recovery_ms: None,
        resolution_ms: 100.0,
    };
    let counts = counts();
    let trial = trial(&counts, &[]);
    let found = |overload: &OverloadResult| {
        run_findings(
            &[TrialWithCounts::new(&trial, &counts)],
            &RunFindingInputs { overload: Some(overload), ..about() },
        )
    };
    only(&found(&overload), FindingCode::NotRecovered);
    assert_eq!(found(&OverloadResult { recovery_ms: Some(0.0), ..overload.clone() }), []);
    let nothing = TrialCounts { received: 0, ..counts.clone() };
    let before = self::trial(&nothing, &[]);
    let phases = [(&before, &nothing), (&trial, &counts), (&trial, &counts)];
    let phases = phases.map(|(trial, counts)| TrialWithCounts::new(trial, counts));
    let about = RunFindingInputs { overload: Some(&overload), ..about() };
    let findings = run_findings(&phases, &about);
    assert!(findings.iter().all(|one| one.code != FindingCode::NotRecovered), "{findings:?}");
}

#[test]
fn badly_served_clients_are_reported() {
    let counts = counts();
    let mut trial = trial(&counts, &[]);
    trial.fairness = Some(horolog_record::ClientFairness {
        clients: 1000,
        unanswered: 20,
        share_min: 0.0,
        share_median: 1.0,
        share_max: 1.0,
        jain_index: Some(0.98),
    });
    let findings = run_findings(&[TrialWithCounts::new(&trial, &counts)], &about());
    assert!(only(&findings, FindingCode::UnfairReplies).message.starts_with("2.0% of the clients"));
    trial.fairness = None;
    trial.compliant_clients = Some(horolog_record::CompliantClientsResult {
        clients: 100,
        interval_s: 16.0,
        burst: 1,
        sent: 50,
        received: 40,
        lost: 10,
        invalid: 0,
        clients_active: 50,
        clients_affected: 10,
        rtt_ns: None,
    });
    let findings = run_findings(&[TrialWithCounts::new(&trial, &counts)], &about());
    let message = &only(&findings, FindingCode::CompliantClientLoss).message;
    assert!(message.contains("lost 10 of 50 requests, 10 of 50 clients"), "{message}");
}
