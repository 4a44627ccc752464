//! `horolog cycle run`: flags or a file of tasks to runs of them, their result as text, JSON and
//! page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod live;
mod member;
mod tasks;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_cycle::run::{self as cycle, ClusterOptions, NODES_MAX, RunError, RunOptions};
use horolog_cycle::task::{Task, TaskSet, Work};
use horolog_record::{CycleResult, CycleTask, Distribution, LimitUnit, TaskPolicy};
use horolog_report::{html, table, to_json};
use horolog_time::Span;

use super::node::WORDS;
use crate::failure::{Failure, verdict};
use crate::files::FileArgs;
use crate::limit::{Limit, MAX, MEAN, P99, TimeOf};
use crate::live::needs_a_terminal_beside;
use crate::output;
use crate::values;
use tasks::TaskArgs;
use watch::Watcher;

/// Run periodic tasks, and tell what became of each period.
///
/// A task is released at the beginning of each period and is to be done by its deadline: the
/// lateness of its release and its execution together count. No period is skipped: what takes too
/// long makes the next ones late. A task computes (--compute, --units), sends messages to the other
/// nodes and waits for theirs (--message), waits at a barrier (--barrier), or starts a command that
/// stands behind '--'; with --program that runs through all periods and marks them. Several tasks,
/// several steps of one, and servers of aperiodic events stand in a FILE.
///
/// With --nodes there are several nodes on this machine, each a process of its own. All tasks run
/// on each of them. With --listen besides, this machine is the first node and waits for as many
/// others to --join; each computes its releases from its own clock, which is measured against this
/// machine's before, while and after it runs.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    tasks: TaskArgs,
    /// How long to run.
    #[arg(short, long, value_name = "TIME", value_parser = values::long_duration,
          default_value = "10s")]
    time: Duration,
    /// How many nodes; several numbers for one run of each, and what more nodes gain.
    #[arg(short, long, value_name = "LIST", value_parser = node_counts, default_value = "1")]
    nodes: NodeCounts,
    /// Divide what is computed among the nodes, instead of giving all of it to each.
    #[arg(long)]
    divide: bool,
    /// Run under each of these policies, one after the other, such as fifo,rr,other,deadline.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = TaskPolicy::parse,
          conflicts_with = "policy")]
    compare: Vec<TaskPolicy>,
    /// Set the clock of a node wrong, such as 2=+3ms; may be given more than once.
    #[arg(long, value_name = "NODE=TIME", value_parser = injected)]
    clock_error: Vec<(u16, i64)>,
    /// Let a node compute so many times as much as the others, such as 2=3; may be given more than
    /// once.
    #[arg(long, value_name = "NODE=FACTOR", value_parser = slow)]
    slow: Vec<(u16, f64)>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Leave the processors' idle states alone, instead of holding off all but the lightest.
    #[arg(long)]
    leave_idle_states: bool,
    /// The longest that a command, or a program for a period or to be ready, may take; it is ended
    /// then, and the run with it.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10s")]
    timeout: Duration,
    /// What releases the periods: each node's own clock, or a UDP datagram from the first node for
    /// each, which needs no synchronised clocks.
    #[arg(long, value_name = "SIGNAL", value_enum, default_value = "clock")]
    signal: Signal,
    /// Write a line for each period to this file (CSV).
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Show each task on the terminal while it runs.
    #[arg(long)]
    live: bool,
    /// End with status 1 if this holds of any task, such as 'missed>0%' or 'response-p99>2ms'; may
    /// be given more than once. Figures: missed (a share), lateness, execution and response with
    /// -mean, -p99, -p99.9 and -max. What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    fail_if: Vec<Limit<Figure>>,
    #[command(flatten)]
    files: FileArgs,
}

/// Nodes on several machines.
#[derive(Args, Debug)]
struct ClusterArgs {
    /// Be the first of the --nodes, and wait for the others to join at this address of this
    /// machine. Nobody is authenticated: use it where all hosts are trusted.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    listen: Option<SocketAddr>,
    /// The furthest that a node's clock may be off when a run begins [default: a tenth of the
    /// shortest period].
    #[arg(long, value_name = "TIME", value_parser = values::positive_span, requires = "listen")]
    max_offset: Option<Span>,
    /// Be a node of the run whose first node listens there; it says what is to be done.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          conflicts_with_all = ["listen", "file", "period", "nodes", "time", "compare", "divide",
          "slow", "clock_error", "signal", "log", "live", "fail_if", "json", "html", "junit",
          "summary"])]
    join: Option<SocketAddr>,
    /// How long to wait for the others to join [default: without end], or for the first node to be
    /// there that is to be joined [default: not at all].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    wait: Option<Duration>,
    /// What this node is called [default: the host's name].
    #[arg(long, requires = "join")]
    name: Option<String>,
    /// Let tasks of the first node start programs here.
    #[arg(long, requires = "join")]
    allow_commands: bool,
    /// Set this node's clock wrong by so much, such as +3ms.
    #[arg(long, value_name = "TIME", value_parser = values::signed_span, requires = "join",
          allow_hyphen_values = true)]
    clock_ahead: Option<Span>,
}

