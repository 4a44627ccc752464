//! Parts that are linked into a binary in addition to crates and the parts inside them: the C
//! library of a static binary, and what its linker adds. Cargo does not list them; the build writes
//! a file with a table for each, which includes the paths of its notices.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Part, Parts, parts};

#[derive(Deserialize)]
struct PartsFile {
    part: Vec<PartEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartEntry {
    name: String,
    version: String,
    licence: String,
    purl: String,
    home: String,
    /// Crate that uses the part; the binary itself if `None`.
    within: Option<String>,
    notices: Vec<PathBuf>,
}

/// Adds the parts that a file lists.
pub(super) fn add(parts: &mut Parts, path: &Path) -> Result<()> {
    let named: PartsFile = toml::from_str(&fs::read_to_string(path)?)?;
    for entry in named.part {
        let name = entry.name.clone();
        let within = entry.within(parts).with_context(|| name.clone())?;
        parts.add(entry.part().context(name)?, &within);
    }
    Ok(())
}

impl PartEntry {
    fn within(&self, parts: &Parts) -> Result<String> {
        let user = match &self.within {
            Some(within) => parts.list.iter().find(|part| part.name == *within),
            None => parts.list.first(),
        };
        Ok(user.context("no such crate")?.reference())
    }

    fn part(self) -> Result<Part> {
        // The build searches a text for the version.
        ensure!(!self.version.is_empty(), "missing version");
        ensure!(!self.notices.is_empty(), "missing notice");
        Ok(Part {
            licence: parts::spdx_expression(&self.licence)?,
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

    fn entry(from: &str, to: &str) -> PartEntry {
        toml::from_str(&ENTRY.replace(from, to)).unwrap()
    }

    #[test]
    fn a_part_is_within_the_binary_or_a_crate() {
        let binary = entry("musl", "horolog").part().unwrap();
        let parts = Parts { list: vec![binary], uses: BTreeMap::new() };
        assert_eq!(entry("", "").within(&parts).unwrap(), "pkg:generic/horolog@1");
        let inner = |name: &str| entry("name", &format!("within = '{name}'\nname"));
        assert!(inner("horolog").within(&parts).is_ok());
        assert!(inner("unknown").within(&parts).is_err());
    }

    #[test]
    fn version_licence_and_notice_are_required() {
        assert_eq!(entry("", "").part().unwrap().licence, "MIT");
        assert!(entry("1.2", "").part().is_err());
        assert!(entry("'MIT'", "'whatever'").part().is_err());
        assert!(entry("'/COPYRIGHT'", "").part().is_err());
    }
}
