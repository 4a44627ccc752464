//! Starting programs later: once what they depend on is there, or at an exact instant, here or
//! handed to the background. It sets no clock and starts nothing that it was not given.

mod background;
mod condition;
mod course;
mod grid;
mod instant;
pub mod notation;
mod program;
mod queue;
mod signals;
mod strike;
mod systemd;
mod wait;

pub use background::{BackgroundError, Handed, Outline, hand_over, is_taken_over};
pub use condition::{Condition, Endpoint, EndpointError, Sight, UdpEndpoint};
pub use course::{Backoff, Change, Course, Known};
pub use instant::{Instant, Scale};
pub use program::{Program, status_of_error};
pub use queue::{
    Claim, Ending, Entry, JOB_LEN_MAX, JOB_SCHEMA, Job, JobError, ProcessIdentity, Queue,
    QueueError, RunningMark, Standing,
};
pub use signals::Came;
pub use strike::{StrikeOptions, Struck, strike};
pub use systemd::{Systemd, SystemdError, Transient, Unit};
pub use wait::{WaitOptions, Waited, wait};
