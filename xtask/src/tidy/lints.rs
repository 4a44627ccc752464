//! Check that every crate of the workspace inherits its lints. Otherwise the crate would escape
//! `unsafe_code = "deny"` and the other lints of the root manifest, and cargo would not report it.

use std::path::Path;

use super::Finding;
use super::files::TextFile;
use crate::cargo::Metadata;

pub(super) fn check(workspace: &Metadata, files: &[TextFile], root: &Path) -> Vec<Finding> {
    let members: Vec<&Path> =
        workspace.members().filter_map(|p| p.manifest_path.strip_prefix(root).ok()).collect();
    files
        .iter()
        .filter(|file| members.contains(&Path::new(&file.path)))
        .filter(|file| !inherits(&file.text))
        .map(|file| Finding::new(&file.path, 0, "lacks `[lints] workspace = true`"))
        .collect()
}

fn inherits(manifest: &str) -> bool {
    let table: toml::Table = manifest.parse().unwrap_or_default();
    let workspace = table.get("lints").and_then(|lints| lints.get("workspace"));
    workspace.and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_without_the_workspace_lints_is_found() {
        assert!(inherits("[package]\nname = \"a\"\n[lints]\nworkspace = true\n"));
        assert!(inherits("lints.workspace = true\n"));
        assert!(!inherits("[package]\nname = \"a\"\n"));
        assert!(!inherits("# [lints]\n# workspace = true\n"));
        assert!(!inherits("[lints.rust]\nunsafe_code = \"allow\"\n"));
    }
}
