//! Orders to a node's process and its replies: one line of JSON each, over its standard input and
//! output.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_record::{CycleCost, HostConditions, TaskScheduling};
use horolog_sys::zone::in_zone_of;
use serde::{Deserialize, Serialize};

use crate::task::{TaskSet, TaskWork};

/// Longest line of either side, in bytes.
pub const LINE_MAX: u64 = 4 << 20;
/// Time for a node to become ready: it loads a program, occupies every core and calibrates speeds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Order to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeOrder {
    /// The tasks.
    pub set: TaskSet,
    /// Periods of each task, in the same order.
    pub cycles: Vec<u64>,
    /// Index of this node among all, from 0 on.
    pub node: u16,
    /// Number of all nodes.
    pub nodes: u16,
    /// Address at which the peers reach it.
    pub address: IpAddr,
    /// Index of the interface by which they do, if the address is link-local.
    #[serde(default)]
    pub scope: u32,
    /// True if deep idle states are prevented.
    pub hold_awake: bool,
    /// Offset injected into the node's clock, to show the effect of a wrong clock.
    pub clock_injected_ns: i64,
    /// True if packets release the periods, instead of a clock.
    pub is_signalled: bool,
    /// Timeout of a command or program for one period.
    pub timeout_ns: u64,
}

impl NodeOrder {
    /// Local address of its sockets, at ports of the kernel's choice.
    pub(crate) fn home(&self) -> SocketAddr {
        in_zone_of((self.address, 0).into(), self.scope)
    }

    /// Returns the timeout for a node's report that it is ready. It includes the timeout of
    /// programs, which start all at once.
    pub(crate) fn ready_timeout(&self) -> Duration {
        let programs =
            self.set.tasks().iter().any(|task| matches!(task.work, TaskWork::Program(_)));
        let theirs = if programs { Duration::from_nanos(self.timeout_ns) } else { Duration::ZERO };
        READY_TIMEOUT.saturating_add(theirs)
    }
}

/// Reply of a node to its order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// All is ready.
    Ready(NodeReady),
    /// Reason for the failure.
    Failed(String),
}

/// Report of a node before it begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReady {
    /// Conditions that are held constant.
    pub conditions: HostConditions,
    /// Offset injected into its clock.
    pub clock_injected_ns: i64,
    /// Its tasks, in their order.
    pub tasks: Vec<TaskReady>,
}

/// Task that can begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskReady {
    /// Its scheduling.
    pub scheduling: TaskScheduling,
    /// Cost of measuring.
    pub cost: CycleCost,
    /// Duration of a unit of the built-in load.
    pub unit_ns: Option<f64>,
    /// Units in a period; in one event of a polling server.
    pub units: Option<u64>,
    /// Port for messages, if it receives any.
    pub port: Option<u16>,
    /// Port for the packets that release it, if packets do.
    pub signal_port: Option<u16>,
}

/// Start command to all nodes when all are ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeStart {
    /// First release of a task without an offset.
    pub begin: StartInstant,
    /// For each task, its message addresses on the nodes, in the order of the nodes; empty if it
    /// receives none.
    pub peers: Vec<Vec<SocketAddr>>,
}

/// First instant, with the clock that it refers to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum StartInstant {
    /// `CLOCK_MONOTONIC` of the host that all nodes share, in ns.
    Monotonic(i64),
    /// UTC, in ns since 1970.
    Utc(i64),
    /// Packets release each period; the first one follows this command after this time.
    Signalled {
        /// In ns.
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
