//! Load generator and qualifier: requests at an exact rate from many clients, verification of every
//! reply, a location for every loss, and a search for the highest rate that a server sustains.
//!
//! Options become a plan ([`plan`]); the plan opens an engine ([`engine`]); a run drives the engine
//! through a ramp, a search or a load profile and returns a record with findings ([`findings`]).
//! This crate prints nothing.

pub mod capture;
pub mod clients;
pub mod compliant_clients;
pub mod engine;
mod error;
pub mod fairness;
pub mod findings;
pub mod limit;
pub mod load_profile;
pub mod loss_attribution;
pub mod loss_attribution_counters;
pub mod mix;
pub mod nts;
pub mod nts_ke;
pub mod offset;
pub mod options;
pub mod outage;
pub mod plan;
mod prepare;
pub mod profile_file;
mod profile_recorder;
pub mod ptp;
pub mod ramp;
pub mod random;
pub mod recovery;
pub mod remote_counters;
pub mod request;
pub mod request_kind;
pub mod request_tracker;
mod run;
pub mod schedule;
pub mod target;
pub mod token;
pub mod trailer;
pub mod trial;
pub mod verify;

pub use error::LoadError;
pub use options::{LoadOptions, LoadProcedure};
pub use run::{LoadRun, OverloadTestOptions};
