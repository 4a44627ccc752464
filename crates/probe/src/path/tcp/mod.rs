//! TCP from this end to a Horolog far end: latency and bandwidth by message size, and the far end
//! itself ([`serve()`]), which `path stall` uses too.
//!
//! [`protocol`] is bytes and values, separate from sockets.

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
    CONNECTIONS_MAX, MESSAGE_BYTES_MAX, SIZES_MAX, TIME_MAX, TcpDirections, TcpOptions,
};
pub use run::TcpRun;
pub use serve::{FarEndSettings, TcpFarEnd, TcpLimits, serve};

pub(crate) use client::TcpSession;
pub(crate) use early_end::{ConnectionLoss, EarlyEnd};
pub(crate) use facts::{far_end, machine, near_end};
pub(crate) use row::{SETTLE, count_held, figures, observe_wait, same_machine};
pub(crate) use run::{finding, watched};

/// Default port of the far end.
pub use horolog_wire::path_probe::PORT;
