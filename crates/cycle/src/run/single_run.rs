//! One run: all nodes begin together, and their entries are collected until all have finished.

use std::thread;
use std::time::Duration;

use horolog_record::{CycleRun, CycleSignalStats, TaskPolicy};
use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::node::{NodeHandle, NodeSlot};
use super::signal::{self, ReleaseSchedule, ReleaseSignalThread};
use super::{LogLine, RunError, RunObserver, RunOptions, RunSnapshot, TaskSnapshot};
use crate::cluster::RemoteNode;
use crate::gather::cross_node::CrossNodeStats;
use crate::gather::task_stats::TaskStats;
use crate::node::{NodeStart, StartInstant};
use crate::ring::COLLECT_INTERVAL_NS;
use crate::task::{Task, TaskSet, TaskWork};

/// Time from the last node's report that it is ready to the first release.
const HEAD_START: Span = Span::from_ms(100);
/// Additional time if nodes exchange messages: they measure the baseline of the network meanwhile.
const ACQUAINTANCE: Span = Span::from_ms(400);
/// Additional time if nodes are on several hosts, each of which must receive the start command.
const FAR: Span = Span::from_ms(500);
/// Interval between two collections. A ring holds many times the entries of an interval.
const ROUND: Duration = Duration::from_nanos(COLLECT_INTERVAL_NS);
/// Time beyond the planned end after which a run is ended.
const END_GRACE_PERIOD: Span = Span::from_ms(2_000);

/// End of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunEnd {
    /// All periods are over.
    Done,
    /// It was ended early by the user.
    Interrupted,
    /// A node exited by itself.
    Died {
        /// The node.
        node: String,
        /// Its exit reason.
        how: String,
    },
    /// A task ended before all its periods were over.
    TaskAbandoned {
        /// Its node.
        node: String,
        /// The task.
        task: String,
    },
    /// A run could not begin after others were over.
    NotBegun(String),
    /// A task was still in a period long after the end of all.
    Stuck {
        /// Its node.
        node: String,
        /// The task.
        task: String,
    },
}

/// Planned periods of a task without an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MissingPeriods {
    pub(super) node: String,
    pub(super) task: String,
    pub(super) planned: u64,
    pub(super) lacks: u64,
}

/// One run.
pub(super) struct SingleRun<'a> {
    set: &'a TaskSet,
    nodes: Vec<NodeHandle<'a>>,
    names: Vec<String>,
    cross_node: Vec<Option<CrossNodeStats>>,
    signal: Option<ReleaseSignalThread>,
    sent: Option<CycleSignalStats>,
    begin: Timestamp<Monotonic>,
    total: Span,
    /// Wait beyond that.
    end_timeout: Span,
}

impl<'a> SingleRun<'a> {
    /// Prepares all nodes and sends them the first release.
    pub(super) fn begin(
        options: &RunOptions,
        set: &'a TaskSet,
        count: u16,
        (members, address): (&'a mut [RemoteNode], Option<std::net::SocketAddr>),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let time_ns = u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX);
        let of = |task: &Task| (time_ns / task.period_ns).max(1);
        let cycles: Vec<u64> = set.tasks().iter().map(of).collect();
        let mut nodes = Vec::new();
        let mut members = members.iter_mut();
        for node in 0..count {
            let slot = NodeSlot { node, nodes: count, address };
            // The first node is always on this host.
            let remote = if node > 0 { members.next() } else { None };
            nodes.push(NodeHandle::ready(options, set, &cycles, slot, remote, is_over)?);
        }
        // Packets need no accurate clock.
        if let Some(cluster) = options.cluster.filter(|_| !options.signal_by_packet) {
            nodes.iter().try_for_each(|node| node.check_clock(cluster.max_offset_ns))?;
        }
        let peers: Vec<Vec<_>> = (0..set.tasks().len()).map(|task| peers(&nodes, task)).collect();
        let meets = peers.iter().any(|peers| !peers.is_empty());
        let mut later = HEAD_START;
        if meets {
            later = later + ACQUAINTANCE;
        }
        if options.cluster.is_some() {
            later = later + FAR;
        }
        let begin = MonotonicClock.now() + later;
        let token = signal::token();
        let start = if options.signal_by_packet {
            StartInstant::Signalled { in_ns: later.as_ns().cast_unsigned(), token }
        } else if options.cluster.is_some() {
            StartInstant::Utc((Realtime.now() + later).as_ns())
        } else {
            StartInstant::Monotonic(begin.as_ns())
        };
        let go = NodeStart { begin: start, peers };
        nodes.iter_mut().try_for_each(|node| node.send_start(&go))?;
        let signal = options
            .signal_by_packet
            .then(|| ReleaseSignalThread::start(trains(set, &cycles, &nodes), begin, token));
        let signal = signal.transpose().map_err(RunError::Signal)?;
        let joint = |task: &Task| {
            let steps = match &task.work {
                TaskWork::Steps(steps) => steps.len(),
                // Its marks form one step.
                TaskWork::Program(_) => 1,
                // Such tasks of several nodes are independent of each other.
                TaskWork::Command(_) | TaskWork::Polling(_) => return None,
            };
            (count > 1).then(|| CrossNodeStats::new(&task.name, usize::from(count), steps))
        };
        let joints = set.tasks().iter().map(joint).collect();
        let ends_ns = set.tasks().iter().zip(&cycles).map(|(task, cycles)| {
            task.offset_ns.saturating_add(task.period_ns.saturating_mul(*cycles))
        });
        let total = Span::from_ns(ends_ns.max().unwrap_or(0).try_into().unwrap_or(i64::MAX));
        let starts = |task: &Task| matches!(task.work, TaskWork::Command(_) | TaskWork::Program(_));
        let end_timeout = if set.tasks().iter().any(starts) {
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
            cross_node: joints,
            signal,
            sent: None,
            begin,
            total,
            end_timeout,
        })
    }

