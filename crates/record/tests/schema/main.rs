//! Results as a contract: what is written can be read back and is the same, and the names in it are
//! those of `samples`. A stored file must remain readable, so a sample may grow, but nothing in it
//! may change.
#![expect(clippy::unwrap_used, reason = "clippy allows it in tests, but not in what they share")]

mod generated;

use std::collections::BTreeSet;
use std::fmt::Debug;

use horolog_record as record;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use generated::generated;

fn written(result: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(result).unwrap())
}

/// Fields whose content the schema does not name: maps, and results of other kinds.
const UNNAMED: [&str; 12] = [
    "dropped",
    "failures",
    "invalid",
    "kisses",
    "lost_at",
    "parameters",
    "pulse_rejects",
    "pulses",
    "refused",
    "result",
    "sentence_rejects",
    "verdicts",
];

/// Names in a result, each after those that lead to it: `.trials.rtt_ns.p50`. Other results inside
/// it are compared with their own samples.
fn names(value: &Value) -> BTreeSet<String> {
    const OTHER_RESULTS: [&str; 2] = [".candidates.load.", ".capacities.load."];
    let mut names = BTreeSet::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(_) if UNNAMED.iter().any(|name| path.ends_with(&format!(".{name}"))) => {}
            Value::Object(fields) => {
                // A trial in a part of another one has the names of that.
                let path = path.replace(".parts.trial", "");
                open.extend(fields.iter().map(|(name, field)| (format!("{path}.{name}"), field)));
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (path.clone(), item))),
            _ => {}
        }
        if !OTHER_RESULTS.iter().any(|other| path.starts_with(other)) {
            names.insert(path);
        }
    }
    names
}

/// Adds an unknown field to every object whose fields are named by the schema.
fn add_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in &mut *fields {
                match field {
                    // Its only field is the name of a variant.
                    Value::Object(variant) if name == "merged" => {
                        variant.values_mut().for_each(add_unknown_fields);
                    }
                    _ if UNNAMED.contains(&name.as_str()) => {}
                    field => add_unknown_fields(field),
                }
            }
            fields.insert("from_a_later_version".to_owned(), json!({ "any": ["thing", 1, null] }));
        }
        Value::Array(items) => items.iter_mut().for_each(add_unknown_fields),
        _ => {}
    }
}

/// Checks the sample of a kind: it is written as it was read, has the present schema, and may
/// contain fields of a later version.
fn check_sample<T>(sample: &str, schema: &str)
where
    T: DeserializeOwned + Serialize + PartialEq + Debug,
{
    let result: T = serde_json::from_str(sample).unwrap();
    assert_eq!(written(&result), sample);
    let mut value: Value = serde_json::from_str(sample).unwrap();
    assert_eq!(value["schema"], schema);
    add_unknown_fields(&mut value);
    assert_eq!(serde_json::from_value::<T>(value).unwrap(), result);
}

/// Checks any result: it is the same after it was written and read, and all its names are in the
/// sample.
fn check_generated<T>(seed: u64, sample: &str)
where
    T: DeserializeOwned + Serialize + PartialEq + Debug,
{
    let result: T = generated(seed);
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), result);
    let known = names(&serde_json::from_str(sample).unwrap());
    let written = names(&serde_json::from_str(&text).unwrap());
    let missing: Vec<_> = written.difference(&known).collect();
    assert!(missing.is_empty(), "the sample lacks {missing:?}");
}

macro_rules! kinds {
    ($($kind:ident $type:ident $schema:ident,)*) => {$(
        mod $kind {
            use super::*;

            const SAMPLE: &str = include_str!(concat!("../../samples/", stringify!($kind), ".json"));

            #[test]
            fn sample_is_written_as_it_was_read() {
                check_sample::<record::$type>(SAMPLE, record::$schema);
            }

            proptest! {
                #[test]
                fn any_result_is_read_as_it_was_written(seed in any::<u64>()) {
                    check_generated::<record::$type>(seed, SAMPLE);
                }
            }
        }
    )*};
}

record::result_kinds!(kinds);

proptest! {
    #[test]
    fn ratios_and_sums_never_fail(seed in any::<u64>()) {
        let trial: record::Trial = generated(seed);
        let ratio = trial.loss_ratio();
        prop_assert!(ratio >= 0.0 && ratio.is_finite());
        prop_assert_eq!(ratio == 0.0, trial.lost == 0 || trial.sent == 0);
        let total: u128 = trial.invalid.values().copied().map(u128::from).sum();
        prop_assert_eq!(u128::from(trial.invalid_total()), total.min(u128::from(u64::MAX)));
        let path: record::PathUdpResult = generated(seed);
        for row in &path.rows {
            let ratios = [Some(row.loss_ratio()), row.order_ratio()];
            prop_assert!(ratios.into_iter().flatten().all(|ratio| (0.0..=1.0).contains(&ratio)));
        }
        let sample: record::ExchangeSample = generated(seed);
        prop_assert!(sample.error_bound_ns() >= sample.dispersion_ns);
    }
}

#[test]
fn a_part_of_all_host_measurements_is_a_result_of_its_own() {
    let all: Value = serde_json::from_str(include_str!("../../samples/host_all.json")).unwrap();
    let timer: Value = serde_json::from_str(include_str!("../../samples/host_timer.json")).unwrap();
    assert_eq!(all["timer"], timer);
}

#[test]
fn choices_have_their_serialised_names() {
    fn check<T: Serialize + Copy>(all: &[T], name: fn(T) -> &'static str) {
        for choice in all {
            assert_eq!(serde_json::to_value(choice).unwrap(), name(*choice));
        }
    }
    check(&record::HostMeasurementKind::ALL, record::HostMeasurementKind::name);
    check(&record::WaitFunction::ALL, record::WaitFunction::name);
    check(&record::CycleTestFaultKind::ALL, record::CycleTestFaultKind::name);
}

/// The compiler does not relate these fields to their names in a file.
#[test]
fn renamed_fields_are_read_by_their_names() {
    let load: record::LoadResult =
        serde_json::from_str(include_str!("../../samples/load.json")).unwrap();
    let rtt = load.trials[0].rtt_ns.as_ref().unwrap();
    assert_eq!((rtt.p99, rtt.p99_9, rtt.p99_99, rtt.max), (37_119, 90_111, 95_231, 96_500));
}
