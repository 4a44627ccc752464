//! Socket engine: listen addresses, their sockets and threads, and counters.

pub(crate) mod counters;
pub(crate) mod engine;
pub(crate) mod hardware;
pub(crate) mod listen;
pub(crate) mod listeners;
mod preferred_sockets;
pub(crate) mod response_time;
pub(crate) mod worker;
