//! The result of all measurements of a host against its golden file, and any that the types allow.

use horolog_record::{
    HOST_ALL_SCHEMA, HOST_TIMER_SCHEMA, HostAllResult, HostPart, HostPartOutcome, HostPartState,
    HostTimerResult, HostVerdict, WorstFinding,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{HOST_PART_STATES, HOST_PARTS, HOST_VERDICTS};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, finding, host, limit};
use crate::{host_clock, host_delay, host_interrupt, host_nic, host_switch, host_timer};

const ALL: &str = include_str!("host_all.json");

fn result() -> impl Strategy<Value = HostAllResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), any::<u64>());
    let judged = (chosen(HOST_VERDICTS), vec(worst(), 0..3), vec(outcome(), 0..3));
    let records = (
        option::of(host_clock::result()),
        option::of(host_delay::result()),
        option::of(host_timer::result()),
        option::of(host_switch::result()),
        option::of(host_interrupt::result()),
        vec(host_nic::result(), 0..3),
    );
    let rest = (vec(limit(), 0..3), vec(finding(), 0..3));
    (facts, judged, records, rest).prop_map(|(facts, judged, records, (limits, findings))| {
        let (started, command, host, time_ns) = facts;
        let (verdict, worst, parts) = judged;
        let (clock, delay, timer, switch, interrupt, nics) = records;
        HostAllResult {
            schema: HOST_ALL_SCHEMA.to_owned(),
            started,
            command,
            host,
            time_ns,
            verdict,
            worst_findings: worst,
            parts,
            clock,
            delay,
            timer,
            switch,
            interrupt,
            nics,
            limits,
            findings,
        }
    })
}

fn worst() -> impl Strategy<Value = WorstFinding> {
    (option::of(chosen(HOST_PARTS)), finding(), any::<usize>())
        .prop_map(|(part, finding, others)| WorstFinding { part, finding, others })
}

fn outcome() -> impl Strategy<Value = HostPartOutcome> {
    let why = vec(any::<String>(), 0..3);
    let which = (chosen(HOST_PARTS), option::of(any::<String>()));
    (which, chosen(HOST_PART_STATES), why, any::<u64>()).prop_map(
        |((part, interface), state, why, took_ns)| HostPartOutcome {
            part,
            interface,
            state,
            reason: why,
            duration_ns: took_ns,
        },
    )
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostAllResult = read(ALL);
    assert_eq!(written(&result), ALL);
    assert_eq!(result.schema, HOST_ALL_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostAllResult = read(ALL);
    assert_eq!((result.verdict, result.time_ns), (HostVerdict::Unfit, 60_000_000_000));
    let [first, second] = &result.worst_findings[..] else { panic!("two findings") };
    assert_eq!((first.part, first.others), (Some(HostPart::Timer), 0));
    assert_eq!((second.part, second.others), (None, 2));
    let states: Vec<_> = result.parts.iter().map(|one| one.state).collect();
    let reduced = HostPartState::Reduced;
    assert_eq!(states[..3], [HostPartState::Measured, reduced, HostPartState::Skipped]);
    assert_eq!(result.parts[3].interface.as_deref(), Some("eth0"));
}

/// A part's record can be taken out and be read by whoever reads that part alone.
#[test]
fn a_part_is_in_it_whole() {
    let file: Value = read(ALL);
    let timer: HostTimerResult = serde_json::from_value(file["timer"].clone()).unwrap();
    assert_eq!(timer.schema, HOST_TIMER_SCHEMA);
    assert_eq!(timer, read(include_str!("host_timer.json")));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(ALL);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostAllResult>(file).unwrap(), read(ALL));
}

#[test]
fn a_part_s_name_is_that_of_its_file() {
    for (part, name) in HOST_PARTS {
        assert_eq!(part.name(), name);
    }
    assert_eq!(HostPart::ALL.map(HostPart::name), HOST_PARTS.map(|(_, name)| name));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostAllResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, ALL), Vec::<String>::new());
    }
}
