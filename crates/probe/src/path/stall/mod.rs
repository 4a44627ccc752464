//! TCP stalls: exchanges that wait for a kernel timer instead of for the path or the far end. Write
//! patterns that provoke stalls are run against a Horolog far end ([`PathStallRun`]), or the
//! traffic of a port is watched ([`StallWatch`]).
//!
//! The mechanism that holds data back is found from `TCP_INFO` of both ends during a wait and, if
//! this process may capture them, from the packets. Kernel settings are never changed.

mod advice;
mod capture;
mod cell;
mod claims;
mod flow;
mod judge;
mod kernel;
mod options;
mod plan;
mod run;
mod segment;
mod stalls;
mod watch;
mod window;

pub use options::{BATCH_MAX, COUNT_MAX, PathStallOptions};
pub use run::PathStallRun;
pub use segment::TcpSegment;
pub use stalls::{StallWatchValues, WatchedConnectionSnapshot};
pub use watch::{StallWatch, StallWatchOptions};
