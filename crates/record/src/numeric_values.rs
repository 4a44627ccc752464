//! All numbers of a result of any kind, with their paths, for exports. Lists may differ in length
//! between results, so that the path of a list item contains the fields that identify the item
//! instead of its index.

use serde_json::{Map, Value};

/// Largest depth of objects and lists that is searched.
const DEPTH_MAX: usize = 12;
/// Fields that identify a list item.
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

/// Field that identifies a list item without any of [`IDENTITIES`].
const FALLBACK_IDENTITY: &str = "kind";

/// JSON object in a result, with its path.
struct ResultObject<'a> {
    name: String,
    fields: &'a Map<String, Value>,
}

/// Returns the objects of a result with their paths, each before its children, down to a depth of
/// [`DEPTH_MAX`].
fn objects_with_paths(result: &Value) -> Vec<ResultObject<'_>> {
    let mut all = Vec::new();
    collect_objects(result, "", DEPTH_MAX, &mut all);
    all
}

fn collect_objects<'a>(
    value: &'a Value,
    name: &str,
    depth: usize,
    all: &mut Vec<ResultObject<'a>>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            all.push(ResultObject { name: name.to_owned(), fields });
            if !is_distribution(fields) {
                for (field, value) in fields {
                    let dot = if name.is_empty() { "" } else { "." };
                    collect_objects(value, &format!("{name}{dot}{field}"), depth, all);
                }
            }
        }
        Value::Array(items) => {
            let mut identity_counts = std::collections::HashMap::<String, u32>::new();
            for (index, item) in items.iter().enumerate() {
                let mut identity = item_identity(item).unwrap_or_else(|| index.to_string());
                // Items with equal identities, such as two trials at one rate, are numbered.
                let count = identity_counts.entry(identity.clone()).or_default();
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

fn item_identity(item: &Value) -> Option<String> {
    let fields = item.as_object()?;
    let identity_value = |name: &&str| {
        let value = match fields.get(*name)? {
            Value::String(text) => text.clone(),
            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
            _ => return None,
        };
        Some(format!("{name}={}", value.strip_suffix(".0").unwrap_or(&value)))
    };
    let mut identities: Vec<_> = IDENTITIES.iter().filter_map(identity_value).collect();
    if identities.is_empty() {
        identities.extend(identity_value(&FALLBACK_IDENTITY));
    }
    (!identities.is_empty()).then(|| identities.join(", "))
}

/// Returns a path without the identities of list items, such as `trials[].rtt_ns`.
fn generic_path(path: &str) -> String {
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

/// Returns the numbers in a result with their paths, such as `trials[intended_rate=1000].sent`:
/// those of all objects, including the points of time series and samples, and the items of lists
/// of plain numbers outside time series and samples.
#[must_use]
pub fn numeric_values(result: &Value) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for path in objects_with_paths(result) {
        let dot = if path.name.is_empty() { "" } else { "." };
        let numbers = path.fields.iter().filter_map(|(field, value)| {
            Some((format!("{}{dot}{field}", path.name), value.as_f64()?))
        });
        all.extend(numbers);
        for (field, value) in path.fields {
            let list = format!("{}{dot}{field}", path.name);
            if !is_time_series(&generic_path(&list)) {
                all.extend(list_items(&list, value));
            }
        }
    }
    all
}

/// Returns the items of a list that contains only numbers, with their paths; nothing for other
/// values.
fn list_items(name: &str, value: &Value) -> Vec<(String, f64)> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let number =
        |(index, item): (usize, &Value)| Some((format!("{name}[{index}]"), item.as_f64()?));
    items.iter().enumerate().map(number).collect::<Option<_>>().unwrap_or_default()
}

/// Returns true if the path leads into a time series or a list of samples.
fn is_time_series(kind: &str) -> bool {
    kind.split('.').any(|part| matches!(part.trim_end_matches("[]"), "series" | "samples"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_numbers_are_numbers_outside_time_series() {
        let result = json!({ "engines": [{ "label": "xdp", "delays_ns": [1, 2.5], "names": ["a"] }],
            "series": { "points": [1, 2] } });
        let expected =
            [("engines[label=xdp].delays_ns[0]", 1.0), ("engines[label=xdp].delays_ns[1]", 2.5)];
        assert_eq!(numeric_values(&result), expected.map(|(path, value)| (path.to_owned(), value)));
    }
}
