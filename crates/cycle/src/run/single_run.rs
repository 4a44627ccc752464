//! One run: all nodes start together, and their entries are collected until all have finished.

use std::time::Duration;

use horolog_record::{
    CycleConfigurationResult, PartProgress, ReleaseSignalCounts, SnapshotTimer,
    TaskSchedulingPolicy,
};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_time::{Clock, Monotonic, Span, TimeGrid, Timestamp};

use super::collection::{CollectionState, collect_until_finished};
use super::node::{NodeHandle, NodeIndexAndAddress};
use super::signal::{self, ReleaseSchedule, ReleaseSignalThread};
use super::{CycleObserver, CycleRunEvent, PeriodLogLine, RunError, RunOptions, TaskSnapshot};
use crate::cluster::RemoteNode;
use crate::gather::cross_node::CrossNodeStats;
use crate::gather::task_stats::TaskStats;
use crate::node::{FirstRelease, NodeStartCommand};
use crate::ring::COLLECT_INTERVAL_NS;
use crate::task::{Task, TaskSet, TaskWork};

/// Time from the last node's report that it is ready to the first release.
const START_DELAY: Span = Span::from_ms(100);
/// Addition to [`START_DELAY`] if nodes exchange messages, in which they measure the latency of the
/// network.
const BASELINE_TIME: Span = Span::from_ms(400);
/// Addition to [`START_DELAY`] if nodes are on several hosts, to deliver the start command to each.
const REMOTE_START_DELAY: Span = Span::from_ms(500);
/// Interval between two collections. A ring holds the entries of many intervals.
const COLLECT_INTERVAL: Duration = Duration::from_nanos(COLLECT_INTERVAL_NS);
/// Time beyond the planned end after which a run is stopped, without the timeout of commands and
/// programs, which is added; also the grace period after that.
const END_GRACE_PERIOD: Span = Span::from_ms(2_000);
/// Grace period of nodes whose run is ended early.
const EARLY_END_GRACE_PERIOD: Span = Span::from_ms(4_000);

/// Reason for the end of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunEndReason {
    /// All periods are completed.
    Completed,
    /// The user ended the run early.
    Interrupted,
    /// A node exited unexpectedly.
    NodeExited {
        /// The node.
        node: String,
        /// Exit reason.
        how: String,
    },
    /// A task ended before its last period.
    TaskAbandoned {
        /// Name of the task's node.
        node: String,
        /// Name of the task.
        task: String,
    },
    /// A further run could not start; the text is the reason.
    NotStarted(String),
    /// A task had not finished long after the planned end.
    TaskStuck {
        /// Name of the task's node.
        node: String,
        /// Name of the task.
        task: String,
    },
}

/// Planned periods of a task without an entry: name of the node and of the task, and the numbers of
/// planned and of missing periods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MissingPeriodCounts {
    pub(super) node: String,
    pub(super) task: String,
    pub(super) planned: u64,
    pub(super) missing: u64,
}

/// One run in progress.
pub(super) struct SingleRunInProgress<'a> {
    set: &'a TaskSet,
    nodes: Vec<NodeHandle<'a>>,
    names: Vec<String>,
    cross_node: Vec<Option<CrossNodeStats>>,
    signal: Option<ReleaseSignalThread>,
    signal_stats: Option<ReleaseSignalCounts>,
    begin: Timestamp<Monotonic>,
    total: Span,
    /// Wait after `total` for the nodes to finish: [`END_GRACE_PERIOD`] and, with commands or
    /// programs, their timeout.
    end_timeout: Span,
    /// End of the run, as far as it is known.
    pub(super) ending: RunEndReason,
}

