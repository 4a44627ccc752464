//! Tests of an application that runs on several nodes of this host: several stages per period, fed
//! with reports of simulated sources, at one load or in a search for the largest, with injected
//! faults. Injections are counted where they are injected; the nodes report detections without
//! knowledge of them. After section 5 of Hao, Xue and Qin, "Performance and test method for
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
mod stages;
mod test_stats;

pub use file::FILE_MAX;
pub use plan::{
    ApplicationTestPlan, ArrivalProfile, FaultSpec, MessageDestination, NODES_MAX, PipelineStage,
    PlannedRunState, ReportDeliveryMode, ReportLengthDistribution, SimulatedSource, TIME_MAX_NS,
};
pub use run::{
    ApplicationTestError, ApplicationTestOptions, ApplicationTestValues, NodeSnapshot, test,
};
pub use search::ApplicationSearchOptions;

/// Test file of the default application: reports of three sources are received, correlated,
/// exchanged and decided upon, as in a command-and-control system.
pub const SAMPLE_TEST_FILE: &str = include_str!("sample.toml");
