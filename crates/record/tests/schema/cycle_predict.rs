//! The result of a prediction for tasks against its golden file, and any that the types allow.

use horolog_record::{
    CYCLE_PREDICT_SCHEMA, CyclePredictBound, CyclePredictCost, CyclePredictCostKind,
    CyclePredictMeasured, CyclePredictMethod, CyclePredictPercentile, CyclePredictResult,
    CyclePredictTask, CyclePredictTerm, CyclePredictTermKind, CyclePredictVerdict, TaskPolicy,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{Choices, check};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, finding, host, limit, number};

const PREDICTION: &str = include_str!("cycle_predict.json");

const WORSTS: Choices<CyclePredictPercentile, 6> = [
    (CyclePredictPercentile::P50, "p50"),
    (CyclePredictPercentile::P90, "p90"),
    (CyclePredictPercentile::P99, "p99"),
    (CyclePredictPercentile::P99_9, "p99-9"),
    (CyclePredictPercentile::P99_99, "p99-99"),
    (CyclePredictPercentile::Max, "max"),
];

const COSTS: Choices<CyclePredictCostKind, 6> = [
    (CyclePredictCostKind::Switch, "switch"),
    (CyclePredictCostKind::Release, "release"),
    (CyclePredictCostKind::Scheduler, "scheduler"),
    (CyclePredictCostKind::Interrupt, "interrupt"),
    (CyclePredictCostKind::Threads, "threads"),
    (CyclePredictCostKind::Message, "message"),
];

const POLICIES: Choices<TaskPolicy, 4> = [
    (TaskPolicy::Fifo, "fifo"),
    (TaskPolicy::Rr, "rr"),
    (TaskPolicy::Other, "other"),
    (TaskPolicy::Deadline, "deadline"),
];

const VERDICTS: Choices<CyclePredictVerdict, 3> = [
    (CyclePredictVerdict::Schedulable, "schedulable"),
    (CyclePredictVerdict::Unschedulable, "unschedulable"),
    (CyclePredictVerdict::Unknown, "unknown"),
];

const METHODS: Choices<CyclePredictMethod, 2> =
    [(CyclePredictMethod::Response, "response"), (CyclePredictMethod::Density, "density")];

const TERMS: Choices<CyclePredictTermKind, 9> = [
    (CyclePredictTermKind::Computation, "computation"),
    (CyclePredictTermKind::Communication, "communication"),
    (CyclePredictTermKind::Barrier, "barrier"),
    (CyclePredictTermKind::Interference, "interference"),
    (CyclePredictTermKind::Blocking, "blocking"),
    (CyclePredictTermKind::Release, "release"),
    (CyclePredictTermKind::Switches, "switches"),
    (CyclePredictTermKind::Scheduler, "scheduler"),
    (CyclePredictTermKind::Interrupts, "interrupts"),
];

fn result() -> impl Strategy<Value = CyclePredictResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), any::<u32>());
    let what = (chosen(WORSTS), vec(cost(), 0..3), vec(task(), 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, what, judged).prop_map(|(facts, what, (limits, findings))| {
        let (started, command, host, nodes) = facts;
        let (worst, costs, tasks) = what;
        CyclePredictResult {
            schema: CYCLE_PREDICT_SCHEMA.to_owned(),
            started,
            command,
            host,
            nodes,
            percentile: worst,
            costs,
            tasks,
            limits,
            findings,
        }
    })
}

fn cost() -> impl Strategy<Value = CyclePredictCost> {
    let figures = (any::<u64>(), option::of(any::<u64>()), option::of(any::<u64>()));
    let of = (option::of(any::<usize>()), option::of(chosen(WORSTS)), option::of(any::<u64>()));
    (chosen(COSTS), figures, of, any::<[String; 2]>()).prop_map(
        |(kind, (ns, every_ns, half_ns), (core, part, bytes), [source, figure])| CyclePredictCost {
            kind,
            core,
            ns,
            every_ns,
            part,
            bytes,
            half_ns,
            source,
            statistic: figure,
        },
    )
}

fn task() -> impl Strategy<Value = CyclePredictTask> {
    let schedule = (chosen(POLICIES), any::<u8>(), option::of(any::<usize>()));
    let judged = (chosen(VERDICTS), option::of(any::<String>()), chosen(METHODS));
    let bounds = (option::of(bound()), option::of(bound()), option::of(any::<i64>()));
    let what = (any::<String>(), any::<[u64; 2]>(), option::of(number()));
    let others = (vec(any::<String>(), 0..3), option::of(measured()));
    (what, schedule, judged, bounds, others).prop_map(
        |(what, schedule, judged, bounds, (before, measured))| {
            let (name, [period_ns, deadline_ns], utilisation) = what;
            let (policy, priority, core) = schedule;
            let (verdict, why, method) = judged;
            let (safe, printed, margin_ns) = bounds;
            CyclePredictTask {
                name,
                period_ns,
                deadline_ns,
                policy,
                priority,
                core,
                utilisation,
                verdict,
                reason: why,
                method,
                safe,
                as_published: printed,
                margin_ns,
                before,
                measured,
            }
        },
    )
}

fn measured() -> impl Strategy<Value = CyclePredictMeasured> {
    let figures = (option::of(any::<u64>()), option::of(any::<u64>()));
    (any::<[u64; 2]>(), figures, any::<String>()).prop_map(
        |([periods, missed], (execution_ns, response_ns), source)| CyclePredictMeasured {
            periods,
            missed,
            execution_ns,
            response_ns,
            source,
        },
    )
}

fn bound() -> impl Strategy<Value = CyclePredictBound> {
    let term = (chosen(TERMS), any::<u64>()).prop_map(|(kind, ns)| CyclePredictTerm { kind, ns });
    (any::<[u64; 2]>(), vec(term, 0..3), option::of(chosen(TERMS))).prop_map(
        |([response_ns, rounds], terms, dominant)| CyclePredictBound {
            response_ns,
            rounds,
            terms,
            dominant,
        },
    )
}

#[test]
fn each_choice_keeps_its_name() {
    check(WORSTS);
    check(COSTS);
    check(POLICIES);
    check(VERDICTS);
    check(METHODS);
    check(TERMS);
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: CyclePredictResult = read(PREDICTION);
    assert_eq!(written(&result), PREDICTION);
    assert_eq!(result.schema, CYCLE_PREDICT_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: CyclePredictResult = read(PREDICTION);
    let [first, second] = &result.tasks[..] else { panic!("two tasks") };
    let safe = first.safe.as_ref().unwrap();
    assert_eq!(safe.term_ns(CyclePredictTermKind::Interference), 2_000_000);
    assert_eq!(safe.term_ns(CyclePredictTermKind::Barrier), 0);
    assert!(first.used().is_some_and(|used| (used - 0.75).abs() < 1e-9));
    assert_eq!((second.used(), second.verdict), (None, CyclePredictVerdict::Unknown));
    assert_eq!(result.costs[1].half_ns, Some(20_000));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(PREDICTION);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<CyclePredictResult>(file).unwrap(), read(PREDICTION));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<CyclePredictResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, PREDICTION), Vec::<String>::new());
    }
}
