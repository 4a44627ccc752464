//! Results that were measured here, kept in one SQLite file: each whole, as the JSON that its
//! command wrote, with what a list shows beside it. Several processes may use the file at once.
//!
//! It knows results as JSON with the fields that all of them have (`schema`, `started`, `command`,
//! `findings`), so one that is newer than this program is kept, listed and given back unchanged. It
//! judges nothing and prints nothing.

mod error;
mod facts;
mod migration;
mod packing;
mod reference;
mod store;

pub use error::StoreError;
pub use facts::{Facts, FactsError, one_line, schema_and_start};
pub use reference::{Reference, ReferenceError};
pub use store::{Filter, Run, Store};
