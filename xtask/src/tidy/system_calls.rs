//! Check that the command line uses of the `sys` crate only the modules that ARCHITECTURE.md lists:
//! anything that measures or decides belongs to the crate that the command line calls. The list is
//! read from the document, so a module is added there with its reason, and an unused one is found.

use anyhow::{Context, Result, ensure};

use super::Finding;
use super::files::TextFile;
use super::source::Source;

const DOCUMENT: &str = "ARCHITECTURE.md";
/// Opening of the list in the document; it ends with the sentence.
const LIST_OPENING: &str = "Of `sys`, the command line uses only";
const DIRECTORY: &str = "crates/cli/src/";
const SYS_CRATE: &str = "horolog_sys";

pub(super) fn check(document: &str, files: &[TextFile]) -> Result<Vec<Finding>> {
    let allowed = allowed_modules(document)?;
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(DIRECTORY)) {
        if file.extension() != "rs" {
            continue;
        }
        for (line, module) in used_modules(&Source::new(&file.text).code) {
            if !allowed.contains(&module) {
                let message = format!(
                    "{DOCUMENT} does not list `{module}` of {SYS_CRATE} for the command line; move \
                     the code to the crate that it calls"
                );
                findings.push(Finding::new(&file.path, line, message));
            }
            used.push(module);
        }
    }
    for module in allowed.iter().filter(|module| !used.contains(module)) {
        let message = format!("the command line does not use `{module}` of {SYS_CRATE}");
        findings.push(Finding::new(DOCUMENT, 0, message));
    }
    Ok(findings)
}

/// Returns the modules that the document lists: the words in backticks outside of parentheses, up
/// to the end of the sentence.
fn allowed_modules(document: &str) -> Result<Vec<String>> {
    let text = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text
        .split_once(LIST_OPENING)
        .with_context(|| format!("missing sentence in {DOCUMENT}: \"{LIST_OPENING} …\""))?;
    let (sentence, _) = rest.split_once('.').context("the list of modules has no end")?;
    let (mut modules, mut depth, mut quoted) = (Vec::new(), 0, None::<String>);
    for c in sentence.chars() {
        match (c, &mut quoted) {
            ('(', None) => depth += 1,
            (')', None) => depth -= 1,
            ('`', None) => quoted = Some(String::new()),
            ('`', Some(name)) => {
                let name = std::mem::take(name);
                quoted = None;
                if depth == 0 {
                    modules.push(name);
                }
            }
            (c, Some(name)) => name.push(c),
            (_, None) => {}
        }
    }
    ensure!(!modules.is_empty(), "the sentence \"{LIST_OPENING} …\" lists no module");
    Ok(modules)
}

/// Returns the modules of `sys` that the code uses, each with its line; `*` for the whole crate.
fn used_modules(code: &str) -> Vec<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut modules = Vec::new();
    for (start, _) in code.match_indices(SYS_CRATE) {
        let rest = &code[start + SYS_CRATE.len()..];
        if code[..start].ends_with(is_word) || rest.starts_with(is_word) {
            continue;
        }
        let line = code[..start].matches('\n').count() + 1;
        let path = rest.trim_start().strip_prefix("::").map(str::trim_start);
        let names = match path.map(|path| (path, path.strip_prefix('{'))) {
            Some((_, Some(group))) => first_names(group),
            Some((path, None)) => vec![path],
            None => vec![""],
        };
        modules.extend(names.into_iter().map(|name| {
            let name: String = name.chars().take_while(|c| is_word(*c)).collect();
            (line, if name.is_empty() { "*".to_owned() } else { name })
        }));
    }
    modules
}

/// Returns the elements of a group of imports, whose brace is already open.
fn first_names(group: &str) -> Vec<&str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(group[start..at].trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::super::{NO_LINES, texts};
    use super::*;

    const LIST: &str = "Of `sys`, the command line uses only `signal` (the end of a run, `Signal`)\n\
                        and `undo` (exits).\nOther `text`.";

    /// Returns the lines with findings in a file of the command line that also uses what is listed.
    fn lines(source: &str) -> Vec<usize> {
        let all = "use horolog_sys::signal;\nuse horolog_sys::undo;\n";
        let files = texts(&[("crates/cli/src/a.rs", source), ("crates/cli/src/b.rs", all)]);
        check(LIST, &files).unwrap().iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn listed_modules_pass() {
        assert_eq!(allowed_modules(LIST).unwrap(), ["signal", "undo"]);
        let source = "use horolog_sys::{signal::Signal, undo::{self, UndoGuard}};\n\
                      fn f() { horolog_sys::undo::exit(0) } // horolog_sys::xdp\n";
        assert_eq!(lines(source), NO_LINES);
        assert_eq!(lines("use my_horolog_sys::clock;\n"), NO_LINES);
    }

    #[test]
    fn a_module_that_is_not_listed_is_refused() {
        assert_eq!(lines("\nuse horolog_sys::clock::ClockMonotonic;\n"), [2]);
        assert_eq!(lines("use horolog_sys::{\n    signal, affinity,\n};\n"), [1]);
        assert_eq!(lines("fn f() {\n    horolog_sys::clock::now();\n}\n"), [2]);
        assert_eq!(lines("use horolog_sys as sys;\n"), [1]);
        assert_eq!(lines("use horolog_sys::*;\n"), [1]);
    }

    #[test]
    fn other_crates_may_use_every_module() {
        let used = "use horolog_sys::{signal, undo};\n";
        let other = "use horolog_sys::clock;\n";
        let files = texts(&[("crates/cli/src/a.rs", used), ("crates/relay/src/a.rs", other)]);
        assert_eq!(check(LIST, &files).unwrap(), []);
    }

    #[test]
    fn an_unused_entry_and_a_missing_list_are_found() {
        let files = texts(&[("crates/cli/src/a.rs", "use horolog_sys::undo;\n")]);
        assert_eq!(check(LIST, &files).unwrap().len(), 1);
        assert!(check("no list", &files).is_err());
        assert!(check("Of `sys`, the command line uses only little.", &files).is_err());
    }
}
