//! What becomes of UDP datagrams on the way to a far end and back: ping-pong or at a fixed rate, by
//! length, by load on the path, in several flows; with Horolog's own far end ([`super::serve`]) or
//! with anybody's reflector of STAMP.
//!
//! Each flow has a socket and a port of its own, and a thread that sends and receives in turn, or
//! two at a fixed rate. What they do for every datagram allocates nothing and takes no lock.

mod books;
mod codec;
mod cost;
mod error;
mod findings;
mod flow;
mod hello;
mod load;
mod looks;
mod open_loop;
mod options;
mod ping_pong;
mod prepare;
mod row;
mod run;
mod shared;
mod sum;

pub use codec::{Codec, Reply};
pub use error::PathError;
pub use options::{
    FLOWS_MAX, LENGTH_MAX, LoadKind, PathUdpOptions, RowPlan, TABLE_4, TIMEOUT, WARM_UP,
};
pub use run::PathUdp;
