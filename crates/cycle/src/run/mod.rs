//! Run of periodic tasks: a process for each node, and this one, which collects their entries while
//! they run, judges the result and makes the record. It never makes a task wait, and it always
//! ends: tasks that do not are killed.

pub(crate) mod child;
mod findings;
mod log;
mod node;
mod signal;
mod single_run;

use horolog_sys::explain::explain;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use horolog_record::{
    CYCLE_SCHEMA, CycleResult, CycleRun, CycleSignal, CycleSpeedup, Host, TaskPolicy, rfc3339_now,
};
use thiserror::Error;

use crate::cluster::{Leader, RemoteNode};
use crate::task::TaskSet;
use findings::clocks;
pub use findings::tasks;
pub use log::{LOG_HEADER, LogLine};
use single_run::{RunEnd, SingleRun};

/// Nodes of a run, at most.
pub const NODES_MAX: u16 = 256;
/// Tasks to run, and options.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Program that calls [`crate::node::serve`] when it is started with `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The tasks.
    pub set: TaskSet,
    /// Duration of each task.
    pub time: Duration,
    /// Numbers of nodes, one run for each.
    pub nodes: Vec<u16>,
    /// Policies that replace the tasks' own, one run for each; empty for one run without a
    /// replacement.
    pub policies: Vec<TaskPolicy>,
    /// True if the computation is divided among the nodes.
    pub divide: bool,
    /// Cores to which tasks are pinned: all of a node to one, the first node's to the first,
    /// starting over with the first if there are more nodes; empty for each task's own.
    pub cores: Vec<usize>,
    /// Multipliers of the computation of slowed nodes: the node, counted from 0, and the factor.
    pub slow: Vec<(u16, f64)>,
    /// Offset injected into the clock of each node.
    pub injected_offset_ns: Vec<i64>,
    /// True if deep idle states are prevented.
    pub hold_awake: bool,
    /// Timeout of a command or program for one period.
    pub timeout: Duration,
    /// True if packets release the periods, instead of clocks.
    pub signal_by_packet: bool,
    /// Members on other hosts; `None` if all nodes are on this one.
    pub cluster: Option<ClusterOptions>,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Options for nodes on other hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterOptions {
    /// Address at which they join, over TCP, and request the time by NTP. It is an address of this
    /// host that all of them can reach.
    pub listen: SocketAddr,
    /// Largest permitted offset of a clock when a run begins, in ns.
    pub max_offset_ns: u64,
    /// Timeout of the wait for members; unlimited if absent.
    pub wait: Option<Duration>,
}

/// Reason for which a run cannot begin.
#[derive(Debug, Error)]
pub enum RunError {
    /// A node's process could not be started.
    #[error("cannot start node {node}: {why}", why = explain(.error))]
    Start {
        /// The node.
        node: String,
        /// The system's error.
        error: io::Error,
    },
    /// A node is not ready.
    #[error("node {node} is not ready: {reason}")]
    Ready {
        /// The node.
        node: String,
        /// Its reason, or that it sent none.
        reason: String,
    },
    /// The listening socket for members cannot be opened.
    #[error(
        "cannot listen at {address}: {why}; choose an address of this host",
        why = explain(.error)
    )]
    Listen {
        /// Its address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The signal cannot be sent.
    #[error("cannot send the release signal: {why}", why = explain(.0))]
    Signal(io::Error),
    /// A clock is too far off.
    #[error(
        "the clock of {node} is {ahead} ahead of the leader's (error bound {error}), more than \
         --max-offset ({max}); synchronise it, or raise --max-offset"
    )]
    ClockOff {
        /// The node.
        node: String,
        /// Its lead; negative if it is behind.
        ahead: String,
        /// Error bound of the lead.
        error: String,
        /// Largest permitted lead.
        max: String,
    },
    /// A clock could not be measured.
    #[error("cannot measure the clock of {node}: {reason}")]
    ClockUnknown {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// Not all members have joined in time.
    #[error(
        "{joined} of {of} other nodes joined within {} s; check the others",
        wait.as_secs_f64()
    )]
    Absent {
        /// Members that have joined.
        joined: usize,
        /// Members that were expected.
        of: usize,
        /// Duration of the wait.
        wait: Duration,
    },
    /// It was interrupted before all nodes had joined.
    #[error("the run was interrupted before all nodes had joined")]
    Ended,
}

