//! Check of the language of the sources: names, comments and texts use the terms of
//! `docs/glossary.md`. Names with retired words, verbs of speech, error texts that name no failure,
//! comments that open with a phrase, and type names with several meanings are counted for each
//! crate and compared with its budget in `language.toml`. Types named by a pronoun have no budget.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use anyhow::{Context, Result};
use serde::Deserialize;
use syn::visit::{self, Visit};

use super::Finding;
use super::file_names::FileNames;
use super::files::TextFile;
use super::test_items::{self, TestModules, is_test};
use super::words::words;
use super::{error_texts, names, speech};

/// File with the lists and budgets, relative to the repository's root.
const BUDGET_FILE: &str = "xtask/src/tidy/language.toml";

/// Lists and budgets. A budget never rises: a lower count lowers it in the same commit.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// Words that must not occur in names.
    retired: BTreeSet<String>,
    /// Names that may contain a retired word, each with the reason.
    exceptions: BTreeMap<String, String>,
    /// Openings of comments that paraphrase a thing instead of naming it.
    openings: Vec<String>,
    /// Names of types that cannot be understood without their module.
    pronouns: BTreeSet<String>,
    /// Verbs of speech and pronouns for persons, in any part of a source.
    speech: BTreeSet<String>,
    /// Type names that may have several meanings, each with the reason.
    shared_types: BTreeMap<String, String>,
    /// Number of type names with several meanings in the workspace and without a reason.
    ambiguous_types_max: usize,
    /// Budgets by crate.
    #[serde(default)]
    budgets: BTreeMap<String, Budget>,
}

/// Remaining budget of a crate.
#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
struct Budget {
    /// Names with a retired word.
    retired: usize,
    /// Verbs of speech and pronouns for persons in identifiers, comments and strings.
    speech: usize,
    /// Error texts that break the rule.
    errors: usize,
    /// Comments that open with a phrase.
    openings: usize,
}

/// Types and comments of one file outside of tests.
#[derive(Default)]
struct Vocabulary {
    types: Vec<(usize, String)>,
    comments: Vec<(usize, String)>,
}

/// Result of the check: findings, and a summary of the counts.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) findings: Vec<Finding>,
    pub(super) summary: String,
    /// Files that are not named after their only type; advisory.
    pub(super) file_names: FileNames,
}

/// Checks the sources of all crates. With `list`, every occurrence is a finding.
pub(super) fn check(files: &[TextFile], list: bool) -> Result<Report> {
    let rules: Rules = toml::from_str(super::files::text_of(files, BUDGET_FILE)?)
        .with_context(|| format!("cannot read {BUDGET_FILE}"))?;
    let only_tests = TestModules::find(files);
    let mut counts: BTreeMap<String, Budget> = BTreeMap::new();
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut findings, mut occurrences, mut comments) = (Vec::new(), Vec::new(), 0);
    let mut file_names = FileNames::default();
    for (owner, file) in files.iter().filter_map(|file| Some((owner_of(file)?, file))) {
        let count = counts.entry(owner.to_owned()).or_default();
        let mut add = |line: usize, message: String| {
            occurrences.push(Finding::new(&file.path, line, message));
        };
        let syntax = if file.extension() == "rs" { Some(parse(file)?) } else { None };
        for (line, name) in syntax.iter().flat_map(|syntax| names::declared(&file.path, syntax)) {
            if let Some(word) = rules.retired_word(&name) {
                count.retired += 1;
                add(line, format!("'{name}' has the retired word '{word}'"));
            }
        }
        if !is_product(file) || only_tests.contains(&file.path) {
            continue;
        }
        let tests = syntax.as_ref().map(test_items::lines).unwrap_or_default();
        for (line, name) in speech::uses(&file.text, &tests, &rules.speech) {
            count.speech += 1;
            add(line, format!("'{name}' has a verb of speech or a person"));
        }
        let Some(syntax) = syntax else { continue };
        for (line, message) in error_texts::violations(&syntax) {
            count.errors += 1;
            add(line, message);
        }
        file_names.add(file, &syntax);
        let vocabulary = Vocabulary::read(&syntax);
        comments += vocabulary.comments.len();
        for (line, text) in &vocabulary.comments {
            if rules.openings.iter().any(|opening| opens_with(text, opening)) {
                count.openings += 1;
                add(*line, format!("opens with '{}'", text.split(' ').next().unwrap_or_default()));
            }
        }
        for (line, name) in vocabulary.types {
            if rules.pronouns.contains(&name) {
                let message = format!("type '{name}' is a pronoun: name it by a noun");
                findings.push(Finding::new(&file.path, line, message));
            }
            types.entry(name).or_default().insert(format!("{}:{line}", file.path));
        }
    }
    let total = types.len();
    types.retain(|name, locations| locations.len() > 1 && !rules.shared_types.contains_key(name));
    for (name, locations) in &types {
        let locations = locations.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        occurrences.push(Finding::new(
            BUDGET_FILE,
            0,
            format!("several types '{name}': {locations}"),
        ));
    }
    findings.extend(rules.violations(&counts, types.len()));
    if list {
        findings.append(&mut occurrences);
    }
    let mut figures = summarise(&counts, comments, types.len(), total);
    let (other, checked) = (file_names.notes.len(), file_names.checked);
    // Writing to memory does not fail.
    let _ = write!(figures, ", {other} of {checked} files are not named after their only type");
    Ok(Report { findings, summary: figures, file_names })
}

