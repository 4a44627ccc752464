//! The parts that the binary is linked from: the crate of the binary and all that it uses in the
//! program itself. What runs at build time only (build scripts, procedural macros) leaves nothing
//! of its own in the binary and is left out. Features are those of the whole workspace, so a part
//! that only tests switch on is named rather than forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use spdx::{Expression, ParseMode};

use crate::cargo::{Metadata, Package};

const BINARY: &str = "horolog-cli";

/// One thing with a name, a version and a licence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// Its name where it is from, as of a crate.
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    /// A package URL (purl); nothing for the project's own crates, which no registry has.
    pub(super) purl: Option<String>,
    pub(super) home: Option<String>,
    pub(super) authors: Vec<String>,
    /// Its unpacked source; `None` for a part that was linked as a library.
    pub(super) directory: Option<PathBuf>,
    /// Files with its notices, unless they are those in the directory of its manifest.
    pub(super) notices: Vec<PathBuf>,
}

impl Part {
    /// What it is called among the others; crates come in several versions.
    pub(super) fn reference(&self) -> String {
        self.purl.clone().unwrap_or_else(|| format!("{}@{}", self.name, self.version))
    }

    /// Whether it is one of the project's own crates.
    pub(super) const fn is_own(&self) -> bool {
        self.purl.is_none()
    }
}

/// All parts, and who uses whom.
#[derive(Debug)]
pub(super) struct Parts {
    /// The first is the binary.
    pub(super) list: Vec<Part>,
    /// By reference, the references of what each uses.
    pub(super) uses: BTreeMap<String, BTreeSet<String>>,
}

impl Parts {
    /// The crates.
    pub(super) fn linked(metadata: &Metadata) -> Result<Self> {
        let packages: BTreeMap<&str, &Package> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
        let used: BTreeMap<&str, Vec<&str>> =
            metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), linked(node))).collect();
        let binary = metadata.members().find(|package| package.name == BINARY);
        let mut waiting = vec![binary.context("the workspace has no horolog-cli")?.id.as_str()];
        let mut parts = Self { list: Vec::new(), uses: BTreeMap::new() };
        let mut visited = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            let package = packages.get(id).with_context(|| format!("{id} is no package"))?;
            if !visited.insert(id) {
                continue;
            }
            let inner = used.get(id).into_iter().flatten().copied();
            let inner: Vec<_> = inner.filter(|id| !is_macro(packages.get(id).copied())).collect();
            let part = part(package)?;
            let names =
                inner.iter().filter_map(|id| packages.get(id).map(|package| part_of(package)));
            parts.uses.insert(part.reference(), names.collect::<Result<_>>()?);
            parts.list.push(part);
            waiting.extend(inner);
        }
        parts.list[1..].sort();
        Ok(parts)
    }

    /// Adds what is inside one of the parts.
    pub(super) fn add(&mut self, part: Part, within: &str) {
        let reference = part.reference();
        self.uses.insert(reference.clone(), BTreeSet::new());
        self.uses.entry(within.to_owned()).or_default().insert(reference);
        self.list.push(part);
    }
}

/// What a package uses in the program itself.
fn linked(node: &crate::cargo::Node) -> Vec<&str> {
    let used =
        node.deps.iter().filter(|used| used.dep_kinds.iter().any(|kind| kind.kind.is_none()));
    used.map(|used| used.pkg.as_str()).collect()
}

fn is_macro(package: Option<&Package>) -> bool {
    let kinds = package.into_iter().flat_map(|package| &package.targets).flat_map(|t| &t.kind);
    kinds.into_iter().any(|kind| kind == "proc-macro")
}

fn part_of(package: &Package) -> Result<String> {
    Ok(part(package)?.reference())
}

fn part(package: &Package) -> Result<Part> {
    let Package { name, version, .. } = package;
    let licence = package.license.as_deref().with_context(|| format!("{name} has no licence"))?;
    let directory = package.manifest_path.parent().context("a manifest has a directory")?;
    Ok(Part {
        name: name.clone(),
        version: version.clone(),
        licence: expression(licence).with_context(|| name.clone())?,
        purl: package.source.is_some().then(|| {
            // In a purl a plus sign stands for a blank.
            format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
        }),
        home: package.repository.clone(),
        authors: package.authors.clone(),
        directory: Some(directory.to_owned()),
        notices: Vec::new(),
    })
}

/// A licence as SPDX writes it; older packages write `MIT/Apache-2.0`.
pub(super) fn expression(text: &str) -> Result<String> {
    let canonical = Expression::canonicalize(text)?.unwrap_or_else(|| text.to_owned());
    let parsed = Expression::parse_mode(&canonical, ParseMode::STRICT);
    ensure!(parsed.is_ok(), "no SPDX expression: {text}");
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_licences_are_understood() {
        assert_eq!(expression("MIT/Apache-2.0").unwrap(), "MIT OR Apache-2.0");
        assert_eq!(expression("ISC AND (MIT OR Zlib)").unwrap(), "ISC AND (MIT OR Zlib)");
        assert!(expression("whatever you like").is_err());
    }

    #[test]
    fn build_dependencies_are_no_parts() {
        let metadata = super::super::metadata().unwrap();
        let parts = Parts::linked(&metadata).unwrap();
        let has = |name: &str| parts.list.iter().any(|part| part.name == name);
        assert_eq!(parts.list[0].name, BINARY);
        assert!(has("rustls") && has("clap") && has("horolog-time"));
        // A macro, a build script's crate, and one of the tests alone.
        assert!(!has("serde_derive") && !has("cc") && !has("libtest-mimic"));
    }
}
