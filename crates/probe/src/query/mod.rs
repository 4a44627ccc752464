//! How far servers' clocks are from this machine's, once or over a long run, several side by side.
//!
//! What an exchange says is pure arithmetic ([`measure`]); what to ask and whether a reply is one
//! is decided by a [`Client`] that reads no clock and opens nothing; sockets, timestamps and the
//! clock of a network card stand behind both.

mod account;
mod asker;
mod card;
mod client;
mod differences;
mod error;
mod exchange;
mod figures;
mod findings;
mod options;
mod pace;
mod reply;
mod run;
mod session;
mod stamp;

pub use client::{Client, Exchange, Taken};
pub use error::QueryError;
pub use exchange::{Measured, Precision, measure};
pub use options::{
    COUNT, COUNT_MAX, INTERVAL_POLITE, INTERVAL_PRIVATE, NtsOptions, QueryOptions, TARGETS_MAX,
};
pub use reply::{Asked, Judged, Reply, judge};
pub use run::Query;
pub use stamp::Stamp;

pub use horolog_ke::{PORT as KE_PORT, Trust};
pub use horolog_nts::Algorithm;