impl<'a> SingleRunInProgress<'a> {
    /// Prepares all nodes, checks their clocks if clocks release the periods of a cluster, sends
    /// them the start command, and starts the thread of the release signal if packets are used.
    pub(super) fn start(
        options: &RunOptions,
        set: &'a TaskSet,
        count: u16,
        (members, address): (&'a mut [RemoteNode], Option<std::net::SocketAddr>),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let time_ns = u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX);
        let period_count = |task: &Task| (time_ns / task.period_ns).max(1);
        let cycles: Vec<u64> = set.tasks().iter().map(period_count).collect();
        let mut nodes = Vec::new();
        let mut members = members.iter_mut();
        for node in 0..count {
            let slot = NodeIndexAndAddress { node, nodes: count, address };
            // The first node is always on this host.
            let remote = if node > 0 { members.next() } else { None };
            nodes.push(NodeHandle::start(options, set, &cycles, slot, remote, is_interrupted)?);
        }
        // Releases by packets need no accurate clock.
        if let Some(cluster) = options.cluster.filter(|_| !options.signal_by_packet) {
            nodes.iter().try_for_each(|node| node.check_clock(cluster.max_offset_ns))?;
        }
        let peers: Vec<Vec<_>> = (0..set.tasks().len()).map(|task| peers(&nodes, task)).collect();
        let communicates = peers.iter().any(|peers| !peers.is_empty());
        let mut start_delay = START_DELAY;
        if communicates {
            start_delay = start_delay + BASELINE_TIME;
        }
        if options.cluster.is_some() {
            start_delay = start_delay + REMOTE_START_DELAY;
        }
        let begin = ClockMonotonic.now() + start_delay;
        let token = signal::random_token();
        let start = if options.signal_by_packet {
            FirstRelease::Signalled { in_ns: start_delay.as_ns().cast_unsigned(), token }
        } else if options.cluster.is_some() {
            FirstRelease::Utc((ClockRealtime.now() + start_delay).as_ns())
        } else {
            FirstRelease::Monotonic(begin.as_ns())
        };
        let start_command = NodeStartCommand { begin: start, peers };
        nodes.iter_mut().try_for_each(|node| node.send_start(&start_command))?;
        let signal = options.signal_by_packet.then(|| {
            ReleaseSignalThread::start(release_schedules(set, &cycles, &nodes, begin), token)
        });
        let signal = signal.transpose().map_err(RunError::Signal)?;
        let cross_node_stats = |task: &Task| {
            let steps = match &task.work {
                TaskWork::Steps(steps) => steps.len(),
                // The marks of a program form one step.
                TaskWork::Program(_) => 1,
                // Such tasks of several nodes are independent of each other.
                TaskWork::Command(_) | TaskWork::Polling(_) => return None,
            };
            (count > 1).then(|| CrossNodeStats::new(&task.name, usize::from(count), steps))
        };
        let cross_node = set.tasks().iter().map(cross_node_stats).collect();
        let ends_ns = set.tasks().iter().zip(&cycles).map(|(task, cycles)| {
            task.offset_ns.saturating_add(task.period_ns.saturating_mul(*cycles))
        });
        let total = Span::from_ns(ends_ns.max().unwrap_or(0).try_into().unwrap_or(i64::MAX));
        let starts_process =
            |task: &Task| matches!(task.work, TaskWork::Command(_) | TaskWork::Program(_));
        let end_timeout = if set.tasks().iter().any(starts_process) {
            let timeout_ns = i64::try_from(options.timeout.as_nanos()).unwrap_or(i64::MAX);
            END_GRACE_PERIOD + Span::from_ns(timeout_ns)
        } else {
            END_GRACE_PERIOD
        };
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Self {
            set,
            nodes,
            names,
            cross_node,
            signal,
            signal_stats: None,
            begin,
            total,
            end_timeout,
            ending: RunEndReason::Completed,
        })
    }

    /// Collects entries until all nodes have finished or the run is stopped.
    pub(super) fn collect(
        &mut self,
        observer: &mut CycleObserver<'_>,
        run: (usize, usize),
        timer: &mut SnapshotTimer,
    ) {
        let deadline = self.begin + self.total + self.end_timeout;
        let collect = |this: &mut Self| this.collect_once(observer, run, timer);
        collect_until_finished(self, deadline, collect, Self::stop);
        self.signal_stats = self.signal.as_mut().and_then(ReleaseSignalThread::finish);
    }

    fn collect_once(
        &mut self,
        observer: &mut CycleObserver<'_>,
        run: (usize, usize),
        timer: &mut SnapshotTimer,
    ) -> CollectionState {
        self.nodes.iter_mut().for_each(NodeHandle::check_exit);
        let finished: Vec<_> = self.nodes.iter().map(NodeHandle::finished_tasks).collect();
        let has_finished = |(node, tasks): (&NodeHandle<'_>, &Vec<bool>)| {
            node.exit_reason.is_some() || tasks.iter().all(|is_over| *is_over)
        };
        let all_finished = self.nodes.iter().zip(&finished).all(has_finished);
        self.collect_entries(observer);
        timer.publish(observer, all_finished, || (self.progress(run), self.task_snapshots()));
        if self.ending == RunEndReason::Completed {
            let early_end = if observer.flow().is_break() {
                Some(RunEndReason::Interrupted)
            } else {
                self.exited_node().or_else(|| self.abandoned_task(&finished))
            };
            self.ending = early_end.unwrap_or(RunEndReason::Completed);
        }
        let ends_early = self.ending != RunEndReason::Completed;
        CollectionState { all_finished, ends_early, pause: COLLECT_INTERVAL }
    }

    /// Requests all nodes to end, and returns the grace period: the remaining entries are still
    /// collected.
    fn stop(&mut self, is_late: bool) -> Span {
        if is_late {
            self.ending = self.stuck_task();
        }
        self.nodes.iter_mut().for_each(NodeHandle::stop);
        if is_late { END_GRACE_PERIOD } else { EARLY_END_GRACE_PERIOD }
    }

    fn exited_node(&self) -> Option<RunEndReason> {
        self.nodes.iter().find_map(|node| {
            let how = node.exit_reason.clone()?;
            Some(RunEndReason::NodeExited { node: node.name.clone(), how })
        })
    }

    /// Returns the end by a task that has finished without all its periods. `finished` was read
    /// before its entries were collected.
    fn abandoned_task(&self, finished: &[Vec<bool>]) -> Option<RunEndReason> {
        self.nodes.iter().zip(finished).find_map(|(node, through)| {
            let at = (0..through.len()).find(|at| through[*at] && node.missing_periods(*at) > 0)?;
            let task = self.set.tasks()[at].name.clone();
            Some(RunEndReason::TaskAbandoned { node: node.name.clone(), task })
        })
    }

