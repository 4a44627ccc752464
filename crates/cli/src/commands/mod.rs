//! Commands, one module each: clap arguments, their conversion to options, and the call of the
//! crate that does the work.

pub(crate) mod after;
pub(crate) mod at;
pub(crate) mod bench;
#[cfg(feature = "campaign")]
pub(crate) mod campaign;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod cycle;
pub(crate) mod demo;
mod experiment_progress;
pub(crate) mod host;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod manual;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod relay;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod status;
