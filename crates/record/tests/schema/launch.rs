//! The results of `horolog after` and `horolog at` against their golden files, and any that the
//! types allow.

use horolog_record::{
    AFTER_SCHEMA, AT_SCHEMA, AfterEnd, AfterResult, AtEnd, AtProgram, AtResult, AtScheduling,
    AtTimescale, Dependency, DependencyKind,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{Choices, check};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, distribution, finding, host};

const AFTER: &str = include_str!("after.json");
const AT: &str = include_str!("at.json");

const AFTER_ENDS: Choices<AfterEnd, 3> = [
    (AfterEnd::Held, "held"),
    (AfterEnd::Deadline, "deadline"),
    (AfterEnd::Interrupted, "interrupted"),
];

const KINDS: Choices<DependencyKind, 8> = [
    (DependencyKind::Delay, "delay"),
    (DependencyKind::Tcp, "tcp"),
    (DependencyKind::Udp, "udp"),
    (DependencyKind::File, "file"),
    (DependencyKind::Mount, "mount"),
    (DependencyKind::Dns, "dns"),
    (DependencyKind::Clock, "clock"),
    (DependencyKind::Command, "command"),
];

const AT_ENDS: Choices<AtEnd, 2> = [(AtEnd::Done, "done"), (AtEnd::Interrupted, "interrupted")];

const TIMESCALES: Choices<AtTimescale, 2> = [(AtTimescale::Utc, "utc"), (AtTimescale::Tai, "tai")];

const SCHEDULINGS: Choices<AtScheduling, 2> =
    [(AtScheduling::RealTime, "real-time"), (AtScheduling::Ordinary, "ordinary")];

fn after() -> impl Strategy<Value = AfterResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), any::<Option<u64>>());
    let outcome = (any::<u64>(), chosen(AFTER_ENDS), vec(dependency(), 0..3));
    let rest = (vec(any::<String>(), 0..3), vec(finding(), 0..3));
    (facts, outcome, rest).prop_map(|(facts, outcome, (program, findings))| {
        let (started, command, host, deadline_ns) = facts;
        let (waited_ns, end, dependencies) = outcome;
        let schema = AFTER_SCHEMA.to_owned();
        AfterResult {
            schema,
            started,
            command,
            host,
            deadline_ns,
            waited_ns,
            end,
            dependencies,
            program,
            findings,
        }
    })
}

fn dependency() -> impl Strategy<Value = Dependency> {
    let known = (any::<bool>(), any::<Option<u64>>(), any::<[u64; 2]>(), any::<Option<String>>());
    (chosen(KINDS), any::<String>(), known).prop_map(|(kind, target, known)| {
        let (held, held_after_ns, [tries, lost], last_check) = known;
        Dependency {
            kind,
            target,
            held,
            satisfied_after_ns: held_after_ns,
            tries,
            lost,
            last_check,
        }
    })
}

fn at() -> impl Strategy<Value = AtResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), any::<String>());
    let plan = (chosen(TIMESCALES), any::<i64>(), any::<Option<u64>>());
    let conditions = (chosen(SCHEDULINGS), any::<Option<u64>>(), any::<bool>());
    let outcome = (chosen(AT_ENDS), any::<[u64; 3]>(), vec(program(), 0..3));
    let late = (option::of(distribution()), option::of(distribution()), vec(finding(), 0..3));
    (facts, plan, conditions, outcome, late).prop_map(|(facts, plan, conditions, outcome, late)| {
        let (started, command, host, first) = facts;
        let (timescale, first_ns, every_ns) = plan;
        let (scheduling, head_start_ns, memory_locked) = conditions;
        let (end, [met, missed, timer_slack_ns], programs) = outcome;
        let (woken_late_ns, started_late_ns, findings) = late;
        AtResult {
            schema: AT_SCHEMA.to_owned(),
            started,
            command,
            host,
            first,
            timescale,
            first_ns,
            every_ns,
            end,
            met,
            missed,
            scheduling,
            timer_slack_ns,
            head_start_ns,
            memory_locked,
            woken_late_ns,
            started_late_ns,
            programs,
            findings,
        }
    })
}

fn program() -> impl Strategy<Value = AtProgram> {
    (vec(any::<String>(), 0..3), any::<[u64; 2]>(), any::<Option<i32>>()).prop_map(
        |(program, [runs, failed], last_status)| AtProgram { program, runs, failed, last_status },
    )
}

#[test]
fn each_choice_keeps_its_name() {
    check(AFTER_ENDS);
    check(KINDS);
    check(AT_ENDS);
    check(TIMESCALES);
    check(SCHEDULINGS);
}

#[test]
fn the_files_are_written_as_they_were_read() {
    let (after, at): (AfterResult, AtResult) = (read(AFTER), read(AT));
    assert_eq!((written(&after), written(&at)), (AFTER.to_owned(), AT.to_owned()));
    assert_eq!((after.schema.as_str(), at.schema.as_str()), (AFTER_SCHEMA, AT_SCHEMA));
}

#[test]
fn fields_are_read_by_their_names() {
    let after: AfterResult = read(AFTER);
    let [port, mount] = &after.dependencies[..] else { unreachable!("two dependencies") };
    assert_eq!((port.held, port.satisfied_after_ns, port.tries), (true, Some(12_345_678_901), 8));
    assert_eq!((mount.held, mount.satisfied_after_ns, mount.lost), (false, None, 1));
    let at: AtResult = read(AT);
    assert_eq!((at.met, at.missed, at.every_ns), (200, 3, Some(1_000_000_000)));
    assert_eq!((at.head_start_ns, at.memory_locked), (Some(5_000_000), true));
    assert_eq!(at.woken_late_ns.unwrap().p99, 37_119);
    assert_eq!((at.programs[0].failed, at.programs[1].last_status), (1, Some(143)));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(AFTER);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<AfterResult>(file).unwrap(), read(AFTER));
    let mut file: Value = read(AT);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<AtResult>(file).unwrap(), read(AT));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(after in after(), at in at()) {
        let text = serde_json::to_string(&after).unwrap();
        prop_assert_eq!(serde_json::from_str::<AfterResult>(&text).unwrap(), after);
        let text = serde_json::to_string(&at).unwrap();
        prop_assert_eq!(serde_json::from_str::<AtResult>(&text).unwrap(), at);
    }

    /// A field that is new is put into the golden files, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_files(after in after(), at in at()) {
        prop_assert_eq!(new_names(&after, AFTER), Vec::<String>::new());
        prop_assert_eq!(new_names(&at, AT), Vec::<String>::new());
    }
}