    fn stuck_task(&self) -> RunEndReason {
        let stuck = self.nodes.iter().find_map(|node| {
            let task = self.set.tasks()[node.unfinished_task()?].name.clone();
            Some(RunEndReason::TaskStuck { node: node.name.clone(), task })
        });
        stuck.unwrap_or(RunEndReason::Completed)
    }

    fn collect_entries(&mut self, observer: &mut CycleObserver<'_>) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            for (at, task) in self.set.tasks().iter().enumerate() {
                let (cross_node, names) = (&mut self.cross_node[at], &self.names);
                node.take_entries(at, &mut |node, stats, entry| {
                    let line = PeriodLogLine { node, names, task, entry };
                    observer.event(&CycleRunEvent::Logged(line));
                    stats.add(entry);
                    if let Some(joint) = cross_node {
                        joint.add(index, entry);
                    }
                });
            }
        }
    }

    /// Returns the progress of the run; `run` is its index and the number of runs.
    fn progress(&self, (index, count): (usize, usize)) -> PartProgress {
        PartProgress {
            index,
            count: Some(count),
            name: String::new(),
            elapsed_s: (ClockMonotonic.now() - self.begin).min(self.total).as_seconds().max(0.0),
            duration_s: Some(self.total.as_seconds()),
        }
    }

    fn task_snapshots(&self) -> Vec<TaskSnapshot> {
        let of_node = |node: &NodeHandle<'_>| {
            let tasks = self.set.tasks().iter().zip(&node.stats);
            let of_task = |(task, stats): (&Task, &TaskStats)| TaskSnapshot {
                node: node.name.clone(),
                task: task.name.clone(),
                ratio: stats.last_ratio().map_or(0.0, |(ratio, _)| ratio),
                periods: stats.periods,
                missed: stats.missed,
            };
            tasks.map(of_task).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// Returns the nodes whose system clocks were stepped during the run, with the number of steps.
    pub(super) fn clock_steps(&self) -> Vec<(String, u64)> {
        let of_node = |node: &NodeHandle<'_>| (node.name.clone(), node.clock_steps());
        self.nodes.iter().map(of_node).filter(|(_, sets)| *sets > 0).collect()
    }

    /// Returns the nodes whose clocks could not be measured at least once, with the reason.
    pub(super) fn unmeasured_clocks(&self) -> Vec<(String, String)> {
        let of_node = |node: &NodeHandle<'_>| Some((node.name.clone(), node.clock_unknown()?));
        self.nodes.iter().filter_map(of_node).collect()
    }

    /// Returns the tasks with planned periods for which there is no entry.
    pub(super) fn missing_periods(&self) -> Vec<MissingPeriodCounts> {
        let of_node = |node: &NodeHandle<'_>| {
            let tasks = self.set.tasks().iter().enumerate();
            let of_task = |(at, task): (usize, &Task)| MissingPeriodCounts {
                node: node.name.clone(),
                task: task.name.clone(),
                planned: node.planned(at),
                missing: node.missing_periods(at),
            };
            tasks.map(of_task).filter(|task| task.missing > 0).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// Returns the record of the run.
    pub(super) fn to_record(
        &self,
        policy: Option<TaskSchedulingPolicy>,
    ) -> CycleConfigurationResult {
        let elapsed_ns = (ClockMonotonic.now() - self.begin).as_ns().clamp(0, self.total.as_ns());
        CycleConfigurationResult {
            policy,
            sent: self.signal_stats.clone(),
            elapsed_s: elapsed_ns as f64 / 1e9,
            nodes: self.nodes.iter().map(|node| node.to_record(self.set)).collect(),
            shared: self
                .cross_node
                .iter()
                .flatten()
                .filter_map(CrossNodeStats::to_record)
                .collect(),
        }
    }
}

/// Returns the message address of a task on each node; empty if the task has none on a node.
fn peers(nodes: &[NodeHandle<'_>], task: usize) -> Vec<std::net::SocketAddr> {
    let ports: Option<Vec<_>> = nodes.iter().map(|node| node.message_address(task)).collect();
    ports.unwrap_or_default()
}

/// Returns the releases of each task and the receivers of their packets.
fn release_schedules(
    set: &TaskSet,
    cycles: &[u64],
    nodes: &[NodeHandle<'_>],
    begin: Timestamp<Monotonic>,
) -> Vec<ReleaseSchedule> {
    let train = |(at, (task, cycles)): (usize, (&Task, &u64))| ReleaseSchedule {
        releases: TimeGrid {
            start: begin + Span::from_ns(task.offset_ns.cast_signed()),
            interval: Span::from_ns(task.period_ns.cast_signed()),
        },
        period_count: *cycles,
        receivers: nodes.iter().filter_map(|node| node.release_address(at)).collect(),
    };
    set.tasks().iter().zip(cycles).enumerate().map(train).collect()
}
