//! What is linked into a binary besides crates and what these carry: a static one's C library and
//! what else its linker brings. Cargo does not know them; the build names them in a file,
//! with a table for each, and where their notices are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Part, Parts, parts};

#[derive(Deserialize)]
struct Named {
    part: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    version: String,
    licence: String,
    purl: String,
    home: String,
    /// The crate that uses it; the binary itself where there is none.
    within: Option<String>,
    notices: Vec<PathBuf>,
}

/// Adds those that a file names.
pub(super) fn add(parts: &mut Parts, path: &Path) -> Result<()> {
    let named: Named = toml::from_str(&fs::read_to_string(path)?)?;
    for entry in named.part {
        let name = entry.name.clone();
        let within = entry.within(parts).with_context(|| name.clone())?;
        parts.add(entry.part().context(name)?, &within);
    }
    Ok(())
}

impl Entry {
    fn within(&self, parts: &Parts) -> Result<String> {
        let user = match &self.within {
            Some(within) => parts.list.iter().find(|part| part.name == *within),
            None => parts.list.first(),
        };
        Ok(user.context("it is within no part")?.reference())
    }

    fn part(self) -> Result<Part> {
        // Looked for in a text, where it may not be.
        ensure!(!self.version.is_empty(), "it has no version");
        ensure!(!self.notices.is_empty(), "it has no notice");
        Ok(Part {
            licence: parts::expression(&self.licence)?,
            name: self.name,
            version: self.version,
            purl: Some(self.purl),
            home: Some(self.home),
            authors: Vec::new(),
            directory: None,
            notices: self.notices,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ENTRY: &str = "name = 'musl'\nversion = '1.2'\nlicence = 'MIT'\npurl = 'pkg:generic/musl@1'\n\
                         home = 'https://musl.libc.org'\nnotices = ['/COPYRIGHT']\n";

    fn entry(from: &str, to: &str) -> Entry {
        toml::from_str(&ENTRY.replace(from, to)).unwrap()
    }

    #[test]
    fn it_is_within_the_binary_or_a_crate() {
        let binary = entry("musl", "horolog").part().unwrap();
        let parts = Parts { list: vec![binary], uses: BTreeMap::new() };
        assert_eq!(entry("", "").within(&parts).unwrap(), "pkg:generic/horolog@1");
        let inner = |name: &str| entry("name", &format!("within = '{name}'\nname"));
        assert!(inner("horolog").within(&parts).is_ok());
        assert!(inner("nobody").within(&parts).is_err());
    }

    #[test]
    fn version_licence_and_notice_are_required() {
        assert_eq!(entry("", "").part().unwrap().licence, "MIT");
        assert!(entry("1.2", "").part().is_err());
        assert!(entry("'MIT'", "'whatever'").part().is_err());
        assert!(entry("'/COPYRIGHT'", "").part().is_err());
    }
}