    /// Takes entries until all is over.
    pub(super) fn collect(&mut self, watch: &mut dyn RunObserver, run: (usize, usize)) -> RunEnd {
        let ending = self.collect_all(watch, run);
        self.sent = self.signal.as_mut().and_then(ReleaseSignalThread::end);
        ending
    }

    fn collect_all(&mut self, watch: &mut dyn RunObserver, run: (usize, usize)) -> RunEnd {
        let mut ending = RunEnd::Done;
        // After a request to end, less time remains.
        let mut until = self.begin + self.total + self.end_timeout;
        let mut is_last = false;
        loop {
            // Checked before the remaining entries are taken, so that none can follow.
            self.nodes.iter_mut().for_each(NodeHandle::check_exit);
            let is_over =
                self.nodes.iter().all(|node| node.died.is_some() || node.open().is_none());
            let dead = self.nodes.iter().find_map(|node| {
                let how = node.died.clone()?;
                Some(RunEnd::Died { node: node.name.clone(), how })
            });
            let through: Vec<Vec<bool>> =
                self.nodes.iter().map(NodeHandle::finished_tasks).collect();
            self.take(watch);
            self.show(watch, run, is_over);
            let early = if watch.is_over() {
                Some(RunEnd::Interrupted)
            } else {
                dead.or_else(|| self.gave_up(&through))
            };
            if let Some(early) = early.filter(|_| ending == RunEnd::Done) {
                ending = early;
                self.nodes.iter_mut().for_each(NodeHandle::stop);
                until = MonotonicClock.now() + END_GRACE_PERIOD;
            }
            if is_over {
                return ending;
            }
            if MonotonicClock.now() > until {
                if is_last {
                    return ending;
                }
                // The remaining entries are still taken.
                is_last = true;
                if ending == RunEnd::Done {
                    ending = self.stuck();
                }
                self.nodes.iter_mut().for_each(NodeHandle::stop);
                until = MonotonicClock.now() + END_GRACE_PERIOD;
            }
            thread::sleep(ROUND);
        }
    }

    /// Returns a task that has finished without all its periods; `through` was read before its
    /// entries were taken.
    fn gave_up(&self, through: &[Vec<bool>]) -> Option<RunEnd> {
        self.nodes.iter().zip(through).find_map(|(node, through)| {
            let at = (0..through.len()).find(|at| through[*at] && node.missing_periods(*at) > 0)?;
            let task = self.set.tasks()[at].name.clone();
            Some(RunEnd::TaskAbandoned { node: node.name.clone(), task })
        })
    }

    fn stuck(&self) -> RunEnd {
        let stuck = self.nodes.iter().find_map(|node| {
            let task = self.set.tasks()[node.open()?].name.clone();
            Some(RunEnd::Stuck { node: node.name.clone(), task })
        });
        stuck.unwrap_or(RunEnd::Done)
    }

