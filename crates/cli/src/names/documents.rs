//! Lists of the keys of TOML files and the fields of JSON documents, from the source of the types
//! that serde reads and writes. Three documents are omitted, because no type defines them: `at list
//! --json`, `campaign list --json` and the profile file of `load --profile`.

use std::path::Path;

use horolog_ke::NtsKeCounts;
use horolog_server::SocketEngineCounts;
use serde_json::Value;

use super::serde_fields::{FieldListing, SerdeSources, TypeReference};
use crate::commands::serve;

/// Crates that define serialised types of documents.
const CRATES: [&str; 15] = [
    "campaign",
    "counters",
    "cycle",
    "discipline",
    "ke",
    "launch",
    "ptp",
    "record",
    "relay",
    "report",
    "server",
    "source",
    "stats",
    "sys",
    "time",
];

/// TOML files by name, each with the source file of the types that deserialise it.
const TOML_FILES: [(&str, &str); 6] = [
    ("campaign plan", "campaign/src/plan/read.rs"),
    ("campaign policy", "campaign/src/policy/file.rs"),
    ("cycle tasks", "cycle/src/task/file.rs"),
    ("cycle test", "cycle/src/application/file.rs"),
    ("relay table", "relay/src/spec.rs"),
    ("relay tree", "relay/src/tree/file.rs"),
];

pub(super) fn serde_sources() -> SerdeSources {
    let value = |value: serde_json::Result<Value>| value.unwrap();
    let macro_types = [
        ("SocketEngineCounts", value(serde_json::to_value(SocketEngineCounts::default()))),
        ("NtsKeCounts", value(serde_json::to_value(NtsKeCounts::default()))),
    ];
    SerdeSources::read(&CRATES, macro_types.into())
}

/// Returns the keys of each TOML file.
pub(super) fn toml_keys(sources: &SerdeSources) -> Vec<String> {
    let mut listing = FieldListing::default();
    listing.lines =
        serve::config_file_keys().into_iter().map(|key| format!("serve: {key}")).collect();
    for (name, path) in TOML_FILES {
        sources.list_fields(name, &sources.file_document(path), &mut listing);
    }
    listing.lines
}

/// Returns the fields of each JSON document. Only the line of the field `schema` contains the
/// version of the schema, so that a new version changes one line.
pub(super) fn json_fields(sources: &SerdeSources) -> Vec<String> {
    let documents = CRATES.iter().flat_map(|name| sources.documents(name));
    let mut documents: Vec<_> = documents
        .map(|(schema, id)| (schema.unwrap_or_else(|| panic!("no schema for {id:?}")), id))
        .collect();
    documents.sort();
    let mut listing = FieldListing::default();
    listing.add_reference(&finding_code_type(), "finding codes");
    for (schema, id) in &documents {
        listing.add_reference(id, document_name(schema));
    }
    for (schema, id) in &documents {
        sources.list_fields(document_name(schema), id, &mut listing);
    }
    for (schema, _) in &documents {
        let field = format!("{}: schema", document_name(schema));
        for line in listing.lines.iter_mut().filter(|line| **line == field) {
            *line = format!("{field} = {schema}");
        }
    }
    listing.lines
}

/// Returns the name of a document: its schema without the prefix `horolog.` and the version.
fn document_name(schema: &str) -> &str {
    let name = schema.strip_prefix("horolog.").unwrap_or(schema);
    name.split('/').next().unwrap_or(name)
}

/// Returns the serialised codes of findings.
pub(super) fn finding_codes(sources: &SerdeSources) -> Vec<String> {
    let mut listing = FieldListing::default();
    sources.list_fields("", &finding_code_type(), &mut listing);
    let [codes] = listing.lines.as_slice() else { panic!("several lists: {:?}", listing.lines) };
    codes.trim_start_matches(":  = ").split(" | ").map(ToOwned::to_owned).collect()
}

fn finding_code_type() -> TypeReference {
    (Path::new("../record/src/finding.rs").to_owned(), "FindingCode".to_owned())
}
