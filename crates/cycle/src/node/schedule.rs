//! Scheduling of a thread. A refused policy is reported, and the thread runs under `SCHED_OTHER`.

use std::io;

use horolog_record::TaskScheduling;
use horolog_sys::affinity::{self, DeadlineReservation};

use crate::task::{Policy, SchedulingSpec};

/// Schedules this thread as requested, if permitted. With `reset_on_fork` its children run under
/// `SCHED_OTHER`. [`Policy::Deadline`] uses the reservation. The core is only reported, since the
/// thread has already been pinned.
pub(crate) fn schedule(
    requested: SchedulingSpec,
    reset_on_fork: bool,
    reservation: Option<DeadlineReservation>,
) -> TaskScheduling {
    let SchedulingSpec { policy, priority, core } = requested;
    let result = match policy {
        Policy::Other => Ok(()),
        Policy::Fifo => {
            affinity::SchedulingParameters::fifo(priority.into(), reset_on_fork).apply()
        }
        Policy::Rr => {
            affinity::SchedulingParameters::round_robin(priority.into(), reset_on_fork).apply()
        }
        Policy::Deadline => reservation
            .map_or_else(|| Err(io::ErrorKind::InvalidInput.into()), affinity::apply_reservation),
    };
    let error = result.err().map(|error| error.to_string());
    let applied = if error.is_some() { Policy::Other } else { policy };
    let priority = if applied.has_priority() { priority } else { 0 };
    TaskScheduling { requested: policy, policy: applied, priority, core, error }
}
