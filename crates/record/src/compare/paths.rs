//! Paths of values in a result of any kind. Lists of trials, cores or paths may have more items in
//! one result than in another, so an item's path contains its identity.

use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::Distribution;

/// Largest depth of the search in a record.
const DEPTH_MAX: usize = 12;
/// Fields that identify an item of a list, if it has them.
const IDENTITIES: [&str; 28] = [
    "name",
    "role",
    "job",
    "node",
    "task",
    "run",
    "policy",
    "address",
    "core",
    "cores",
    "label",
    "mechanism",
    "peer",
    "placement",
    "pattern",
    "option",
    "function",
    "setting",
    "requested_ns",
    "size_bytes",
    "direction",
    "children",
    "engine",
    "clients",
    "length",
    "load_ratio",
    "intended_rate",
    "index",
];

/// Field that identifies an item without any of these.
const KIND: &str = "kind";

/// Part of a result and its path.
pub(super) struct ValuePath<'a> {
    pub(super) name: String,
    pub(super) fields: &'a Map<String, Value>,
}

/// Returns all objects of a result with their paths, each before its children.
pub(super) fn objects(result: &Value) -> Vec<ValuePath<'_>> {
    let mut all = Vec::new();
    collect_objects(result, "", DEPTH_MAX, &mut all);
    all
}

fn collect_objects<'a>(value: &'a Value, name: &str, depth: usize, all: &mut Vec<ValuePath<'a>>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            all.push(ValuePath { name: name.to_owned(), fields });
            if !is_distribution(fields) {
                for (field, value) in fields {
                    let dot = if name.is_empty() { "" } else { "." };
                    collect_objects(value, &format!("{name}{dot}{field}"), depth, all);
                }
            }
        }
        Value::Array(items) => {
            let mut taken = std::collections::HashMap::<String, u32>::new();
            for (index, item) in items.iter().enumerate() {
                let mut identity = identity(item).unwrap_or_else(|| index.to_string());
                // The order distinguishes two trials at one rate.
                let count = taken.entry(identity.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    identity = format!("{identity}, {count}");
                }
                collect_objects(item, &format!("{name}[{identity}]"), depth, all);
            }
        }
        _ => {}
    }
}

fn identity(item: &Value) -> Option<String> {
    let fields = item.as_object()?;
    let identity_value = |name: &&str| {
        let value = match fields.get(*name)? {
            Value::String(text) => text.clone(),
            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
            _ => return None,
        };
        Some(format!("{name}={}", value.strip_suffix(".0").unwrap_or(&value)))
    };
    let mut own: Vec<_> = IDENTITIES.iter().filter_map(identity_value).collect();
    if own.is_empty() {
        own.extend(identity_value(&KIND));
    }
    (!own.is_empty()).then(|| own.join(", "))
}

/// Returns a path without the identities of its items, such as `trials[].rtt_ns`: the kind of
/// metric.
pub(super) fn kind_of(path: &str) -> String {
    let mut depth = 0_u32;
    let mut kind = String::with_capacity(path.len());
    for character in path.chars() {
        if character == ']' {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            kind.push(character);
        }
        if character == '[' {
            depth += 1;
        }
    }
    kind
}

fn is_distribution(fields: &Map<String, Value>) -> bool {
    fields.contains_key("p99_99") && fields.contains_key("histogram")
}

/// Returns these fields as a distribution, if they are one of non-negative values with its
/// histogram.
pub(super) fn distribution(fields: &Map<String, Value>) -> Option<Distribution> {
    if !is_distribution(fields) || fields.contains_key("histogram_negative") {
        return None;
    }
    let distribution = Distribution::deserialize(fields).ok()?;
    (!distribution.histogram.is_empty()).then_some(distribution)
}

/// Returns the numbers of a result, each with its path, such as `trials[intended_rate=1000].sent`.
/// Series and samples are excluded: they are long and their items have no identity.
#[must_use]
pub fn numbers(result: &Value) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for path in objects(result) {
        let dot = if path.name.is_empty() { "" } else { "." };
        let numbers = path.fields.iter().filter_map(|(field, value)| {
            Some((format!("{}{dot}{field}", path.name), value.as_f64()?))
        });
        all.extend(numbers);
        for (field, value) in path.fields {
            let list = format!("{}{dot}{field}", path.name);
            if !is_time_series(&kind_of(&list)) {
                all.extend(listed(&list, value));
            }
        }
    }
    all
}

/// Returns the items of a list of numbers only.
fn listed(name: &str, value: &Value) -> Vec<(String, f64)> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let number =
        |(index, item): (usize, &Value)| Some((format!("{name}[{index}]"), item.as_f64()?));
    items.iter().enumerate().map(number).collect::<Option<_>>().unwrap_or_default()
}

/// Returns true if it is part of a time series.
pub(super) fn is_time_series(kind: &str) -> bool {
    kind.split('.').any(|part| matches!(part.trim_end_matches("[]"), "series" | "samples"))
}

/// Returns the path of a result's first damaged histogram and its defect.
#[must_use]
pub fn damaged(result: &Value) -> Option<(String, String)> {
    let mut all = distributions(result).into_iter();
    all.find_map(|(path, times)| Some((path, times.decode().err()?.to_string())))
}

/// Returns the distributions of a result that have histograms, with their paths.
#[must_use]
pub fn distributions(result: &Value) -> Vec<(String, Distribution)> {
    let all = objects(result).into_iter();
    all.filter_map(|path| Some((path.name, distribution(path.fields)?))).collect()
}
