//! Stalls of TCP: exchanges that wait for a timer of the kernel's instead of for the path or the
//! far end. Patterns of writing that provoke them are run with a far end of ours ([`StallPath`]),
//! or the traffic of a port is watched ([`Watch`]).
//!
//! What holds data back is told by `TCP_INFO` of both ends while an exchange waits, and, where this
//! process may, by the packets. Nothing of the kernel's settings is ever changed.

mod advice;
mod capture;
mod cell;
mod claims;
mod flow;
mod glance;
mod judge;
mod kernel;
mod options;
mod plan;
mod run;
mod segment;
mod stalls;
mod watch;
mod window;

pub use glance::{WatchGlance, WatchedNow};
pub use options::{BATCH_MAX, COUNT_MAX, StallOptions};
pub use run::StallPath;
pub use segment::Segment;
pub use watch::{Watch, WatchOptions};
