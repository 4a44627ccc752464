//! Measurements that ask and do not load: for now of time servers ([`query`]). Each returns a
//! record with its doubts and prints nothing.

pub mod query;
