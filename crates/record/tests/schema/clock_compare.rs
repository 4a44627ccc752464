//! The result of a comparison of clocks against its golden file, and any that the types allow.

use horolog_record::{
    CLOCK_COMPARE_SCHEMA, ClockCompareResult, ClockSample, ClockStep, ComparedClock, ComparedKind,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::COMPARED_KINDS;
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::query::{allan, drift, figures};
use crate::strategies::{chosen, finding, host, limit};

const COMPARISON: &str = include_str!("clock_compare.json");

fn comparison() -> impl Strategy<Value = ClockCompareResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), any::<[u64; 2]>());
    let step = any::<(u64, i64)>().prop_map(|(slot, step_ns)| ClockStep { slot, step_ns });
    let outcome = (vec(clock(), 0..3), vec(step, 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, outcome, judged).prop_map(|(facts, (clocks, steps), (limits, findings))| {
        let (started, command, host, [interval_ns, count]) = facts;
        let schema = CLOCK_COMPARE_SCHEMA.to_owned();
        ClockCompareResult {
            schema,
            started,
            command,
            host,
            interval_ns,
            count,
            clocks,
            steps,
            limits,
            findings,
        }
    })
}

fn clock() -> impl Strategy<Value = ComparedClock> {
    let named = (any::<String>(), chosen(COMPARED_KINDS), any::<bool>());
    let lost = (any::<u64>(), option::of(any::<String>()));
    let measured = (option::of(figures()), option::of(figures()), option::of(drift()));
    let sample = any::<(u64, i64, i64, Option<u64>)>().prop_map(
        |(slot, at_ns, offset_ns, error_bound_ns)| ClockSample {
            slot,
            at_ns,
            offset_ns,
            error_bound_ns,
        },
    );
    let rest = (vec(allan(), 0..3), vec(sample, 0..3));
    (named, lost, measured, rest).prop_map(|(named, lost, measured, (allan, samples))| {
        let ((name, kind, from_first), (missed, error)) = (named, lost);
        let (offset_ns, error_bound_ns, drift) = measured;
        ComparedClock {
            name,
            kind,
            from_first,
            missed,
            error,
            offset_ns,
            error_bound_ns,
            drift,
            allan,
            samples,
        }
    })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: ClockCompareResult = read(COMPARISON);
    assert_eq!(written(&result), COMPARISON);
    assert_eq!(result.schema, CLOCK_COMPARE_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: ClockCompareResult = read(COMPARISON);
    let kinds: Vec<_> = result.clocks.iter().map(|clock| clock.kind).collect();
    assert_eq!(kinds, [ComparedKind::Kernel, ComparedKind::Pps]);
    let sample = result.clocks[1].samples[0];
    assert_eq!((sample.slot, sample.offset_ns, sample.error_bound_ns), (1, -250, None));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(COMPARISON);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<ClockCompareResult>(file).unwrap(), read(COMPARISON));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in comparison()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<ClockCompareResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in comparison()) {
        prop_assert_eq!(new_names(&result, COMPARISON), Vec::<String>::new());
    }
}
