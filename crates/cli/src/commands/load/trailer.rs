//! Flags of `horolog load` that add a trailer to every NTP request.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use horolog_load::trailer::{ExtensionField, KeyFile, KeyTable, TrailerOptions};
use horolog_sys::private_file;
use zeroize::Zeroizing;

use crate::failure::CommandFailure;

/// The longest accepted key file, in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Trailer of the requests.
#[derive(Args, Debug)]
pub(crate) struct TrailerArgs {
    /// Authenticate requests by a MAC with this key of --keys; replies must have one of the same
    /// key.
    #[arg(long, value_name = "ID", requires = "keys")]
    key: Option<u32>,
    /// File of symmetric keys in the format of chronyd and ntpd: IDENTIFIER TYPE KEY on each line.
    #[arg(long, value_name = "FILE", requires = "key")]
    keys: Option<PathBuf>,
    /// Append an extension field (RFC 7822) to the header: its type, and its body in hexadecimal
    /// digits, padded to a valid length. Repeatable.
    #[arg(long, value_name = "TYPE[:BODY]")]
    extension: Vec<ExtensionField>,
}

impl TrailerArgs {
    pub(crate) fn resolve(self) -> Result<TrailerOptions, CommandFailure> {
        let mac = match (self.key, &self.keys) {
            (Some(id), Some(path)) => Some((Arc::new(read(path, id)?), id)),
            _ => None,
        };
        Ok(TrailerOptions { fields: self.extension, mac })
    }
}

/// The keys of a file, if the required one is among them.
fn read(path: &Path, id: u32) -> Result<KeyTable, CommandFailure> {
    let at = path.display();
    let text = private_file::read_bytes(path, FILE_LEN_MAX).map(Zeroizing::new);
    let text = text.map_err(|error| CommandFailure::environment(format!("--keys {at} {error}")))?;
    let KeyFile { keys, unused } = KeyFile::parse(&text);
    match (keys.get(id), unused.is_empty()) {
        (Some(_), _) => Ok(keys),
        (None, true) => {
            Err(CommandFailure::usage(format!("--keys {at} has no key {id}; use one of that file")))
        }
        (None, false) => Err(CommandFailure::usage(format!(
            "--keys {at}: key {id} is not usable; unusable keys: {unused}"
        ))),
    }
}
