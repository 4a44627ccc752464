//! A node as the collector has it: on this machine or on another, what it is to do, what it handed
//! over, and what the record says of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use horolog_record::{CycleClock, CycleNode, CycleTask, Distribution};

use super::child::Child;
use super::{RunError, RunOptions};
use crate::cluster::{Remote, TaskState};
use crate::entry::Entry;
use crate::gather::book::Book;
use crate::node::{Go, Order, Ready, TaskFault, TaskReady};
use crate::task::{Task, TaskSet, Work};

/// What a node on another machine may take beyond that: a clock to measure, a network between.
const FAR_PATIENCE: Duration = Duration::from_secs(10);

/// One node.
pub(super) struct Node<'a> {
    pub(super) name: String,
    link: Link<'a>,
    address: IpAddr,
    ready: Ready,
    injected_ns: i64,
    pub(super) books: Vec<Book>,
    cycles: Vec<u64>,
    /// How it ended before its time.
    pub(super) died: Option<String>,
}

/// How it is reached.
enum Link<'a> {
    Here(Box<Child>),
    There(&'a mut Remote),
}

/// Which node it is, of how many, and where the others reach it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: u16,
    pub(super) nodes: u16,
    pub(super) address: Option<SocketAddr>,
}

impl<'a> Node<'a> {
    /// Has a node ready for its tasks: the one on another machine that is given, or one here.
    pub(super) fn ready(
        options: &RunOptions,
        set: &TaskSet,
        cycles: &[u64],
        place: Place,
        remote: Option<&'a mut Remote>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let injected_ns =
            options.clock_injected_ns.get(usize::from(place.node)).copied().unwrap_or(0);
        let home = place.address.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
        let order = Order {
            set: of_node(options, set, usize::from(place.node)),
            cycles: cycles.to_vec(),
            node: place.node,
            nodes: place.nodes,
            address: home,
            hold_awake: options.hold_awake,
            clock_injected_ns: injected_ns,
            is_signalled: options.signal_by_packet,
            timeout_ns: u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        let name =
            remote.as_ref().map_or_else(|| super::name_of(place.node), |one| one.name.clone());
        let start = |error| RunError::Start { node: name.clone(), error };
        let tasks = set.tasks().len();
        let mut link = if let Some(remote) = remote {
            remote.order(&order).map_err(start)?;
            Link::There(remote)
        } else {
            let child = Child::start(&options.program, &options.arguments, &order, tasks);
            Link::Here(Box::new(child.map_err(start)?))
        };
        let ready = match &mut link {
            Link::Here(child) => child.answer(order.patience(), is_over),
            Link::There(remote) => {
                remote.answer(order.patience().saturating_add(FAR_PATIENCE), is_over)
            }
        };
        let not_ready = |reason| RunError::Ready { node: name.clone(), reason };
        let ready = ready.map_err(not_ready)?;
        let tasks_ready = set.tasks().iter().zip(cycles).zip(&ready.tasks);
        let book = |((task, cycles), ready): ((&Task, &u64), &TaskReady)| {
            Book::new(task, *cycles, undisturbed_ns(task, ready))
        };
        let books = tasks_ready.map(book).collect();
        let address = match &link {
            Link::Here(_) => home,
            Link::There(remote) => remote.address.ip(),
        };
        let cycles = cycles.to_vec();
        Ok(Self { name, link, address, ready, injected_ns, books, cycles, died: None })
    }

    /// Where a task takes messages, if it does.
    pub(super) fn port(&self, task: usize) -> Option<SocketAddr> {
        let port = self.ready.tasks.get(task)?.port?;
        Some(SocketAddr::new(self.address, port))
    }

    /// Where a task takes its signal, if packets are that.
    pub(super) fn signal_port(&self, task: usize) -> Option<SocketAddr> {
        let port = self.ready.tasks.get(task)?.signal_port?;
        Some(SocketAddr::new(self.address, port))
    }

    /// Refuses a clock that is too far off.
    pub(super) fn check_clock(&self, max_ns: u64) -> Result<(), RunError> {
        let Link::There(remote) = &self.link else {
            let ahead = crate::cluster::Clock { ahead_ns: self.injected_ns, error_ns: 0 };
            return self.within(ahead, max_ns);
        };
        match remote.clocks() {
            Ok(clocks) => clocks.first().map_or(Ok(()), |clock| self.within(*clock, max_ns)),
            Err(reason) => {
                Err(RunError::ClockUnknown { node: self.name.clone(), reason: reason.to_owned() })
            }
        }
    }

    fn within(&self, clock: crate::cluster::Clock, max_ns: u64) -> Result<(), RunError> {
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

    pub(super) fn tell(&mut self, go: &Go) -> Result<(), RunError> {
        let told: io::Result<()> = match &mut self.link {
            Link::Here(child) => child.tell(go),
            Link::There(remote) => remote.go(go),
        };
        told.map_err(|error| RunError::Start { node: self.name.clone(), error })
    }

    /// Tells all its tasks to end at their next release.
    pub(super) fn stop(&mut self) {
        match &mut self.link {
            Link::Here(child) => child.shared().stop(),
            Link::There(remote) => remote.stop(),
        }
    }

    /// The first task that is not through.
    pub(super) fn open(&self) -> Option<usize> {
        (0..self.books.len()).find(|task| !self.state(*task).is_over)
    }

    /// Which tasks are through.
    pub(super) fn through(&self) -> Vec<bool> {
        (0..self.books.len()).map(|task| self.state(task).is_over).collect()
    }

    /// Periods of a task that are planned, and of which nothing is known.
    pub(super) fn lacks(&self, task: usize) -> u64 {
        let book = &self.books[task];
        let known = book.periods + book.unreleased + self.state(task).lost_periods;
        self.cycles[task].saturating_sub(known)
    }

    /// Periods of a task that are planned.
    pub(super) fn planned(&self, task: usize) -> u64 {
        self.cycles[task]
    }

    fn state(&self, task: usize) -> TaskState {
        match &self.link {
            Link::Here(child) => child.state(task),
            Link::There(remote) => remote.state(task),
        }
    }

    /// How often its system clock was found to be set, by the task that found it most often.
    pub(super) fn clock_sets(&self) -> u64 {
        (0..self.books.len()).map(|task| self.state(task).clock_sets).max().unwrap_or(0)
    }

    /// Why its clock could not be measured, when that was so at last.
    pub(super) fn clock_unknown(&self) -> Option<String> {
        match &self.link {
            Link::Here(_) => None,
            Link::There(remote) => remote.clock_unknown.clone(),
        }
    }

    /// Notes whether it ended before all its tasks were through.
    pub(super) fn look(&mut self) {
        let ended = match &mut self.link {
            Link::Here(child) => child.ended(),
            Link::There(remote) => {
                remote.listen();
                remote.ended()
            }
        };
        if self.died.is_none() && self.open().is_some() {
            self.died = ended;
        }
    }

    /// Takes what a task has handed over.
    pub(super) fn take(&mut self, task: usize, put: &mut dyn FnMut(&str, &mut Book, &Entry)) {
        let (name, book) = (&self.name, &mut self.books[task]);
        match &mut self.link {
            Link::Here(child) => child.take(task, &mut |entry| put(name, book, entry)),
            Link::There(remote) => {
                for entry in remote.take(task) {
                    put(name, book, &entry);
                }
            }
        }
    }

    /// What the record says of it.
    pub(super) fn told(&self, set: &TaskSet) -> CycleNode {
        let (host, clocks) = match &self.link {
            Link::Here(_) => (None, &[][..]),
            Link::There(remote) => (Some(remote.host.clone()), remote.clocks().unwrap_or(&[])),
        };
        let clock = |clock: &crate::cluster::Clock| CycleClock {
            ahead_ns: clock.ahead_ns,
            error_ns: clock.error_ns,
        };
        let tasks = set.tasks().iter().enumerate();
        CycleNode {
            name: self.name.clone(),
            host,
            conditions: self.ready.conditions.clone(),
            clock_injected_ns: Some(self.ready.clock_injected_ns).filter(|ns| *ns != 0),
            clocks: clocks.iter().map(clock).collect(),
            tasks: tasks.map(|(at, task)| self.task(at, task)).collect(),
        }
    }

    fn task(&self, at: usize, task: &Task) -> CycleTask {
        let (book, ready, state) = (&self.books[at], &self.ready.tasks[at], self.state(at));
        CycleTask {
            name: task.name.clone(),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            scheduling: ready.scheduling.clone(),
            cost: ready.cost,
            unit_ns: ready.unit_ns,
            units: ready.units,
            planned: self.cycles[at],
            periods: book.periods,
            missed: book.missed,
            overrun: book.overrun,
            uncounted: state.lost,
            unreleased: book.unreleased,
            failed: book.failed,
            messages_missing: book.messages_missing,
            barriers_broken: book.barriers_broken,
            lateness_ns: Distribution::of_recorder(&book.lateness),
            execution_ns: Distribution::of_recorder(&book.execution),
            response_ns: Distribution::of_recorder(&book.response),
            computation_ns: Distribution::of_recorder(&book.computation),
            communication_ns: Distribution::of_recorder(&book.communication),
            idle_ns: Distribution::of_recorder(&book.idle),
            barrier_ns: Distribution::of_recorder(&book.barrier),
            overhead: book.overhead(state.latency_ns),
            served: book.served(),
            fault: TaskFault::of_words(state.fault).map(|fault| fault.to_string()),
            states: book.states(),
            series: book.series(),
        }
    }
}

/// The tasks as this node has them.
fn of_node(options: &RunOptions, set: &TaskSet, node: usize) -> TaskSet {
    let slow = options.slow.iter().find(|(slow, _)| usize::from(*slow) == node);
    let set = slow.map_or_else(|| set.clone(), |(_, factor)| set.multiplied(*factor));
    let core = options.cores.get(node % options.cores.len().max(1));
    core.map_or_else(|| set.clone(), |core| set.on_core(*core))
}

/// How long a period of supersteps computes where nothing disturbs it.
fn undisturbed_ns(task: &Task, ready: &TaskReady) -> Option<f64> {
    let is_known = matches!(task.work, Work::Steps(_));
    is_known.then_some(ready.units? as f64 * ready.unit_ns?)
}