/// What releases periods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Signal {
    /// Each node's own clock
    Clock,
    /// A datagram for each
    Udp,
}

#[derive(Clone, Debug)]
struct NodeCounts(Vec<u16>);

fn node_counts(text: &str) -> Result<NodeCounts, String> {
    let form = || format!("write numbers of nodes from 1 to {NODES_MAX}, such as 2 or 1,2,4");
    let counts = values::numbers(text).map_err(|_| form())?;
    let most = f64::from(NODES_MAX);
    let count = |number: f64| {
        ((1.0..=most).contains(&number) && number.fract() == 0.0).then_some(number as u16)
    };
    let counts: Option<Vec<u16>> = counts.into_iter().map(count).collect();
    let counts = counts.ok_or_else(form)?;
    // Two runs of one name could not be told from each other.
    match twice(&counts) {
        Some(count) => Err(format!("{count} stands there twice")),
        None => Ok(NodeCounts(counts)),
    }
}

/// What stands in a list more than once.
fn twice<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter().enumerate().find(|(at, one)| list[..*at].contains(one)).map(|(_, one)| one)
}

fn injected(text: &str) -> Result<(u16, i64), String> {
    let form = "write a node and by how much its clock is ahead, such as 2=+3ms";
    let (node, time) = text.split_once('=').ok_or(form)?;
    let node = node.parse().ok().filter(|node| *node > 0).ok_or(form)?;
    Ok((node, values::signed_span(time)?.as_ns()))
}

fn slow(text: &str) -> Result<(u16, f64), String> {
    let form = || "write a node and a factor from 0.01 to 100, such as 2=3".to_owned();
    let (node, factor) = text.split_once('=').ok_or_else(form)?;
    let node = node.parse().ok().filter(|node| *node > 0).ok_or_else(form)?;
    let factor = factor.parse().ok().filter(|factor| (0.01..=100.0).contains(factor));
    Ok((node, factor.ok_or_else(form)?))
}

/// What can be limited of each task.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Missed,
    Of(Times, TimeOf),
}

/// Times of a task.
type Times = fn(&CycleTask) -> Option<&Distribution>;

fn limit(text: &str) -> Result<Limit<Figure>, String> {
    let lateness: Times = |task| task.lateness_ns.as_ref();
    let execution: Times = |task| task.execution_ns.as_ref();
    let response: Times = |task| task.response_ns.as_ref();
    let names = [
        (lateness, ["lateness-mean", "lateness-p99", "lateness-p99.9", "lateness-max"]),
        (execution, ["execution-mean", "execution-p99", "execution-p99.9", "execution-max"]),
        (response, ["response-mean", "response-p99", "response-p99.9", "response-max"]),
    ];
    let figures: [TimeOf; 4] = [MEAN, P99, |d| d.p99_9 as f64, MAX];
    let times = names.into_iter().flat_map(|(times, names)| {
        let limited = move |(name, figure)| (name, LimitUnit::Ns, Figure::Of(times, figure));
        names.into_iter().zip(figures).map(limited)
    });
    Limit::parse(text, [("missed", LimitUnit::Ratio, Figure::Missed)].into_iter().chain(times))
}

