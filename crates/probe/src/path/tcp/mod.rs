//! TCP from this end to a far end of this project: latency and bandwidth by message size, and the
//! far end itself ([`serve()`]), which `path stall` uses too.
//!
//! [`protocol`] is bytes and values; sockets stand behind it.

mod bandwidth;
mod bounds;
mod client;
mod error;
mod facts;
mod latency;
mod looks;
mod loss;
mod options;
pub mod protocol;
mod row;
mod run;
mod serve;
mod session;

pub use error::PathError;
pub use options::{
    CONNECTIONS_MAX, MESSAGE_BYTES_MAX, SIZES_MAX, TIME_MAX, TcpDirections, TcpOptions,
};
pub use run::TcpPath;
pub use serve::{FarEndSettings, TcpFarEnd, TcpLimits, serve};

pub(crate) use client::Session;
pub(crate) use facts::{far_end, machine, near_end};
pub(crate) use loss::{Loss, Lost};
pub(crate) use row::{SETTLE, figures, held, observe_wait, same_machine};
pub(crate) use run::{finding, watched};

/// The port of the far end unless another one is given.
pub use horolog_wire::path_probe::PORT;
