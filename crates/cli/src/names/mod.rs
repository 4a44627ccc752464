//! Test of the list of public names, `docs/reference/names.txt`: flags by command, keys of TOML
//! files, fields of JSON documents, metrics, finding codes, limits and exit statuses. The list is
//! generated from the definitions and compared with the committed one, so that a review shows every
//! change of a name on which users and programs rely. With `HOROLOG_WRITE_NAMES=1` the test writes
//! the list.

mod documents;
mod flags;
mod limits;
mod metrics;
mod serde_fields;

use crate::commands::manual::EXIT_STATUSES;

/// Path of the list, relative to the crate's directory, in which Cargo runs tests.
const PATH: &str = "../../docs/reference/names.txt";
const COMMAND: &str = "HOROLOG_WRITE_NAMES=1 cargo test -p horolog-cli names";

/// Returns the text of the list, in sections.
fn names_text() -> String {
    let sources = documents::serde_sources();
    let sections = [
        ("flags", flags::flag_lines()),
        ("keys of TOML files", documents::toml_keys(&sources)),
        ("fields of JSON documents", documents::json_fields(&sources)),
        ("limits of --fail-if", limits::metric_lines()),
        ("metrics", metrics::metric_names()),
        ("finding codes", documents::finding_codes(&sources)),
        ("exit statuses", EXIT_STATUSES.iter().map(|(status, _)| (*status).to_owned()).collect()),
    ];
    let sections = sections.map(|(title, lines)| {
        assert!(!lines.is_empty(), "no {title}");
        format!("\n[{title}]\n{}\n", lines.join("\n"))
    });
    format!("# Public names, generated: {COMMAND}\n{}", sections.concat())
}

/// Returns the lines that only the old text has, prefixed with `-`, then those that only the new
/// text has, prefixed with `+`.
fn differences(old: &str, new: &str) -> Vec<String> {
    let lines_without = |other_text: &str, text: &str, sign: char| {
        let from: Vec<String> = other_text.lines().map(ToOwned::to_owned).collect();
        let lines = text.lines().filter(move |line| !from.iter().any(|other| other == line));
        lines.map(move |line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [lines_without(new, old, '-'), lines_without(old, new, '+')].concat()
}

#[test]
fn names_are_those_of_the_committed_list() {
    let list = names_text();
    if std::env::var_os("HOROLOG_WRITE_NAMES").is_some() {
        std::fs::write(PATH, &list).unwrap();
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    let differences = differences(&written, &list).join("\n");
    assert!(written == list, "write the list anew with {COMMAND}\n{differences}");
}

#[test]
fn differences_are_shown_by_line() {
    assert_eq!(differences("a\nb\n", "a\nc\n"), ["- b", "+ c"]);
    assert_eq!(differences("a\n", "a\n"), Vec::<String>::new());
}
