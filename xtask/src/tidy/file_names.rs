//! Names of files: a file with one visible type is named after it in snake case, or after its only
//! function; leading words, such as the crate's, may be dropped. Advisory: notes are printed with
//! the language of the sources and do not fail the check.

use super::files::TextFile;
use super::words::words;

/// Number of checked files, and notes on those that break the rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileNames {
    pub(super) checked: usize,
    pub(super) notes: Vec<String>,
}

impl FileNames {
    /// Checks a file with exactly one visible type; other files are skipped.
    pub(super) fn add(&mut self, file: &TextFile, syntax: &syn::File) {
        let Some(stem) = stem(&file.path) else { return };
        let (types, functions) = visible_items(syntax);
        let [name] = types.as_slice() else { return };
        self.checked += 1;
        let expected = words(name).join("_");
        let is_type = expected == stem || expected.ends_with(&format!("_{stem}"));
        let is_function = matches!(functions.as_slice(), [function] if function == stem);
        if !is_type && !is_function {
            self.notes.push(format!("{}: the only type is '{name}' ({expected}.rs)", file.path));
        }
    }
}

/// Returns the name of the module in a file; `None` for roots of crates, named after the crate.
fn stem(path: &str) -> Option<&str> {
    let module = path.strip_suffix(".rs")?;
    match module.rsplit_once('/')? {
        (_, "lib" | "main") => None,
        (directory, "mod") => directory.rsplit('/').next(),
        (_, stem) => Some(stem),
    }
}

/// Returns the types and functions of a file that other files can use.
fn visible_items(syntax: &syn::File) -> (Vec<String>, Vec<String>) {
    let (mut types, mut functions) = (Vec::new(), Vec::new());
    for item in &syntax.items {
        let (visibility, name, list) = match item {
            syn::Item::Struct(item) => (&item.vis, &item.ident, &mut types),
            syn::Item::Enum(item) => (&item.vis, &item.ident, &mut types),
            syn::Item::Trait(item) => (&item.vis, &item.ident, &mut types),
            syn::Item::Union(item) => (&item.vis, &item.ident, &mut types),
            syn::Item::Type(item) => (&item.vis, &item.ident, &mut types),
            syn::Item::Fn(item) => (&item.vis, &item.sig.ident, &mut functions),
            _ => continue,
        };
        if !matches!(visibility, syn::Visibility::Inherited) {
            list.push(name.to_string());
        }
    }
    (types, functions)
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    fn notes(path: &str, source: &str) -> (usize, usize) {
        let mut names = FileNames::default();
        let files = texts(&[(path, source)]);
        names.add(&files[0], &syn::parse_file(source).unwrap());
        (names.checked, names.notes.len())
    }

    #[test]
    fn a_file_with_another_name_than_its_type_is_noted() {
        let job = "pub struct JobExecutor;\nstruct Private;\n";
        assert_eq!(notes("crates/a/src/hands.rs", job), (1, 1));
        assert_eq!(notes("crates/a/src/hands/mod.rs", job), (1, 1));
        assert_eq!(notes("crates/a/src/run.rs", "pub(crate) enum E {}\npub fn f() {}\n"), (1, 1));
    }

    #[test]
    fn the_name_of_the_type_or_of_the_function_passes() {
        let job = "pub struct JobExecutor;\nimpl JobExecutor { pub fn run() {} }\n";
        for path in ["job_executor.rs", "executor.rs", "executor/mod.rs", "lib.rs"] {
            assert_eq!(notes(&format!("crates/a/src/{path}"), job).1, 0, "{path}");
        }
        let function = "pub struct JobExecutor;\npub fn run() {}\n";
        assert_eq!(notes("crates/a/src/run.rs", function), (1, 0));
        assert_eq!(notes("crates/a/src/b.rs", "pub struct A;\npub struct C;\n"), (0, 0));
    }
}
