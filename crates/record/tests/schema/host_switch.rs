//! The result of a run of switches against its golden file, and any that the types allow.

use horolog_record::{
    ExchangeRepetition, HOST_SWITCH_SCHEMA, HostSwitchResult, StepsRepetition, SwitchExchange,
    SwitchSteps,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{SWITCH_PARTNERS, SWITCH_PLACEMENTS, SWITCH_WAYS};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::host::{conditions, scheduling};
use crate::strategies::{chosen, distribution, finding, host, limit, number};

const SWITCH: &str = include_str!("host_switch.json");

pub(crate) fn result() -> impl Strategy<Value = HostSwitchResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), conditions());
    let settings = (scheduling(), vec(any::<usize>(), 0..3), any::<[u64; 2]>());
    let measured = (vec(steps(), 0..3), vec(exchange(), 0..3));
    let judged = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, settings, measured, judged).prop_map(|(facts, settings, measured, judged)| {
        let (started, command, host, conditions) = facts;
        let (scheduling, cores, [turns, clock_ns]) = settings;
        let ((steps, exchanges), (limits, findings)) = (measured, judged);
        HostSwitchResult {
            schema: HOST_SWITCH_SCHEMA.to_owned(),
            started,
            command,
            host,
            conditions,
            scheduling,
            cores,
            turns,
            clock_ns,
            steps,
            exchanges,
            limits,
            findings,
        }
    })
}

fn steps() -> impl Strategy<Value = SwitchSteps> {
    let figures = (option::of(number()), option::of(number()));
    let repetition = (any::<[u64; 3]>(), figures).prop_map(
        |([loop_ns, turns_ns, switches], (per_switch_ns, document_ns))| StepsRepetition {
            loop_ns,
            turns_ns,
            switches,
            per_switch_ns,
            paper_ns: document_ns,
        },
    );
    let medians = (option::of(number()), option::of(number()), option::of(any::<String>()));
    (chosen(SWITCH_PARTNERS), vec(repetition, 0..3), medians).prop_map(
        |(peer, repetitions, (per_switch_ns, document_ns, error))| SwitchSteps {
            peer,
            repetitions,
            per_switch_ns,
            paper_ns: document_ns,
            error,
        },
    )
}

fn exchange() -> impl Strategy<Value = SwitchExchange> {
    let repetition = (number(), number(), number(), option::of(number())).prop_map(
        |(alone_ns, turn_ns, switches_per_turn, per_switch_ns)| ExchangeRepetition {
            baseline_ns: alone_ns,
            turn_ns,
            switches_per_turn,
            per_switch_ns,
        },
    );
    let what = (chosen(SWITCH_WAYS), chosen(SWITCH_PARTNERS), chosen(SWITCH_PLACEMENTS));
    let medians = (option::of(number()), option::of(number()), option::of(any::<String>()));
    (what, vec(repetition, 0..3), medians, option::of(distribution())).prop_map(
        |((way, peer, placement), repetitions, medians, turn_ns)| {
            let (turn_mean_ns, per_switch_ns, error) = medians;
            SwitchExchange {
                mechanism: way,
                peer,
                placement,
                repetitions,
                turn_mean_ns,
                per_switch_ns,
                turn_ns,
                error,
            }
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostSwitchResult = read(SWITCH);
    assert_eq!(written(&result), SWITCH);
    assert_eq!(result.schema, HOST_SWITCH_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostSwitchResult = read(SWITCH);
    let steps = &result.steps[0];
    assert_eq!((steps.repetitions[0].loop_ns, steps.repetitions[0].switches), (1_000_000, 5_000));
    assert_eq!((steps.per_switch_ns, steps.paper_ns), (Some(800.0), Some(1_800.0)));
    assert_eq!(steps.repetitions[1].per_switch_ns, None);
    assert_eq!(result.exchanges[0].turn_mean_ns, Some(5_930.5));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(SWITCH);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostSwitchResult>(file).unwrap(), read(SWITCH));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostSwitchResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, SWITCH), Vec::<String>::new());
    }
}
