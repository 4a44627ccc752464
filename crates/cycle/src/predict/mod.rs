//! Prediction of the worst-case response times of periodic tasks from their work and the costs of
//! the host: by equations (1) to (3) of Hao, Xue and Qin, "Performance and test method for
//! real-time parallel system" (2010), as published, and by a safe response-time analysis (Joseph
//! and Pandya 1986; Audsley et al. 1993). Pure: nothing is measured, and unknown values are omitted
//! and reported.
//!
//! The published equations round the number of interfering jobs down and omit tasks of a higher
//! priority, so their values can be exceeded. The safe bound counts each job that begins, every
//! task of the same or a higher priority, blocking, start latency and context switches. It is safe
//! if the supplied costs are worst cases.

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

use horolog_record::{CyclePredictTaskResult, Finding};

pub use cost::HostCosts;
pub use measured::MeasuredRuns;
pub use source::{CostInput, CostSourceResult};

use crate::task::TaskSet;
use bound::AnalysedTaskSet;

/// Number of nodes, cores and real-time limit for which a prediction is made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PredictedHostConfig {
    /// Number of nodes that run the set and exchange messages.
    pub nodes: u32,
    /// Number of cores of each node.
    pub cores: usize,
    /// Share of a core that the kernel permits to real-time threads; `None` if there is no limit or
    /// it is unknown.
    pub real_time_share: Option<f64>,
}

/// Predicted tasks with their bounds, and the findings about them.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Tasks, in the order of the set.
    pub tasks: Vec<CyclePredictTaskResult>,
    /// Findings, the most severe first.
    pub findings: Vec<Finding>,
}

/// Reason for which a set cannot be predicted: a task and its unknown value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PredictError {
    task: String,
    reason: String,
}

impl PredictError {
    fn for_task(name: &str, reason: &str) -> Self {
        Self { task: name.to_owned(), reason: reason.to_owned() }
    }
}

impl Display for PredictError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "task '{}': {}", self.task, self.reason)
    }
}

impl std::error::Error for PredictError {}

/// Value in the safe bound and in the published equations, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct SafeAndPublishedValue {
    safe_ns: u64,
    published_ns: u64,
}

/// Predicts the worst-case response times of the tasks of a set.
///
/// # Errors
///
/// The execution time of a task is unknown.
pub fn predict(
    set: &TaskSet,
    costs: &HostCosts,
    host: PredictedHostConfig,
) -> Result<Prediction, PredictError> {
    let plan = AnalysedTaskSet::new(set, costs, host)?;
    let tasks = plan.bounds();
    let findings = findings::prediction_findings(&plan, &tasks, costs);
    Ok(Prediction { tasks, findings })
}
