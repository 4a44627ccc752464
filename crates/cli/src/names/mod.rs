//! Public names: `docs/reference/names.txt` lists flags by command, keys of TOML files, fields of
//! JSON documents, metrics, finding codes, limits and exit statuses, so that a change of a name
//! that users and programs rely on shows in a review. The tests generate the list from the
//! definitions and compare; with `HOROLOG_WRITE_NAMES=1` they write it. Prose and value formats are
//! not in it.

mod documents;
mod flags;
mod limits;
mod metrics;
mod serde_fields;

use crate::commands::manual::STATUSES;

/// Relative to the crate's directory, in which Cargo runs its tests.
const PATH: &str = "../../docs/reference/names.txt";
const COMMAND: &str = "HOROLOG_WRITE_NAMES=1 cargo test -p horolog-cli names";

/// The whole list.
fn list() -> String {
    let sources = documents::sources();
    let sections = [
        ("flags", flags::list()),
        ("keys of TOML files", documents::keys(&sources)),
        ("fields of JSON documents", documents::fields(&sources)),
        ("limits of --fail-if", limits::list()),
        ("metrics", metrics::list()),
        ("finding codes", documents::finding_codes(&sources)),
        ("exit statuses", STATUSES.iter().map(|(status, _)| (*status).to_owned()).collect()),
    ];
    let sections = sections.map(|(title, lines)| {
        assert!(!lines.is_empty(), "no {title}");
        format!("\n[{title}]\n{}\n", lines.join("\n"))
    });
    format!("# Public names, generated: {COMMAND}\n{}", sections.concat())
}

/// Lines that only one of two texts has, with their sign.
fn differences(old: &str, new: &str) -> Vec<String> {
    let missing = |from: &str, of: &str, sign: char| {
        let from: Vec<String> = from.lines().map(ToOwned::to_owned).collect();
        let lines = of.lines().filter(move |line| !from.iter().any(|other| other == line));
        lines.map(move |line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [missing(new, old, '-'), missing(old, new, '+')].concat()
}

#[test]
fn names_are_those_of_the_committed_list() {
    let list = list();
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
