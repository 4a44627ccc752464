//! A run of periodic tasks: a process for each node, and this one, which collects what they hand
//! over while they run, judges it and makes the record. It never makes a task wait, and it ends:
//! tasks that do not are ended.

pub(crate) mod child;
mod findings;
mod log;
mod node;
mod one;
mod signal;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use horolog_record::{
    CYCLE_SCHEMA, CycleResult, CycleRun, CycleSignal, CycleSpeedup, Host, TaskPolicy, rfc3339_now,
};
use thiserror::Error;

use crate::cluster::{Leader, Remote};
use crate::task::TaskSet;
use findings::clocks;
pub use findings::tasks;
pub use log::{LOG_HEADER, LogLine};
use one::{Ending, One};

/// Nodes of a run, at most.
pub const NODES_MAX: u16 = 256;
/// What to run, and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program that [`crate::node::serve`]s when it is given `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The tasks.
    pub set: TaskSet,
    /// How long each of them runs.
    pub time: Duration,
    /// Numbers of nodes, one run for each.
    pub nodes: Vec<u16>,
    /// Policies that take the place of the tasks' own, one run for each; none for one run as it is.
    pub policies: Vec<TaskPolicy>,
    /// Whether what is computed is divided among the nodes.
    pub divide: bool,
    /// The cores that tasks are tied to: all of a node to one, the first node's to the first, and
    /// from the first on again where there are more nodes; none for each task's own.
    pub cores: Vec<usize>,
    /// By what the computing of nodes is multiplied, where they are to be slow: the node, counted
    /// from 0, and the factor.
    pub slow: Vec<(u16, f64)>,
    /// What is added to the clock of each node, where it is to be wrong.
    pub clock_injected_ns: Vec<i64>,
    /// Whether deep idle states are held off.
    pub hold_awake: bool,
    /// The longest that a command or a program may take for a period.
    pub timeout: Duration,
    /// Whether packets release the periods, in place of clocks.
    pub signal_by_packet: bool,
    /// Where members on other machines join; none where all nodes are on this one.
    pub cluster: Option<ClusterOptions>,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// Nodes on other machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterOptions {
    /// Where they join, over TCP, and ask for the time by NTP. It is an address of this machine
    /// that all of them reach.
    pub listen: SocketAddr,
    /// The furthest that a clock may be off when a run begins, in ns.
    pub max_offset_ns: u64,
    /// How long others may take to join; without end where it is absent.
    pub wait: Option<Duration>,
}

/// Why a run cannot begin.
#[derive(Debug, Error)]
pub enum RunError {
    /// A node's process could not be started.
    #[error("node {node} cannot be started: {error}")]
    Start {
        /// The node.
        node: String,
        /// What the system says.
        error: io::Error,
    },
    /// A node is not ready.
    #[error("node {node} is not ready: {reason}")]
    Ready {
        /// The node.
        node: String,
        /// What it says, or that it says nothing.
        reason: String,
    },
    /// Members cannot be listened for.
    #[error("cannot listen at {address}: {error}; give an address of this machine")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The signal cannot be sent.
    #[error("the signal cannot be sent: {0}")]
    Signal(io::Error),
    /// A clock is too far off.
    #[error(
        "the clock of {node} is {ahead} ahead of the leader's (to within {error}), further than \
         --max-offset allows ({max}); synchronise it, or allow more"
    )]
    ClockOff {
        /// The node.
        node: String,
        /// How far it is ahead; behind where it is negative.
        ahead: String,
        /// How well that is known.
        error: String,
        /// How far it may be.
        max: String,
    },
    /// A clock could not be measured.
    #[error("the clock of {node} cannot be measured: {reason}")]
    ClockUnknown {
        /// The node.
        node: String,
        /// Why not.
        reason: String,
    },
    /// Not all have joined in time.
    #[error("{joined} of {of} other nodes have joined within {} s; see why the rest did not", wait.as_secs_f64())]
    Absent {
        /// Those that have.
        joined: usize,
        /// Those that were to.
        of: usize,
        /// How long they were waited for.
        wait: Duration,
    },
    /// It was to end before all nodes had joined.
    #[error("it was ended before all nodes had joined")]
    Ended,
}

/// What goes on in a run: the last period of each task of each node, for whoever watches.
#[derive(Clone, Debug)]
pub struct Glance<'a> {
    /// How far the run is.
    pub elapsed: Duration,
    /// How long it takes.
    pub total: Duration,
    /// Which run of how many.
    pub run: (usize, usize),
    /// Whether all is over, so that nothing changes any more.
    pub is_last: bool,
    /// The nodes and tasks, in their order.
    pub tasks: &'a [GlanceTask],
}

