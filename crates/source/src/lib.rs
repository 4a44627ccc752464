//! Time sources: estimates from other daemons and from devices, behind one trait, and source
//! selection; and the clock page, by which servers read the time made of them. Only the module
//! `control` sets a clock.

mod calibration;
mod chronyd_socket;
mod clock_page;
mod control;
mod filter;
mod gnss;
mod gpsd;
mod jump_guard;
mod output;
mod phc;
mod pulse;
mod reference;
mod report;
mod retried_source;
mod selection;
mod selector;
mod shm;
mod sock;
mod spec;
mod system;
mod tai_offset;

pub use calibration::{
    AllanDeviationAtTau, CalibrationConfig, CalibrationStatus, ClockErrorLogConfig, NamedCounts,
    PreparedCalibration, RunningCalibration, SentenceInput,
};
pub use chronyd_socket::ChronydSocket;
pub use clock_page::{
    ClockPage, ClockPageReader, ClockPageSink, ClockPageWriter, ClockPages, SystemVariables,
    shared_pages,
};
pub use control::{
    ClockSteering, ClockSteeringError, ForeignSteeringProcess, SteerableClock, SystemClock,
    find_steerer,
};
pub use gnss::{
    NextLeap, NoFix, ParsedSentence, ReceiverLeapReport, SentenceCounts, SentenceError,
    SentenceField, SentenceFramer, Talker,
};
pub use gpsd::GpsdLine;
pub use horolog_discipline::{ImplausibilityReason, PlausibilityRuleParameters};
pub use jump_guard::{JUMP_MAX, JumpGuard, JumpVerdict, TimeClaim};
pub use output::{OutputSample, SampleOutputStatus, ShmOutput, SockOutput};
pub use pulse::{PulseConditioner, PulseCounts, PulseEdge, PulseEdgeKind, PulseSource, PulseSpec};
pub use report::{
    ClockReadings, DRIFT_PPB, PollableTimeSource, ServerLeapSeconds, Slew, SourceError,
    SourceEstimate,
};
pub use retried_source::RetriedSource;
pub use selection::{SelectionCandidate, SelectionResult, select};
pub use selector::{
    FIRST_REPORT_TIMEOUT, REPORT_AGE_MAX, SelectionState, SelectorPollOutcome, SourceSelector,
    SourceStatus,
};
pub use shm::{ShmSample, parse_segment};
pub use sock::{SOCK_SAMPLE_LEN, SockSample};
pub use spec::{ChronydAddress, DaemonChoice, SourceSpec, SourceSpecError};
pub use system::{CHRONYD_SOCKET, KERNEL_STRATUM, UNDISCIPLINED_REFERENCE_ID};
