//! Verdicts and worst findings of records that are made here.

use std::time::Duration;

use horolog_record::{
    CoreWakeupLatency, Distribution, Host, HostClockResult, HostConditions, HostInterruptResult,
    OsNoiseGapSummary, SchedulingPolicy, ThreadScheduling, TimerMeasurementCost,
};
use horolog_stats::Histogram;

use super::super::{HostAllOptions, empty_result, outcome_without_record};
use super::*;

fn timer(p99_ns: &[u64]) -> HostTimerResult {
    let core = |(core, p99_ns): (usize, &u64)| {
        let mut histogram = Histogram::new();
        histogram.record(*p99_ns);
        CoreWakeupLatency {
            core,
            scheduling: ThreadScheduling {
                policy: SchedulingPolicy::Fifo,
                priority: 80,
                error: None,
                timer_slack_ns: None,
            },
            cost: TimerMeasurementCost { clock_ns: 27, cycle_ns: 31, past_ns: 3_000 },
            missed: 0,
            latency_ns: Distribution::from_histogram(&histogram),
            series: Vec::new(),
        }
    };
    HostTimerResult {
        schema: String::new(),
        started: String::new(),
        command: Vec::new(),
        host: Host::default(),
        conditions: HostConditions::default(),
        interval_ns: 1_000_000,
        planned: 1,
        cores: p99_ns.iter().enumerate().map(core).collect(),
        break_above_ns: None,
        limit_exceeded: None,
        limits: Vec::new(),
        findings: Vec::new(),
    }
}

fn interrupt(findings: Vec<Finding>) -> HostInterruptResult {
    HostInterruptResult {
        schema: String::new(),
        started: String::new(),
        command: Vec::new(),
        host: Host::default(),
        conditions: HostConditions::default(),
        expiries: 1,
        distance_min_ns: 1,
        distance_max_ns: 2,
        clock_ns: 27,
        handlers: Vec::new(),
        os_noise: Vec::new(),
        limits: Vec::new(),
        findings,
    }
}

fn clock(findings: Vec<Finding>) -> HostClockResult {
    HostClockResult {
        schema: String::new(),
        started: String::new(),
        command: Vec::new(),
        host: Host::default(),
        tick: horolog_record::TickFacts::default(),
        clocksource: horolog_record::ClocksourceFacts::default(),
        clocks: Vec::new(),
        system_call_ns: None,
        observed_ns: 1,
        cores: None,
        rtcs: Vec::new(),
        phcs: Vec::new(),
        kernel: None,
        waking: horolog_record::WakeupFacts::default(),
        findings,
    }
}

fn sample_finding(code: FindingCode, severity: Severity, message: &str) -> Finding {
    finding(code, severity, message.to_owned(), "Do something.")
}

/// A host of which all that is needed was measured, with nothing to say against it.
fn measured() -> HostAllResult {
    let mut result = empty_result(&HostAllOptions {
        time: Duration::from_mins(1),
        parts: HostMeasurementKind::ALL.to_vec(),
        priority: None,
        hold_awake: false,
        command: Vec::new(),
    });
    result.clock = Some(clock(Vec::new()));
    result.timer = Some(timer(&[9_000, 20_000]));
    result.interrupt = Some(taken_of(&[0, 0]));
    result
}

fn judged(mut result: HostAllResult) -> HostAllResult {
    judge(&mut result);
    result
}

fn codes(result: &HostAllResult) -> Vec<FindingCode> {
    result.worst_findings.iter().map(|one| one.finding.code).collect()
}

#[test]
fn the_most_severe_finding_is_the_verdict() {
    assert_eq!(judged(measured()).verdict, HostVerdict::Fit);
    for (severity, verdict) in [
        (Severity::Note, HostVerdict::Fit),
        (Severity::Warning, HostVerdict::Marginal),
        (Severity::Error, HostVerdict::Unfit),
    ] {
        let mut result = measured();
        result.clock = Some(clock(vec![sample_finding(
            FindingCode::ClockBackwards,
            severity,
            "It went back.",
        )]));
        assert_eq!(judged(result).verdict, verdict, "{severity:?}");
    }
}

