//! Parts that the binary is linked from: the crate of the binary and its normal dependencies. Build
//! scripts and procedural macros only run at build time and are omitted. Features are those of the
//! whole workspace, so a part that only tests enable is included.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use spdx::{Expression, ParseMode};

use crate::cargo::{Metadata, Package};

const BINARY: &str = "horolog-cli";

/// Part of the binary with a name, a version and a licence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// Name at the origin of the part, such as that of a crate.
    pub(super) name: String,
    pub(super) version: String,
    /// SPDX expression.
    pub(super) licence: String,
    /// Package URL (purl); `None` for the project's own crates, which are in no registry.
    pub(super) purl: Option<String>,
    pub(super) home: Option<String>,
    pub(super) authors: Vec<String>,
    /// Directory of the unpacked source; `None` for a part that was linked as a library.
    pub(super) directory: Option<PathBuf>,
    /// Files of notices, unless they are those in `directory`.
    pub(super) notices: Vec<PathBuf>,
}

impl Part {
    /// Returns the unique reference of the part; crates occur in several versions.
    pub(super) fn reference(&self) -> String {
        self.purl.clone().unwrap_or_else(|| format!("{}@{}", self.name, self.version))
    }

    /// Returns true for the project's own crates.
    pub(super) const fn is_own(&self) -> bool {
        self.purl.is_none()
    }
}

/// All parts and their dependencies.
#[derive(Debug)]
pub(super) struct Parts {
    /// Parts, the binary first.
    pub(super) list: Vec<Part>,
    /// References of the parts that each part uses, by its own reference.
    pub(super) uses: BTreeMap<String, BTreeSet<String>>,
}

impl Parts {
    /// Returns the linked crates.
    pub(super) fn linked(metadata: &Metadata) -> Result<Self> {
        let packages: BTreeMap<&str, &Package> =
            metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
        let used: BTreeMap<&str, Vec<&str>> = metadata
            .resolve
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), linked_packages(node)))
            .collect();
        let binary = metadata.members().find(|package| package.name == BINARY);
        let mut waiting = vec![binary.context("the workspace has no horolog-cli")?.id.as_str()];
        let mut parts = Self { list: Vec::new(), uses: BTreeMap::new() };
        let mut visited = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            let package = packages.get(id).with_context(|| format!("no such package: {id}"))?;
            if !visited.insert(id) {
                continue;
            }
            let inner = used.get(id).into_iter().flatten().copied();
            let inner: Vec<_> = inner.filter(|id| !is_macro(packages.get(id).copied())).collect();
            let part = part(package)?;
            let names = inner
                .iter()
                .filter_map(|id| packages.get(id).map(|package| part_reference(package)));
            parts.uses.insert(part.reference(), names.collect::<Result<_>>()?);
            parts.list.push(part);
            waiting.extend(inner);
        }
        parts.list[1..].sort();
        Ok(parts)
    }

    /// Adds a part that is inside the part `within`.
    pub(super) fn add(&mut self, part: Part, within: &str) {
        let reference = part.reference();
        self.uses.insert(reference.clone(), BTreeSet::new());
        self.uses.entry(within.to_owned()).or_default().insert(reference);
        self.list.push(part);
    }
}

/// Returns the packages that a package uses in the program itself.
fn linked_packages(node: &crate::cargo::ResolveNode) -> Vec<&str> {
    let used =
        node.deps.iter().filter(|used| used.dep_kinds.iter().any(|kind| kind.kind.is_none()));
    used.map(|used| used.pkg.as_str()).collect()
}

fn is_macro(package: Option<&Package>) -> bool {
    let kinds = package.into_iter().flat_map(|package| &package.targets).flat_map(|t| &t.kind);
    kinds.into_iter().any(|kind| kind == "proc-macro")
}

fn part_reference(package: &Package) -> Result<String> {
    Ok(part(package)?.reference())
}

fn part(package: &Package) -> Result<Part> {
    let Package { name, version, .. } = package;
    let licence = package.license.as_deref().with_context(|| format!("{name} has no licence"))?;
    let directory = package.manifest_path.parent().context("manifest without directory")?;
    Ok(Part {
        name: name.clone(),
        version: version.clone(),
        licence: spdx_expression(licence).with_context(|| name.clone())?,
        purl: package.source.is_some().then(|| {
            // In a purl a plus sign represents a blank.
            format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
        }),
        home: package.repository.clone(),
        authors: package.authors.clone(),
        directory: Some(directory.to_owned()),
        notices: Vec::new(),
    })
}

/// Returns a licence in SPDX syntax; older packages write `MIT/Apache-2.0`.
pub(super) fn spdx_expression(text: &str) -> Result<String> {
    let canonical = Expression::canonicalize(text)?.unwrap_or_else(|| text.to_owned());
    let parsed = Expression::parse_mode(&canonical, ParseMode::STRICT);
    ensure!(parsed.is_ok(), "invalid SPDX expression: {text}");
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_licences_are_parsed() {
        assert_eq!(spdx_expression("MIT/Apache-2.0").unwrap(), "MIT OR Apache-2.0");
        assert_eq!(spdx_expression("ISC AND (MIT OR Zlib)").unwrap(), "ISC AND (MIT OR Zlib)");
        assert!(spdx_expression("whatever you like").is_err());
    }

    #[test]
    fn build_dependencies_are_no_parts() {
        let metadata = super::super::metadata().unwrap();
        let parts = Parts::linked(&metadata).unwrap();
        let has = |name: &str| parts.list.iter().any(|part| part.name == name);
        assert_eq!(parts.list[0].name, BINARY);
        assert!(has("rustls") && has("clap") && has("horolog-time"));
        // A macro, a crate of a build script, and one that only tests use.
        assert!(!has("serde_derive") && !has("cc") && !has("libtest-mimic"));
    }
}