pub(super) fn run(args: RunArgs) -> Result<(), Failure> {
    if let Some(leader) = args.cluster.join {
        return member::run(leader, &args.cluster);
    }
    let set = args.tasks.set()?;
    args.compare
        .iter()
        .try_for_each(|policy| set.under(*policy).check())
        .map_err(Failure::usage)?;
    let most = args.nodes.0.iter().copied().max().unwrap_or(1);
    let cluster = args.cluster.options(&set, most)?;
    if let Some(task) = set.tasks().iter().find(|task| args.time.as_nanos() < task.period_ns.into())
    {
        let name = &task.name;
        return Err(Failure::usage(format!(
            "the --time is shorter than one period of task '{name}'; give a longer one"
        )));
    }
    let there_is = |flag: &str, node: u16| {
        let none = || format!("{flag}: there is no node {node}; they are 1 to {most}");
        if node <= most { Ok(node - 1) } else { Err(Failure::usage(none())) }
    };
    args.check_effects(&set)?;
    args.check_cores(&set)?;
    let mut clock_injected_ns = vec![0; usize::from(most)];
    for (node, ns) in &args.clock_error {
        clock_injected_ns[usize::from(there_is("--clock-error", *node)?)] = *ns;
    }
    let slow = args.slow.iter().map(|(node, factor)| Ok((there_is("--slow", *node)?, *factor)));
    let slow = slow.collect::<Result<_, Failure>>()?;
    if args.live {
        needs_a_terminal_beside()?;
    }
    let files = args.files.open_beside("--log", args.log.as_deref())?;
    let local = if cluster.is_some() { 1 } else { most };
    for note in notes(&set, args.tasks.cores(), (most, local)) {
        output::note(&note);
    }
    output::end_gently()?;
    let mut watcher = Watcher::new(args.live, args.log.as_deref())?;
    let options = RunOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: WORDS.map(str::to_owned).to_vec(),
        set,
        time: args.time,
        nodes: args.nodes.0,
        policies: args.compare,
        divide: args.divide,
        slow,
        cores: args.tasks.cores().to_vec(),
        clock_injected_ns,
        hold_awake: !args.leave_idle_states,
        timeout: args.timeout,
        signal_by_packet: args.signal == Signal::Udp,
        cluster,
        command: output::command_line(),
    };
    let ran = cycle::run(&options, &mut watcher);
    let logged = watcher.finish();
    let mut result = ran?;
    let judge = |limit: &Limit<Figure>| limit.judge_named(of_tasks(&result, limit.figure));
    result.limits = args.fail_if.iter().map(judge).collect();
    files.write(&result, [to_json, html::cycle], table::cycle)?;
    logged?;
    verdict(&result.limits, &result.findings)
}

/// What of it is not as it may be meant, said before so much time is spent: for the most nodes
/// that there are, and for those of them on this machine.
fn notes(set: &TaskSet, cores: &[usize], (most, local): (u16, u16)) -> Vec<String> {
    let mut notes = Vec::new();
    let meets = |work: &Work| match work {
        Work::Steps(steps) => steps.iter().any(|step| step.message.is_some() || step.barrier),
        _ => false,
    };
    if most < 2
        && let Some(task) = set.tasks().iter().find(|task| meets(&task.work))
    {
        notes.push(format!(
            "task '{}' has a message or a barrier, and there is one node: it has nobody to talk \
             to; say --nodes 2 or more",
            task.name
        ));
    }
    let tied = |task: &&Task| match cores {
        [] => task.schedule.core.is_some(),
        [_] => task.schedule.policy != TaskPolicy::Deadline,
        _ => false,
    };
    if local > 1
        && let Some(task) = set.tasks().iter().find(tied)
        && let Some(core) = cores.first().copied().or(task.schedule.core)
    {
        let (from, way) = if cores.is_empty() {
            ("core in the file", "leave it out there")
        } else {
            ("--core", "name more, such as --core 0,1")
        };
        notes.push(format!(
            "all {local} nodes run task '{}' on core {core} of this machine, one after the other: \
             {from} holds for each of them; {way}",
            task.name
        ));
    }
    notes
}

impl RunArgs {
    /// Refuses cores that this machine has not; other machines may have others.
    fn check_cores(&self, set: &TaskSet) -> Result<(), Failure> {
        let of_file = set.tasks().iter().filter_map(|task| task.schedule.core);
        let named: Vec<usize> = match (self.tasks.cores(), self.cluster.listen) {
            ([], _) => of_file.collect(),
            ([first, ..], Some(_)) => vec![*first],
            (all, None) => all.to_vec(),
        };
        if !named.is_empty() {
            horolog_cycle::cores(&named)?;
        }
        Ok(())
    }