    fn take(&mut self, watch: &mut dyn RunObserver) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            for (at, task) in self.set.tasks().iter().enumerate() {
                let (joint, names) = (&mut self.cross_node[at], &self.names);
                node.take(at, &mut |node, stats, entry| {
                    watch.log(&LogLine { node, names, task, entry });
                    stats.add(entry);
                    if let Some(joint) = joint {
                        joint.add(index, entry);
                    }
                });
            }
        }
    }

    fn show(&self, watch: &mut dyn RunObserver, run: (usize, usize), is_last: bool) {
        let since_ns = (MonotonicClock.now() - self.begin).as_ns().clamp(0, self.total.as_ns());
        let of_node = |node: &NodeHandle<'_>| {
            let tasks = self.set.tasks().iter().zip(&node.stats);
            let of_task = |(task, stats): (&Task, &TaskStats)| TaskSnapshot {
                node: node.name.clone(),
                task: task.name.clone(),
                ratio: stats.last().map_or(0.0, |(ratio, _)| ratio),
                periods: stats.periods,
                missed: stats.missed,
            };
            tasks.map(of_task).collect::<Vec<_>>()
        };
        let tasks: Vec<_> = self.nodes.iter().flat_map(of_node).collect();
        watch.snapshot(&RunSnapshot {
            elapsed: Duration::from_nanos(since_ns.unsigned_abs()),
            total: Duration::from_nanos(self.total.as_ns().unsigned_abs()),
            run,
            is_last,
            tasks: &tasks,
        });
    }

    /// Returns the nodes whose system clock was stepped meanwhile, with the number of steps.
    pub(super) fn clock_sets(&self) -> Vec<(String, u64)> {
        let of_node = |node: &NodeHandle<'_>| (node.name.clone(), node.clock_sets());
        self.nodes.iter().map(of_node).filter(|(_, sets)| *sets > 0).collect()
    }

    /// Returns the nodes whose clock could not be measured each time, with the reason.
    pub(super) fn clocks_unread(&self) -> Vec<(String, String)> {
        let of_node = |node: &NodeHandle<'_>| Some((node.name.clone(), node.clock_unknown()?));
        self.nodes.iter().filter_map(of_node).collect()
    }

    /// Returns the tasks that have planned periods without an entry.
    pub(super) fn lacking(&self) -> Vec<MissingPeriods> {
        let of_node = |node: &NodeHandle<'_>| {
            let tasks = self.set.tasks().iter().enumerate();
            let of_task = |(at, task): (usize, &Task)| MissingPeriods {
                node: node.name.clone(),
                task: task.name.clone(),
                planned: node.planned(at),
                lacks: node.missing_periods(at),
            };
            tasks.map(of_task).filter(|task| task.lacks > 0).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// Returns its record.
    pub(super) fn to_record(&self, policy: Option<TaskPolicy>) -> CycleRun {
        let elapsed_ns = (MonotonicClock.now() - self.begin).as_ns().clamp(0, self.total.as_ns());
        CycleRun {
            policy,
            sent: self.sent.clone(),
            elapsed_s: elapsed_ns as f64 / 1e9,
            nodes: self.nodes.iter().map(|node| node.result(self.set)).collect(),
            shared: self.cross_node.iter().flatten().filter_map(CrossNodeStats::result).collect(),
        }
    }
}

/// Returns the message address of a task on each node; empty if it has none on one of them.
fn peers(nodes: &[NodeHandle<'_>], task: usize) -> Vec<std::net::SocketAddr> {
    let ports: Option<Vec<_>> = nodes.iter().map(|node| node.port(task)).collect();
    ports.unwrap_or_default()
}

/// Returns the release packets of each task.
fn trains(set: &TaskSet, cycles: &[u64], nodes: &[NodeHandle<'_>]) -> Vec<ReleaseSchedule> {
    let train = |(at, (task, cycles)): (usize, (&Task, &u64))| ReleaseSchedule {
        offset: Span::from_ns(task.offset_ns.cast_signed()),
        period: Span::from_ns(task.period_ns.cast_signed()),
        cycles: *cycles,
        to: nodes.iter().filter_map(|node| node.signal_port(at)).collect(),
    };
    set.tasks().iter().zip(cycles).enumerate().map(train).collect()
}
