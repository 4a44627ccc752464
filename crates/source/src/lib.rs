//! Where the time comes from: what other daemons and devices say of it, behind one trait, and the
//! vote over several of them. Nothing here sets a clock.

mod command;
mod filter;
mod gpsd;
mod guard;
mod panel;
mod phc;
mod reference;
mod report;
mod shm;
mod sock;
mod spec;
mod system;
mod tai;
mod vote;

pub use command::CommandSocket;
pub use gpsd::GpsdLine;
pub use guard::{Guard, JUMP_MAX, Judgement, TimeClaim};
pub use panel::{Panel, Round, STALE, SourceState, Standing};
pub use report::{DRIFT_PPB, Fault, Look, Report, Slew, Source};
pub use shm::{ShmSample, parse_segment};
pub use sock::{SOCK_SAMPLE_LEN, SockSample};
pub use spec::{Ask, ChronydAddress, SourceSpec, SpecError};
pub use system::{CHRONYD_SOCKET, KERNEL_STRATUM, UNDISCIPLINED};
pub use vote::{Candidate, Vote, vote};
