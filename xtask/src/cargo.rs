//! What cargo and rustc know about the workspace, read from their machine-readable output.
//! Manifests are not parsed a second time for what `cargo metadata` already answers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The part of `cargo metadata` that the chores use.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
    pub(crate) resolve: Resolve,
}

/// Who uses whom, as cargo resolved it.
#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

/// One package's uses.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<Use>,
}

/// One package that another uses, and what for.
#[derive(Debug, Deserialize)]
pub(crate) struct Use {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<Kind>,
}

/// What a package is used for: nothing here is the program itself, else `dev` or `build`.
#[derive(Debug, Deserialize)]
pub(crate) struct Kind {
    pub(crate) kind: Option<String>,
}

/// One package: a crate of the workspace or one that it depends on.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) authors: Vec<String>,
    pub(crate) repository: Option<String>,
    /// The registry that it is from; nothing for a crate of the workspace.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency as the manifest declares it, of any kind: normal, dev or build.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Where it lies, for a dependency by path.
    pub(crate) path: Option<PathBuf>,
}

/// A binary, library, test or example of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Metadata {
    /// The packages that are members of the workspace itself.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// The directory that holds the workspace's `Cargo.toml`. Cargo passes it at run time:
/// clones share what they build, so a path that is compiled in may be another clone's.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let xtask = env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
    });
    &ROOT
}

/// Metadata of the manifest, with all dependencies that this host builds, as the lock file pins
/// them.
pub(crate) fn metadata(manifest: &Path) -> Result<Metadata> {
    metadata_for(manifest, &host_triple()?)
}

/// The same with the dependencies that are built for a target.
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
    serde_json::from_slice(&output.stdout).context("cargo metadata printed something unexpected")
}

/// The target triple of this machine, as rustc names it.
pub(crate) fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}
