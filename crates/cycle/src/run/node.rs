//! Node from the collector's point of view, on this host or on another: its order, its entries, and
//! its record.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use horolog_record::{CycleClock, CycleNode, CycleTask, Distribution};
use horolog_sys::zone::zone_index;

use super::child::TaskProcess;
use super::{RunError, RunOptions};
use crate::cluster::{RemoteNode, TaskState};
use crate::entry::PeriodEntry;
use crate::gather::task_stats::TaskStats;
use crate::node::{NodeOrder, NodeReady, NodeStart, TaskFailure, TaskReady};
use crate::task::{Task, TaskSet, TaskWork};

/// Additional time for a node on another host: it measures its clock, and the network is in
/// between.
const REMOTE_EXTRA_TIMEOUT: Duration = Duration::from_secs(10);

/// One node.
pub(super) struct NodeHandle<'a> {
    pub(super) name: String,
    link: NodeConnection<'a>,
    /// Without a port.
    address: SocketAddr,
    ready: NodeReady,
    injected_ns: i64,
    pub(super) stats: Vec<TaskStats>,
    cycles: Vec<u64>,
    /// Reason for which it exited early.
    pub(super) died: Option<String>,
}

/// Connection to a node.
enum NodeConnection<'a> {
    Local(Box<TaskProcess>),
    Remote(&'a mut RemoteNode),
}

/// Index of a node, number of all, and the address at which its peers reach it.
#[derive(Clone, Copy)]
pub(super) struct NodeSlot {
    pub(super) node: u16,
    pub(super) nodes: u16,
    pub(super) address: Option<SocketAddr>,
}

