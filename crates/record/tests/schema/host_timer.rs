//! The result of a run of wake-ups against its golden file, and any that the types allow.

use horolog_record::{
    HOST_TIMER_SCHEMA, HostTimerResult, SchedulingPolicy, TimerBreak, TimerCore, TimerCost,
    TimerStretch,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::host::{conditions, scheduling};
use crate::strategies::{distribution, finding, host, limit, number};

const TIMER: &str = include_str!("host_timer.json");

pub(crate) fn result() -> impl Strategy<Value = HostTimerResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), conditions());
    let settings = (any::<[u64; 2]>(), option::of(any::<u64>()), option::of(broken()));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, settings, vec(core(), 0..3), judged).prop_map(|(facts, settings, cores, judged)| {
        let (started, command, host, conditions) = facts;
        let ([interval_ns, planned], break_above_ns, broken_by) = settings;
        let (limits, findings) = judged;
        HostTimerResult {
            schema: HOST_TIMER_SCHEMA.to_owned(),
            started,
            command,
            host,
            conditions,
            interval_ns,
            planned,
            cores,
            break_above_ns,
            limit_exceeded: broken_by,
            limits,
            findings,
        }
    })
}

fn core() -> impl Strategy<Value = TimerCore> {
    let cost = any::<[u64; 3]>().prop_map(|[clock_ns, cycle_ns, past_ns]| TimerCost {
        clock_ns,
        cycle_ns,
        past_ns,
    });
    let stretch = (number(), any::<u64>()).prop_map(|(at_s, max_ns)| TimerStretch { at_s, max_ns });
    let measured = (any::<u64>(), option::of(distribution()), vec(stretch, 0..3));
    (any::<usize>(), scheduling(), cost, measured).prop_map(
        |(core, scheduling, cost, (missed, latency_ns, series))| TimerCore {
            core,
            scheduling,
            cost,
            missed,
            latency_ns,
            series,
        },
    )
}

fn broken() -> impl Strategy<Value = TimerBreak> {
    (any::<usize>(), any::<u64>(), number(), any::<u64>())
        .prop_map(|(core, cycle, at_s, latency_ns)| TimerBreak { core, cycle, at_s, latency_ns })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostTimerResult = read(TIMER);
    assert_eq!(written(&result), TIMER);
    assert_eq!(result.schema, HOST_TIMER_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostTimerResult = read(TIMER);
    let [first, second] = &result.cores[..] else { panic!("two cores") };
    assert_eq!((first.core, first.missed, first.cost.past_ns), (0, 3, 3_100));
    assert_eq!(first.scheduling.policy, SchedulingPolicy::Fifo);
    assert_eq!(second.scheduling.timer_slack_ns, Some(50_000));
    assert_eq!(result.limit_exceeded.unwrap().latency_ns, 5_100_000);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(TIMER);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostTimerResult>(file).unwrap(), read(TIMER));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostTimerResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, TIMER), Vec::<String>::new());
    }
}
