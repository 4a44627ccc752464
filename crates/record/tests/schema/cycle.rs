//! The result of a run of periodic tasks against its golden file, and any that the types allow.

use horolog_record::{
    CYCLE_SCHEMA, CycleBucket, CycleClock, CycleCost, CycleNode, CycleOverhead, CycleResult,
    CycleRun, CycleServed, CycleSharedTask, CycleSignal, CycleSignalStats, CycleSpeedup,
    CycleState, CycleStep, CycleTask, TaskPolicy, TaskScheduling,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{CYCLE_SIGNALS, TASK_POLICIES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::host::conditions;
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const CYCLE: &str = include_str!("cycle.json");

fn result() -> impl Strategy<Value = CycleResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), chosen(CYCLE_SIGNALS));
    let judged = (vec(limit(), 0..2), vec(finding(), 0..2));
    (facts, vec(run(), 0..2), vec(speedup(), 0..2), judged).prop_map(
        |((started, command, host, signal), runs, speedups, (limits, findings))| CycleResult {
            schema: CYCLE_SCHEMA.to_owned(),
            started,
            command,
            host,
            signal,
            runs,
            speedups,
            limits,
            findings,
        },
    )
}

fn run() -> impl Strategy<Value = CycleRun> {
    let facts = (option::of(chosen(TASK_POLICIES)), option::of(sent()), number());
    (facts, vec(node(), 0..2), vec(shared(), 0..2)).prop_map(
        |((policy, sent, elapsed_s), nodes, shared)| CycleRun {
            policy,
            sent,
            elapsed_s,
            nodes,
            shared,
        },
    )
}

fn sent() -> impl Strategy<Value = CycleSignalStats> {
    (any::<[u64; 2]>(), option::of(distribution())).prop_map(|([packets, failed], lateness_ns)| {
        CycleSignalStats { packets, failed, lateness_ns }
    })
}

fn speedup() -> impl Strategy<Value = CycleSpeedup> {
    let facts = (option::of(chosen(TASK_POLICIES)), any::<String>(), any::<usize>());
    (facts, [number(), number(), number()]).prop_map(
        |((policy, task, nodes), [span_ns, speedup, efficiency])| CycleSpeedup {
            policy,
            task,
            nodes,
            span_ns,
            speedup,
            efficiency,
        },
    )
}

fn node() -> impl Strategy<Value = CycleNode> {
    let clock =
        any::<(i64, u64)>().prop_map(|(ahead_ns, error_ns)| CycleClock { ahead_ns, error_ns });
    let clocks = (option::of(any::<i64>()), vec(clock, 0..2));
    (any::<String>(), option::of(host()), conditions(), clocks, vec(task(), 0..2)).prop_map(
        |(name, host, conditions, (clock_injected_ns, clocks), tasks)| CycleNode {
            name,
            host,
            conditions,
            injected_offset_ns: clock_injected_ns,
            clocks,
            tasks,
        },
    )
}

fn task() -> impl Strategy<Value = CycleTask> {
    let load = (option::of(number()), option::of(any::<u64>()));
    let facts = (any::<String>(), scheduling(), any::<[u64; 2]>(), load);
    let times = prop::array::uniform7(option::of(distribution()));
    let details = (option::of(any::<String>()), vec(state(), 0..2));
    let rest = (overhead(), option::of(served()), details, vec(stretch(), 0..2));
    (facts, any::<[u64; 11]>(), times, rest).prop_map(|(facts, counts, times, rest)| {
        let (name, scheduling, [clock_ns, period_cost_ns], (unit_ns, units)) = facts;
        let [
            period_ns,
            deadline_ns,
            planned,
            periods,
            missed,
            overrun,
            uncounted,
            unreleased,
            failed,
            lost,
            broken,
        ] = counts;
        let [
            lateness_ns,
            execution_ns,
            response_ns,
            computation_ns,
            communication_ns,
            idle_ns,
            barrier_ns,
        ] = times;
        let (overhead, served, (fault, states), series) = rest;
        CycleTask {
            name,
            period_ns,
            deadline_ns,
            scheduling,
            cost: CycleCost { clock_ns, period_ns: period_cost_ns },
            unit_ns,
            units,
            planned,
            periods,
            missed,
            overrun,
            uncounted,
            unreleased,
            failed,
            messages_missing: lost,
            barriers_broken: broken,
            start_latency_ns: lateness_ns,
            execution_ns,
            response_ns,
            computation_ns,
            communication_ns,
            idle_ns,
            barrier_ns,
            overhead,
            served,
            failure: fault,
            states,
            series,
        }
    })
}

