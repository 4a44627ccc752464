//! How long periodic tasks take at worst, from what they do and what the machine costs: equations
//! (1) to (3) of Hao, Xue and Qin 2010 as they are printed, and beside them a safe bound by
//! response-time analysis (Joseph and Pandya 1986; Audsley et al. 1993). Pure: figures go in,
//! bounds come out; nothing is measured, and what is not known is left out and said.
//!
//! The printed equations round periods that have begun down, and know no tasks of a higher
//! priority: what they give can be exceeded. The safe bound counts each period begun, every task
//! that runs before the one in question or in turn with it, what keeps it from going before others,
//! its late release and its switches. It is safe as far as the costs that it is given are the
//! worst.

mod bound;
mod cost;
mod demand;
#[cfg(test)]
mod example;
mod findings;
mod measured;
mod printed;
#[cfg(test)]
mod simulation;
pub mod source;
#[cfg(test)]
mod tests;
mod window;

use std::fmt::{self, Display, Formatter};

use horolog_record::{CyclePredictTask, Finding};

pub use cost::Costs;
pub use measured::Runs;
pub use source::{Measured, Source};

use crate::task::TaskSet;
use bound::Plan;

/// What a prediction is for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Nodes that run the set and send to one another.
    pub nodes: u32,
    /// Cores of each.
    pub cores: usize,
    /// The share of a core that the kernel leaves to real-time threads; `None` for all of it, or
    /// where that is not known.
    pub real_time_share: Option<f64>,
}

/// The tasks with their bounds, and the doubts about them.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// The tasks, in the order of the set.
    pub tasks: Vec<CyclePredictTask>,
    /// What follows from them.
    pub findings: Vec<Finding>,
}

/// Why nothing can be predicted: the task, and what is not known of it.
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

/// A figure for the safe bound, and the same for the printed equations, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Both {
    safe_ns: u64,
    printed_ns: u64,
}

/// Predicts how long the tasks of a set take at worst.
///
/// # Errors
///
/// How long a task computes is not known.
pub fn predict(set: &TaskSet, costs: &Costs, machine: Machine) -> Result<Prediction, PredictError> {
    let plan = Plan::new(set, costs, machine)?;
    let tasks = plan.bounds();
    let findings = findings::of(&plan, &tasks, costs);
    Ok(Prediction { tasks, findings })
}
