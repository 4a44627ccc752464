//! `cargo xtask tidy`: the project's rules that are worth a red test. Each rule is a module with
//! one pure function from texts to findings; this one gathers the texts and prints what was found.
//! It repairs nothing.

mod dependencies;
mod files;
mod licences;
mod links;
mod lints;
mod privacy;
mod rooms;
mod source;
mod style;
mod unsafety;

use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo;
use rooms::Rooms;

/// One broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; 0 stands for the file as a whole.
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

/// Runs every check; `true` when nothing was found. With `name_long_files`, files past the size to
/// aim for are listed as well, without failing.
pub(crate) fn run(name_long_files: bool) -> Result<bool> {
    let started = Instant::now();
    let root = cargo::root();
    let product = cargo::metadata(&root.join("Cargo.toml"))?;
    // Last, so that a stale lock file of the fuzz workspace is named here, in seconds, and not by a
    // build that takes minutes.
    let fuzz = cargo::metadata(&root.join("fuzz/Cargo.toml"))?;
    let files = files::tracked(root)?;
    let rooms = Rooms::parse(files::text_of(&files, "ARCHITECTURE.md")?)
        .context("ARCHITECTURE.md's table of rooms")?;
    let accepted = licences::accepted(files::text_of(&files, "deny.toml")?)?;

    let mut findings = dependencies::check(&rooms, &product, root);
    findings.extend(unsafety::check(&rooms, &files));
    findings.extend(lints::check(&product, &files, root));
    findings.extend(style::check(&files));
    findings.extend(links::check(&files, |path| root.join(path).exists()));
    findings.extend(privacy::check(&files));
    findings.extend(licences::check(&product.packages, &accepted));
    findings.extend(licences::check(&fuzz.packages, &accepted));
    findings.sort();
    findings.dedup();

    for finding in &findings {
        println!("{finding}");
    }
    if name_long_files {
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

/// Spelled out because `serde_json` compares numbers with its own values, too.
#[cfg(test)]
const NO_LINES: [usize; 0] = [];

#[cfg(test)]
fn texts(files: &[(&str, &str)]) -> Vec<files::TextFile> {
    files
        .iter()
        .map(|(path, text)| files::TextFile { path: (*path).to_owned(), text: (*text).to_owned() })
        .collect()
}