#[test]
fn late_wakeups_are_reported_of_the_worst_core() {
    for (p99_ns, verdict) in [
        (100_000, HostVerdict::Fit),
        (110_000, HostVerdict::Marginal),
        (999_000, HostVerdict::Marginal),
        (1_100_000, HostVerdict::Unfit),
    ] {
        let mut result = measured();
        result.timer = Some(timer(&[p99_ns, 9_000]));
        let result = judged(result);
        assert_eq!(result.verdict, verdict, "{p99_ns}");
        if verdict != HostVerdict::Fit {
            let [late] = &result.findings[..] else { panic!("one finding: {:?}", result.findings) };
            assert!(late.message.contains("Core 0 wakes up"), "{late:?}");
            assert_eq!(result.worst_findings[0].part, Some(HostMeasurementKind::Timer));
        }
    }
}

#[test]
fn the_worst_are_by_severity_and_then_by_part() {
    let mut result = measured();
    let stolen = |core: usize| {
        sample_finding(FindingCode::OsNoise, Severity::Warning, &format!("Core {core}."))
    };
    let unlocked = sample_finding(FindingCode::MemoryNotLocked, Severity::Note, "Memory.");
    result.interrupt = Some(interrupt(vec![unlocked.clone(), stolen(1), stolen(0)]));
    let mut late = timer(&[5_000_000]);
    late.findings =
        vec![unlocked, sample_finding(FindingCode::PeriodsMissed, Severity::Warning, "Missed.")];
    result.timer = Some(late);
    result.clock = Some(clock(vec![
        sample_finding(FindingCode::TaiUnknown, Severity::Note, "TAI."),
        sample_finding(FindingCode::ClockSlow, Severity::Warning, "Slow."),
    ]));
    let result = judged(result);
    assert_eq!(
        codes(&result),
        [FindingCode::WakeupLatencyHigh, FindingCode::ClockSlow, FindingCode::OsNoise]
    );
    let stolen = &result.worst_findings[2];
    assert_eq!((stolen.others, &*stolen.finding.message), (1, "Core 1."));
    assert_eq!(stolen.part, Some(HostMeasurementKind::Interrupt));
}

#[test]
fn a_finding_of_several_parts_is_reported_once() {
    let mut result = measured();
    let refused = sample_finding(FindingCode::RealTimeRefused, Severity::Warning, "Refused.");
    result.interrupt = Some(interrupt(vec![refused.clone()]));
    let mut ordinary = timer(&[9_000]);
    ordinary.findings = vec![refused];
    result.timer = Some(ordinary);
    let result = judged(result);
    assert_eq!(
        (codes(&result), result.worst_findings[0].others),
        (vec![FindingCode::RealTimeRefused], 1)
    );
}

#[test]
fn an_unmeasured_part_is_a_finding_and_leaves_no_verdict() {
    let mut result = measured();
    result.timer = None;
    let why = vec!["no core".to_owned()];
    result.parts.push(outcome_without_record(
        HostMeasurementKind::Timer,
        HostMeasurementState::Failed,
        why,
    ));
    result.parts.push(outcome_without_record(
        HostMeasurementKind::Delay,
        HostMeasurementState::Skipped,
        Vec::new(),
    ));
    let result = judged(result);
    assert_eq!(result.verdict, HostVerdict::Unjudged);
    let severities: Vec<_> = result.findings.iter().map(|one| one.severity).collect();
    assert_eq!(severities, [Severity::Warning, Severity::Note]);
    assert!(result.findings[0].message.contains("'timer' returned no values: no core."));

    let mut nothing = measured();
    (nothing.clock, nothing.timer, nothing.interrupt) = (None, None, None);
    assert_eq!(judged(nothing).verdict, HostVerdict::Unjudged);
}

