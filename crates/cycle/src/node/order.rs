//! What a node's process is told, and what it answers: one line of JSON each, over its standard
//! input and output.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_record::{CycleCost, HostConditions, TaskScheduling};
use serde::{Deserialize, Serialize};

use crate::task::{TaskSet, Work};

/// The longest line of either side, in bytes.
pub const LINE_MAX: u64 = 4 << 20;
/// What a node may take to be ready: a program to load, every core taken, speeds to find out.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// What a node is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The tasks.
    pub set: TaskSet,
    /// How many periods each of them has, in the same order.
    pub cycles: Vec<u64>,
    /// The place of this node among all, from 0 on.
    pub node: u16,
    /// The number of all nodes.
    pub nodes: u16,
    /// The address by which the others reach it.
    pub address: IpAddr,
    /// Whether deep idle states are held off.
    pub hold_awake: bool,
    /// What is added to the node's clock, to see what a clock that is off does.
    pub clock_injected_ns: i64,
    /// Whether packets release the periods, in place of a clock.
    pub is_signalled: bool,
    /// The longest that a command or a program may take for a period.
    pub timeout_ns: u64,
}

impl Order {
    /// How long a node is waited for until it says whether it is ready. Programs may take their own
    /// time for it, all of them at once.
    pub(crate) fn patience(&self) -> Duration {
        let programs = self.set.tasks().iter().any(|task| matches!(task.work, Work::Program(_)));
        let theirs = if programs { Duration::from_nanos(self.timeout_ns) } else { Duration::ZERO };
        READY_PATIENCE.saturating_add(theirs)
    }
}

/// A node that could begin, or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// All is ready.
    Ready(Ready),
    /// Why not.
    Failed(String),
}

/// What a node says before it begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// What is held still.
    pub conditions: HostConditions,
    /// What is added to its clock on purpose.
    pub clock_injected_ns: i64,
    /// Its tasks, in their order.
    pub tasks: Vec<TaskReady>,
}

/// A task that can begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskReady {
    /// How it is scheduled.
    pub scheduling: TaskScheduling,
    /// What the measuring costs.
    pub cost: CycleCost,
    /// How long a unit of the built-in load takes.
    pub unit_ns: Option<f64>,
    /// Units in a period; in one event of a polling server.
    pub units: Option<u64>,
    /// Where it takes messages, if it does.
    pub port: Option<u16>,
    /// Where it takes the packets that release it, if these do.
    pub signal_port: Option<u16>,
}

/// What all nodes are told when all are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Go {
    /// The instant of the first release of a task without an offset.
    pub begin: Begin,
    /// For each task, where it takes messages on each node, in the order of the nodes; empty where
    /// it takes none.
    pub peers: Vec<Vec<SocketAddr>>,
}

/// The first instant, and the clock that it is an instant of.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Begin {
    /// `CLOCK_MONOTONIC` of the machine that all nodes are on, in ns.
    Monotonic(i64),
    /// UTC, in ns since 1970.
    Utc(i64),
    /// Packets release each period; the first one comes so long after this is told.
    Signalled {
        /// In ns.
        in_ns: u64,
        /// What the packets of this run carry.
        token: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_time_that_it_was_given_to_be_ready_and_nobody_else_has() {
        let order = |work: &str| Order {
            set: TaskSet::parse(&format!("[[task]]\nname = \"a\"\nperiod = \"1ms\"\n{work}"))
                .unwrap(),
            cycles: vec![1],
            node: 0,
            nodes: 1,
            address: [127, 0, 0, 1].into(),
            hold_awake: false,
            clock_injected_ns: 0,
            is_signalled: false,
            timeout_ns: 120_000_000_000,
        };
        assert!(order("program = [\"true\"]").patience() > Duration::from_mins(2));
        assert_eq!(order("command = [\"true\"]").patience(), READY_PATIENCE);
        let without_end = Order { timeout_ns: u64::MAX, ..order("program = [\"true\"]") };
        assert!(without_end.patience() > Duration::from_hours(24 * 365));
    }
}
