//! Other differences between two results: the host, the command, and textual facts about the
//! measurement, such as target, mode and engine.

use std::collections::BTreeMap;

use horolog_record::ComparedCondition;
use serde_json::Value;

/// Flags that name an output file; they are not compared.
const OUTPUT_FLAGS: [&str; 6] = ["--json", "--html", "--csv", "--store", "--junit", "--summary"];
/// Fields that always differ, or are reported elsewhere.
const EXCLUDED_FIELDS: [&str; 5] = ["schema", "started", "command", "findings", "limits"];
/// Largest depth of objects in which text values are found.
const DEPTH_MAX: usize = 3;

/// Returns the conditions that differ, by path.
pub(super) fn differing_conditions(earlier: &Value, later: &Value) -> Vec<ComparedCondition> {
    let (mut before, mut after) = (text_values(earlier), text_values(later));
    before.insert("command".to_owned(), comparable_command(earlier));
    after.insert("command".to_owned(), comparable_command(later));
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let compare_path = |path: &String| {
        let [earlier, later] = [&before, &after].map(|all| all.get(path).cloned());
        let [earlier, later] = [earlier, later].map(Option::unwrap_or_default);
        let path = path.clone();
        (earlier != later).then_some(ComparedCondition { path, earlier, later })
    };
    paths.into_iter().filter_map(compare_path).collect()
}

/// Returns the text and boolean values of a result, and all values of its host, by path. Lists are
/// excluded.
fn text_values(result: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let fields = result.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| !EXCLUDED_FIELDS.contains(&name.as_str())) {
        // All values of the host count; elsewhere numbers are metrics.
        collect_values(name, value, name == "host", DEPTH_MAX, &mut all);
    }
    all
}

fn collect_values(
    name: &str,
    value: &Value,
    is_host: bool,
    depth: usize,
    all: &mut BTreeMap<String, String>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                collect_values(&format!("{name}.{field}"), value, is_host, depth, all);
            }
        }
        Value::String(text) => drop(all.insert(name.to_owned(), text.clone())),
        Value::Bool(flag) => drop(all.insert(name.to_owned(), flag.to_string())),
        value if is_host => drop(all.insert(name.to_owned(), value.to_string())),
        _ => {}
    }
}

fn comparable_command(result: &Value) -> String {
    let words = result["command"].as_array().map_or(&[][..], Vec::as_slice);
    let mut words = words.iter().filter_map(Value::as_str).skip(1);
    let mut retained = Vec::new();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((flag, _)) if OUTPUT_FLAGS.contains(&flag) => {}
            None if OUTPUT_FLAGS.contains(&word) => drop(words.next()),
            _ => retained.push(word),
        }
    }
    retained.join(" ")
}
