//! Measurements of time servers ([`query`]), of this host's clocks ([`clocks`]), of its scheduler,
//! timers and NICs ([`host`]), and of the path to another host ([`path`]). Each returns a record
//! with findings and prints nothing.

pub mod clocks;
pub mod host;
pub mod path;
pub mod query;
mod stability;
