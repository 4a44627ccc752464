//! Node of a run as the collector sees it, on this host or on another: its order, its entries and
//! its record.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use horolog_record::{CycleClockOffset, CycleNodeResult, CycleTaskResult, Distribution};
use horolog_sys::zone::zone_index;

use super::child::{NodeChildProcess, NodeStartError};
use super::{RunError, RunOptions};
use crate::cluster::{RemoteNode, TaskStatus};
use crate::entry::PeriodEntry;
use crate::gather::task_stats::TaskStats;
use crate::node::{NodeOrder, NodeReady, NodeStartCommand, TaskFailure, TaskReady};
use crate::task::{Task, TaskSet, TaskWork};

/// Additional timeout of a node on another host, for the measurement of its clock and for the
/// network.
const REMOTE_EXTRA_TIMEOUT: Duration = Duration::from_secs(10);

/// Node of a run as the collector controls it, with the stats of its tasks.
pub(super) struct NodeHandle<'a> {
    pub(super) name: String,
    link: NodeConnection<'a>,
    /// Address of the node; its port is not used.
    address: SocketAddr,
    ready: NodeReady,
    injected_ns: i64,
    pub(super) stats: Vec<TaskStats>,
    cycles: Vec<u64>,
    /// Exit reason, if the node exited early.
    pub(super) exit_reason: Option<String>,
}

/// Connection to a node: to its process on this host, or to its member on another.
enum NodeConnection<'a> {
    Local(Box<NodeChildProcess>),
    Remote(&'a mut RemoteNode),
}

/// Index of a node, number of nodes, and address at which the peers reach it.
#[derive(Clone, Copy)]
pub(super) struct NodeIndexAndAddress {
    pub(super) node: u16,
    pub(super) nodes: u16,
    pub(super) address: Option<SocketAddr>,
}