fn state() -> impl Strategy<Value = CycleState> {
    let times = [option::of(distribution()), option::of(distribution())];
    (any::<String>(), any::<[u64; 2]>(), times).prop_map(
        |(name, [periods, missed], [execution_ns, response_ns])| CycleState {
            name,
            periods,
            missed,
            execution_ns,
            response_ns,
        },
    )
}

pub(crate) fn scheduling() -> impl Strategy<Value = TaskScheduling> {
    let policies = (chosen(TASK_POLICIES), chosen(TASK_POLICIES));
    (policies, any::<u8>(), option::of(any::<usize>()), option::of(any::<String>())).prop_map(
        |((requested, policy), priority, core, error)| TaskScheduling {
            requested,
            policy,
            priority,
            core,
            error,
        },
    )
}

fn overhead() -> impl Strategy<Value = CycleOverhead> {
    prop::array::uniform4(number()).prop_map(|[latency_ns, volume_ns, idle_ns, system_ns]| {
        CycleOverhead {
            communication_latency_ns: latency_ns,
            communication_volume_ns: volume_ns,
            idle_ns,
            system_ns,
        }
    })
}

fn served() -> impl Strategy<Value = CycleServed> {
    (any::<[u64; 3]>(), option::of(distribution())).prop_map(
        |([events, left, left_max], response_ns)| CycleServed {
            events,
            backlog: left,
            backlog_max: left_max,
            response_ns,
        },
    )
}

fn stretch() -> impl Strategy<Value = CycleBucket> {
    ([number(), number(), number()], any::<[u64; 2]>()).prop_map(
        |([at_s, ratio_mean, ratio_max], [lateness_max_ns, missed])| CycleBucket {
            at_s,
            ratio_mean,
            ratio_max,
            start_latency_max_ns: lateness_max_ns,
            missed,
        },
    )
}

fn shared() -> impl Strategy<Value = CycleSharedTask> {
    let step = [number(), number(), number()].prop_map(
        |[computation_max_ns, communication_max_ns, barrier_ns]| CycleStep {
            computation_max_ns,
            communication_max_ns,
            barrier_ns,
        },
    );
    let counts = (any::<u64>(), vec(any::<u64>(), 0..3));
    (any::<String>(), counts, prop::array::uniform4(number()), vec(step, 0..2)).prop_map(
        |(task, (periods, awaited), [imbalance, waited_ns, span_ns, predicted_ns], steps)| {
            CycleSharedTask {
                task,
                periods,
                imbalance,
                straggler_periods: awaited,
                waited_ns,
                span_ns,
                steps,
                predicted_ns,
            }
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: CycleResult = read(CYCLE);
    assert_eq!(written(&result), CYCLE);
    assert_eq!(result.schema, CYCLE_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: CycleResult = read(CYCLE);
    let [run] = &result.runs[..] else { panic!("one run") };
    assert_eq!((result.signal, run.policy), (CycleSignal::Utc, Some(TaskPolicy::Fifo)));
    let [first, second] = &run.nodes[..] else { panic!("two nodes") };
    assert_eq!((first.tasks[0].missed, first.tasks[0].overrun), (2, 1));
    assert_eq!(second.clocks[0].ahead_ns, -1_742);
    assert_eq!(run.shared[0].straggler_periods, [3, 297]);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(CYCLE);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<CycleResult>(file).unwrap(), read(CYCLE));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<CycleResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, CYCLE), Vec::<String>::new());
    }
}
