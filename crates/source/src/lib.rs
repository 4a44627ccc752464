//! Where the time comes from: what other daemons and devices say of it, behind one trait, and the
//! vote over several of them. Only `control` can set a clock.

mod calibration;
mod command;
mod control;
mod filter;
mod gnss;
mod gpsd;
mod guard;
mod output;
mod panel;
mod phc;
mod pulse;
mod reference;
mod report;
mod shm;
mod sock;
mod spec;
mod system;
mod tai;
mod vote;

pub use calibration::{
    AllanStatus, Calibration, CalibrationConfig, CalibrationStatus, Counts, ErrorLogConfig,
    OpenCalibration, SentenceInput,
};
pub use command::CommandSocket;
pub use control::{ClockControl, ControlError, Steerer, Steering, SystemClock, who_steers};
pub use gnss::{FrameCounts, Framer, LeapReport, NextLeap, Sentence, SentenceError};
pub use gpsd::GpsdLine;
pub use guard::{Guard, JUMP_MAX, Judgement, TimeClaim};
pub use output::{OutputSample, OutputStatus, ShmOutput, SockOutput};
pub use panel::{FIRST_WORD, Panel, Round, STALE, SourceState, Standing};
pub use pulse::{Conditioner, Edge, PulseCounts, PulseEdge, PulseSource, PulseSpec};
pub use report::{DRIFT_PPB, Fault, KnownLeaps, Look, Report, Slew, Source};
pub use shm::{ShmSample, parse_segment};
pub use sock::{SOCK_SAMPLE_LEN, SockSample};
pub use spec::{Ask, ChronydAddress, SourceSpec, SpecError};
pub use system::{CHRONYD_SOCKET, KERNEL_STRATUM, UNDISCIPLINED};
pub use vote::{Candidate, Vote, vote};
