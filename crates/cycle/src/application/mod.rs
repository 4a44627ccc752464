//! Tests of an application: several stages a period, fed by simulated sources from outside, on
//! several nodes of this machine, under a constant load or a rising one, with faults on purpose.
//! What is injected is counted by whoever injects it, what is noticed by the nodes alone, which
//! know nothing of it. After section 5 of Hao, Xue and Qin, "Performance and test method for
//! real-time parallel system" (2010).

mod account;
mod fault;
mod file;
mod findings;
mod generator;
mod glance;
mod intake;
mod link;
pub mod node;
mod notice;
mod plan;
pub mod report;
mod run;
pub mod score;
mod script;
mod search;
mod stages;

pub use file::FILE_MAX;
pub use glance::{Glance, GlanceNode};
pub use plan::{
    Audience, Fault, NODES_MAX, Plan, Profile, Sharing, Size, Source, Stage, State, TIME_MAX_NS,
};
pub use run::{TestError, TestOptions, Watch, test};
pub use search::SearchOptions;

/// The application that is tested where none is given: reports of three sources are taken in,
/// correlated, exchanged and decided upon, in the manner of command and control.
pub const SAMPLE: &str = include_str!("sample.toml");
