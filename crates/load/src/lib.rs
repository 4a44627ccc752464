//! The load generator and qualifier: requests at an exact rate from many clients, every reply
//! verified, every loss accounted for, and the highest rate that a server sustains.
//!
//! Options become a plan ([`plan`]), a plan opens an engine ([`engine`]), and a run drives
//! it through a ramp or a search and returns a record with its doubts ([`findings`]).
//! Nothing here prints.

pub mod account;
pub mod beside;
pub mod capture;
pub mod clients;
pub mod course;
pub mod engine;
mod error;
pub mod establishment;
pub mod fairness;
pub mod findings;
mod follow;
pub mod limit;
pub mod mix;
pub mod nts;
pub mod offset;
pub mod options;
pub mod page;
pub mod places;
pub mod plan;
mod prepare;
pub mod profile;
pub mod ptp;
pub mod ramp;
pub mod random;
pub mod recovery;
pub mod request;
mod run;
pub mod schedule;
pub mod silence;
pub mod tail;
pub mod target;
pub mod token;
pub mod trial;
pub mod verify;
pub mod watch;

pub use error::LoadError;
pub use options::{Job, LoadOptions};
pub use run::{Load, Observer, Surge};
