//! Keys of TOML files and fields of JSON documents, from the types that serde reads and writes.
//! Three documents are not listed, because no type defines them: `at list --json`, `campaign list
//! --json` and the profile file of `load --profile`.

use std::path::Path;

use horolog_ke::KeCounts;
use horolog_server::SocketCounts;
use serde_json::Value;

use super::serde_fields::{Listing, Sources, TypeId};
use crate::commands::serve;

/// Crates whose types are parts of documents.
const CRATES: [&str; 14] = [
    "campaign",
    "counters",
    "cycle",
    "discipline",
    "ke",
    "launch",
    "record",
    "relay",
    "report",
    "server",
    "source",
    "stats",
    "sys",
    "time",
];

/// Files of the types that read each TOML file.
const TOML_FILES: [(&str, &str); 6] = [
    ("campaign plan", "campaign/src/plan/file.rs"),
    ("campaign policy", "campaign/src/policy/file.rs"),
    ("cycle tasks", "cycle/src/task/file.rs"),
    ("cycle test", "cycle/src/application/file.rs"),
    ("relay table", "relay/src/spec.rs"),
    ("relay tree", "relay/src/tree/file.rs"),
];

pub(super) fn sources() -> Sources {
    let value = |value: serde_json::Result<Value>| value.unwrap();
    let of_macros = [
        ("SocketCounts", value(serde_json::to_value(SocketCounts::default()))),
        ("KeCounts", value(serde_json::to_value(KeCounts::default()))),
    ];
    Sources::read(&CRATES, of_macros.into())
}

/// Keys of each TOML file.
pub(super) fn keys(sources: &Sources) -> Vec<String> {
    let mut listing = Listing::default();
    listing.lines = serve::keys().into_iter().map(|key| format!("serve: {key}")).collect();
    for (name, path) in TOML_FILES {
        sources.list(name, &sources.options(path), &mut listing);
    }
    listing.lines
}

/// Fields of each JSON document. The version of its schema is on one line only, so that a new one
/// does not change the others.
pub(super) fn fields(sources: &Sources) -> Vec<String> {
    let documents = CRATES.iter().flat_map(|name| sources.documents(name));
    let mut documents: Vec<_> = documents
        .map(|(schema, id)| (schema.unwrap_or_else(|| panic!("no schema for {id:?}")), id))
        .collect();
    documents.sort();
    let mut listing = Listing::default();
    listing.refer(&finding_code(), "finding codes");
    for (schema, id) in &documents {
        listing.refer(id, name_of(schema));
    }
    for (schema, id) in &documents {
        sources.list(name_of(schema), id, &mut listing);
    }
    for (schema, _) in &documents {
        let field = format!("{}: schema", name_of(schema));
        for line in listing.lines.iter_mut().filter(|line| **line == field) {
            *line = format!("{field} = {schema}");
        }
    }
    listing.lines
}

/// Name of a document without prefix and version.
fn name_of(schema: &str) -> &str {
    let name = schema.strip_prefix("horolog.").unwrap_or(schema);
    name.split('/').next().unwrap_or(name)
}

/// Codes of findings.
pub(super) fn finding_codes(sources: &Sources) -> Vec<String> {
    let mut listing = Listing::default();
    sources.list("", &finding_code(), &mut listing);
    let [codes] = listing.lines.as_slice() else { panic!("several lists: {:?}", listing.lines) };
    codes.trim_start_matches(":  = ").split(" | ").map(ToOwned::to_owned).collect()
}

fn finding_code() -> TypeId {
    (Path::new("../record/src/finding.rs").to_owned(), "FindingCode".to_owned())
}
