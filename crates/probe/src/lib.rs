//! Measurements that ask: of time servers ([`query`]), of this machine's own clocks ([`clocks`]),
//! of what its scheduler, timers and cards do ([`host`]), and of the path to another host
//! ([`path`]). Each returns a record with its doubts and prints nothing.

pub mod clocks;
pub mod host;
pub mod path;
pub mod query;
mod stability;
