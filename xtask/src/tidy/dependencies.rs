//! Check that dependencies between the project's own crates follow the table in ARCHITECTURE.md,
//! and that the table and the workspace contain the same crates. Dependencies of tests and builds
//! count like any other. External dependencies are not checked.

use std::path::Path;

use super::Finding;
use super::crates::CrateRules;
use crate::cargo::{Metadata, Package};

const DOCUMENT: &str = "ARCHITECTURE.md";

pub(super) fn check(rules: &CrateRules, workspace: &Metadata, root: &Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        workspace.members().flat_map(|package| check_package(rules, package, root)).collect();
    for rule in &rules.0 {
        if !root.join(&rule.directory).join("Cargo.toml").is_file() {
            let message = format!("the table names `{}`, which is no crate", rule.directory);
            findings.push(Finding::new(DOCUMENT, 0, message));
        }
    }
    findings
}

fn check_package(rules: &CrateRules, package: &Package, root: &Path) -> Vec<Finding> {
    let directory =
        package.manifest_path.parent().map_or_else(String::new, |p| relative_path(p, root));
    let manifest = format!("{directory}/Cargo.toml");
    let Some(rule) = rules.find(&directory) else {
        let message = format!("`{directory}` has no row in {DOCUMENT}'s table of crates");
        return vec![Finding::new(&manifest, 0, message)];
    };
    package
        .dependencies
        .iter()
        .filter_map(|dependency| {
            Some((dependency, relative_path(dependency.path.as_deref()?, root)))
        })
        .filter(|(_, used)| !rule.may_use.contains(used))
        .map(|(dependency, used)| {
            let message = format!(
                "{DOCUMENT} does not allow `{directory}` to use `{used}` ({}); move shared code up",
                dependency.name
            );
            Finding::new(&manifest, 0, message)
        })
        .collect()
}

fn relative_path(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::crates::tests::DOCUMENT;
    use super::*;
    use crate::cargo::Dependency;

    fn findings(directory: &str, uses: &str) -> Vec<Finding> {
        let dependency = Dependency {
            name: "used".to_owned(),
            path: (!uses.is_empty()).then(|| Path::new("/src").join(uses)),
        };
        let package = Package {
            id: "id".to_owned(),
            name: "name".to_owned(),
            version: "0.1.0".to_owned(),
            license: None,
            authors: Vec::new(),
            repository: None,
            source: None,
            manifest_path: Path::new("/src").join(directory).join("Cargo.toml"),
            dependencies: vec![dependency],
            targets: Vec::new(),
        };
        check_package(&CrateRules::parse(DOCUMENT).unwrap(), &package, Path::new("/src"))
    }

    #[test]
    fn dependencies_on_crates_above_and_outside_are_allowed() {
        assert_eq!(findings("crates/server", "crates/sys"), []);
        assert_eq!(findings("crates/time", ""), []);
    }

    #[test]
    fn forbidden_dependencies_are_found() {
        assert_eq!(findings("crates/time", "crates/sys").len(), 1);
        assert_eq!(findings("crates/load", "crates/server").len(), 1);
        assert_eq!(findings("xtask", "crates/time").len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(findings("crates/extra", "").len(), 1);
    }
}
