//! Stalls of TCP: exchanges that wait for a timer of the kernel instead of for the path or the far
//! end. Write patterns that provoke them are run with a Horolog far end ([`StallRun`]), or the
//! traffic of a port is watched ([`PortWatch`]).
//!
//! `TCP_INFO` of both ends while an exchange waits shows what holds data back, and so do the
//! packets, if this process may capture them. Kernel settings are never changed.

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
mod snapshot;
mod stalls;
mod watch;
mod window;

pub use options::{BATCH_MAX, COUNT_MAX, StallOptions};
pub use run::StallRun;
pub use segment::TcpSegment;
pub use snapshot::{ConnectionSnapshot, StallSnapshot};
pub use watch::{PortWatch, WatchOptions};