fn parse(file: &TextFile) -> Result<syn::File> {
    syn::parse_file(&file.text).with_context(|| format!("cannot parse {} as Rust", file.path))
}

fn summarise(
    counts: &BTreeMap<String, Budget>,
    comments: usize,
    ambiguous: usize,
    types: usize,
) -> String {
    let sum = |of: fn(&Budget) -> usize| counts.values().map(of).sum::<usize>();
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let openings = sum(|count| count.openings);
    format!(
        "language: {} retired words in names, {} verbs of speech, {} texts of errors that name no \
         failure, {openings} of {comments} comments ({:.1}%) open with a phrase, {ambiguous} of \
         {types} type names ({:.1}%) have several meanings",
        sum(|count| count.retired),
        sum(|count| count.speech),
        sum(|count| count.errors),
        percent(openings, comments),
        percent(ambiguous, types),
    )
}

impl Rules {
    fn retired_word(&self, name: &str) -> Option<String> {
        if self.exceptions.contains_key(name) {
            return None;
        }
        words(name).into_iter().find(|word| self.retired.contains(word))
    }

    /// Returns findings on budgets that differ from their count.
    fn violations(&self, counts: &BTreeMap<String, Budget>, ambiguous: usize) -> Vec<Finding> {
        let crates: BTreeSet<_> = self.budgets.keys().chain(counts.keys()).collect();
        let kinds = crates.into_iter().flat_map(|name| {
            let budget = self.budgets.get(name).copied().unwrap_or_default().kinds();
            let count = counts.get(name).copied().unwrap_or_default();
            let line = format!("{name} = {count}");
            count.kinds().into_iter().zip(budget).map(move |((_, kind, count), (.., budget))| {
                (format!("{name}: {kind}"), count, budget, line.clone())
            })
        });
        let types = (
            "type names with several meanings".to_owned(),
            ambiguous,
            self.ambiguous_types_max,
            format!("ambiguous_types_max = {ambiguous}"),
        );
        kinds
            .chain([types])
            .filter(|(_, count, budget, _)| count != budget)
            .map(|(what, count, budget, line)| {
                let remedy = if count > budget {
                    "'cargo xtask tidy --language' lists all; reword them by docs/glossary.md"
                        .into()
                } else {
                    format!("lower it: {line}")
                };
                let message = format!("{count} {what}, the budget is {budget}: {remedy}");
                Finding::new(BUDGET_FILE, 0, message)
            })
            .collect()
    }
}

