//! UDP path measurements: round trips to a far end, in ping-pong or at a fixed rate, by datagram
//! length and load, in one or several flows; with Horolog's far end ([`super::serve`]) or any STAMP
//! reflector.
//!
//! Each flow has its own socket and port, and one thread for ping-pong or two at a fixed rate. Per
//! datagram they allocate nothing and take no lock.

mod codec;
mod cost;
mod error;
mod findings;
mod flow;
mod flow_stats;
mod hello;
mod load;
mod open_loop;
mod options;
mod ping_pong;
mod prepare;
mod row;
mod run;
mod shared;

pub use codec::{ProbeCodec, ProbeReply};
pub use error::UdpPathError;
pub use options::{
    FLOWS_MAX, LENGTH_MAX, LoadAddressingMode, PathUdpOptions, REPLY_TIMEOUT, TABLE_4, UdpRowPlan,
    WARM_UP,
};
pub use run::PathUdpRun;
