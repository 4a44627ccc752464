//! What of others is in the binary, and under which licences: `cargo xtask sbom` as a bill of
//! materials (`CycloneDX` 1.5), `cargo xtask notices` as the text that has to be passed on with the
//! binary. Both are read from what cargo resolved and from the sources that it fetched, so that
//! they cannot grow stale; what does not name its licence or its version is an error.

mod embedded;
mod notices;
mod parts;
mod sbom;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{self, Metadata};
use parts::{Part, Parts};

/// Prints the bill of materials. It says when it was made only if it is told, so that the same
/// source gives the same bill.
pub(crate) fn print_sbom(timestamp: Option<&str>) -> Result<bool> {
    let bill = bill(&metadata()?, timestamp)?;
    println!("{}", serde_json::to_string_pretty(&bill)?);
    Ok(true)
}

/// Prints the notices.
pub(crate) fn print_notices() -> Result<bool> {
    let metadata = metadata()?;
    print!("{}", notices::text(&parts(&metadata)?)?);
    Ok(true)
}

fn metadata() -> Result<Metadata> {
    cargo::metadata(&cargo::root().join("Cargo.toml"))
}

fn bill(metadata: &Metadata, timestamp: Option<&str>) -> Result<Value> {
    let path = cargo::root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    sbom::bill(&parts(metadata)?, &sbom::checksums(&lock)?, timestamp)
}

fn parts(metadata: &Metadata) -> Result<Parts> {
    let mut parts = Parts::linked(metadata)?;
    embedded::add(&mut parts)?;
    Ok(parts)
}