impl Budget {
    /// Returns the key in the file, the description and the count of each kind.
    fn kinds(&self) -> [(&'static str, &'static str, usize); 4] {
        [
            ("retired", "names with retired words", self.retired),
            ("speech", "verbs of speech and persons", self.speech),
            ("errors", "texts of errors that name no failure", self.errors),
            ("openings", "comments that open with a phrase", self.openings),
        ]
    }
}

/// Formats a budget in the notation of `language.toml`.
impl fmt::Display for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.kinds().into_iter().filter(|(.., count)| *count > 0);
        let kinds: Vec<_> = present.map(|(key, _, count)| format!("{key} = {count}")).collect();
        write!(formatter, "{{ {} }}", kinds.join(", "))
    }
}

/// Returns the crate of a source file, or the directory of a program outside of `crates`.
fn owner_of(file: &TextFile) -> Option<&str> {
    let (owner, path) = file.path.split_once('/')?;
    let owner = match owner {
        "crates" => path.split_once('/')?.0,
        "tests" | "benches" | "fuzz" | "xtask" => owner,
        _ => return None,
    };
    ["rs", "c", "h"].contains(&file.extension()).then_some(owner)
}

/// Returns true for a source file of the product; tests are excluded.
fn is_product(file: &TextFile) -> bool {
    let path = file.path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
    let module = path.and_then(|(_, path)| path.strip_prefix("src/")?.strip_suffix(".rs"));
    let is_test =
        |path: &str| path.ends_with("tests") || path.contains("tests/") || path.ends_with("_test");
    path.is_some_and(|_| file.extension() != "rs" || module.is_some_and(|path| !is_test(path)))
}

/// Returns true if `text` begins with the words of `opening`.
fn opens_with(text: &str, opening: &str) -> bool {
    text.strip_prefix(opening).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

impl Vocabulary {
    fn read(syntax: &syn::File) -> Self {
        let mut vocabulary = Self::default();
        vocabulary.visit_file(syntax);
        vocabulary
    }

    fn declare_type(&mut self, name: &syn::Ident) {
        self.types.push((name.span().start().line, name.to_string()));
    }

    /// Adds the first line of a documentation comment.
    fn add_comment(&mut self, attributes: &[syn::Attribute]) {
        let text = attributes.iter().find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                    Some((text.span().start().line, text.value().trim().to_owned()))
                }
                _ => None,
            },
            _ => None,
        });
        self.comments.extend(text);
    }
}

