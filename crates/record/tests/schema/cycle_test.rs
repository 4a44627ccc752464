//! The result of a test of an application against its golden file, and any that the types allow.

use horolog_record::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestCount, CycleTestDetection,
    CycleTestDetectionKind, CycleTestFault, CycleTestFaultKind, CycleTestFirstDetection,
    CycleTestGrade, CycleTestNode, CycleTestResult, CycleTestRun, CycleTestScale, CycleTestScore,
    CycleTestSearch, CycleTestSource, CycleTestStage, CycleTestState, CycleTestTrial,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{Choices, SEARCH_ENDS, check};
use crate::cycle::scheduling;
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::host::conditions;
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const TEST: &str = include_str!("cycle_test.json");

const FAULTS: Choices<CycleTestFaultKind, 8> = [
    (CycleTestFaultKind::DataError, "data-error"),
    (CycleTestFaultKind::Lost, "lost"),
    (CycleTestFaultKind::Late, "late"),
    (CycleTestFaultKind::LostMessage, "lost-message"),
    (CycleTestFaultKind::LateMessage, "late-message"),
    (CycleTestFaultKind::Stop, "stop"),
    (CycleTestFaultKind::End, "end"),
    (CycleTestFaultKind::Slow, "slow"),
];

const NOTICES: Choices<CycleTestDetectionKind, 10> = [
    (CycleTestDetectionKind::DataError, "data-error"),
    (CycleTestDetectionKind::Lost, "lost"),
    (CycleTestDetectionKind::Late, "late"),
    (CycleTestDetectionKind::Repeated, "repeated"),
    (CycleTestDetectionKind::MessageMissing, "message-missing"),
    (CycleTestDetectionKind::MessageLate, "message-late"),
    (CycleTestDetectionKind::BarrierBroken, "barrier-broken"),
    (CycleTestDetectionKind::StragglerNode, "straggler-node"),
    (CycleTestDetectionKind::NodeTimeout, "node-timeout"),
    (CycleTestDetectionKind::DeadlineMissed, "deadline-missed"),
];

const SCALES: Choices<CycleTestScale, 5> = [
    (CycleTestScale::SwitchTime, "switch-time"),
    (CycleTestScale::InterruptTime, "interrupt-time"),
    (CycleTestScale::Granularity, "granularity"),
    (CycleTestScale::LoadStrategy, "load-strategy"),
    (CycleTestScale::MessageLatency, "message-latency"),
];

const GRADES: Choices<CycleTestGrade, 4> = [
    (CycleTestGrade::Excellent, "excellent"),
    (CycleTestGrade::Good, "good"),
    (CycleTestGrade::Fair, "fair"),
    (CycleTestGrade::Poor, "poor"),
];

fn result() -> impl Strategy<Value = CycleTestResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), application());
    let figures = (option::of(run()), option::of(search()), vec(score(), 0..2));
    let judged = (vec(limit(), 0..2), vec(finding(), 0..2));
    (facts, figures, judged).prop_map(|(facts, (run, search, scorecard), (limits, findings))| {
        let (started, command, host, application) = facts;
        CycleTestResult {
            schema: CYCLE_TEST_SCHEMA.to_owned(),
            started,
            command,
            host,
            application,
            run,
            search,
            scorecard,
            limits,
            findings,
        }
    })
}

fn application() -> impl Strategy<Value = CycleTestApplication> {
    (any::<String>(), any::<[u64; 3]>(), any::<u16>(), any::<[u32; 2]>()).prop_map(
        |(name, [period_ns, deadline_ns, slow_after_ns], nodes, [steady, node_timeout])| {
            CycleTestApplication {
                name,
                period_ns,
                deadline_ns,
                nodes,
                steady,
                response_limit_ns: slow_after_ns,
                node_timeout,
            }
        },
    )
}

fn run() -> impl Strategy<Value = CycleTestRun> {
    let facts = (number(), number(), conditions(), option::of(number()));
    let parts = (vec(node(), 0..2), vec(stage(), 0..2), vec(source(), 0..2));
    let rest = (vec(state(), 0..2), vec(fault(), 0..2), vec(noticed(), 0..2));
    (facts, parts, rest).prop_map(|(facts, (nodes, stages, sources), rest)| {
        let (load, elapsed_s, conditions, imbalance) = facts;
        let (states, faults, noticed) = rest;
        CycleTestRun {
            load,
            elapsed_s,
            conditions,
            nodes,
            stages,
            imbalance,
            sources,
            states,
            faults,
            detections: noticed,
        }
    })
}

fn node() -> impl Strategy<Value = CycleTestNode> {
    let facts = (any::<String>(), scheduling(), number(), option::of(any::<u64>()));
    let times = prop::array::uniform4(option::of(distribution()));
    (facts, any::<[u64; 5]>(), times, option::of(any::<String>())).prop_map(
        |((name, scheduling, unit_ns, latency_ns), counts, times, ended)| {
            let [planned, periods, missed, overrun, uncounted] = counts;
            let [response_ns, computation_ns, communication_ns, idle_ns] = times;
            CycleTestNode {
                name,
                scheduling,
                unit_ns,
                latency_ns,
                planned,
                periods,
                missed,
                overrun,
                uncounted,
                response_ns,
                computation_ns,
                communication_ns,
                idle_ns,
                ended,
            }
        },
    )
}