#[test]
fn what_decides_has_to_be_measured_to_its_end() {
    let verdict = |change: fn(&mut HostAllResult)| {
        let mut result = measured();
        result.clock =
            Some(clock(vec![sample_finding(FindingCode::ClockSlow, Severity::Warning, "Slow.")]));
        change(&mut result);
        judged(result).verdict
    };
    let without_one = |part, state| outcome_without_record(part, state, Vec::new());
    assert_eq!(verdict(|_| ()), HostVerdict::Marginal);
    assert_eq!(verdict(|all| all.timer = None), HostVerdict::Unjudged);
    assert_eq!(verdict(|all| all.timer = Some(timer(&[]))), HostVerdict::Unjudged);
    let no_stolen = verdict(|all| all.interrupt = Some(interrupt(Vec::new())));
    assert_eq!(no_stolen, HostVerdict::Unjudged);
    let mut cut = measured();
    cut.parts.push(without_one(HostMeasurementKind::Timer, HostMeasurementState::Interrupted));
    cut.parts.push(without_one(HostMeasurementKind::Nic, HostMeasurementState::NotBegun));
    let cut = judged(cut);
    assert_eq!(cut.verdict, HostVerdict::Unjudged);
    assert!(cut.findings[0].message.contains("was interrupted"), "{:?}", cut.findings);
    assert!(cut.findings[1].message.contains("'nic' was not started"), "{:?}", cut.findings);
    let bad = verdict(|all| {
        all.timer = None;
        let back = sample_finding(FindingCode::ClockBackwards, Severity::Error, "It went back.");
        all.clock = Some(clock(vec![back]));
    });
    assert_eq!(bad, HostVerdict::Unfit, "what was measured is enough to say no");
}

#[test]
fn a_part_reports_what_it_lacked() {
    assert_eq!(part_state(&[]), (HostMeasurementState::Measured, Vec::new()));
    let refused = sample_finding(FindingCode::RealTimeRefused, Severity::Warning, "Refused.");
    let missed = sample_finding(FindingCode::PeriodsMissed, Severity::Warning, "Missed.");
    let lacked = vec!["Refused.".to_owned()];
    assert_eq!(
        part_state(&[missed.clone(), refused.clone()]),
        (HostMeasurementState::Reduced, lacked)
    );
    let ended = sample_finding(FindingCode::Interrupted, Severity::Note, "Ended.");
    let (state, why) = part_state(&[refused, ended]);
    assert_eq!((state, why), (HostMeasurementState::Interrupted, vec!["Ended.".to_owned()]));
}

/// Cores of which others took so much, in percent, with the findings of the part itself.
fn taken_of(percent: &[u64]) -> HostInterruptResult {
    let part = |total_ns| OsNoiseGapSummary { gaps: 1, total_ns, max_ns: total_ns };
    let core = |(core, percent): (usize, &u64)| OsNoise {
        core,
        duration_ns: 1_000_000_000,
        turn_ns: 30,
        threshold_ns: 2_000,
        all: part(percent * 10_000_000),
        by_threads: part(percent * 10_000_000),
        by_others: part(0),
        gap_ns: None,
        longest: Vec::new(),
        run_delay_ns: None,
        steal_ns: None,
        interrupts: None,
        system_management: None,
    };
    let stolen: Vec<_> = percent.iter().enumerate().map(core).collect();
    let findings = stolen.iter().filter_map(noise_finding).collect();
    HostInterruptResult { os_noise: stolen, ..interrupt(findings) }
}

#[test]
fn a_core_of_which_a_tenth_is_taken_makes_a_host_unfit() {
    let of = |percent: &[u64]| {
        judged(HostAllResult { interrupt: Some(taken_of(percent)), ..measured() })
    };
    assert_eq!(of(&[0, 0]).verdict, HostVerdict::Fit);
    let marginal = of(&[2, 10]);
    assert_eq!((marginal.verdict, marginal.findings.len()), (HostVerdict::Marginal, 0));
    let unfit = of(&[11, 40]);
    assert_eq!(unfit.verdict, HostVerdict::Unfit);
    let worst = &unfit.worst_findings[0];
    assert!(worst.finding.message.starts_with("Core 1 was taken for 40"), "{worst:?}");
    assert_eq!(
        (worst.part, worst.finding.severity),
        (Some(HostMeasurementKind::Interrupt), Severity::Error)
    );
    // The other core is told with it, and the part's warnings of both are not told again.
    assert_eq!((worst.others, unfit.worst_findings.len()), (1, 1), "{:?}", unfit.worst_findings);
    let parted = of(&[2, 40]);
    assert!(
        parted.worst_findings[1].finding.message.starts_with("Core 0"),
        "{:?}",
        parted.worst_findings
    );
}