    /// Refuses flags that would do nothing.
    fn check_effects(&self, set: &TaskSet) -> Result<(), Failure> {
        if let Some(policy) = twice(&self.compare) {
            let name = policy.name();
            return Err(Failure::usage(format!("--compare: {name} stands there twice")));
        }
        let of_nodes = [
            ("--clock-error", self.clock_error.iter().map(|(node, _)| *node).collect::<Vec<_>>()),
            ("--slow", self.slow.iter().map(|(node, _)| *node).collect()),
        ];
        for (flag, nodes) in of_nodes {
            if let Some(node) = twice(&nodes) {
                return Err(Failure::usage(format!(
                    "{flag}: node {node} stands there twice; say it once"
                )));
            }
        }
        if self.log.as_deref().is_some_and(output::is_stdout) {
            return Err(Failure::usage(
                "--log takes a file: the result goes to standard output; name one",
            ));
        }
        if !self.clock_error.is_empty() && self.signal == Signal::Udp {
            return Err(Failure::usage(
                "--clock-error does nothing with --signal udp: packets need no clock; leave one out",
            ));
        }
        if self.cluster.listen.is_some() && self.clock_error.iter().any(|(node, _)| *node > 1) {
            return Err(Failure::usage(
                "--clock-error is for nodes on this machine; a node that joins has --clock-ahead",
            ));
        }
        let flag = if self.divide { "--divide" } else { "--slow" };
        let multiplies = self.divide || !self.slow.is_empty();
        if multiplies && !set.tasks().iter().any(|task| matches!(task.work, Work::Steps(_))) {
            return Err(Failure::usage(format!(
                "{flag} changes what tasks compute, and these are commands, programs or servers"
            )));
        }
        Ok(())
    }
}

impl ClusterArgs {
    fn options(&self, set: &TaskSet, nodes: u16) -> Result<Option<ClusterOptions>, Failure> {
        let Some(listen) = self.listen else {
            return match self.wait {
                Some(_) => Err(Failure::usage("--wait needs --listen or --join")),
                None => Ok(None),
            };
        };
        if nodes < 2 {
            return Err(Failure::usage(
                "--listen waits for other nodes; say --nodes 2 or more, or leave it out",
            ));
        }
        if listen.ip().is_unspecified() {
            return Err(Failure::usage(format!(
                "--listen {listen}: the other nodes need an address of this machine to send to; \
                 give one"
            )));
        }
        let shortest = set.tasks().iter().map(|task| task.period_ns).min().unwrap_or(0);
        let max_offset = self.max_offset.map(|span| span.as_ns().unsigned_abs());
        let max_offset_ns = max_offset.unwrap_or(shortest / 10);
        Ok(Some(ClusterOptions { listen, max_offset_ns, wait: self.wait }))
    }
}

/// The figure of each task of each node and run.
fn of_tasks(result: &CycleResult, figure: Figure) -> impl Iterator<Item = (String, Option<f64>)> {
    cycle::tasks(result).map(move |(place, task)| {
        let value = match figure {
            // What was never released was not done by its deadline either.
            Figure::Missed => {
                let due = task.periods + task.unreleased;
                (due > 0).then(|| (task.missed + task.unreleased) as f64 / due as f64)
            }
            Figure::Of(of, figure) => of(task).map(figure),
        };
        (format!("task '{}' on {place}", task.name), value)
    })
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::environment(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_others_and_nodes_on_one_core_are_told_beforehand() {
        let set = |more: &str| {
            let text = format!("[[task]]\nname = \"a\"\nperiod = \"1ms\"\nunits = 1\n{more}");
            TaskSet::parse(&text).unwrap()
        };
        let (plain, barrier, tied) = (set(""), set("barrier = true\n"), set("core = 3\n"));
        assert!(notes(&plain, &[], (1, 1)).is_empty() && notes(&plain, &[], (2, 2)).is_empty());
        assert!(notes(&barrier, &[], (1, 1))[0].contains("nobody to talk to"));
        assert!(notes(&barrier, &[], (2, 2)).is_empty());
        assert!(notes(&tied, &[], (1, 1)).is_empty() && notes(&tied, &[], (2, 1)).is_empty());
        let of_file = notes(&tied, &[], (2, 2));
        assert!(of_file[0].contains("all 2 nodes run task 'a' on core 3"), "{of_file:?}");
        assert!(of_file[0].contains("core in the file"), "{of_file:?}");
        let of_flag = notes(&plain, &[0], (4, 4));
        assert!(of_flag[0].contains("on core 0") && of_flag[0].contains("--core 0,1"));
        assert!(notes(&plain, &[0, 1], (4, 4)).is_empty());
        assert!(notes(&plain.under(TaskPolicy::Deadline), &[0], (2, 2)).is_empty());
    }
}
