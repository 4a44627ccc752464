//! Parts inside crates that cargo does not list: libraries in C that they compile, a library for
//! plots in the HTML pages, and Rust's standard library. Versions are read from the compiled
//! source; a source without a recognisable version is an error.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Part, Parts};

/// Location of a version: in a file, or in the version of the crate.
enum VersionLocation {
    /// Name of the file, and the texts before and after the version.
    File(&'static str, &'static str, &'static str),
    /// Text before the version in the version of the crate.
    Crate(&'static str),
}

struct EmbeddedPart {
    crate_name: &'static str,
    name: &'static str,
    version: VersionLocation,
    /// `None` if it is that of the crate.
    licence: Option<&'static str>,
    /// Package URL up to the version.
    purl: &'static str,
    home: &'static str,
    /// Files of notices in the crate; empty if the text of the licence suffices.
    notices: &'static [&'static str],
}

const EMBEDDED: [EmbeddedPart; 4] = [
    EmbeddedPart {
        crate_name: "libbpf-sys",
        name: "libbpf",
        version: VersionLocation::Crate("+v"),
        // Also offered under LGPL-2.1.
        licence: Some("BSD-2-Clause"),
        purl: "pkg:github/libbpf/libbpf@v",
        home: "https://github.com/libbpf/libbpf",
        notices: &["libbpf/LICENSE.BSD-2-Clause"],
    },
    EmbeddedPart {
        crate_name: "libsqlite3-sys",
        name: "SQLite",
        version: VersionLocation::File(
            "sqlite3/sqlite3.h",
            "#define SQLITE_VERSION        \"",
            "\"",
        ),
        licence: Some("blessing"),
        purl: "pkg:generic/sqlite@",
        home: "https://sqlite.org",
        notices: &[],
    },
    EmbeddedPart {
        crate_name: "aws-lc-sys",
        name: "AWS-LC",
        version: VersionLocation::File(
            "aws-lc/include/openssl/base.h",
            "#define AWSLC_VERSION_NUMBER_STRING \"",
            "\"",
        ),
        licence: None,
        purl: "pkg:github/aws/aws-lc@v",
        home: "https://github.com/aws/aws-lc",
        notices: &["aws-lc/LICENSE"],
    },
    EmbeddedPart {
        crate_name: "horolog-report",
        name: "uPlot",
        version: VersionLocation::File("assets/uPlot.iife.min.js", "uPlot (v", ")"),
        licence: Some("MIT"),
        purl: "pkg:npm/uplot@",
        home: "https://github.com/leeoniya/uPlot",
        notices: &["assets/uPlot.LICENSE"],
    },
];

/// Adds all embedded parts, and Rust's standard library.
pub(super) fn add(parts: &mut Parts) -> Result<()> {
    for embedded in &EMBEDDED {
        let holder = parts.list.iter().find(|part| part.name == embedded.crate_name);
        let holder = holder.with_context(|| format!("no part called {}", embedded.crate_name))?;
        let part = embedded.part(holder).with_context(|| embedded.name)?;
        let within = holder.reference();
        parts.add(part, &within);
    }
    let binary = parts.list.first().context("no binary")?.reference();
    parts.add(standard_library(&rustc_version()?), &binary);
    Ok(())
}

impl EmbeddedPart {
    fn part(&self, holder: &Part) -> Result<Part> {
        let directory = holder.directory.as_deref().context("the crate has no source")?;
        let version = self.version.read(holder, directory)?;
        let notices: Vec<_> = self.notices.iter().map(|name| directory.join(name)).collect();
        for path in &notices {
            ensure!(path.is_file(), "{} is missing", path.display());
        }
        Ok(Part {
            name: self.name.to_owned(),
            licence: self.licence.map_or_else(|| holder.licence.clone(), str::to_owned),
            purl: Some(format!("{}{version}", self.purl)),
            version,
            home: Some(self.home.to_owned()),
            authors: Vec::new(),
            directory: None,
            notices,
        })
    }
}

impl VersionLocation {
    fn read(&self, holder: &Part, directory: &Path) -> Result<String> {
        let version = match self {
            Self::Crate(sign) => holder.version.split_once(sign).map(|(_, rest)| rest.to_owned()),
            Self::File(name, before, after) => {
                let path = directory.join(name);
                let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
                between(&String::from_utf8_lossy(&bytes), before, after).map(str::to_owned)
            }
        };
        version.with_context(|| format!("no version in {} {}", holder.name, holder.version))
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(version, _)| version)
}

/// Returns Rust's standard library, which comes with the compiler.
fn standard_library(version: &str) -> Part {
    Part {
        name: "Rust standard library".to_owned(),
        version: version.to_owned(),
        licence: "MIT OR Apache-2.0".to_owned(),
        purl: Some(format!("pkg:github/rust-lang/rust@{version}")),
        home: Some("https://github.com/rust-lang/rust".to_owned()),
        authors: vec!["The Rust Project contributors".to_owned()],
        directory: None,
        notices: Vec::new(),
    }
}

/// Returns the version of the compiler that cargo runs.
fn rustc_version() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split(' ').nth(1).map(str::to_owned).context("rustc --version names no version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_between_two_texts() {
        assert_eq!(between("#define V \"1.2\"\n", "V \"", "\""), Some("1.2"));
        assert_eq!(between("#define W \"1.2\"\n", "V \"", "\""), None);
        assert_eq!(between("#define V \"1.2\n", "V \"", "\""), None);
    }

    #[test]
    fn embedded_parts_are_found_in_the_compiled_source() {
        let metadata = super::super::metadata().unwrap();
        let mut parts = Parts::linked(&metadata).unwrap();
        add(&mut parts).unwrap();
        for name in ["libbpf", "SQLite", "AWS-LC", "uPlot", "Rust standard library"] {
            let part = parts.list.iter().find(|part| part.name == name).expect(name);
            let numbers = part.version.split('.').map(str::parse::<u32>);
            assert!(numbers.clone().count() == 3 && numbers.clone().all(|n| n.is_ok()), "{part:?}");
        }
    }
}
