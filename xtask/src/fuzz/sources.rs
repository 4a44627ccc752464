//! Sources of a fuzz target, from which a run knows whether they changed since the last clean one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::{Metadata, Package};

/// Packages of the project that the fuzz targets can use, by name.
pub(super) struct FuzzSources<'a> {
    packages: BTreeMap<&'a str, &'a Package>,
    lock_file: PathBuf,
}

impl<'a> FuzzSources<'a> {
    /// Returns the packages that come from no registry, with the lock file of the targets.
    pub(super) fn new(fuzz: &'a Metadata, lock_file: PathBuf) -> Self {
        let own = fuzz.packages.iter().filter(|package| package.source.is_none());
        Self { packages: own.map(|package| (package.name.as_str(), package)).collect(), lock_file }
    }

    /// Returns a digest of the locked dependencies, the target's file, the files that it includes
    /// by `#[path]`, and the packages that it names with those that they depend on.
    pub(super) fn digest(&self, target: &Path) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        let text = read(target)?;
        (read(&self.lock_file)?, &text).hash(&mut hasher);
        let mut texts = vec![text];
        let folder = target.parent().unwrap_or(target);
        let included = texts[0].lines().filter_map(included_path).map(|path| folder.join(path));
        for path in included.collect::<Vec<_>>() {
            texts.push(read(&path)?);
        }
        texts.hash(&mut hasher);
        for package in self.packages_of(&texts.concat()) {
            let folder = package.manifest_path.parent().context("a manifest has no folder")?;
            hash_folder(folder, &mut hasher)?;
        }
        Ok(hasher.finish())
    }

    /// Returns the packages that a source text names, with those that they depend on.
    fn packages_of(&self, text: &str) -> Vec<&'a Package> {
        let named = |name: &&str| text.contains(&name.replace('-', "_"));
        let mut pending: Vec<&str> = self.packages.keys().copied().filter(named).collect();
        let mut found = BTreeSet::new();
        while let Some(name) = pending.pop() {
            if let Some(package) = self.packages.get(name)
                && found.insert(name)
            {
                pending.extend(package.dependencies.iter().map(|one| one.name.as_str()));
            }
        }
        found.into_iter().map(|name| self.packages[name]).collect()
    }
}

/// Returns the path in an attribute `#[path = "PATH"]`.
fn included_path(line: &str) -> Option<&str> {
    line.strip_prefix("#[path = \"")?.strip_suffix("\"]")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Hashes the names and contents of all files in a folder, in the order of their names.
fn hash_folder(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let cannot_read = || format!("cannot read {}", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot_read)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(cannot_read)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            hash_folder(&path, hasher)?;
        } else {
            let content = fs::read(&path);
            let content = content.with_context(|| format!("cannot read {}", path.display()))?;
            (entry.file_name(), content).hash(hasher);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;
    use crate::cargo;

    #[test]
    fn digest_changes_with_the_sources_that_a_target_uses() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.lock", "version = 4");
        write("target.rs", "#[path = \"included.rs\"]\nmod included;\nuse horolog_record::Host;\n");
        for name in ["included.rs", "record/README", "record/src/lib.rs", "stats/src/lib.rs"] {
            write(name, "");
        }
        write("wire/src/lib.rs", "");
        let mut metadata = cargo::metadata(&cargo::root().join("Cargo.toml")).unwrap();
        metadata.packages.retain_mut(|package| {
            let name = package.name.strip_prefix("horolog-").unwrap_or("none");
            package.manifest_path = folder.path().join(name).join("Cargo.toml");
            ["record", "stats", "wire"].contains(&name)
        });
        let sources = FuzzSources::new(&metadata, folder.path().join("Cargo.lock"));
        let digest = || sources.digest(&folder.path().join("target.rs")).unwrap();
        let mut last = digest();
        let mut is_changed_by = |name: &str| {
            write(name, "changed");
            let before = mem::replace(&mut last, digest());
            before != last
        };
        for name in ["Cargo.lock", "included.rs", "record/README", "record/src/lib.rs"] {
            assert!(is_changed_by(name), "{name}");
        }
        assert!(is_changed_by("stats/src/lib.rs"), "record depends on stats");
        assert!(!is_changed_by("unrelated.rs") && !is_changed_by("wire/src/lib.rs"));
    }
}