/// One task of one node.
#[derive(Clone, PartialEq, Debug)]
pub struct GlanceTask {
    /// The node.
    pub node: String,
    /// The task.
    pub task: String,
    /// Execution to period of the last period that is counted.
    pub ratio: f64,
    /// Periods counted.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// Who watches a run.
pub trait Watch {
    /// Hears how many members have joined, and how many are waited for.
    fn joined(&mut self, members: usize, of: usize);
    /// Looks at it, some times a second.
    fn glance(&mut self, glance: &Glance<'_>);
    /// Takes what became of a period.
    fn log(&mut self, line: &LogLine<'_>);
    /// Whether the run is to end now.
    fn is_over(&self) -> bool;
}

/// Runs all that is asked for, one run after the other.
///
/// # Errors
///
/// When a node cannot begin.
pub fn run(options: &RunOptions, watch: &mut dyn Watch) -> Result<CycleResult, RunError> {
    let started = rfc3339_now();
    let as_it_is = [None];
    let policies: Vec<_> = options.policies.iter().copied().map(Some).collect();
    let policies = if policies.is_empty() { &as_it_is[..] } else { &policies };
    let plans: Vec<(Option<TaskPolicy>, u16)> = policies
        .iter()
        .flat_map(|policy| options.nodes.iter().map(move |nodes| (*policy, *nodes)))
        .collect();
    let most = options.nodes.iter().copied().max().unwrap_or(1);
    let mut members = gather(options, most, watch)?;
    let mut runs = Vec::new();
    let (mut endings, mut lacking) = (Vec::new(), Vec::new());
    let (mut clock_sets, mut clocks_unread) = (Vec::new(), Vec::new());
    for (at, (policy, nodes)) in plans.iter().enumerate() {
        if watch.is_over() {
            break;
        }
        let set = arranged(options, *policy, *nodes);
        let mut one =
            match One::begin(options, &set, *nodes, members.members(), &|| watch.is_over()) {
                Ok(one) => one,
                Err(error) => {
                    members.call_off(&error);
                    if runs.is_empty() {
                        return Err(error);
                    }
                    // What was measured is kept.
                    endings.push(Ending::NotBegun(error.to_string()));
                    break;
                }
            };
        let ending = one.collect(watch, (at, plans.len()));
        runs.push(one.told(*policy));
        clock_sets.extend(one.clock_sets());
        clocks_unread.extend(one.clocks_unread());
        lacking.extend(one.lacking());
        endings.push(ending);
    }
    let mut result = CycleResult {
        schema: CYCLE_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        signal: match (options.signal_by_packet, options.cluster) {
            (true, _) => CycleSignal::Packet,
            (false, Some(_)) => CycleSignal::Utc,
            (false, None) => CycleSignal::Monotonic,
        },
        speedups: speedups(&runs),
        runs,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    result.findings = findings::findings(&result, (&endings, &lacking), plans.len());
    result.findings.extend(clock_sets.iter().map(clocks::set));
    if let Some(cluster) = options.cluster {
        result.findings.extend(clocks::strayed(&result, cluster.max_offset_ns));
    }
    result.findings.extend(clocks_unread.iter().map(clocks::unread));
    Ok(result)
}

/// The tasks as this run has them.
fn arranged(options: &RunOptions, policy: Option<TaskPolicy>, nodes: u16) -> TaskSet {
    let with_policy = policy.map_or_else(|| options.set.clone(), |one| options.set.under(one));
    if options.divide { with_policy.divided(nodes.into()) } else { with_policy }
}

/// What more nodes gained over the fewest of the same policy, by the first task that all of them
/// have in common.
fn speedups(runs: &[CycleRun]) -> Vec<CycleSpeedup> {
    let mut policies: Vec<_> = runs.iter().map(|run| run.policy).collect();
    policies.dedup();
    let of = |policy: &Option<TaskPolicy>| {
        let runs: Vec<_> = runs.iter().filter(|run| run.policy == *policy).collect();
        let shared = runs.iter().find_map(|run| run.shared.first());
        shared.map_or_else(Vec::new, |shared| speedups_of(&runs, &shared.task, *policy))
    };
    policies.iter().flat_map(of).collect()
}

fn speedups_of(runs: &[&CycleRun], task: &str, policy: Option<TaskPolicy>) -> Vec<CycleSpeedup> {
    let span_ns = |run: &CycleRun| {
        let shared = run.shared.iter().find(|shared| shared.task == task);
        let alone = || {
            let [node] = &run.nodes[..] else { return None };
            let task = node.tasks.iter().find(|one| one.name == task)?;
            Some(task.execution_ns.as_ref()?.mean)
        };
        shared.map(|shared| shared.span_ns).or_else(alone)
    };
    let spans: Vec<(usize, f64)> =
        runs.iter().filter_map(|run| Some((run.nodes.len(), span_ns(run)?))).collect();
    let fewest = spans.iter().min_by_key(|(nodes, _)| *nodes).copied();
    let Some((least, base_ns)) = fewest.filter(|(least, _)| spans.iter().any(|(n, _)| n != least))
    else {
        return Vec::new();
    };
    let gained = |&(nodes, span_ns): &(usize, f64)| {
        let speedup = base_ns / span_ns;
        let efficiency = speedup * least as f64 / nodes as f64;
        CycleSpeedup { policy, task: task.to_owned(), nodes, span_ns, speedup, efficiency }
    };
    spans.iter().map(gained).collect()
}

/// Members that have joined, with whom they joined.
struct Gathered {
    members: Vec<Remote>,
    leader: Option<Leader>,
}

impl Gathered {
    /// The members, and where this machine's node is reached by them.
    fn members(&mut self) -> (&mut [Remote], Option<SocketAddr>) {
        (&mut self.members, self.leader.as_ref().map(|leader| leader.address))
    }

    /// Tells the members why nothing begins.
    fn call_off(&mut self, error: &RunError) {
        let why = error.to_string();
        self.members.iter_mut().for_each(|member| member.call_off(&why));
    }
}

fn gather(options: &RunOptions, nodes: u16, watch: &mut dyn Watch) -> Result<Gathered, RunError> {
    let Some(cluster) = options.cluster else {
        return Ok(Gathered { members: Vec::new(), leader: None });
    };
    let address = cluster.listen;
    let leader = Leader::listen(address).map_err(|error| RunError::Listen { address, error })?;
    let of = usize::from(nodes.saturating_sub(1));
    let mut last = None;
    let (began, mut late) = (Instant::now(), None);
    let members = leader.gather(of, &mut |members| {
        let is_new = last.replace(members) != Some(members);
        if is_new {
            watch.joined(members, of);
        }
        late = cluster.wait.filter(|wait| began.elapsed() > *wait);
        late.is_some() || watch.is_over()
    });
    let absent = |wait| RunError::Absent { joined: last.unwrap_or(0), of, wait };
    let members = members.ok_or_else(|| late.map_or(RunError::Ended, absent))?;
    Ok(Gathered { members, leader: Some(leader) })
}

/// What a node on this machine is called.
fn name_of(node: u16) -> String {
    format!("node{}", node + 1)
}

#[cfg(test)]
mod tests {
    use horolog_record::Distribution;

    use super::*;

    const GOLDEN: &str = include_str!("../../../record/tests/schema/cycle.json");

    /// A run of so many nodes under a policy, whose task took so long.
    fn run(policy: Option<TaskPolicy>, nodes: usize, span_ns: f64) -> CycleRun {
        let golden: CycleResult = serde_json::from_str(GOLDEN).unwrap();
        let mut run = golden.runs.into_iter().next().unwrap();
        let mut node = run.nodes.swap_remove(0);
        let execution: Option<Distribution> = node.tasks[0].execution_ns.take();
        let task = &mut node.tasks[0];
        task.execution_ns = execution.map(|times| Distribution { mean: span_ns, ..times });
        let mut other = task.clone();
        (other.name, other.execution_ns) = ("other".to_owned(), None);
        node.tasks.insert(0, other);
        run.nodes = vec![node; nodes];
        if nodes == 1 {
            run.shared.clear();
        }
        run.shared.iter_mut().for_each(|shared| shared.span_ns = span_ns);
        CycleRun { policy, ..run }
    }

    #[test]
    fn each_policy_has_its_own_base_and_all_are_of_one_task() {
        let (fifo, other) = (Some(TaskPolicy::Fifo), Some(TaskPolicy::Other));
        let runs = [run(fifo, 1, 8e6), run(fifo, 2, 5e6), run(other, 1, 12e6), run(other, 4, 4e6)];
        let gained: Vec<_> = speedups(&runs)
            .into_iter()
            .map(|one| {
                assert_eq!(one.task, "control");
                (one.policy, one.nodes, one.speedup, one.efficiency)
            })
            .collect();
        let wanted =
            [(fifo, 1, 1.0, 1.0), (fifo, 2, 1.6, 0.8), (other, 1, 1.0, 1.0), (other, 4, 3.0, 0.75)];
        assert_eq!(gained, wanted);
    }

    #[test]
    fn without_several_numbers_of_nodes_nothing_was_gained() {
        assert!(speedups(&[run(None, 2, 5e6)]).is_empty());
        assert!(speedups(&[run(None, 1, 5e6), run(None, 1, 4e6)]).is_empty());
        assert!(speedups(&[]).is_empty());
    }
}