impl<'a> NodeHandle<'a> {
    /// Prepares a node for its tasks: `remote` is one on another host; `None` starts a process on
    /// this host.
    pub(super) fn start(
        options: &RunOptions,
        set: &TaskSet,
        cycles: &[u64],
        slot: NodeIndexAndAddress,
        remote: Option<&'a mut RemoteNode>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let injected_ns =
            options.injected_offset_ns.get(usize::from(slot.node)).copied().unwrap_or(0);
        let local_address = slot.address.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
        let order = NodeOrder {
            set: task_set_of(options, set, usize::from(slot.node)),
            cycles: cycles.to_vec(),
            node: slot.node,
            nodes: slot.nodes,
            address: local_address.ip(),
            scope: zone_index(local_address).unwrap_or(0),
            hold_awake: options.hold_awake,
            clock_injected_ns: injected_ns,
            is_signalled: options.signal_by_packet,
            timeout_ns: u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        let name =
            remote.as_ref().map_or_else(|| super::node_name(slot.node), |one| one.name.clone());
        let start = |error| NodeStartError::Failed { node: format!("node {name}"), error };
        let tasks = set.tasks().len();
        let mut link = if let Some(remote) = remote {
            remote.send_order(&order).map_err(start)?;
            NodeConnection::Remote(remote)
        } else {
            let child =
                NodeChildProcess::start(&options.program, &options.arguments, &order, tasks);
            NodeConnection::Local(Box::new(child.map_err(start)?))
        };
        let ready = match &mut link {
            NodeConnection::Local(child) => {
                child.await_ready(order.ready_timeout(), is_interrupted)
            }
            NodeConnection::Remote(remote) => remote.await_ready(
                order.ready_timeout().saturating_add(REMOTE_EXTRA_TIMEOUT),
                is_interrupted,
            ),
        };
        let ready = match ready {
            Ok(ready) if ready.tasks.len() == tasks => ready,
            other => {
                let reason = other.err().unwrap_or("its tasks differ from the order".to_owned());
                return Err(
                    NodeStartError::NotReady { node: format!("node {name}"), reason }.into()
                );
            }
        };
        let tasks_ready = set.tasks().iter().zip(cycles).zip(&ready.tasks);
        let task_stats = |((task, cycles), ready): ((&Task, &u64), &TaskReady)| {
            TaskStats::new(task, *cycles, undisturbed_ns(task, ready))
        };
        let stats = tasks_ready.map(task_stats).collect();
        let address = match &link {
            NodeConnection::Local(_) => local_address,
            NodeConnection::Remote(remote) => remote.address,
        };
        let cycles = cycles.to_vec();
        Ok(Self { name, link, address, ready, injected_ns, stats, cycles, exit_reason: None })
    }

    /// Returns the address for messages of a task; `None` if it receives none.
    pub(super) fn message_address(&self, task: usize) -> Option<SocketAddr> {
        Some(self.address_with_port(self.ready.tasks.get(task)?.port?))
    }

    /// Returns the address for release packets of a task; `None` if it uses none.
    pub(super) fn release_address(&self, task: usize) -> Option<SocketAddr> {
        Some(self.address_with_port(self.ready.tasks.get(task)?.signal_port?))
    }

    fn address_with_port(&self, port: u16) -> SocketAddr {
        let mut address = self.address;
        address.set_port(port);
        address
    }

    /// Checks that the offset of the node's clock plus its error bound is at most `max_ns`; fails
    /// also if the clock could not be measured. The first measurement of the run counts; for a node
    /// on this host, the injected offset.
    pub(super) fn check_clock(&self, max_ns: u64) -> Result<(), RunError> {
        let NodeConnection::Remote(remote) = &self.link else {
            let ahead = crate::cluster::NodeClockOffset { ahead_ns: self.injected_ns, error_ns: 0 };
            return self.check_offset(ahead, max_ns);
        };
        match remote.clocks() {
            Ok(clocks) => clocks.first().map_or(Ok(()), |clock| self.check_offset(*clock, max_ns)),
            Err(reason) => {
                Err(RunError::ClockUnknown { node: self.name.clone(), reason: reason.to_owned() })
            }
        }
    }

    fn check_offset(
        &self,
        clock: crate::cluster::NodeClockOffset,
        max_ns: u64,
    ) -> Result<(), RunError> {
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

    pub(super) fn send_start(&mut self, start: &NodeStartCommand) -> Result<(), RunError> {
        let sent: io::Result<()> = match &mut self.link {
            NodeConnection::Local(child) => child.send(start),
            NodeConnection::Remote(remote) => remote.send_start(start),
        };
        let node = || format!("node {}", self.name);
        Ok(sent.map_err(|error| NodeStartError::Failed { node: node(), error })?)
    }

    /// Requests all tasks of the node to end at their next releases.
    pub(super) fn stop(&mut self) {
        match &mut self.link {
            NodeConnection::Local(child) => child.shared().stop(),
            NodeConnection::Remote(remote) => remote.stop(),
        }
    }

    /// Returns the index of the first task that has not finished.
    pub(super) fn unfinished_task(&self) -> Option<usize> {
        (0..self.stats.len()).find(|task| !self.task_state(*task).is_over)
    }

    /// Returns true for each task that has finished.
    pub(super) fn finished_tasks(&self) -> Vec<bool> {
        (0..self.stats.len()).map(|task| self.task_state(task).is_over).collect()
    }

    /// Returns the number of planned periods of a task for which no entry is known, not even a lost
    /// one.
    pub(super) fn missing_periods(&self, task: usize) -> u64 {
        let stats = &self.stats[task];
        let known = stats.periods + stats.unreleased + self.task_state(task).lost_periods;
        self.cycles[task].saturating_sub(known)
    }

    /// Returns the number of planned periods of a task.
    pub(super) fn planned(&self, task: usize) -> u64 {
        self.cycles[task]
    }

    fn task_state(&self, task: usize) -> TaskStatus {
        match &self.link {
            NodeConnection::Local(child) => child.task_state(task),
            NodeConnection::Remote(remote) => remote.task_state(task),
        }
    }

    /// Returns the number of detected steps of the node's system clock, the largest of its tasks.
    pub(super) fn clock_steps(&self) -> u64 {
        (0..self.stats.len()).map(|task| self.task_state(task).clock_sets).max().unwrap_or(0)
    }

    /// Returns the reason for which the latest measurement of the node's clock failed, if it did.
    pub(super) fn clock_unknown(&self) -> Option<String> {
        match &self.link {
            NodeConnection::Local(_) => None,
            NodeConnection::Remote(remote) => remote.clock_unknown.clone(),
        }
    }

    /// Processes the messages of a node on another host, and records the exit of a node before all
    /// its tasks had finished.
    pub(super) fn check_exit(&mut self) {
        let exit_reason = match &mut self.link {
            NodeConnection::Local(child) => child.exit_reason(),
            NodeConnection::Remote(remote) => {
                remote.process_messages();
                remote.exit_reason()
            }
        };
        if self.exit_reason.is_none() && self.unfinished_task().is_some() {
            self.exit_reason = exit_reason;
        }
    }

    /// Passes the entries that a task has published to `sink`, with the node's name and the task's
    /// stats.
    pub(super) fn take_entries(
        &mut self,
        task: usize,
        sink: &mut dyn FnMut(&str, &mut TaskStats, &PeriodEntry),
    ) {
        let (name, stats) = (&self.name, &mut self.stats[task]);
        match &mut self.link {
            NodeConnection::Local(child) => {
                child.take_entries(task, &mut |entry| sink(name, stats, entry));
            }
            NodeConnection::Remote(remote) => {
                for entry in remote.take_entries(task) {
                    sink(name, stats, &entry);
                }
            }
        }
    }

    /// Returns the record of the node.
    pub(super) fn to_record(&self, set: &TaskSet) -> CycleNodeResult {
        let (host, clocks) = match &self.link {
            NodeConnection::Local(_) => (None, &[][..]),
            NodeConnection::Remote(remote) => {
                (Some(remote.host.clone()), remote.clocks().unwrap_or(&[]))
            }
        };
        let clock = |clock: &crate::cluster::NodeClockOffset| CycleClockOffset {
            ahead_ns: clock.ahead_ns,
            error_ns: clock.error_ns,
        };
        let tasks = set.tasks().iter().enumerate();
        CycleNodeResult {
            name: self.name.clone(),
            host,
            conditions: self.ready.conditions.clone(),
            injected_offset_ns: Some(self.ready.clock_injected_ns).filter(|ns| *ns != 0),
            clocks: clocks.iter().map(clock).collect(),
            tasks: tasks.map(|(at, task)| self.task_record(at, task)).collect(),
        }
    }

    fn task_record(&self, at: usize, task: &Task) -> CycleTaskResult {
        let (stats, ready, state) = (&self.stats[at], &self.ready.tasks[at], self.task_state(at));
        CycleTaskResult {
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
            start_latency_ns: Distribution::from_histogram(&stats.start_latency),
            execution_ns: Distribution::from_histogram(&stats.execution),
            response_ns: Distribution::from_histogram(&stats.response),
            computation_ns: Distribution::from_histogram(&stats.computation),
            communication_ns: Distribution::from_histogram(&stats.communication),
            idle_ns: Distribution::from_histogram(&stats.idle),
            barrier_ns: Distribution::from_histogram(&stats.barrier),
            overhead: stats.overhead(state.latency_ns),
            served: stats.served(),
            failure: TaskFailure::from_words(state.fault).map(|fault| fault.to_string()),
            states: stats.states(),
            series: stats.series(),
        }
    }
}

/// Returns the tasks of a node: with their computation multiplied if the node is slowed
/// ([`RunOptions::slow`]), and pinned to one core if cores are given, which nodes use in turn.
fn task_set_of(options: &RunOptions, set: &TaskSet, node: usize) -> TaskSet {
    let slow = options.slow.iter().find(|(slow, _)| usize::from(*slow) == node);
    let set = slow.map_or_else(|| set.clone(), |(_, factor)| set.multiplied(*factor));
    let core = options.cores.get(node % options.cores.len().max(1));
    core.map_or_else(|| set.clone(), |core| set.pinned_to_core(*core))
}

/// Returns the undisturbed computation of a period, in ns; `None` if the work is not supersteps.
fn undisturbed_ns(task: &Task, ready: &TaskReady) -> Option<f64> {
    let is_known = matches!(task.work, TaskWork::Steps(_));
    is_known.then_some(ready.units? as f64 * ready.unit_ns?)
}
