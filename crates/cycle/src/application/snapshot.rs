//! Snapshots of a test in progress.

use std::time::Duration;

use horolog_record::CycleTestFault;

/// Snapshot of a run.
#[derive(Debug)]
pub struct TestSnapshot<'a> {
    /// Label of the run, with its load.
    pub label: &'a str,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Total duration.
    pub total: Duration,
    /// Label of the present state.
    pub state: &'a str,
    /// Nodes, in the order of their indices.
    pub nodes: &'a [NodeSnapshot],
    /// Faults of the plan, with their results so far.
    pub faults: &'a [CycleTestFault],
}

/// Snapshot of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeSnapshot {
    /// Name of the node.
    pub name: String,
    /// Completed periods.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// Response time of the last period as a share of the deadline; `None` before the first.
    pub ratio: Option<f64>,
    /// True if the node's process has exited.
    pub has_exited: bool,
}