impl<'a> NodeHandle<'a> {
    /// Prepares a node for its tasks: `remote` on another host, or a new process on this host.
    pub(super) fn ready(
        options: &RunOptions,
        set: &TaskSet,
        cycles: &[u64],
        slot: NodeSlot,
        remote: Option<&'a mut RemoteNode>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let injected_ns =
            options.injected_offset_ns.get(usize::from(slot.node)).copied().unwrap_or(0);
        let home = slot.address.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
        let order = NodeOrder {
            set: of_node(options, set, usize::from(slot.node)),
            cycles: cycles.to_vec(),
            node: slot.node,
            nodes: slot.nodes,
            address: home.ip(),
            scope: zone_index(home).unwrap_or(0),
            hold_awake: options.hold_awake,
            clock_injected_ns: injected_ns,
            is_signalled: options.signal_by_packet,
            timeout_ns: u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        let name =
            remote.as_ref().map_or_else(|| super::name_of(slot.node), |one| one.name.clone());
        let start = |error| RunError::Start { node: name.clone(), error };
        let tasks = set.tasks().len();
        let mut link = if let Some(remote) = remote {
            remote.send_order(&order).map_err(start)?;
            NodeConnection::Remote(remote)
        } else {
            let child = TaskProcess::start(&options.program, &options.arguments, &order, tasks);
            NodeConnection::Local(Box::new(child.map_err(start)?))
        };
        let ready = match &mut link {
            NodeConnection::Local(child) => child.answer(order.ready_timeout(), is_over),
            NodeConnection::Remote(remote) => remote
                .await_ready(order.ready_timeout().saturating_add(REMOTE_EXTRA_TIMEOUT), is_over),
        };
        let not_ready = |reason| RunError::Ready { node: name.clone(), reason };
        let ready = ready.map_err(not_ready)?;
        let tasks_ready = set.tasks().iter().zip(cycles).zip(&ready.tasks);
        let task_stats = |((task, cycles), ready): ((&Task, &u64), &TaskReady)| {
            TaskStats::new(task, *cycles, undisturbed_ns(task, ready))
        };
        let stats = tasks_ready.map(task_stats).collect();
        let address = match &link {
            NodeConnection::Local(_) => home,
            NodeConnection::Remote(remote) => remote.address,
        };
        let cycles = cycles.to_vec();
        Ok(Self { name, link, address, ready, injected_ns, stats, cycles, died: None })
    }

    /// Returns the message address of a task, if it receives any.
    pub(super) fn port(&self, task: usize) -> Option<SocketAddr> {
        Some(self.at(self.ready.tasks.get(task)?.port?))
    }

    /// Returns the address for a task's release packets, if it uses any.
    pub(super) fn signal_port(&self, task: usize) -> Option<SocketAddr> {
        Some(self.at(self.ready.tasks.get(task)?.signal_port?))
    }

    fn at(&self, port: u16) -> SocketAddr {
        let mut address = self.address;
        address.set_port(port);
        address
    }

    /// Refuses a clock that is too far off.
    pub(super) fn check_clock(&self, max_ns: u64) -> Result<(), RunError> {
        let NodeConnection::Remote(remote) = &self.link else {
            let ahead = crate::cluster::NodeClockOffset { ahead_ns: self.injected_ns, error_ns: 0 };
            return self.within(ahead, max_ns);
        };
        match remote.clocks() {
            Ok(clocks) => clocks.first().map_or(Ok(()), |clock| self.within(*clock, max_ns)),
            Err(reason) => {
                Err(RunError::ClockUnknown { node: self.name.clone(), reason: reason.to_owned() })
            }
        }
    }

    fn within(&self, clock: crate::cluster::NodeClockOffset, max_ns: u64) -> Result<(), RunError> {
        if clock.ahead_ns.unsigned_abs().saturating_add(clock.error_ns) <= max_ns {
            return Ok(());
        }
        let us = |ns: f64| format!("{:.1} us", ns / 1e3);
        Err(RunError::ClockOff {
            node: self.name.clone(),
            ahead: us(clock.ahead_ns as f64),
            error: us(clock.error_ns as f64),
            max: us(max_ns as f64),
        })
    }

    pub(super) fn send_start(&mut self, go: &NodeStart) -> Result<(), RunError> {
        let sent: io::Result<()> = match &mut self.link {
            NodeConnection::Local(child) => child.send(go),
            NodeConnection::Remote(remote) => remote.send_start(go),
        };
        sent.map_err(|error| RunError::Start { node: self.name.clone(), error })
    }

    /// Requests all its tasks to end at their next release.
    pub(super) fn stop(&mut self) {
        match &mut self.link {
            NodeConnection::Local(child) => child.shared().stop(),
            NodeConnection::Remote(remote) => remote.stop(),
        }
    }

    /// Returns the first task that has not finished.
    pub(super) fn open(&self) -> Option<usize> {
        (0..self.stats.len()).find(|task| !self.state(*task).is_over)
    }

    /// Returns, for each task, whether it has finished.
    pub(super) fn finished_tasks(&self) -> Vec<bool> {
        (0..self.stats.len()).map(|task| self.state(task).is_over).collect()
    }

    /// Returns the planned periods of a task without an entry.
    pub(super) fn missing_periods(&self, task: usize) -> u64 {
        let stats = &self.stats[task];
        let known = stats.periods + stats.unreleased + self.state(task).lost_periods;
        self.cycles[task].saturating_sub(known)
    }

    /// Returns the planned periods of a task.
    pub(super) fn planned(&self, task: usize) -> u64 {
        self.cycles[task]
    }

    fn state(&self, task: usize) -> TaskState {
        match &self.link {
            NodeConnection::Local(child) => child.state(task),
            NodeConnection::Remote(remote) => remote.state(task),
        }
    }

    /// Returns the number of detected steps of its system clock, the highest of its tasks.
    pub(super) fn clock_sets(&self) -> u64 {
        (0..self.stats.len()).map(|task| self.state(task).clock_sets).max().unwrap_or(0)
    }

    /// Returns the reason for which its clock could not be measured in the latest attempt, if it
    /// failed.
    pub(super) fn clock_unknown(&self) -> Option<String> {
        match &self.link {
            NodeConnection::Local(_) => None,
            NodeConnection::Remote(remote) => remote.clock_unknown.clone(),
        }
    }

    /// Records an exit before all its tasks had finished.
    pub(super) fn check_exit(&mut self) {
        let ended = match &mut self.link {
            NodeConnection::Local(child) => child.ended(),
            NodeConnection::Remote(remote) => {
                remote.listen();
                remote.ended()
            }
        };
        if self.died.is_none() && self.open().is_some() {
            self.died = ended;
        }
    }

    /// Takes the entries that a task has published.
    pub(super) fn take(
        &mut self,
        task: usize,
        put: &mut dyn FnMut(&str, &mut TaskStats, &PeriodEntry),
    ) {
        let (name, stats) = (&self.name, &mut self.stats[task]);
        match &mut self.link {
            NodeConnection::Local(child) => child.take(task, &mut |entry| put(name, stats, entry)),
            NodeConnection::Remote(remote) => {
                for entry in remote.take(task) {
                    put(name, stats, &entry);
                }
            }
        }
    }

    /// Returns its record.
    pub(super) fn result(&self, set: &TaskSet) -> CycleNode {
        let (host, clocks) = match &self.link {
            NodeConnection::Local(_) => (None, &[][..]),
            NodeConnection::Remote(remote) => {
                (Some(remote.host.clone()), remote.clocks().unwrap_or(&[]))
            }
        };
        let clock = |clock: &crate::cluster::NodeClockOffset| CycleClock {
            ahead_ns: clock.ahead_ns,
            error_ns: clock.error_ns,
        };
        let tasks = set.tasks().iter().enumerate();
        CycleNode {
            name: self.name.clone(),
            host,
            conditions: self.ready.conditions.clone(),
            injected_offset_ns: Some(self.ready.clock_injected_ns).filter(|ns| *ns != 0),
            clocks: clocks.iter().map(clock).collect(),
            tasks: tasks.map(|(at, task)| self.task(at, task)).collect(),
        }
    }

    fn task(&self, at: usize, task: &Task) -> CycleTask {
        let (stats, ready, state) = (&self.stats[at], &self.ready.tasks[at], self.state(at));
        CycleTask {
            name: task.name.clone(),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            scheduling: ready.scheduling.clone(),
            cost: ready.cost,
            unit_ns: ready.unit_ns,
            units: ready.units,
            planned: self.cycles[at],
            periods: stats.periods,
            missed: stats.missed,
            overrun: stats.overrun,
            uncounted: state.lost,
            unreleased: stats.unreleased,
            failed: stats.failed,
            messages_missing: stats.messages_missing,
            barriers_broken: stats.barriers_broken,
            start_latency_ns: Distribution::of_recorder(&stats.lateness),
            execution_ns: Distribution::of_recorder(&stats.execution),
            response_ns: Distribution::of_recorder(&stats.response),
            computation_ns: Distribution::of_recorder(&stats.computation),
            communication_ns: Distribution::of_recorder(&stats.communication),
            idle_ns: Distribution::of_recorder(&stats.idle),
            barrier_ns: Distribution::of_recorder(&stats.barrier),
            overhead: stats.overhead(state.latency_ns),
            served: stats.served(),
            failure: TaskFailure::of_words(state.fault).map(|fault| fault.to_string()),
            states: stats.states(),
            series: stats.series(),
        }
    }
}

/// Returns the tasks in this node's form.
fn of_node(options: &RunOptions, set: &TaskSet, node: usize) -> TaskSet {
    let slow = options.slow.iter().find(|(slow, _)| usize::from(*slow) == node);
    let set = slow.map_or_else(|| set.clone(), |(_, factor)| set.multiplied(*factor));
    let core = options.cores.get(node % options.cores.len().max(1));
    core.map_or_else(|| set.clone(), |core| set.on_core(*core))
}

/// Returns the undisturbed computation of a period of supersteps.
fn undisturbed_ns(task: &Task, ready: &TaskReady) -> Option<f64> {
    let is_known = matches!(task.work, TaskWork::Steps(_));
    is_known.then_some(ready.units? as f64 * ready.unit_ns?)
}
