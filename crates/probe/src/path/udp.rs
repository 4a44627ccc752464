//! UDP datagrams to a far end and back: ping-pong or at a fixed rate, by length, by load on the
//! path, in several flows; with Horolog's far end ([`super::serve`]) or any STAMP reflector.
//!
//! Each flow has a socket and a port of its own, and one thread that sends and receives in turn, or
//! two threads at a fixed rate. Their work per datagram allocates nothing and takes no lock.

mod codec;
mod cost;
mod error;
mod findings;
mod flow;
mod flow_stats;
mod hello;
mod live;
mod load;
mod open_loop;
mod options;
mod ping_pong;
mod prepare;
mod row;
mod run;
mod shared;
mod sum;

pub use codec::{Codec, ProbeReply};
pub use error::UdpPathError;
pub use options::{
    FLOWS_MAX, LENGTH_MAX, LoadKind, PathUdpOptions, RowPlan, TABLE_4, TIMEOUT, WARM_UP,
};
pub use run::PathUdp;
