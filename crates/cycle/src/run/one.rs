//! One run: all nodes begin together, and what they hand over is collected until all are through.

use std::thread;
use std::time::Duration;

use horolog_record::{CycleRun, CycleSent, TaskPolicy};
use horolog_sys::clock::{MonotonicClock, Realtime};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::node::{Node, Place};
use super::signal::{self, Signal, Train};
use super::{Glance, GlanceTask, LogLine, RunError, RunOptions, Watch};
use crate::cluster::Remote;
use crate::gather::book::Book;
use crate::gather::joint::Joint;
use crate::node::{Begin, Go};
use crate::ring::LOOK_NS;
use crate::task::{Task, TaskSet, Work};

/// From when all nodes are ready to the first release.
const HEAD_START: Span = Span::from_ms(100);
/// What is added where they send each other messages: they get to know each other meanwhile.
const ACQUAINTANCE: Span = Span::from_ms(400);
/// What is added where they are on several machines, each of which has to be told.
const FAR: Span = Span::from_ms(500);
/// How often what was handed over is taken. A ring holds many times what tasks write meanwhile.
const ROUND: Duration = Duration::from_nanos(LOOK_NS);
/// What is added to the time that a run takes by its plan before it is ended.
const END_PATIENCE: Span = Span::from_ms(2_000);

/// How a run came to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// All periods are over.
    Done,
    /// It was to end early.
    Called,
    /// A node ended by itself.
    Died {
        /// Which.
        node: String,
        /// How.
        how: String,
    },
    /// A task ended before all its periods were over.
    GaveUp {
        /// Of which node.
        node: String,
        /// Which.
        task: String,
    },
    /// A run could not begin when others were over.
    NotBegun(String),
    /// A task was still in a period when all were to be over for long.
    Stuck {
        /// Of which node.
        node: String,
        /// Which.
        task: String,
    },
}

/// Periods of a task that were planned, and of which nothing is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lacking {
    pub(super) node: String,
    pub(super) task: String,
    pub(super) planned: u64,
    pub(super) lacks: u64,
}

/// One run.
pub(super) struct One<'a> {
    set: &'a TaskSet,
    nodes: Vec<Node<'a>>,
    names: Vec<String>,
    joints: Vec<Option<Joint>>,
    signal: Option<Signal>,
    sent: Option<CycleSent>,
    begin: Timestamp<Monotonic>,
    total: Span,
    /// What is waited for beyond that.
    patience: Span,
}

impl<'a> One<'a> {
    /// Has all nodes ready and tells them when to begin.
    pub(super) fn begin(
        options: &RunOptions,
        set: &'a TaskSet,
        count: u16,
        (members, address): (&'a mut [Remote], Option<std::net::SocketAddr>),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let time_ns = u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX);
        let of = |task: &Task| (time_ns / task.period_ns).max(1);
        let cycles: Vec<u64> = set.tasks().iter().map(of).collect();
        let mut nodes = Vec::new();
        let mut members = members.iter_mut();
        for node in 0..count {
            let place = Place { node, nodes: count, address };
            // The first node is always here.
            let remote = if node > 0 { members.next() } else { None };
            nodes.push(Node::ready(options, set, &cycles, place, remote, is_over)?);
        }
        // Packets need no clock that is right.
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
        let told = if options.signal_by_packet {
            Begin::Signalled { in_ns: later.as_ns().cast_unsigned(), token }
        } else if options.cluster.is_some() {
            Begin::Utc((Realtime.now() + later).as_ns())
        } else {
            Begin::Monotonic(begin.as_ns())
        };
        let go = Go { begin: told, peers };
        nodes.iter_mut().try_for_each(|node| node.tell(&go))?;
        let signal = options
            .signal_by_packet
            .then(|| Signal::start(trains(set, &cycles, &nodes), begin, token));
        let signal = signal.transpose().map_err(RunError::Signal)?;
        let joint = |task: &Task| {
            let steps = match &task.work {
                Work::Steps(steps) => steps.len(),
                // What it marks is one step.
                Work::Program(_) => 1,
                // Those of several nodes have nothing to do with each other.
                Work::Command(_) | Work::Polling(_) => return None,
            };
            (count > 1).then(|| Joint::new(&task.name, usize::from(count), steps))
        };
        let joints = set.tasks().iter().map(joint).collect();
        let ends_ns = set.tasks().iter().zip(&cycles).map(|(task, cycles)| {
            task.offset_ns.saturating_add(task.period_ns.saturating_mul(*cycles))
        });
        let total = Span::from_ns(ends_ns.max().unwrap_or(0).try_into().unwrap_or(i64::MAX));
        let starts = |task: &Task| matches!(task.work, Work::Command(_) | Work::Program(_));
        let patience = if set.tasks().iter().any(starts) {
            let timeout_ns = i64::try_from(options.timeout.as_nanos()).unwrap_or(i64::MAX);
            END_PATIENCE + Span::from_ns(timeout_ns)
        } else {
            END_PATIENCE
        };
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Self { set, nodes, names, joints, signal, sent: None, begin, total, patience })
    }

