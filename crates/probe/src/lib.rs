//! Measurements that ask: of time servers ([`query`]), of this machine's own clocks ([`clocks`]) and
//! of the path to another host ([`path`]). Each returns a record with its doubts and prints nothing.

pub mod clocks;
pub mod path;
pub mod query;
mod stability;
