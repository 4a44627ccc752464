//! The parts of the style that a machine can judge: what a file opens with, how long files and
//! lines grow, no tabs or blanks where they do not belong, nothing left for later. rustfmt formats;
//! this checks only what rustfmt leaves alone.

use super::Finding;
use super::files::TextFile;
use super::source::{Source, has_word};

const LINE_COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 1_000;
/// The size to aim for; past it, a file is only named.
const FILE_LINES_AIM: usize = 600;

/// Words that put work off, as comments carry them.
const LEFT_FOR_LATER: [&str; 3] = ["TODO", "FIXME", "XXX"];
/// The same as macros, and the one that is for a developer's eyes only.
const MACROS_FOR_LATER: [&str; 3] = ["todo", "unimplemented", "dbg"];

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

/// Rust files past the size to aim for, longest first.
pub(super) fn long_files(files: &[TextFile]) -> Vec<String> {
    let mut long: Vec<(usize, &str)> = files
        .iter()
        .filter(|file| file.extension() == "rs")
        .map(|file| (file.text.lines().count(), file.path.as_str()))
        .filter(|(lines, _)| *lines > FILE_LINES_AIM)
        .collect();
    long.sort_unstable_by(|a, b| b.cmp(a));
    long.iter().map(|(lines, path)| format!("{path} has {lines} lines")).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    match file.extension() {
        "rs" => {
            check_opening(file, &mut findings);
            check_length(file, &mut findings);
            // rustfmt breaks code, and a message in one piece can be searched for: comments remain.
            check_columns(file, &Source::new(&file.text).comments, &mut findings);
            check_tabs(file, &mut findings);
            check_left_for_later(file, &mut findings);
        }
        "c" | "h" => {
            check_columns(file, &file.text, &mut findings);
            check_left_for_later(file, &mut findings);
        }
        "sh" | "md" | "toml" => {}
        // Anything else may be data, and data is as it is.
        _ => return findings,
    }
    check_line_ends(file, &mut findings);
    findings
}

fn check_opening(file: &TextFile, findings: &mut Vec<Finding>) {
    if !file.text.starts_with("//! ") {
        let message = "opens without a `//!` paragraph that says what it is for";
        findings.push(Finding::new(&file.path, 1, message));
    }
}

fn check_length(file: &TextFile, findings: &mut Vec<Finding>) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines, the limit is {FILE_LINES_MAX}: split it");
        findings.push(Finding::new(&file.path, 0, message));
    }
}

fn check_columns(file: &TextFile, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let columns = line.trim_end().chars().count();
        if columns > LINE_COLUMNS_MAX {
            let message = format!("{columns} columns, the limit is {LINE_COLUMNS_MAX}");
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
}

fn check_tabs(file: &TextFile, findings: &mut Vec<Finding>) {
    for (index, _) in file.text.lines().enumerate().filter(|(_, line)| line.contains('\t')) {
        findings.push(Finding::new(&file.path, index + 1, "a tab; Rust is indented with blanks"));
    }
}

fn check_line_ends(file: &TextFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(&file.path, index + 1, "white space at the line's end"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::new(&file.path, 0, "the last line has no end"));
    }
}

fn check_left_for_later(file: &TextFile, findings: &mut Vec<Finding>) {
    let source = Source::new(&file.text);
    for (index, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        let mut found = |word: &str| {
            let message = format!("`{word}`: do it, or say in an issue that it is to be done");
            findings.push(Finding::new(&file.path, index + 1, message));
        };
        for word in LEFT_FOR_LATER.iter().filter(|word| has_word(comment, word)) {
            found(word);
        }
        for name in MACROS_FOR_LATER.iter().filter(|name| code.contains(&format!("{name}!("))) {
            found(&format!("{name}!"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NO_LINES, texts};
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&texts(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_tidy_file_passes() {
        assert_eq!(lines("a.rs", "//! Counts.\n\nfn f() {}\n"), NO_LINES);
        assert_eq!(lines("a.c", "// Counts.\nint f(void)\n{\n\treturn 0;\n}\n"), NO_LINES);
    }

    #[test]
    fn a_file_without_a_purpose_is_found() {
        assert_eq!(lines("a.rs", "use std::fmt;\n"), [1]);
        assert_eq!(lines("a.rs", ""), [1]);
    }

    #[test]
    fn long_files_and_lines_are_found() {
        let text = format!("//! A.\n{}", "fn f() {}\n".repeat(FILE_LINES_MAX));
        assert_eq!(lines("a.rs", &text), [0]);
        assert_eq!(long_files(&texts(&[("a.rs", &text)])), ["a.rs has 1001 lines"]);
        assert_eq!(lines("a.rs", &format!("//! A.\n// {}\n", "ä".repeat(97))), NO_LINES);
        assert_eq!(lines("a.rs", &format!("//! A.\n// {}\n", "ä".repeat(98))), [2]);
        assert_eq!(lines("a.rs", &format!("//! A.\nf(\"{}\");\n", "ä".repeat(100))), NO_LINES);
        assert_eq!(lines("a.h", &format!("// {}\n", "ä".repeat(98))), [1]);
    }

    #[test]
    fn stray_white_space_is_found() {
        assert_eq!(lines("a.rs", "//! A.\n\tfn f() {} \n"), [2, 2]);
        assert_eq!(lines("a.md", "A  \nB\n"), [1]);
        assert_eq!(lines("a.sh", "true"), [0]);
        assert_eq!(lines("a.min.js", "x \t"), NO_LINES);
    }

    #[test]
    fn what_is_left_for_later_is_found() {
        assert_eq!(lines("a.rs", "//! A.\n// TODO: count\nfn f() { todo!() }\n"), [2, 3]);
        assert_eq!(lines("a.c", "int a; /* XXX */\n"), [1]);
        assert_eq!(lines("a.rs", "//! A.\nconst A: &str = \"TODO\"; // TODOS\n"), NO_LINES);
    }
}
