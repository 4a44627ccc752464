//! Metadata of the workspace from the machine-readable output of cargo and rustc. Manifests are not
//! parsed for anything that `cargo metadata` provides.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Part of the output of `cargo metadata` that the chores use.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
    pub(crate) resolve: Resolve,
}

/// Dependencies of all packages, as resolved by cargo.
#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<ResolveNode>,
}

/// Dependencies of one package.
#[derive(Debug, Deserialize)]
pub(crate) struct ResolveNode {
    pub(crate) id: String,
    pub(crate) deps: Vec<ResolvedDependency>,
}

/// Package that another one uses, with the purposes.
#[derive(Debug, Deserialize)]
pub(crate) struct ResolvedDependency {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DependencyPurpose>,
}

/// Purpose of a dependency: `None` for the program itself, else `dev` or `build`.
#[derive(Debug, Deserialize)]
pub(crate) struct DependencyPurpose {
    pub(crate) kind: Option<String>,
}

/// Package: a crate of the workspace, or one that it depends on.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) authors: Vec<String>,
    pub(crate) repository: Option<String>,
    /// Registry of the package; `None` for a crate of the workspace.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// Dependency as declared in the manifest: normal, dev or build.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Directory of a dependency by path.
    pub(crate) path: Option<PathBuf>,
}

/// Binary, library, test or example of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    /// Path of the main file.
    pub(crate) src_path: PathBuf,
}

impl Metadata {
    /// Returns the packages that are members of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// Returns the directory of the workspace's `Cargo.toml`. Cargo passes it at run time: clones share
/// build results, so a path compiled into a program may be that of another clone.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let xtask = env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
    });
    &ROOT
}

/// Returns the metadata of a manifest with the locked dependencies of a build for this host.
pub(crate) fn metadata(manifest: &Path) -> Result<Metadata> {
    metadata_for(manifest, &host_triple()?)
}

/// Returns the metadata of a manifest with the locked dependencies of a build for `target`.
pub(crate) fn metadata_for(manifest: &Path, target: &str) -> Result<Metadata> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform"])
        .arg(target)
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed for {}: {}",
        manifest.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("cannot parse the output of cargo metadata")
}

/// Returns the target triple of this host, as printed by rustc.
pub(crate) fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV does not print the host")
}
