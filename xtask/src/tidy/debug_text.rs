//! Check that no text for a user is made by `Debug`, which prints names of types and fields, and
//! numbers without units. Strings of the product's crates outside of tests are searched for `{:?}`
//! and its forms. Texts for programmers (assertions and panics) may use it.

use super::Finding;
use super::files::TextFile;

/// Parts of paths to files without texts for users, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("/examples/", "examples for programmers"),
    ("/tests/", "tests"),
    ("/tests.rs", "tests"),
    ("_tests.rs", "tests"),
    ("crates/cli/src/commands/serve/example.rs", "writes TOML, and only in a test"),
    ("crates/load/src/engine/simulation", "is built for tests alone"),
];
/// Macros and methods that stop the program and print the location.
const FOR_PROGRAMMERS: [&str; 4] = ["assert", "panic!(", "unreachable!(", "expect("];

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let is_product = |file: &&TextFile| {
        let is_excepted = EXCEPTIONS.iter().any(|(part, _)| file.path.contains(part));
        file.extension() == "rs" && file.path.starts_with("crates/") && !is_excepted
    };
    files.iter().filter(is_product).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    // The test module is at the end of a file.
    let product = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let numbered = product.lines().enumerate();
    let is_found = |(_, line): &(usize, &str)| {
        let is_comment = line.trim_start().starts_with("//");
        has_debug(line) && !is_comment && !FOR_PROGRAMMERS.iter().any(|word| line.contains(word))
    };
    let message = "text by `Debug`; show words and units (`Display`), or except it in \
                   xtask/src/tidy/debug_text.rs";
    numbered.filter(is_found).map(|(at, _)| Finding::new(&file.path, at + 1, message)).collect()
}

/// Returns true if a format string has a placeholder for `Debug`: `{:?}`, `{name:#?}`, `{0:>9?}`.
fn has_debug(line: &str) -> bool {
    line.match_indices("?}").any(|(end, _)| {
        let placeholder = line[..end].rsplit('{').next().unwrap_or_default();
        let is_format =
            |spec: &str| spec.chars().all(|c| c.is_alphanumeric() || "#<>^+.$ ".contains(c));
        placeholder.split_once(':').is_some_and(|(name, spec)| is_format(name) && is_format(spec))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{NO_LINES, texts};
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&texts(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn text_by_debug_is_found_in_each_form() {
        for form in
            ["{:?}", "{0:?}", "{name:?}", "{:#?}", "{wait:>9?}", "not {0:?}, {}", "{}{:02x?}"]
        {
            let text = format!("//! A.\nfn f() {{}}\n#[error(\"{form}\")]\n");
            assert_eq!(lines("crates/a/src/b.rs", &text), [3], "{form}");
        }
        for form in ["{}", "{name}", "?}", "{ok?}", "{one:>9}", "[a?}", "{a: b(c)?}"] {
            let text = format!("//! A.\n    format!(\"{form}\")\n");
            assert_eq!(lines("crates/a/src/b.rs", &text), NO_LINES, "{form}");
        }
    }

    #[test]
    fn texts_for_programmers_may_use_debug() {
        let text = "//! A.\nformat!(\"{:?}\")\n";
        for path in
            ["crates/a/src/tests.rs", "crates/a/tests/b.rs", "tests/src/a.rs", "crates/a/src/b.c"]
        {
            assert_eq!(lines(path, text), NO_LINES, "{path}");
        }
        let text = "//! {:?}\n// {:?}\nassert!(a, \"{a:?}\");\npanic!(\"{a:?}\");\n\
                    #[cfg(test)]\nmod tests {\n    format!(\"{:?}\")\n}\n";
        assert_eq!(lines("crates/a/src/b.rs", text), NO_LINES);
    }
}
