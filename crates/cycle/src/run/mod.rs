//! Runs of periodic tasks: a process for each node, and the calling process, which collects their
//! entries meanwhile and makes the result. Collecting never makes a task wait, and a run always
//! ends: tasks that do not finish are killed.

pub(crate) mod child;
pub(crate) mod collection;
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
    CYCLE_SCHEMA, CycleConfigurationResult, CycleResult, CycleSpeedup, Host, ReleaseSignal,
    RunObserver, SnapshotTimer, TaskSchedulingPolicy, rfc3339_now,
};
use thiserror::Error;

use crate::cluster::{LeaderListener, RemoteNode};
use crate::task::TaskSet;
pub use child::NodeStartError;
use findings::clocks;
pub use log::{LOG_HEADER, PeriodLogLine};
use single_run::{RunEndReason, SingleRunInProgress};

/// Largest number of nodes of a run.
pub const NODES_MAX: u16 = 256;
/// Options of one or more runs of a task set.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Program that calls [`crate::node::serve`] when it is started with `arguments`.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Task set to run.
    pub set: TaskSet,
    /// Duration of each run; a task runs the whole periods in it, at least one.
    pub time: Duration,
    /// Numbers of nodes, one run for each.
    pub nodes: Vec<u16>,
    /// Policies that replace the tasks' own, one run for each; empty for one run without a
    /// replacement.
    pub policies: Vec<TaskSchedulingPolicy>,
    /// True if the computation is divided among the nodes.
    pub divide: bool,
    /// Cores to which tasks are pinned, all tasks of a node to one core; nodes use the cores in
    /// turn. Empty for the core of each task.
    pub cores: Vec<usize>,
    /// Factors of the computation of slowed nodes: index of the node, from 0, and factor.
    pub slow: Vec<(u16, f64)>,
    /// Offset injected into the clock of each node, in ns, by index.
    pub injected_offset_ns: Vec<i64>,
    /// True if deep idle states are prevented.
    pub hold_awake: bool,
    /// Timeout of a command or program in one period.
    pub timeout: Duration,
    /// True if packets release the periods instead of clocks.
    pub signal_by_packet: bool,
    /// Options for nodes on other hosts; `None` if all nodes are on this host.
    pub cluster: Option<ClusterOptions>,
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Options for nodes on other hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterOptions {
    /// Address of this host at which the members join over TCP and measure their clock offsets by
    /// NTP.
    pub listen: SocketAddr,
    /// Largest permitted offset of a clock at the start of a run, in ns.
    pub max_offset_ns: u64,
    /// Timeout of the wait for members; `None` for no limit.
    pub wait: Option<Duration>,
}

/// Reason for which a run cannot start.
#[derive(Debug, Error)]
pub enum RunError {
    /// A node could not be started or did not become ready.
    #[error(transparent)]
    NodeStart(#[from] NodeStartError),
    /// The listening socket for members cannot be opened.
    #[error(
        "cannot listen on {address}: {why}; choose an address of this host",
        why = explain(.error)
    )]
    ListenFailed {
        /// Address of the socket.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The release signal cannot be sent.
    #[error("cannot send the release signal: {why}", why = explain(.0))]
    Signal(io::Error),
    /// The offset of a clock is larger than permitted.
    #[error(
        "the clock of {node} is {ahead} ahead of the leader's (error bound {error}), more than \
         --max-offset ({max}); synchronise it, or raise --max-offset"
    )]
    ClockOff {
        /// The node.
        node: String,
        /// Offset of the clock with its unit, negative if it is behind.
        ahead: String,
        /// Error bound of the offset, with its unit.
        error: String,
        /// Largest permitted offset, with its unit.
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
    /// Not all members joined in time.
    #[error(
        "{joined} of {of} other nodes joined within {} s; check the others",
        wait.as_secs_f64()
    )]
    MembersMissing {
        /// Number of members that joined.
        joined: usize,
        /// Number of expected members.
        of: usize,
        /// Duration of the wait.
        wait: Duration,
    },
    /// The user interrupted the run before all members had joined.
    #[error("the run was interrupted before all nodes had joined")]
    Interrupted,
}

/// Snapshot of a task on one node.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskSnapshot {
    /// Name of the node.
    pub node: String,
    /// Name of the task.
    pub task: String,
    /// Ratio of execution time to period in the last period that was not abandoned; 0 before the
    /// first.
    pub ratio: f64,
    /// Periods counted so far.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
}

