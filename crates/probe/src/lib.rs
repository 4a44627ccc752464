//! Measurements that ask and do not load: of time servers ([`query`]) and of this machine's own
//! clocks ([`clocks`]). Each returns a record with its doubts and prints nothing.

pub mod clocks;
pub mod query;
mod stability;
