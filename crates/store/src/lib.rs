//! Store of results measured on this host: one SQLite file with each result as the JSON text of its
//! command, and the facts that a list of runs shows. Several processes may use the file
//! concurrently.
//!
//! Results are handled as JSON with the fields common to all kinds (`schema`, `started`, `command`,
//! `findings`), so that results of newer versions are stored, listed and returned unchanged. The
//! crate neither judges nor prints results.

mod error;
mod facts;
mod migration;
mod packing;
mod reference;
mod store;

pub use error::StoreError;
pub use facts::{ResultFacts, ResultFactsError, compact_json, schema_and_start};
pub use reference::{RunReference, RunReferenceError};
pub use store::{RunFilter, RunMetadata, Store};
