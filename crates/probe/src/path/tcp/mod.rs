//! TCP measurements: latency and bandwidth by message size against a Horolog far end, and that far
//! end ([`serve()`]), which `path stall` uses too.
//!
//! [`protocol`] is the wire format, independent of sockets.

mod bandwidth;
mod bounds;
mod client;
mod early_end;
mod error;
mod facts;
mod latency;
mod live;
mod options;
pub mod protocol;
mod row;
mod run;
mod serve;
mod session;

pub use error::TcpPathError;
pub use options::{
    CONNECTIONS_MAX, MESSAGE_BYTES_MAX, PathTcpOptions, SIZES_MAX, TIME_MAX, TcpDirections,
};
pub use run::PathTcpRun;
pub use serve::{RunningTcpFarEnd, TcpFarEndLimits, TcpFarEndSettings, serve};

pub(crate) use client::TcpNearEndSession;
pub(crate) use early_end::{ConnectionEndReason, MeasurementEarlyEndReason};
pub(crate) use facts::{host_facts, near_end, parse_far_end};
pub(crate) use row::{
    WELCOME_DELAY, add_held_sample, held_sample_delay, same_host_finding, tcp_info_summary,
};
pub(crate) use run::{finding, run_watched};

/// Default port of the far end.
pub use horolog_wire::path_probe::PORT;
