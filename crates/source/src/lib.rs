//! Where the time comes from: what other daemons and devices say of it, behind one trait, and the
//! vote over several of them. Nothing here sets a clock.

mod guard;
mod panel;
mod report;
mod spec;
mod system;
mod vote;

pub use guard::{Guard, HOLD, JUMP_MAX, Judgement};
pub use panel::{Panel, Round, STALE, SourceState, Standing};
pub use report::{DRIFT_PPB, Fault, Look, Report, Source};
pub use spec::{Ask, ChronydAddress, SourceSpec, SpecError};
pub use system::{KERNEL_STRATUM, UNDISCIPLINED};
pub use vote::{Candidate, Vote, vote};
