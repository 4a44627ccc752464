//! The golden files, read and written again byte for byte, and whatever a result can hold found in
//! them.

use std::collections::BTreeSet;

use horolog_record::{
    BENCH_CORES_SCHEMA, BENCH_NTS_SCHEMA, BenchCoresResult, BenchNtsResult, DEMO_SCHEMA,
    DemoResult, LOAD_SCHEMA, LoadResult, Severity,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::strategies::{bench_cores_result, bench_nts_result, demo_result, load_result};

const LOAD: &str = include_str!("load.json");
const DEMO: &str = include_str!("demo.json");
const BENCH_CORES: &str = include_str!("bench_cores.json");
const BENCH_NTS: &str = include_str!("bench_nts.json");

pub(crate) fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn written(result: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(result).unwrap())
}

/// The names in a result, each behind those that lead to it: `.trials.rtt_ns.p50`. A trial that is
/// a part of another one has the names of that.
fn names(value: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(fields) => {
                let path = path.replace(".parts.trial", "");
                open.extend(fields.iter().map(|(name, field)| (format!("{path}.{name}"), field)));
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (path.clone(), item))),
            _ => {}
        }
        names.insert(path);
    }
    names
}

/// Puts a field that nobody knows into every object whose fields are named by the schema.
pub(crate) fn with_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in &mut *fields {
                if name != "invalid" && name != "lost_at" && name != "kisses" {
                    with_unknown_fields(field);
                }
            }
            fields.insert("from_a_later_version".to_owned(), json!({ "any": ["thing", 1, null] }));
        }
        Value::Array(items) => items.iter_mut().for_each(with_unknown_fields),
        _ => {}
    }
}

#[test]
fn the_files_are_written_as_they_were_read() {
    assert_eq!(written(&read::<LoadResult>(LOAD)), LOAD);
    assert_eq!(written(&read::<DemoResult>(DEMO)), DEMO);
    assert_eq!(written(&read::<BenchNtsResult>(BENCH_NTS)), BENCH_NTS);
    assert_eq!(written(&read::<BenchCoresResult>(BENCH_CORES)), BENCH_CORES);
    assert_eq!(read::<LoadResult>(LOAD).schema, LOAD_SCHEMA);
    assert_eq!(read::<DemoResult>(DEMO).schema, DEMO_SCHEMA);
    assert_eq!(read::<BenchNtsResult>(BENCH_NTS).schema, BENCH_NTS_SCHEMA);
    assert_eq!(read::<BenchCoresResult>(BENCH_CORES).schema, BENCH_CORES_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: LoadResult = read(LOAD);
    let trial = &result.trials[0];
    assert_eq!((trial.clients, trial.sent, trial.received), (16_384, 1_000_000, 999_900));
    assert_eq!((trial.lost, trial.duplicate, trial.late), (100, 3, 2));
    assert_eq!((trial.loss_ratio(), trial.invalid_total()), (0.0001, 231));
    let empty = &result.trials[1];
    assert_eq!((empty.loss_ratio(), empty.invalid_total()), (0.0, 0));
    let rtt = trial.rtt_ns.as_ref().unwrap();
    assert_eq!((rtt.min, rtt.p50, rtt.p90, rtt.p99), (1_500, 3_615, 7_007, 37_119));
    assert_eq!((rtt.p99_9, rtt.p99_99, rtt.max), (90_111, 95_231, 96_500));
    let search = result.search.unwrap();
    assert_eq!((search.lower, search.upper), (Some(3_980_000.5), Some(4_010_000.25)));
    assert_eq!((result.findings[0].severity, result.findings[0].trial), (Severity::Note, None));
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(LOAD);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<LoadResult>(file).unwrap(), read(LOAD));
    let mut file: Value = read(DEMO);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<DemoResult>(file).unwrap(), read(DEMO));
    let mut file: Value = read(BENCH_NTS);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<BenchNtsResult>(file).unwrap(), read(BENCH_NTS));
    let mut file: Value = read(BENCH_CORES);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<BenchCoresResult>(file).unwrap(), read(BENCH_CORES));
}

/// The names in a result that the file does not have.
pub(crate) fn new_names(result: &impl Serialize, file: &str) -> Vec<String> {
    let result = serde_json::to_value(result).unwrap();
    names(&result).difference(&names(&read(file))).cloned().collect()
}

proptest! {
    /// A field that is new is put into the golden files, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_files(
        load in load_result(), demo in demo_result(), bench in bench_nts_result(),
        cores in bench_cores_result()
    ) {
        prop_assert_eq!(new_names(&load, LOAD), Vec::<String>::new());
        prop_assert_eq!(new_names(&cores, BENCH_CORES), Vec::<String>::new());
        let new = new_names(&demo, DEMO);
        // The results inside it are held against their own file.
        prop_assert!(new.iter().all(|name| name.starts_with(".candidates.load.")), "{:?}", new);
        let new = new_names(&bench, BENCH_NTS);
        prop_assert!(new.iter().all(|name| name.starts_with(".capacities.load.")), "{:?}", new);
    }
}
