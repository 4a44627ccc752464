//! Checks of style that rustfmt does not make: the opening of a file, the lengths of files and
//! lines, tabs, white space at line ends, and deferred work.

use super::Finding;
use super::files::TextFile;
use super::source::{Source, has_word};

const LINE_COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 1_000;
/// Recommended length; longer files are only listed.
const FILE_LINES_RECOMMENDED: usize = 600;

/// Words in comments that defer work.
const DEFERRING_WORDS: [&str; 3] = ["TODO", "FIXME", "XXX"];
/// Macros that defer work, and the one for debugging.
const DEFERRING_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

/// Returns Rust files above the recommended length, longest first.
pub(super) fn long_files(files: &[TextFile]) -> Vec<String> {
    let mut long: Vec<(usize, &str)> = files
        .iter()
        .filter(|file| file.extension() == "rs")
        .map(|file| (file.text.lines().count(), file.path.as_str()))
        .filter(|(lines, _)| *lines > FILE_LINES_RECOMMENDED)
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
            // rustfmt breaks code, and a string in one piece can be searched for: comments remain.
            check_columns(file, &Source::new(&file.text).comments, &mut findings);
            check_tabs(file, &mut findings);
            check_deferred_work(file, &mut findings);
        }
        "c" | "h" => {
            check_columns(file, &file.text, &mut findings);
            check_deferred_work(file, &mut findings);
        }
        "sh" | "md" | "toml" => {}
        // Other files may be data, which is not checked.
        _ => return findings,
    }
    check_line_ends(file, &mut findings);
    findings
}

fn check_opening(file: &TextFile, findings: &mut Vec<Finding>) {
    if !file.text.starts_with("//! ") {
        let message = "opens without a `//!` paragraph on the purpose of the file";
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
        findings.push(Finding::new(&file.path, index + 1, "a tab: indent Rust with spaces"));
    }
}

fn check_line_ends(file: &TextFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(&file.path, index + 1, "white space at the line end"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::new(&file.path, 0, "no newline at the end of the file"));
    }
}

fn check_deferred_work(file: &TextFile, findings: &mut Vec<Finding>) {
    let source = Source::new(&file.text);
    for (index, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        let mut found = |word: &str| {
            let message = format!("`{word}`: complete the work, or open an issue");
            findings.push(Finding::new(&file.path, index + 1, message));
        };
        for word in DEFERRING_WORDS.iter().filter(|word| has_word(comment, word)) {
            found(word);
        }
        for name in DEFERRING_MACROS.iter().filter(|name| code.contains(&format!("{name}!("))) {
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
    fn deferred_work_is_found() {
        assert_eq!(lines("a.rs", "//! A.\n// TODO: count\nfn f() { todo!() }\n"), [2, 3]);
        assert_eq!(lines("a.c", "int a; /* XXX */\n"), [1]);
        assert_eq!(lines("a.rs", "//! A.\nconst A: &str = \"TODO\"; // TODOS\n"), NO_LINES);
    }
}
