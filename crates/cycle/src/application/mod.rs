//! Tests of an application: several stages a period, fed by simulated sources from outside, on
//! several nodes of this host, under a constant load or a rising one, with injected faults.
//! Injections are counted by the injecting party, detections by the nodes alone, without knowledge
//! of the injections. After section 5 of Hao, Xue and Qin, "Performance and test method for
//! real-time parallel system" (2010).

mod fault;
mod file;
mod findings;
mod generator;
mod intake;
mod link;
pub mod node;
mod node_event;
mod plan;
pub mod report;
mod run;
pub mod score;
mod script;
mod search;
mod snapshot;
mod stages;
mod test_stats;

pub use file::FILE_MAX;
pub use plan::{
    ArrivalProfile, Audience, Delivery, FaultSpec, NODES_MAX, ReportSource, Size, Stage, StateSpec,
    TIME_MAX_NS, TestPlan,
};
pub use run::{TestError, TestObserver, TestOptions, test};
pub use search::SearchOptions;
pub use snapshot::{NodeSnapshot, TestSnapshot};

/// Default application under test: reports of three sources are taken in, correlated, exchanged and
/// decided upon, as in command and control.
pub const SAMPLE: &str = include_str!("sample.toml");
