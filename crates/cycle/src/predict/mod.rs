//! Worst-case response times of periodic tasks, from their work and the costs of the host:
//! equations (1) to (3) of Hao, Xue and Qin 2010 as published, and in addition a safe bound by
//! response-time analysis (Joseph and Pandya 1986; Audsley et al. 1993). Pure: costs in, bounds
//! out; nothing is measured, and unknown quantities are left out and reported.
//!
//! The published equations round the number of begun periods down, and ignore tasks of a higher
//! priority: their values can be exceeded. The safe bound counts each begun period, every task that
//! runs before the one in question or in turn with it, its blocking, its start latency and its
//! switches. It is safe if the costs supplied are the worst.

mod bound;
mod cost;
mod demand;
#[cfg(test)]
mod example;
mod findings;
mod measured;
mod published;
#[cfg(test)]
mod simulation;
pub mod source;
#[cfg(test)]
mod tests;
mod window;

use std::fmt::{self, Display, Formatter};

use horolog_record::{CyclePredictTask, Finding};

pub use cost::Costs;
pub use measured::MeasuredRuns;
pub use source::{CostInput, CostRecord};

use crate::task::TaskSet;
use bound::AnalysisSet;

/// Host for which a prediction is made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Nodes that run the set and send messages to one another.
    pub nodes: u32,
    /// Cores of each.
    pub cores: usize,
    /// Share of a core that the kernel leaves to real-time threads; `None` for all of it, or if
    /// unknown.
    pub real_time_share: Option<f64>,
}

/// Tasks with their bounds, and the findings about them.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// The tasks, in the order of the set.
    pub tasks: Vec<CyclePredictTask>,
    /// The findings.
    pub findings: Vec<Finding>,
}

/// Reason for which nothing can be predicted: the task, and its unknown quantity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PredictError {
    task: String,
    reason: String,
}

impl PredictError {
    fn of_task(name: &str, reason: &str) -> Self {
        Self { task: name.to_owned(), reason: reason.to_owned() }
    }
}

impl Display for PredictError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "task '{}': {}", self.task, self.reason)
    }
}

impl std::error::Error for PredictError {}

/// Value for the safe bound, and the same for the published equations, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct BoundPair {
    safe_ns: u64,
    published_ns: u64,
}

/// Predicts the worst-case response times of the tasks of a set.
///
/// # Errors
///
/// If the computation of a task is not known.
pub fn predict(set: &TaskSet, costs: &Costs, machine: Machine) -> Result<Prediction, PredictError> {
    let plan = AnalysisSet::new(set, costs, machine)?;
    let tasks = plan.bounds();
    let findings = findings::of(&plan, &tasks, costs);
    Ok(Prediction { tasks, findings })
}
