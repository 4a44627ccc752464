//! The result of a run of expiries and a spin against its golden file, and any that the types
//! allow.

use horolog_record::{
    HOST_INTERRUPT_SCHEMA, HandlerDelay, HandlerRepetition, HostInterruptResult, OsNoise,
    OsNoiseGap, OsNoiseShare,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::HANDLER_KINDS;
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::host::{conditions, scheduling};
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const INTERRUPT: &str = include_str!("host_interrupt.json");

pub(crate) fn result() -> impl Strategy<Value = HostInterruptResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), conditions());
    let measured = (any::<[u64; 4]>(), vec(handler(), 0..3), vec(stolen(), 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, measured, judged).prop_map(|(facts, measured, (limits, findings))| {
        let (started, command, host, conditions) = facts;
        let (numbers, handlers, stolen) = measured;
        let [expiries, distance_min_ns, distance_max_ns, clock_ns] = numbers;
        HostInterruptResult {
            schema: HOST_INTERRUPT_SCHEMA.to_owned(),
            started,
            command,
            host,
            conditions,
            expiries,
            distance_min_ns,
            distance_max_ns,
            clock_ns,
            handlers,
            os_noise: stolen,
            limits,
            findings,
        }
    })
}

fn handler() -> impl Strategy<Value = HandlerDelay> {
    let repetition =
        (any::<[u64; 3]>(), number()).prop_map(|([count, p99_ns, max_ns], mean_ns)| {
            HandlerRepetition { count, mean_ns, p99_ns, max_ns }
        });
    let what = (any::<usize>(), chosen(HANDLER_KINDS), scheduling());
    let measured = (vec(repetition, 0..3), option::of(distribution()));
    let lost = (any::<u64>(), option::of(any::<String>()));
    (what, measured, lost).prop_map(|((core, kind, scheduling), measured, (elsewhere, error))| {
        let (repetitions, delay_ns) = measured;
        HandlerDelay { core, kind, scheduling, repetitions, delay_ns, elsewhere, error }
    })
}

fn stolen() -> impl Strategy<Value = OsNoise> {
    let part = || {
        any::<[u64; 3]>().prop_map(|[gaps, total_ns, max_ns]| OsNoiseShare {
            gaps,
            total_ns,
            max_ns,
        })
    };
    let gap = (number(), any::<u64>(), any::<bool>())
        .prop_map(|(at_s, length_ns, by_threads)| OsNoiseGap { at_s, length_ns, by_threads });
    let counters: [_; 4] = std::array::from_fn(|_| option::of(any::<u64>()));
    let gaps = (option::of(distribution()), vec(gap, 0..3));
    (any::<usize>(), any::<[u64; 3]>(), [part(), part(), part()], gaps, counters).prop_map(
        |(core, times, parts, (gap_ns, longest), counters)| {
            let [duration_ns, turn_ns, threshold_ns] = times;
            let [all, by_threads, by_others] = parts;
            let [run_delay_ns, steal_ns, interrupts, system_management] = counters;
            OsNoise {
                core,
                duration_ns,
                turn_ns,
                threshold_ns,
                all,
                by_threads,
                by_others,
                gap_ns,
                longest,
                run_delay_ns,
                steal_ns,
                interrupts,
                system_management,
            }
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostInterruptResult = read(INTERRUPT);
    assert_eq!(written(&result), INTERRUPT);
    assert_eq!(result.schema, HOST_INTERRUPT_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostInterruptResult = read(INTERRUPT);
    let [handler, missing] = &result.handlers[..] else { panic!("two handlers") };
    assert_eq!((handler.repetitions[0].count, handler.elsewhere), (1_000, 2));
    assert!(missing.delay_ns.is_none() && missing.error.is_some());
    let core = &result.os_noise[0];
    assert_eq!((core.all.gaps, core.by_threads.gaps, core.by_others.gaps), (90, 50, 40));
    assert_eq!((core.interrupts, core.system_management), (Some(271), Some(1)));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(INTERRUPT);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostInterruptResult>(file).unwrap(), read(INTERRUPT));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostInterruptResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, INTERRUPT), Vec::<String>::new());
    }
}
