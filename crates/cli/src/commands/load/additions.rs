//! The flags of `horolog load` that put something behind the header of every NTP request.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use horolog_load::tail::{Additions, ExtensionField, KeyTable};
use horolog_sys::private_file;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// The longest file of keys that is read.
const FILE_LEN_MAX: u64 = 1 << 20;

/// What follows the header of requests.
#[derive(Args, Debug)]
pub(crate) struct AdditionsArgs {
    /// Authenticate requests by a MAC with this key of --keys; replies need one of the same key.
    #[arg(long, value_name = "ID", requires = "keys")]
    key: Option<u32>,
    /// File of symmetric keys, as chronyd and ntpd have it: IDENTIFIER TYPE KEY in each line.
    #[arg(long, value_name = "FILE", requires = "key")]
    keys: Option<PathBuf>,
    /// Put an extension field behind the header (RFC 7822): its type, and its body in hexadecimal
    /// digits, padded to a length that is allowed. May be given several times.
    #[arg(long, value_name = "TYPE[:BODY]")]
    extension: Vec<ExtensionField>,
}

impl AdditionsArgs {
    pub(crate) fn resolve(self) -> Result<Additions, Failure> {
        let mac = match (self.key, &self.keys) {
            (Some(id), Some(path)) => Some((Arc::new(read(path, id)?), id)),
            _ => None,
        };
        Ok(Additions { fields: self.extension, mac })
    }
}

/// The keys of a file, if the one that is wanted is among them.
fn read(path: &Path, id: u32) -> Result<KeyTable, Failure> {
    let at = path.display();
    let text = private_file::read(path, FILE_LEN_MAX).map(Zeroizing::new);
    let text = text.map_err(|error| Failure::environment(format!("--keys {at} {error}")))?;
    let keys =
        KeyTable::parse(&text).map_err(|error| Failure::usage(format!("--keys {at}, {error}")))?;
    if keys.get(id).is_none() {
        return Err(Failure::usage(format!("--keys {at} has no key {id}; name one that it has")));
    }
    Ok(keys)
}