impl<'ast> Visit<'ast> for Vocabulary {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.add_comment(&file.attrs);
        visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.add_comment(&item.attrs);
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if !is_test(&item.attrs) {
            self.declare_type(&item.ident);
            self.add_comment(&item.attrs);
            visit::visit_item_struct(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if !is_test(&item.attrs) {
            self.declare_type(&item.ident);
            self.add_comment(&item.attrs);
            visit::visit_item_enum(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !is_test(&item.attrs) {
            self.declare_type(&item.ident);
            self.add_comment(&item.attrs);
            visit::visit_item_trait(self, item);
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.declare_type(&item.ident);
        self.add_comment(&item.attrs);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if !is_test(&item.attrs) {
            self.add_comment(&item.attrs);
        }
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.add_comment(&item.attrs);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.add_comment(&variant.attrs);
        visit::visit_variant(self, variant);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.add_comment(&field.attrs);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.add_comment(&item.attrs);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.add_comment(&item.attrs);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.add_comment(&item.attrs);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add_comment(&item.attrs);
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    const RULES: &str = r#"
retired = ["told"]
openings = ["What", "The same"]
pronouns = ["Here"]
speech = ["nobody"]
ambiguous_types_max = 0
[exceptions]
has_told = "for the test"
[shared_types]
Config = "each crate has its own"
[budgets.a]
"#;

    fn found(source: &str) -> (Vec<String>, String) {
        let files = texts(&[("crates/a/src/lib.rs", source), (BUDGET_FILE, RULES)]);
        let report = check(&files, true).unwrap();
        let lines = report.findings.into_iter().filter(|finding| finding.path != BUDGET_FILE);
        let lines = lines.map(|finding| format!("{} {}", finding.line, finding.message)).collect();
        (lines, report.summary)
    }

    #[test]
    fn retired_words_of_any_declaration_are_found() {
        let source = "//! A.\nstruct Told { told_at: u8 }\nenum E { Told }\nfn told() {}\n\
                      mod told {}\nconst TOLD: u8 = 0;\ntrait T { fn told(); }\n\
                      impl E { fn told() { struct Told; } }\nfn has_told() {}\n";
        let lines: Vec<_> =
            found(source).0.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(lines, ["2", "2", "3", "4", "5", "6", "7", "8", "8"]);
    }

    #[test]
    fn only_names_are_checked_in_tests() {
        let source = "//! A.\n#[cfg(test)]\nmod tests {\n/// What.\nstruct Here; }\n\
                      #[test]\nfn told() {}\n";
        assert_eq!(found(source).0, ["7 'told' has the retired word 'told'"]);
        for path in ["crates/a/src/a/tests.rs", "tests/src/a.rs", "fuzz/src/a.rs"] {
            let files = texts(&[(path, "/// What.\nfn told() {}"), (BUDGET_FILE, RULES)]);
            let lines = check(&files, true).unwrap().findings;
            let lines: Vec<_> = lines.iter().filter(|found| found.path == path).collect();
            assert_eq!(lines.len(), 1, "{lines:?}");
        }
    }

    #[test]
    fn files_of_test_modules_are_skipped() {
        let files = texts(&[
            ("crates/a/src/lib.rs", "//! A.\n#[cfg(test)]\nmod testing;\n"),
            ("crates/a/src/testing.rs", "/// What.\nfn a() {}"),
            (BUDGET_FILE, RULES),
        ]);
        assert_eq!(check(&files, true).unwrap().findings, []);
    }

    #[test]
    fn verbs_of_speech_and_texts_of_errors_count_outside_of_tests() {
        let source = "//! A.\n// Nobody.\nfn a() { bail!(\"it is\") }\n\
                      #[test]\nfn nobody() { bail!(\"it is\") }\n";
        let (lines, figures) = found(source);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(figures.contains("1 verbs of speech, 1 texts of errors"), "{figures}");
        let files = texts(&[("crates/a/bpf/a.c", "/* nobody */"), (BUDGET_FILE, RULES)]);
        assert_eq!(check(&files, false).unwrap().findings.len(), 1);
    }

    #[test]
    fn openings_are_whole_words() {
        let source = "//! What it is.\n/// Whatever.\nfn a() {}\n/// The same.\nfn b() {}\n\
                      struct S {\n/// What.\na: u8 }\n/// Here\n/// What\nstruct Here;\n";
        let (lines, figures) = found(source);
        let lines: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(lines, ["11", "1", "4", "7"]);
        assert!(figures.contains("3 of 5 comments (60.0%)"), "{figures}");
    }

    #[test]
    fn ambiguous_type_names_need_a_reason() {
        let a = "//! A.\nstruct Config;\nstruct Once;\nstruct Twice;\n";
        let b = "//! B.\nstruct Config;\nstruct Twice;\n";
        let files =
            texts(&[("crates/a/src/lib.rs", a), ("crates/b/src/lib.rs", b), (BUDGET_FILE, RULES)]);
        let report = check(&files, false).unwrap();
        assert!(report.summary.contains("1 of 3 type names (33.3%)"), "{}", report.summary);
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    }

    #[test]
    fn a_budget_is_neither_exceeded_nor_left_unused() {
        let source = "//! A.\nfn told() {}\n";
        for (budget, fits) in [(0, false), (1, true), (2, false)] {
            let rules = format!("{RULES}retired = {budget}\n");
            let files = texts(&[("crates/a/src/lib.rs", source), (BUDGET_FILE, &rules)]);
            let findings = check(&files, false).unwrap().findings;
            assert_eq!(findings.is_empty(), fits, "{budget}");
            let is_lowered =
                findings.iter().any(|found| found.message.ends_with("a = { retired = 1 }"));
            assert_eq!(is_lowered, budget > 1, "{findings:?}");
        }
    }
}
