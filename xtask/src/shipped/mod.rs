//! Third-party parts of the binary and their licences: `cargo xtask sbom` prints a bill of
//! materials (`CycloneDX` 1.5), `cargo xtask notices` the text that must be distributed with the
//! binary. Both are made from cargo's resolution and the sources that it fetched, so that they are
//! always current; a part without a licence or a version is an error.

mod embedded;
mod extra_parts;
mod notices;
mod parts;
mod sbom;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{self, Metadata};
use parts::{Part, Parts};

/// The binary to describe, and the options of the description.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PartsOptions {
    pub(crate) timestamp: Option<String>,
    /// This host's if `None`.
    target: Option<String>,
    /// File with further linked parts.
    with: Option<PathBuf>,
}

impl PartsOptions {
    /// Parses the arguments. Returns `None` if they are invalid.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = (*rest.next()?).to_owned();
            match *argument {
                "--timestamp" => options.timestamp = Some(value),
                "--target" => options.target = Some(value),
                "--with" => options.with = Some(value.into()),
                _ => return None,
            }
        }
        Some(options)
    }

    fn metadata(&self) -> Result<Metadata> {
        let manifest = cargo::root().join("Cargo.toml");
        match &self.target {
            Some(target) => cargo::metadata_for(&manifest, target),
            None => cargo::metadata(&manifest),
        }
    }

    /// Returns all parts of the binary.
    fn parts(&self) -> Result<Parts> {
        let mut parts = parts(&self.metadata()?)?;
        if let Some(path) = &self.with {
            extra_parts::add(&mut parts, path).with_context(|| path.display().to_string())?;
        }
        Ok(parts)
    }
}

/// Prints the bill of materials, with a timestamp only if one is passed, so that equal sources
/// yield equal bills.
pub(crate) fn print_sbom(options: &PartsOptions) -> Result<bool> {
    let bill = bill(&options.parts()?, options.timestamp.as_deref())?;
    println!("{}", serde_json::to_string_pretty(&bill)?);
    Ok(true)
}

/// Prints the notices.
pub(crate) fn print_notices(options: &PartsOptions) -> Result<bool> {
    print!("{}", notices::text(&options.parts()?)?);
    Ok(true)
}

fn bill(parts: &Parts, timestamp: Option<&str>) -> Result<Value> {
    let path = cargo::root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    sbom::bill(parts, &sbom::checksums(&lock)?, timestamp)
}

fn parts(metadata: &Metadata) -> Result<Parts> {
    let mut parts = Parts::linked(metadata)?;
    embedded::add(&mut parts)?;
    Ok(parts)
}

/// Returns the metadata of a build for this host.
#[cfg(test)]
fn metadata() -> Result<Metadata> {
    PartsOptions::default().metadata()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_in_any_order_and_with_a_value() {
        let options = PartsOptions::parse(&["--with", "a", "--target", "b"]).unwrap();
        assert_eq!(options.target.as_deref(), Some("b"));
        assert_eq!(options.with, Some("a".into()));
        assert_eq!(PartsOptions::parse(&[]), Some(PartsOptions::default()));
        assert_eq!(PartsOptions::parse(&["--with"]), None);
        assert_eq!(PartsOptions::parse(&["--witness", "a"]), None);
    }
}
