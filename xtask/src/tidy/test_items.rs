//! Test-only parts of the Rust sources: items under `#[test]` or `#[cfg(test)]`, and the files of
//! modules that are declared so. Rules for the product's language skip them. Only syntax is read.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::files::TextFile;

/// Returns true for an item that is built for tests only.
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
        }
        _ => false,
    })
}

/// Files of modules that are declared for tests only, with those of their child modules.
#[derive(Debug)]
pub(super) struct TestModules(BTreeSet<String>);

impl TestModules {
    pub(super) fn find(files: &[TextFile]) -> Self {
        let sources = files.iter().filter(|file| file.extension() == "rs");
        // Most files declare no module for tests, and parsing is the slow part.
        let declaring =
            sources.filter(|file| file.text.contains("cfg(") && file.text.contains("mod "));
        Self(declaring.flat_map(declared_in).collect())
    }

    /// Returns true if the file is built for tests only.
    pub(super) fn contains(&self, path: &str) -> bool {
        let module = path.strip_suffix(".rs").unwrap_or(path);
        let mut above = module.match_indices('/').map(|(at, _)| &module[..at]);
        self.0.contains(module) || above.any(|directory| self.0.contains(directory))
    }
}

/// Returns the paths of the test modules that a file declares, without the extension.
fn declared_in(file: &TextFile) -> Vec<String> {
    let Ok(syntax) = syn::parse_file(&file.text) else { return Vec::new() };
    let directory = directory_of_children(&file.path);
    let declared = syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => {
            Some(format!("{directory}/{}", module.ident))
        }
        _ => None,
    });
    declared.collect()
}

/// Returns the directory in which the compiler searches the child modules of a file.
fn directory_of_children(path: &str) -> &str {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => directory,
        _ => path.strip_suffix(".rs").unwrap_or(path),
    }
}

/// Returns the ranges of lines, counted from 1, of the test-only items of a file.
pub(super) fn lines(syntax: &syn::File) -> Vec<RangeInclusive<usize>> {
    let mut items = TestItems(Vec::new());
    items.visit_file(syntax);
    items.0
}

struct TestItems(Vec<RangeInclusive<usize>>);

impl TestItems {
    fn add(&mut self, item: &impl Spanned) {
        let span = item.span();
        self.0.push(span.start().line..=span.end().line);
    }
}

impl<'ast> Visit<'ast> for TestItems {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            self.add(item);
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) {
            self.add(item);
        } else {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    #[test]
    fn lines_of_test_items_are_found_at_any_depth() {
        let source = "fn a() {}\n#[test]\nfn b() {\n}\nimpl A {\n    #[cfg(test)]\n    fn c() {}\n}\n\
                      mod d {\n    #[cfg(all(test, unix))]\n    use e::F;\n}\n#[cfg(unix)]\nfn g() {}\n";
        let found = lines(&syn::parse_file(source).unwrap());
        assert_eq!(found, [2..=4, 6..=7, 10..=11]);
    }

    #[test]
    fn files_of_test_modules_are_found_with_their_children() {
        let files = texts(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod testing;\nmod b;\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod inner;\n#[cfg(unix)]\nmod unix;\n"),
        ]);
        let modules = TestModules::find(&files);
        for (path, is_test) in [
            ("testing.rs", true),
            ("testing/mod.rs", true),
            ("testing/deep/child.rs", true),
            ("b/inner.rs", true),
            ("b.rs", false),
            ("b/unix.rs", false),
            ("testing_more.rs", false),
        ] {
            assert_eq!(modules.contains(&format!("crates/a/src/{path}")), is_test, "{path}");
        }
    }
}
