//! Where the time comes from: what other daemons and devices say of it, behind one trait, and the
//! vote over several of them. Nothing here sets a clock.

mod report;
mod vote;

pub use report::{DRIFT_PPB, Fault, Look, Report, Source};
pub use vote::{Candidate, Vote, vote};
