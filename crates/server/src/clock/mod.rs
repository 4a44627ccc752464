//! Served time: from the sources and the system's clocks to the clock pages, through leap seconds.

pub(crate) mod host_time;
pub(crate) mod leap_file;
pub(crate) mod leap_notice;
mod leap_transition;
pub(crate) mod page_builder;
pub(crate) mod sources;
mod tai;
pub(crate) mod thread;
