//! Orders to a node's process and its replies: one line of JSON each, over its standard input and
//! output.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_record::{CycleMeasurementCost, HostConditions, TaskSchedulingOutcome};
use horolog_sys::zone::in_zone_of;
use serde::{Deserialize, Serialize};

use crate::task::{TaskSet, TaskWork};

/// Longest line of either side, in bytes.
pub const LINE_MAX: u64 = 4 << 20;
/// Timeout for a node to become ready: it loads a program, occupies every core and calibrates
/// speeds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Order to a node's process: the tasks to run, and the conditions of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeOrder {
    /// Task set of the run.
    pub set: TaskSet,
    /// Number of periods of each task, in the order of the task set.
    pub cycles: Vec<u64>,
    /// Index of this node, from 0.
    pub node: u16,
    /// Number of nodes.
    pub nodes: u16,
    /// Address at which the peers reach this node.
    pub address: IpAddr,
    /// Interface index (scope ID) of `address`, if it is link-local.
    #[serde(default)]
    pub scope: u32,
    /// True if deep idle states are prevented on this host.
    pub hold_awake: bool,
    /// Offset injected into the node's clock, in ns, to show the effect of a wrong clock.
    pub clock_injected_ns: i64,
    /// True if packets release the periods instead of a clock.
    pub is_signalled: bool,
    /// Timeout of a command or program in one period, in ns.
    pub timeout_ns: u64,
}

impl NodeOrder {
    /// Returns the local address of the node's sockets, with port 0 (chosen by the kernel).
    pub(crate) fn local_address(&self) -> SocketAddr {
        in_zone_of((self.address, 0).into(), self.scope)
    }

    /// Returns the timeout for a node's report that it is ready. It includes the timeout of
    /// programs once, because they start concurrently.
    pub(crate) fn ready_timeout(&self) -> Duration {
        let programs =
            self.set.tasks().iter().any(|task| matches!(task.work, TaskWork::Program(_)));
        let program_timeout =
            if programs { Duration::from_nanos(self.timeout_ns) } else { Duration::ZERO };
        READY_TIMEOUT.saturating_add(program_timeout)
    }
}

/// Report of a node that is ready to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReady {
    /// Host conditions that are in force during the run.
    pub conditions: HostConditions,
    /// Offset injected into the node's clock, in ns.
    pub clock_injected_ns: i64,
    /// Tasks in the order of the task set.
    pub tasks: Vec<TaskReady>,
}

/// Report of a task that is ready to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskReady {
    /// Scheduling of the task's thread.
    pub scheduling: TaskSchedulingOutcome,
    /// Measured cost of measuring: of a clock reading, and of a period without work.
    pub cost: CycleMeasurementCost,
    /// Duration of one unit of the built-in load, in ns; `None` if the task does not use the load.
    pub unit_ns: Option<f64>,
    /// Units of the built-in load in a period or, for a polling server, in one event; `None` if the
    /// task does not use the load.
    pub units: Option<u64>,
    /// UDP port for messages, if the task receives any.
    pub port: Option<u16>,
    /// UDP port for release packets, if packets release the task.
    pub signal_port: Option<u16>,
}

/// Start command, sent to all nodes when all of them are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeStartCommand {
    /// First release of a task whose offset is 0.
    pub begin: FirstRelease,
    /// For each task, its message addresses on the nodes, in the order of the nodes; empty if it
    /// receives none.
    pub peers: Vec<Vec<SocketAddr>>,
}

/// Instant of the first release, with its clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum FirstRelease {
    /// `CLOCK_MONOTONIC` of the host that all nodes share, in ns.
    Monotonic(i64),
    /// UTC, in ns since 1970.
    Utc(i64),
    /// Delay after the start command; packets release the first and every later period.
    Signalled {
        /// Delay from the start command to the first packet, in ns.
        in_ns: u64,
        /// Token in the packets of this run.
        token: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_has_its_own_timeout_to_become_ready() {
        let order = |work: &str| NodeOrder {
            set: TaskSet::parse(&format!("[[task]]\nname = \"a\"\nperiod = \"1ms\"\n{work}"))
                .unwrap(),
            cycles: vec![1],
            node: 0,
            nodes: 1,
            address: [127, 0, 0, 1].into(),
            scope: 0,
            hold_awake: false,
            clock_injected_ns: 0,
            is_signalled: false,
            timeout_ns: 120_000_000_000,
        };
        assert!(order("program = [\"true\"]").ready_timeout() > Duration::from_mins(2));
        assert_eq!(order("command = [\"true\"]").ready_timeout(), READY_TIMEOUT);
        let without_end = NodeOrder { timeout_ns: u64::MAX, ..order("program = [\"true\"]") };
        assert!(without_end.ready_timeout() > Duration::from_hours(24 * 365));
    }
}