/// Snapshot of a run: the last period of each task of each node, for observers.
#[derive(Clone, Debug)]
pub struct RunSnapshot<'a> {
    /// Elapsed time.
    pub elapsed: Duration,
    /// Total duration.
    pub total: Duration,
    /// Index of the run, and number of runs.
    pub run: (usize, usize),
    /// True if all is over, so that nothing changes any more.
    pub is_last: bool,
    /// The nodes and tasks, in their order.
    pub tasks: &'a [TaskSnapshot],
}

/// One task of one node.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskSnapshot {
    /// The node.
    pub node: String,
    /// The task.
    pub task: String,
    /// Ratio of execution to period of the last counted period.
    pub ratio: f64,
    /// Periods counted.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// Observer of a run.
pub trait RunObserver {
    /// Receives the number of members that have joined, and of those expected.
    fn joined(&mut self, members: usize, of: usize);
    /// Receives the state, several times a second.
    fn snapshot(&mut self, snapshot: &RunSnapshot<'_>);
    /// Takes the outcome of a period.
    fn log(&mut self, line: &LogLine<'_>);
    /// Returns true if the run is to end now.
    fn is_over(&self) -> bool;
}

/// Executes all requested runs, one after the other.
///
/// # Errors
///
/// If a node cannot begin.
pub fn run(options: &RunOptions, watch: &mut dyn RunObserver) -> Result<CycleResult, RunError> {
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
            match SingleRun::begin(options, &set, *nodes, members.members(), &|| watch.is_over()) {
                Ok(one) => one,
                Err(error) => {
                    members.call_off(&error);
                    if runs.is_empty() {
                        return Err(error);
                    }
                    // Earlier measurements are retained.
                    endings.push(RunEnd::NotBegun(error.to_string()));
                    break;
                }
            };
        let ending = one.collect(watch, (at, plans.len()));
        runs.push(one.to_record(*policy));
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

/// Returns the tasks in the form of this run.
fn arranged(options: &RunOptions, policy: Option<TaskPolicy>, nodes: u16) -> TaskSet {
    let with_policy = policy.map_or_else(|| options.set.clone(), |one| options.set.under(one));
    if options.divide { with_policy.divided(nodes.into()) } else { with_policy }
}

/// Returns the gain of more nodes over the fewest of the same policy, by the first task that all of
/// them share.
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

/// Members that have joined, with their leader.
struct JoinedMembers {
    members: Vec<RemoteNode>,
    leader: Option<Leader>,
}

impl JoinedMembers {
    /// Returns the members, and the address of this host's node at which they reach it.
    fn members(&mut self) -> (&mut [RemoteNode], Option<SocketAddr>) {
        (&mut self.members, self.leader.as_ref().map(|leader| leader.address))
    }

    /// Sends the members the reason for which nothing begins.
    fn call_off(&mut self, error: &RunError) {
        let why = error.to_string();
        self.members.iter_mut().for_each(|member| member.cancel(&why));
    }
}

fn gather(
    options: &RunOptions,
    nodes: u16,
    watch: &mut dyn RunObserver,
) -> Result<JoinedMembers, RunError> {
    let Some(cluster) = options.cluster else {
        return Ok(JoinedMembers { members: Vec::new(), leader: None });
    };
    let address = cluster.listen;
    let leader = Leader::listen(address).map_err(|error| RunError::Listen { address, error })?;
    let of = usize::from(nodes.saturating_sub(1));
    let mut last = None;
    let (began, mut late) = (Instant::now(), None);
    let members = leader.accept_members(of, &mut |members| {
        let is_new = last.replace(members) != Some(members);
        if is_new {
            watch.joined(members, of);
        }
        late = cluster.wait.filter(|wait| began.elapsed() > *wait);
        late.is_some() || watch.is_over()
    });
    let absent = |wait| RunError::Absent { joined: last.unwrap_or(0), of, wait };
    let members = members.ok_or_else(|| late.map_or(RunError::Ended, absent))?;
    Ok(JoinedMembers { members, leader: Some(leader) })
}

/// Returns the name of a node on this host.
fn name_of(node: u16) -> String {
    format!("node{}", node + 1)
}

#[cfg(test)]
mod tests {
    use horolog_record::Distribution;

    use super::*;

    const GOLDEN: &str = include_str!("../../../record/samples/cycle.json");

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
