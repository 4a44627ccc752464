//! The result of measured delays against its golden file, and any that the types allow.

use horolog_record::{
    ClaimVerdict, DelayCell, DelayClaim, DelayKind, DelaySetting, HOST_DELAY_SCHEMA,
    HostDelayResult, InterruptedDelay,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{CLAIM_VERDICTS, DELAY_KINDS, DELAY_SLACKS, POLICIES, RESUMPTIONS};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::host_clock::tick;
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const DELAY: &str = include_str!("host_delay.json");

pub(crate) fn result() -> impl Strategy<Value = HostDelayResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), tick(), any::<u64>());
    let measured = (vec(setting(), 0..3), vec(cell(), 0..3), vec(interrupted(), 0..3));
    let judged = (vec(claim(), 0..3), vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, measured, judged).prop_map(|(facts, measured, judged)| {
        let (started, command, host, tick, own_cost_ns) = facts;
        let ((settings, cells, interrupted), (claims, limits, findings)) = (measured, judged);
        HostDelayResult {
            schema: HOST_DELAY_SCHEMA.to_owned(),
            started,
            command,
            host,
            tick,
            own_cost_ns,
            settings,
            cells,
            interrupted,
            claims,
            limits,
            findings,
        }
    })
}

fn setting() -> impl Strategy<Value = DelaySetting> {
    let rest = (option::of(any::<u64>()), option::of(any::<String>()));
    (chosen(POLICIES), chosen(DELAY_SLACKS), rest).prop_map(|(policy, slack, (slack_ns, error))| {
        DelaySetting { policy, slack, slack_ns, error }
    })
}

fn cell() -> impl Strategy<Value = DelayCell> {
    let call = (chosen(DELAY_KINDS), any::<usize>(), any::<[u64; 3]>());
    let measured = (option::of(distribution()), option::of(number()), option::of(any::<String>()));
    (call, measured).prop_map(|(call, (overshoot_ns, processor_ns, error))| {
        let (function, setting, [requested_ns, early, early_max_ns]) = call;
        DelayCell {
            function,
            setting,
            requested_ns,
            early,
            early_max_ns,
            overshoot_ns,
            processor_ns,
            error,
        }
    })
}

fn interrupted() -> impl Strategy<Value = InterruptedDelay> {
    (chosen(RESUMPTIONS), any::<[u64; 5]>(), any::<bool>()).prop_map(
        |(resumption, [requested_ns, took_ns, interruptions, calls, processor_ns], ended)| {
            InterruptedDelay {
                resumption,
                requested_ns,
                duration_ns: took_ns,
                ended,
                interruptions,
                calls,
                processor_ns,
            }
        },
    )
}

fn claim() -> impl Strategy<Value = DelayClaim> {
    let texts: [_; 3] = std::array::from_fn(|_| any::<String>());
    (texts, chosen(CLAIM_VERDICTS)).prop_map(|([id, statement, figure], verdict)| DelayClaim {
        id,
        statement,
        verdict,
        evidence: figure,
    })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostDelayResult = read(DELAY);
    assert_eq!(written(&result), DELAY);
    assert_eq!(result.schema, HOST_DELAY_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostDelayResult = read(DELAY);
    assert_eq!(result.cells[0].function, DelayKind::Nanosleep);
    assert_eq!((result.cells[0].requested_ns, result.cells[0].setting), (1_000, 0));
    assert_eq!(result.claims[0].verdict, ClaimVerdict::Fails);
    assert!(result.settings[1].error.is_some());
}

#[test]
fn a_function_has_one_name_everywhere() {
    for kind in DelayKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(DELAY);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostDelayResult>(file).unwrap(), read(DELAY));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostDelayResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, DELAY), Vec::<String>::new());
    }
}
