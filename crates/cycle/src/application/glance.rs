//! What there is to see of a test while it goes on.

use std::time::Duration;

use horolog_record::CycleTestFault;

/// A run of a test as it is.
#[derive(Debug)]
pub struct Glance<'a> {
    /// Which run it is, and under which load.
    pub what: &'a str,
    /// How far it is.
    pub elapsed: Duration,
    /// How long it takes.
    pub total: Duration,
    /// The state that it is in.
    pub state: &'a str,
    /// The nodes, in their order.
    pub nodes: &'a [GlanceNode],
    /// The faults of the plan, with what is known of them so far.
    pub faults: &'a [CycleTestFault],
}

/// A node as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct GlanceNode {
    /// Its name.
    pub name: String,
    /// Periods that are over.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// Response time of the last period as a share of the deadline; `None` before there is one.
    pub ratio: Option<f64>,
    /// Whether its process has ended.
    pub is_gone: bool,
}
