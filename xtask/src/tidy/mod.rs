//! `cargo xtask tidy`: project rules that are worth an automatic check. Each rule is a module with
//! one pure function from texts to findings; this one reads the texts and prints the findings.
//! Nothing is repaired.

mod crates;
mod debug_text;
mod dependencies;
mod error_texts;
mod file_names;
mod files;
mod help_texts;
mod language;
mod licences;
mod links;
mod lints;
mod names;
mod phrases;
mod privacy;
mod source;
mod speech;
mod style;
mod system_calls;
mod test_items;
mod unsafety;
mod words;

use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo;
use crates::CrateRules;

/// Broken rule: its location, and the remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; 0 for the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Lists that are printed in addition to the findings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// No list.
    Findings,
    /// Files above the recommended length, which do not fail the check.
    LongFiles,
    /// Every use that a budget counts, and files that are not named after their only type.
    Language,
}

/// Runs every check. Returns true if nothing was found.
pub(crate) fn run(listing: Listing) -> Result<bool> {
    let started = Instant::now();
    let root = cargo::root();
    let product = cargo::metadata(&root.join("Cargo.toml"))?;
    // An outdated lock file of the fuzz workspace is reported here in seconds, not by a build that
    // takes minutes.
    let fuzz = cargo::metadata(&root.join("fuzz/Cargo.toml"))?;
    let files = files::read_text_files(root)?;
    let architecture = files::text_of(&files, "ARCHITECTURE.md")?;
    let rules = CrateRules::parse(architecture)
        .context("cannot read the table of crates in ARCHITECTURE.md")?;
    let accepted = licences::accepted(files::text_of(&files, "deny.toml")?)?;

    let mut findings = dependencies::check(&rules, &product, root);
    findings.extend(unsafety::check(&rules, &files));
    findings.extend(system_calls::check(architecture, &files)?);
    findings.extend(lints::check(&product, &files, root));
    findings.extend(style::check(&files));
    findings.extend(debug_text::check(&files));
    let language = language::check(&files, listing == Listing::Language)?;
    findings.extend(language.findings);
    findings.extend(help_texts::check(&files)?);
    findings.extend(phrases::check(&files));
    findings.extend(links::check(&files, |path| root.join(path).exists()));
    findings.extend(privacy::check(&files));
    findings.extend(licences::check(&product.packages, &accepted));
    findings.extend(licences::check(&fuzz.packages, &accepted));
    findings.sort();
    findings.dedup();

    for finding in &findings {
        println!("{finding}");
    }
    if listing == Listing::Language {
        for note in language.file_names.notes {
            println!("note: {note}");
        }
    }
    println!("{}", language.summary);
    if listing == Listing::LongFiles {
        for note in style::long_files(&files) {
            println!("note: {note}");
        }
    }
    println!(
        "tidy: {} files, {} packages, {} found ({:.1} s)",
        files.len(),
        product.packages.len(),
        findings.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(findings.is_empty())
}

/// Empty list with a type, since `serde_json` also compares numbers with its own values.
#[cfg(test)]
const NO_LINES: [usize; 0] = [];

#[cfg(test)]
fn texts(files: &[(&str, &str)]) -> Vec<files::TextFile> {
    files
        .iter()
        .map(|(path, text)| files::TextFile { path: (*path).to_owned(), text: (*text).to_owned() })
        .collect()
}
