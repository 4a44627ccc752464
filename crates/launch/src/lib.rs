//! Delayed start of programs: after their dependencies are available, or at an exact instant, in
//! the foreground or in the background. Sets no clock and starts only the programs that it was
//! passed.

mod background;
mod condition;
mod grid;
mod instant;
pub mod notation;
mod poll_schedule;
mod program;
mod queue;
mod signals;
mod systemd;
mod timed_run;
mod wait;

pub use background::{
    BackgroundError, BackgroundJob, BackgroundJobSpec, await_go_ahead, start_background,
};
pub use condition::{CheckResult, Condition, Endpoint, EndpointError, UdpEndpoint};
pub use instant::{InstantTimescale, TimescaleInstant, kernel_tai_minus_utc_s};
pub use poll_schedule::{Backoff, ConditionChange, ConditionCheckSchedule, ConditionState};
pub use program::{ProgramSpec, status_of_error};
pub use queue::{
    ClaimedJobNumber, JOB_LEN_MAX, JOB_SCHEMA, JobFileError, JobQueue, JobQueueEntry,
    JobQueueError, JobState, ProcessIdentity, QueuedJob, QueuedJobEnd, RunningJobLock,
};
pub use signals::CaughtSignal;
pub use systemd::{Systemd, SystemdError, SystemdJob, TransientTimer};
pub use timed_run::{TimedRunOptions, TimedRunOutcome, run_timed};
pub use wait::{ConditionWaitOptions, ConditionWaitOutcome, wait};
