//! Store of results measured on this host, in one SQLite file: each complete, as the JSON written
//! by its command, with the facts shown in a list. Several processes may use the file at once.
//!
//! Results are handled as JSON with the fields that all of them have (`schema`, `started`,
//! `command`, `findings`), so one that is newer than this program is stored, listed and returned
//! unchanged. The crate judges nothing and prints nothing.

mod error;
mod facts;
mod migration;
mod packing;
mod reference;
mod store;

pub use error::StoreError;
pub use facts::{Facts, FactsError, one_line, schema_and_start};
pub use reference::{ReferenceError, RunReference};
pub use store::{RunFilter, RunMetadata, Store};
