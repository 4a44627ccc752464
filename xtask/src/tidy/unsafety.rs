//! Check that `unsafe` occurs only in crates for which the table in ARCHITECTURE.md allows it, and
//! that no other crate lifts the lint. Clippy requires a SAFETY comment for every block and impl;
//! this check adds private `unsafe fn`, which clippy omits.

use super::Finding;
use super::crates::CrateRules;
use super::files::TextFile;
use super::source::{Source, after_word, has_word};

pub(super) fn check(rules: &CrateRules, files: &[TextFile]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.extension() == "rs")
        .flat_map(|file| {
            check_file(file, rules.of_file(&file.path).is_some_and(|rule| rule.allows_unsafe))
        })
        .collect()
}

fn check_file(file: &TextFile, allows_unsafe: bool) -> Vec<Finding> {
    let code = Source::new(&file.text).code;
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut found = |message| findings.push(Finding::new(&file.path, index + 1, message));
        if lifts_lint(line) && !allows_unsafe {
            found("`unsafe_code` is lifted, but ARCHITECTURE.md allows no `unsafe` in this crate");
        }
        let Some(after) = after_word(line, "unsafe") else { continue };
        if !allows_unsafe {
            found("`unsafe`, but ARCHITECTURE.md allows none in this crate");
        } else if defines_function(after) && !is_justified(&lines[..index]) {
            found("an `unsafe fn` without a `# Safety` section with the obligations of callers");
        }
    }
    findings
}

fn lifts_lint(line: &str) -> bool {
    has_word(line, "unsafe_code") && (has_word(line, "allow") || has_word(line, "expect"))
}

/// Returns true if `fn name` follows, and not a block or a function pointer type. The name of the
/// ABI is a literal, so it is blank.
fn defines_function(after_unsafe: &str) -> bool {
    let rest = after_unsafe.trim_start();
    let rest = rest.strip_prefix("extern").unwrap_or(rest).trim_start();
    rest.strip_prefix("fn ").is_some_and(|name| !name.trim_start().starts_with('('))
}

/// Returns true if the comment directly above, attributes aside, has a section on safety.
fn is_justified(lines_above: &[&str]) -> bool {
    lines_above
        .iter()
        .rev()
        .map(|line| line.trim_start())
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.contains("# Safety") || line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::super::crates::tests::DOCUMENT;
    use super::super::{NO_LINES, texts};
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let rules = CrateRules::parse(DOCUMENT).unwrap();
        check(&rules, &texts(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_outside_its_crates_is_found() {
        assert_eq!(lines("crates/time/src/a.rs", "fn f() {\n    unsafe { g() }\n}\n"), [2]);
        assert_eq!(lines("crates/time/src/a.rs", "#[unsafe(no_mangle)]\nfn f() {}\n"), [1]);
        assert_eq!(lines("crates/sys/src/a.rs", "fn f() {\n    unsafe { g() }\n}\n"), NO_LINES);
    }

    #[test]
    fn unsafe_in_comments_and_strings_passes() {
        let text = "//! No unsafe here.\nconst A: &str = \"unsafe\"; // unsafe\n";
        assert_eq!(lines("crates/time/src/a.rs", text), NO_LINES);
    }

    #[test]
    fn the_lint_is_lifted_in_a_crate_with_unsafe_only() {
        let text = "#![allow(unsafe_code, reason = \"system calls\")]\n";
        assert_eq!(lines("crates/sys/src/netlink.rs", text), NO_LINES);
        assert_eq!(lines("crates/time/src/lib.rs", text), [1]);
        assert_eq!(lines("crates/time/src/lib.rs", "#![deny(unsafe_code)]\n"), NO_LINES);
    }

    #[test]
    fn an_unsafe_function_documents_its_requirements() {
        let path = "crates/sys/src/a.rs";
        assert_eq!(lines(path, "/// Reads.\nunsafe fn f() {}\n"), [2]);
        assert_eq!(lines(path, "/// # Safety\n/// Live.\n#[inline]\nunsafe fn f() {}\n"), NO_LINES);
        assert_eq!(lines(path, "// SAFETY: a\nfn g() {}\nunsafe extern \"C\" fn f() {}\n"), [3]);
        assert_eq!(lines(path, "type F = unsafe extern \"C\" fn(u8);\n"), NO_LINES);
    }
}