    /// Takes what is handed over until all is over.
    pub(super) fn collect(&mut self, watch: &mut dyn Watch, run: (usize, usize)) -> Ending {
        let ending = self.collect_all(watch, run);
        self.sent = self.signal.as_mut().and_then(Signal::end);
        ending
    }

    fn collect_all(&mut self, watch: &mut dyn Watch, run: (usize, usize)) -> Ending {
        let mut ending = Ending::Done;
        // Whoever is told to end has less time for it.
        let mut until = self.begin + self.total + self.patience;
        let mut is_last = false;
        loop {
            // Asked before what is left is taken, so that nothing comes behind it.
            self.nodes.iter_mut().for_each(Node::look);
            let is_over =
                self.nodes.iter().all(|node| node.died.is_some() || node.open().is_none());
            let dead = self.nodes.iter().find_map(|node| {
                let how = node.died.clone()?;
                Some(Ending::Died { node: node.name.clone(), how })
            });
            let through: Vec<Vec<bool>> = self.nodes.iter().map(Node::through).collect();
            self.take(watch);
            self.show(watch, run, is_over);
            let early = if watch.is_over() {
                Some(Ending::Called)
            } else {
                dead.or_else(|| self.gave_up(&through))
            };
            if let Some(early) = early.filter(|_| ending == Ending::Done) {
                ending = early;
                self.nodes.iter_mut().for_each(Node::stop);
                until = MonotonicClock.now() + END_PATIENCE;
            }
            if is_over {
                return ending;
            }
            if MonotonicClock.now() > until {
                if is_last {
                    return ending;
                }
                // What it still hands over is taken.
                is_last = true;
                if ending == Ending::Done {
                    ending = self.stuck();
                }
                self.nodes.iter_mut().for_each(Node::stop);
                until = MonotonicClock.now() + END_PATIENCE;
            }
            thread::sleep(ROUND);
        }
    }

    /// A task that is through without all its periods, which was seen before what it handed over
    /// was taken.
    fn gave_up(&self, through: &[Vec<bool>]) -> Option<Ending> {
        self.nodes.iter().zip(through).find_map(|(node, through)| {
            let at = (0..through.len()).find(|at| through[*at] && node.lacks(*at) > 0)?;
            let task = self.set.tasks()[at].name.clone();
            Some(Ending::GaveUp { node: node.name.clone(), task })
        })
    }

    fn stuck(&self) -> Ending {
        let stuck = self.nodes.iter().find_map(|node| {
            let task = self.set.tasks()[node.open()?].name.clone();
            Some(Ending::Stuck { node: node.name.clone(), task })
        });
        stuck.unwrap_or(Ending::Done)
    }

