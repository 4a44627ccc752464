//! How a thread is scheduled. What is refused is told, and the thread runs as an ordinary one.

use std::io;

use horolog_record::TaskScheduling;
use horolog_sys::affinity::{self, Reservation};

use crate::task::{Policy, Schedule};

/// Has this thread scheduled so, where that is allowed; `resets` says whether what it starts is to
/// be ordinary. Under [`Policy::Deadline`] it asks for the reservation. The core it is tied to is
/// told alone: it was tied before.
pub(crate) fn schedule(
    asked: Schedule,
    resets: bool,
    reservation: Option<Reservation>,
) -> TaskScheduling {
    let Schedule { policy, priority, core } = asked;
    let result = match policy {
        Policy::Other => Ok(()),
        Policy::Fifo => affinity::Policy::fifo(priority.into(), resets).take(),
        Policy::Rr => affinity::Policy::round_robin(priority.into(), resets).take(),
        Policy::Deadline => {
            reservation.map_or_else(|| Err(io::ErrorKind::InvalidInput.into()), affinity::reserve)
        }
    };
    let error = result.err().map(|error| error.to_string());
    let taken = if error.is_some() { Policy::Other } else { policy };
    let priority = if taken.has_priority() { priority } else { 0 };
    TaskScheduling { asked: policy, policy: taken, priority, core, error }
}
