//! Where figures stand in a result of any kind. Lists of trials, cores or paths may have more items
//! in one result than in another, so an item's place has in it what the item is of.

use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::Distribution;

/// How deep a record is looked into.
const DEPTH_MAX: usize = 12;
/// What tells an item of a list from the others, where it has it.
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
    "way",
    "partner",
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
    "offered_rate",
    "index",
];

/// What tells it where it has none of these.
const KIND: &str = "kind";

/// A part of a result, and where it stands.
pub(super) struct Place<'a> {
    pub(super) name: String,
    pub(super) fields: &'a Map<String, Value>,
}

/// All objects of a result with their places, each before those in it.
pub(super) fn objects(result: &Value) -> Vec<Place<'_>> {
    let mut all = Vec::new();
    look(result, "", DEPTH_MAX, &mut all);
    all
}

fn look<'a>(value: &'a Value, name: &str, depth: usize, all: &mut Vec<Place<'a>>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            all.push(Place { name: name.to_owned(), fields });
            if !is_distribution(fields) {
                for (field, value) in fields {
                    let dot = if name.is_empty() { "" } else { "." };
                    look(value, &format!("{name}{dot}{field}"), depth, all);
                }
            }
        }
        Value::Array(items) => {
            let mut taken = std::collections::HashMap::<String, u32>::new();
            for (index, item) in items.iter().enumerate() {
                let mut identity = identity(item).unwrap_or_else(|| index.to_string());
                // Two trials of one rate are told apart by their order.
                let count = taken.entry(identity.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    identity = format!("{identity}, {count}");
                }
                look(item, &format!("{name}[{identity}]"), depth, all);
            }
        }
        _ => {}
    }
}

fn identity(item: &Value) -> Option<String> {
    let fields = item.as_object()?;
    let said = |name: &&str| {
        let value = match fields.get(*name)? {
            Value::String(text) => text.clone(),
            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
            _ => return None,
        };
        Some(format!("{name}={}", value.strip_suffix(".0").unwrap_or(&value)))
    };
    let mut own: Vec<_> = IDENTITIES.iter().filter_map(said).collect();
    if own.is_empty() {
        own.extend(said(&KIND));
    }
    (!own.is_empty()).then(|| own.join(", "))
}

/// A place without what its items are of, such as `trials[].rtt_ns`: what kind of figure it is.
pub(super) fn kind_of(place: &str) -> String {
    let mut depth = 0_u32;
    let mut kind = String::with_capacity(place.len());
    for character in place.chars() {
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

/// The distribution that these fields are, where it is one of values that are not negative and has
/// its histogram.
pub(super) fn distribution(fields: &Map<String, Value>) -> Option<Distribution> {
    if !is_distribution(fields) || fields.contains_key("histogram_negative") {
        return None;
    }
    let distribution = Distribution::deserialize(fields).ok()?;
    (!distribution.histogram.is_empty()).then_some(distribution)
}

/// The numbers of a result, each with its place, such as `trials[offered_rate=1000].sent`, but for
/// what is long: series and samples, whose items nothing tells from one another.
#[must_use]
pub fn numbers(result: &Value) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for place in objects(result) {
        let dot = if place.name.is_empty() { "" } else { "." };
        let numbers = place.fields.iter().filter_map(|(field, value)| {
            Some((format!("{}{dot}{field}", place.name), value.as_f64()?))
        });
        all.extend(numbers);
        for (field, value) in place.fields {
            let list = format!("{}{dot}{field}", place.name);
            if !is_of_course(&kind_of(&list)) {
                all.extend(listed(&list, value));
            }
        }
    }
    all
}

/// The items of a list of nothing but numbers.
fn listed(name: &str, value: &Value) -> Vec<(String, f64)> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let number =
        |(index, item): (usize, &Value)| Some((format!("{name}[{index}]"), item.as_f64()?));
    items.iter().enumerate().map(number).collect::<Option<_>>().unwrap_or_default()
}

/// Whether it is part of the course of something.
pub(super) fn is_of_course(kind: &str) -> bool {
    kind.split('.').any(|part| matches!(part.trim_end_matches("[]"), "series" | "samples"))
}

/// The place of the first histogram of a result that is damaged, and what is wrong with it.
#[must_use]
pub fn damaged(result: &Value) -> Option<(String, String)> {
    let mut all = distributions(result).into_iter();
    all.find_map(|(place, times)| Some((place, times.decode().err()?.to_string())))
}

/// The distributions of a result that have their histograms, with their places.
#[must_use]
pub fn distributions(result: &Value) -> Vec<(String, Distribution)> {
    let all = objects(result).into_iter();
    all.filter_map(|place| Some((place.name, distribution(place.fields)?))).collect()
}