    fn take(&mut self, watch: &mut dyn Watch) {
        for (place, node) in self.nodes.iter_mut().enumerate() {
            for (at, task) in self.set.tasks().iter().enumerate() {
                let (joint, names) = (&mut self.joints[at], &self.names);
                node.take(at, &mut |node, book, entry| {
                    watch.log(&LogLine { node, names, task, entry });
                    book.add(entry);
                    if let Some(joint) = joint {
                        joint.add(place, entry);
                    }
                });
            }
        }
    }

    fn show(&self, watch: &mut dyn Watch, run: (usize, usize), is_last: bool) {
        let since_ns = (MonotonicClock.now() - self.begin).as_ns().clamp(0, self.total.as_ns());
        let of_node = |node: &Node<'_>| {
            let tasks = self.set.tasks().iter().zip(&node.books);
            let of_task = |(task, book): (&Task, &Book)| GlanceTask {
                node: node.name.clone(),
                task: task.name.clone(),
                ratio: book.last().map_or(0.0, |(ratio, _)| ratio),
                periods: book.periods,
                missed: book.missed,
            };
            tasks.map(of_task).collect::<Vec<_>>()
        };
        let tasks: Vec<_> = self.nodes.iter().flat_map(of_node).collect();
        watch.glance(&Glance {
            elapsed: Duration::from_nanos(since_ns.unsigned_abs()),
            total: Duration::from_nanos(self.total.as_ns().unsigned_abs()),
            run,
            is_last,
            tasks: &tasks,
        });
    }

    /// The nodes whose system clock was set meanwhile, and how often.
    pub(super) fn clock_sets(&self) -> Vec<(String, u64)> {
        let of_node = |node: &Node<'_>| (node.name.clone(), node.clock_sets());
        self.nodes.iter().map(of_node).filter(|(_, sets)| *sets > 0).collect()
    }

    /// The nodes whose clock could not be measured each time, and why not.
    pub(super) fn clocks_unread(&self) -> Vec<(String, String)> {
        let of_node = |node: &Node<'_>| Some((node.name.clone(), node.clock_unknown()?));
        self.nodes.iter().filter_map(of_node).collect()
    }

    /// The tasks of which periods were planned that nobody knows of.
    pub(super) fn lacking(&self) -> Vec<Lacking> {
        let of_node = |node: &Node<'_>| {
            let tasks = self.set.tasks().iter().enumerate();
            let of_task = |(at, task): (usize, &Task)| Lacking {
                node: node.name.clone(),
                task: task.name.clone(),
                planned: node.planned(at),
                lacks: node.lacks(at),
            };
            tasks.map(of_task).filter(|task| task.lacks > 0).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// What the record says of it.
    pub(super) fn told(&self, policy: Option<TaskPolicy>) -> CycleRun {
        let elapsed_ns = (MonotonicClock.now() - self.begin).as_ns().clamp(0, self.total.as_ns());
        CycleRun {
            policy,
            sent: self.sent.clone(),
            elapsed_s: elapsed_ns as f64 / 1e9,
            nodes: self.nodes.iter().map(|node| node.told(self.set)).collect(),
            shared: self.joints.iter().flatten().filter_map(Joint::told).collect(),
        }
    }
}

/// Where a task takes messages on each node; nowhere if it takes none on one of them.
fn peers(nodes: &[Node<'_>], task: usize) -> Vec<std::net::SocketAddr> {
    let ports: Option<Vec<_>> = nodes.iter().map(|node| node.port(task)).collect();
    ports.unwrap_or_default()
}

/// The packets of each task.
fn trains(set: &TaskSet, cycles: &[u64], nodes: &[Node<'_>]) -> Vec<Train> {
    let train = |(at, (task, cycles)): (usize, (&Task, &u64))| Train {
        offset: Span::from_ns(task.offset_ns.cast_signed()),
        period: Span::from_ns(task.period_ns.cast_signed()),
        cycles: *cycles,
        to: nodes.iter().filter_map(|node| node.signal_port(at)).collect(),
    };
    set.tasks().iter().zip(cycles).enumerate().map(train).collect()
}