fn stage() -> impl Strategy<Value = CycleTestStage> {
    (any::<String>(), prop::array::uniform4(number())).prop_map(
        |(name, [computation_ns, communication_ns, idle_ns, barrier_ns])| CycleTestStage {
            name,
            computation_ns,
            communication_ns,
            idle_ns,
            barrier_ns,
        },
    )
}

fn source() -> impl Strategy<Value = CycleTestSource> {
    (any::<String>(), any::<[u64; 4]>(), number(), option::of(distribution())).prop_map(
        |(name, [due, sent, unsent, bytes], rate, lateness_ns)| CycleTestSource {
            name,
            due,
            sent,
            send_failed: unsent,
            bytes,
            rate,
            lateness_ns,
        },
    )
}

fn state() -> impl Strategy<Value = CycleTestState> {
    let times = [option::of(distribution()), option::of(distribution())];
    (any::<String>(), any::<[u64; 2]>(), times).prop_map(
        |(name, [periods, missed], [response_ns, execution_ns])| CycleTestState {
            name,
            periods,
            missed,
            response_ns,
            execution_ns,
        },
    )
}

fn fault() -> impl Strategy<Value = CycleTestFault> {
    let facts = (chosen(FAULTS), [option::of(any::<String>()), option::of(any::<String>())]);
    let times = (number(), [option::of(number()), option::of(number())]);
    let count =
        (chosen(NOTICES), any::<u64>()).prop_map(|(kind, count)| CycleTestCount { kind, count });
    let detected = (any::<u64>(), any::<String>(), chosen(NOTICES))
        .prop_map(|(after_ns, by, kind)| CycleTestFirstDetection { after_ns, by, kind });
    let detection =
        (any::<u64>(), vec(count, 0..2), option::of(detected), option::of(any::<u64>()));
    (facts, times, detection).prop_map(
        |((kind, [of, state]), (at_s, [for_s, first_s]), detection)| {
            let (injected, noticed, detected, recovered_after_ns) = detection;
            CycleTestFault {
                kind,
                of,
                at_s,
                duration_s: for_s,
                state,
                injected,
                first_s,
                detections: noticed,
                detected,
                recovered_after_ns,
            }
        },
    )
}

fn noticed() -> impl Strategy<Value = CycleTestDetection> {
    (chosen(NOTICES), any::<String>(), option::of(any::<String>()), any::<u64>())
        .prop_map(|(kind, by, of, count)| CycleTestDetection { kind, by, of, count })
}

fn search() -> impl Strategy<Value = CycleTestSearch> {
    let trial = ([number(), number(), number()], any::<[u64; 2]>()).prop_map(
        |([load, duration_s, sent_ratio], [planned, missed])| CycleTestTrial {
            load,
            duration_s,
            planned,
            missed,
            sent_ratio,
        },
    );
    let bounds = [option::of(number()), option::of(number())];
    ([number(), number(), number()], bounds, chosen(SEARCH_ENDS), vec(trial, 0..2)).prop_map(
        |([from, to, width], [lower, upper], end, trials)| CycleTestSearch {
            from,
            to,
            width,
            lower,
            upper,
            end,
            trials,
        },
    )
}

fn score() -> impl Strategy<Value = CycleTestScore> {
    let figures = [option::of(number()), option::of(number()), option::of(number())];
    let bounds = [number(), number(), number()];
    (chosen(SCALES), figures, any::<String>(), bounds, option::of(chosen(GRADES))).prop_map(
        |(scale, [value_ns, ratio, share], basis, bounds, grade)| CycleTestScore {
            scale,
            value_ns,
            ratio,
            basis,
            share,
            bounds,
            grade,
        },
    )
}

#[test]
fn each_choice_keeps_its_name() {
    check(FAULTS);
    check(NOTICES);
    check(SCALES);
    check(GRADES);
    assert_eq!(FAULTS.map(|(kind, _)| kind), CycleTestFaultKind::ALL);
    assert_eq!(FAULTS.map(|(_, name)| name), CycleTestFaultKind::ALL.map(CycleTestFaultKind::name));
    assert_eq!(NOTICES.map(|(kind, _)| kind), CycleTestDetectionKind::ALL);
    assert_eq!(SCALES.map(|(scale, _)| scale), CycleTestScale::ALL);
    assert_eq!(GRADES.map(|(_, name)| name), CycleTestGrade::ALL.map(CycleTestGrade::name));
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: CycleTestResult = read(TEST);
    assert_eq!(written(&result), TEST);
    assert_eq!(result.schema, CYCLE_TEST_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: CycleTestResult = read(TEST);
    let run = result.run.unwrap();
    let [stop] = &run.faults[..] else { panic!("one fault") };
    assert!(stop.has_recovered());
    assert_eq!(stop.noticed_as(CycleTestDetectionKind::NodeTimeout), 1);
    assert_eq!(result.search.unwrap().lower, Some(1.25));
    assert_eq!(result.scorecard[0].grade, Some(CycleTestGrade::Excellent));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(TEST);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<CycleTestResult>(file).unwrap(), read(TEST));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<CycleTestResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, TEST), Vec::<String>::new());
    }
}
