//! Snapshot of a test in progress.

use std::time::Duration;

use horolog_record::CycleTestFault;

/// Run of a test in progress.
#[derive(Debug)]
pub struct TestSnapshot<'a> {
    /// Description of the run, with its load.
    pub what: &'a str,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Total duration.
    pub total: Duration,
    /// Present state.
    pub state: &'a str,
    /// The nodes, in their order.
    pub nodes: &'a [NodeSnapshot],
    /// Faults of the plan, with their results so far.
    pub faults: &'a [CycleTestFault],
}

/// Node in progress.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeSnapshot {
    /// Its name.
    pub name: String,
    /// Periods that are over.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// Response time of the last period as a share of the deadline; `None` before the first.
    pub ratio: Option<f64>,
    /// True if its process has ended.
    pub has_exited: bool,
}