/// Event of a run for its observer.
#[derive(Clone, Copy, Debug)]
pub enum CycleRunEvent<'a> {
    /// Number of members that have joined has changed.
    Joined {
        /// Members that have joined.
        members: usize,
        /// Expected members.
        of: usize,
    },
    /// Period, superstep or event of a task has ended.
    Logged(PeriodLogLine<'a>),
}

/// Observer of a run; its snapshots have the tasks of all nodes, in the order of nodes and tasks.
pub(crate) type CycleObserver<'o> =
    dyn for<'e> RunObserver<(), CycleRunEvent<'e>, Vec<TaskSnapshot>> + 'o;

/// Executes all requested runs, one after the other.
///
/// # Errors
///
/// The members' address cannot be listened on, not all members joined, the user stopped before they
/// had, or the first run cannot start.
pub fn run(
    options: &RunOptions,
    observer: &mut CycleObserver<'_>,
) -> Result<CycleResult, RunError> {
    let started = rfc3339_now();
    let no_replacement = [None];
    let policies: Vec<_> = options.policies.iter().copied().map(Some).collect();
    let policies = if policies.is_empty() { &no_replacement[..] } else { &policies };
    let plans: Vec<(Option<TaskSchedulingPolicy>, u16)> = policies
        .iter()
        .flat_map(|policy| options.nodes.iter().map(move |nodes| (*policy, *nodes)))
        .collect();
    let nodes_max = options.nodes.iter().copied().max().unwrap_or(1);
    let mut members = gather_members(options, nodes_max, observer)?;
    let (mut runs, mut timer) = (Vec::new(), SnapshotTimer::start());
    let (mut endings, mut missing_periods) = (Vec::new(), Vec::new());
    let (mut clock_steps, mut clocks_unread) = (Vec::new(), Vec::new());
    for (at, (policy, nodes)) in plans.iter().enumerate() {
        if observer.flow().is_break() {
            break;
        }
        let set = task_set_for(options, *policy, *nodes);
        let mut single_run =
            match SingleRunInProgress::start(options, &set, *nodes, members.members(), &|| {
                observer.flow().is_break()
            }) {
                Ok(single_run) => single_run,
                Err(error) => {
                    members.cancel(&error);
                    if runs.is_empty() {
                        return Err(error);
                    }
                    // The results of earlier runs are retained.
                    endings.push(RunEndReason::NotStarted(error.to_string()));
                    break;
                }
            };
        single_run.collect(observer, (at, plans.len()), &mut timer);
        runs.push(single_run.to_record(*policy));
        clock_steps.extend(single_run.clock_steps());
        clocks_unread.extend(single_run.unmeasured_clocks());
        missing_periods.extend(single_run.missing_periods());
        endings.push(single_run.ending);
    }
    let mut result = CycleResult {
        schema: CYCLE_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        signal: match (options.signal_by_packet, options.cluster) {
            (true, _) => ReleaseSignal::Packet,
            (false, Some(_)) => ReleaseSignal::Utc,
            (false, None) => ReleaseSignal::Monotonic,
        },
        speedups: speedups(&runs),
        runs,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    result.findings = findings::findings(&result, (&endings, &missing_periods), plans.len());
    result.findings.extend(clock_steps.iter().map(clocks::clock_step_finding));
    if let Some(cluster) = options.cluster {
        result.findings.extend(clocks::clock_offset_findings(&result, cluster.max_offset_ns));
    }
    result.findings.extend(clocks_unread.iter().map(clocks::unmeasured_clock_finding));
    Ok(result)
}

/// Returns the tasks of a run with its policy, divided among its nodes if requested.
fn task_set_for(options: &RunOptions, policy: Option<TaskSchedulingPolicy>, nodes: u16) -> TaskSet {
    let with_policy =
        policy.map_or_else(|| options.set.clone(), |one| options.set.with_policy(one));
    if options.divide { with_policy.divided(nodes.into()) } else { with_policy }
}

/// Returns the speedup of each run over the one with the fewest nodes under the same policy, for
/// the first task that all nodes share.
fn speedups(runs: &[CycleConfigurationResult]) -> Vec<CycleSpeedup> {
    let mut policies: Vec<_> = runs.iter().map(|run| run.policy).collect();
    policies.dedup();
    let of = |policy: &Option<TaskSchedulingPolicy>| {
        let runs: Vec<_> = runs.iter().filter(|run| run.policy == *policy).collect();
        let shared = runs.iter().find_map(|run| run.shared.first());
        shared.map_or_else(Vec::new, |shared| speedups_of(&runs, &shared.task, *policy))
    };
    policies.iter().flat_map(of).collect()
}

fn speedups_of(
    runs: &[&CycleConfigurationResult],
    task: &str,
    policy: Option<TaskSchedulingPolicy>,
) -> Vec<CycleSpeedup> {
    let span_ns = |run: &CycleConfigurationResult| {
        let shared = run.shared.iter().find(|shared| shared.task == task);
        let single_node = || {
            let [node] = &run.nodes[..] else { return None };
            let task = node.tasks.iter().find(|one| one.name == task)?;
            Some(task.execution_ns.as_ref()?.mean)
        };
        shared.map(|shared| shared.span_ns).or_else(single_node)
    };
    let spans: Vec<(usize, f64)> =
        runs.iter().filter_map(|run| Some((run.nodes.len(), span_ns(run)?))).collect();
    let fewest = spans.iter().min_by_key(|(nodes, _)| *nodes).copied();
    let Some((least, base_ns)) = fewest.filter(|(least, _)| spans.iter().any(|(n, _)| n != least))
    else {
        return Vec::new();
    };
    let speedup_record = |&(nodes, span_ns): &(usize, f64)| {
        let speedup = base_ns / span_ns;
        let efficiency = speedup * least as f64 / nodes as f64;
        CycleSpeedup { policy, task: task.to_owned(), nodes, span_ns, speedup, efficiency }
    };
    spans.iter().map(speedup_record).collect()
}

/// Members that have joined, and their leader; without members if all nodes are on this host.
struct JoinedMembers {
    members: Vec<RemoteNode>,
    leader: Option<LeaderListener>,
}

impl JoinedMembers {
    /// Returns the members, and the address at which they reach the node on this host.
    fn members(&mut self) -> (&mut [RemoteNode], Option<SocketAddr>) {
        (&mut self.members, self.leader.as_ref().map(|leader| leader.address))
    }

    /// Sends the members the reason for which the run is cancelled.
    fn cancel(&mut self, error: &RunError) {
        let why = error.to_string();
        self.members.iter_mut().for_each(|member| member.cancel(&why));
    }
}

fn gather_members(
    options: &RunOptions,
    nodes: u16,
    observer: &mut CycleObserver<'_>,
) -> Result<JoinedMembers, RunError> {
    let Some(cluster) = options.cluster else {
        return Ok(JoinedMembers { members: Vec::new(), leader: None });
    };
    let address = cluster.listen;
    let leader = LeaderListener::listen(address)
        .map_err(|error| RunError::ListenFailed { address, error })?;
    let expected = usize::from(nodes.saturating_sub(1));
    let mut last = None;
    let (began, mut expired_wait) = (Instant::now(), None);
    let members = leader.accept_members(expected, &mut |members| {
        let is_new = last.replace(members) != Some(members);
        if is_new {
            observer.event(&CycleRunEvent::Joined { members, of: expected });
        }
        expired_wait = cluster.wait.filter(|wait| began.elapsed() > *wait);
        expired_wait.is_some() || observer.flow().is_break()
    });
    let members_missing =
        |wait| RunError::MembersMissing { joined: last.unwrap_or(0), of: expected, wait };
    let members =
        members.ok_or_else(|| expired_wait.map_or(RunError::Interrupted, members_missing))?;
    Ok(JoinedMembers { members, leader: Some(leader) })
}

/// Returns the name of a node on this host: `node1` for index 0.
pub(crate) fn node_name(node: u16) -> String {
    format!("node{}", node + 1)
}

#[cfg(test)]
mod tests {
    use horolog_record::Distribution;

    use super::*;

    const GOLDEN: &str = include_str!("../../../record/samples/cycle.json");

    /// A run of so many nodes under a policy, whose task took so long.
    fn run(
        policy: Option<TaskSchedulingPolicy>,
        nodes: usize,
        span_ns: f64,
    ) -> CycleConfigurationResult {
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
        CycleConfigurationResult { policy, ..run }
    }

    #[test]
    fn each_policy_has_its_own_base_and_all_are_of_one_task() {
        let (fifo, other) = (Some(TaskSchedulingPolicy::Fifo), Some(TaskSchedulingPolicy::Other));
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
