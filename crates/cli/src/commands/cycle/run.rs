//! `horolog cycle run`: runs periodic tasks that flags or a file define, and writes the result as
//! text, JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

mod member;
mod tasks;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_cycle::run::{
    self as cycle, ClusterOptions, CycleRunEvent, LOG_HEADER, NODES_MAX, PeriodLogLine, RunError,
    RunOptions, TaskSnapshot,
};
use horolog_cycle::task::{Task, TaskSet, TaskWork};
use horolog_record::{CycleResult, LiveRun, RunObserver, Snapshot, TaskSchedulingPolicy};
use horolog_time::Span;
use tasks::CycleTaskArgs;

use super::node::NODE_COMMAND;
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::live::{RunDisplay, require_terminal};
use crate::output;
use crate::values;

/// Run periodic tasks, and report the timing of each period.
///
/// A task is released at the beginning of each period and must finish by its deadline; its response
/// time is start latency (from the release to the start) plus execution time. No period is skipped:
/// an overrun delays the following ones. A task computes (--compute, --units), sends messages to
/// the other nodes and waits for theirs (--message), waits at a barrier (--barrier), or starts the
/// command after '--'; with --program that command is started once and reports the begin and end of
/// its work in each period. Several tasks, tasks of several steps, and polling servers of aperiodic
/// events are defined in a FILE.
///
/// With --nodes there are several nodes on this host, each a separate process. All tasks run on
/// each node. With --nodes and --listen, this host is the first node and waits for the others to
/// --join; each node computes its releases from its own clock, whose offset from this host's clock
/// is measured before, during and after the run.
#[derive(Args, Debug)]
pub(crate) struct CycleRunArgs {
    #[command(flatten)]
    tasks: CycleTaskArgs,
    /// Duration of the run.
    #[arg(short, long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10s")]
    time: Duration,
    /// Number of nodes; with several numbers, such as 1,2,4, run once with each and report the
    /// speedup.
    #[arg(short, long, value_name = "LIST", value_parser = parse_node_counts, default_value = "1")]
    nodes: NodeCountList,
    /// Divide the computation among the nodes, instead of giving all of it to each.
    #[arg(long)]
    split_work: bool,
    /// Run once with each of these scheduling policies instead of --policy, such as
    /// fifo,rr,other,deadline; with several --nodes, once for each number and policy.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = TaskSchedulingPolicy::parse,
          conflicts_with = "policy")]
    compare: Vec<TaskSchedulingPolicy>,
    /// Pretend that the clock of a node is off, such as 2=+3ms; with --join that of this node, such
    /// as +3ms. The system clock is not changed. Repeatable.
    #[arg(long, value_name = "[NODE=]TIME", value_parser = parse_clock_offset, allow_hyphen_values = true)]
    inject_clock_offset: Vec<InjectedClockOffset>,
    /// Multiply the computation of a node by a factor, such as 2=3. Repeatable.
    #[arg(long, value_name = "NODE=FACTOR", value_parser = parse_slow_node)]
    slow_node: Vec<(u16, f64)>,
    #[command(flatten)]
    cluster: MultiHostArgs,
    /// Leave the CPU's idle states (C-states) enabled, instead of disabling all but polling
    /// (/dev/cpu_dma_latency).
    #[arg(long)]
    allow_idle_states: bool,
    /// Time limit of each execution of the command; with --program, of its start-up and of each
    /// period.
    /// Exceeding it ends the command and the run.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "10s")]
    timeout: Duration,
    /// Source of the releases. clock: each node's own clock; udp: a datagram from the first node
    /// for each period, which needs no synchronised clocks.
    #[arg(long, value_name = "SIGNAL", value_enum, default_value = "clock")]
    release_signal: ReleaseSignalArg,
    /// Write a line for each period to FILE as CSV.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Show each task on the terminal during the run.
    #[arg(long)]
    live: bool,
    /// Exit with status 1 if this expression is true for any task, such as 'missed>0%' or
    /// 'response-p99>2ms'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: missed (a share), start-latency, execution and response with -mean, -p50, -p90,
    /// -p99, -p99.9 and -max.
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<CycleResult>::parse)]
    fail_if: Vec<MetricLimit<CycleResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

/// Nodes on several machines.
#[derive(Args, Debug)]
struct MultiHostArgs {
    /// Run the first of the --nodes, and listen on this address for the others to join. Nodes are
    /// not authenticated: use --listen only where all hosts are trusted.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    listen: Option<SocketAddr>,
    /// Do not begin a run if a node's clock is off by more than this [default: a tenth of the
    /// shortest period].
    #[arg(long, value_name = "TIME", value_parser = values::positive_span, requires = "listen")]
    max_offset: Option<Span>,
    /// Join the run whose first node listens on this address, and execute its orders.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          conflicts_with_all = ["listen", "file", "period", "nodes", "time", "compare", "split_work",
          "slow_node", "release_signal", "log", "live", "fail_if", "json", "html", "junit",
          "summary"])]
    join: Option<SocketAddr>,
    /// Time to wait: with --listen for the others to join; with --join for the first node to become
    /// reachable [default: unlimited with --listen; with --join, fail at the first attempt].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    join_timeout: Option<Duration>,
    /// Name of this node, with --join [default: the hostname].
    #[arg(long, requires = "join")]
    name: Option<String>,
    /// With --join, permit tasks that the first node distributes to start programs on this host.
    #[arg(long, requires = "join")]
    allow_commands: bool,
}

/// Signal that releases each period of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ReleaseSignalArg {
    /// Each node's own clock
    Clock,
    /// A datagram from the first node for each period
    Udp,
}

/// Numbers of nodes, one for each run.
#[derive(Clone, Debug)]
struct NodeCountList(Vec<u16>);

fn parse_node_counts(text: &str) -> Result<NodeCountList, String> {
    let form = || format!("expected numbers of nodes from 1 to {NODES_MAX}, such as 2 or 1,2,4");
    let counts = values::numbers(text).map_err(|_| form())?;
    let most = f64::from(NODES_MAX);
    let count = |number: f64| {
        ((1.0..=most).contains(&number) && number.fract() == 0.0).then_some(number as u16)
    };
    let counts: Option<Vec<u16>> = counts.into_iter().map(count).collect();
    let counts = counts.ok_or_else(form)?;
    // Runs are named after their number of nodes, so two with one number could not be
    // distinguished.
    match first_duplicate(&counts) {
        Some(count) => Err(format!("{count} given twice")),
        None => Ok(NodeCountList(counts)),
    }
}

/// Returns the first element of a list that repeats an earlier one; `None` if all differ.
fn first_duplicate<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter().enumerate().find(|(at, one)| list[..*at].contains(one)).map(|(_, one)| one)
}

/// Offset to inject into the clock of a node.
#[derive(Clone, Copy, Debug)]
struct InjectedClockOffset {
    /// Number of the node, from 1; `None` for this node, with `--join`.
    node: Option<u16>,
    offset: Span,
}

fn parse_clock_offset(text: &str) -> Result<InjectedClockOffset, String> {
    let form = "expected NODE=OFFSET, such as 2=+3ms";
    let Some((node, time)) = text.split_once('=') else {
        return Ok(InjectedClockOffset { node: None, offset: text.parse()? });
    };
    let node = node.parse().ok().filter(|node| *node > 0).ok_or(form)?;
    Ok(InjectedClockOffset { node: Some(node), offset: time.parse()? })
}

/// Parses NODE=FACTOR. Returns the number of the node, from 1, and the factor.
fn parse_slow_node(text: &str) -> Result<(u16, f64), String> {
    let form = || "expected NODE=FACTOR with a factor from 0.01 to 100, such as 2=3".to_owned();
    let (node, factor) = text.split_once('=').ok_or_else(form)?;
    let node = node.parse().ok().filter(|node| *node > 0).ok_or_else(form)?;
    let factor = factor.parse().ok().filter(|factor| (0.01..=100.0).contains(factor));
    Ok((node, factor.ok_or_else(form)?))
}

pub(super) fn run(args: CycleRunArgs) -> Result<(), CommandFailure> {
    if let Some(leader) = args.cluster.join {
        return member::run(leader, &args.cluster, args.own_offset()?);
    }
    let set = args.tasks.task_set()?;
    args.compare
        .iter()
        .try_for_each(|policy| set.with_policy(*policy).check())
        .map_err(CommandFailure::usage)?;
    let most = args.nodes.0.iter().copied().max().unwrap_or(1);
    let cluster = args.cluster.options(&set, most)?;
    if let Some(task) = set.tasks().iter().find(|task| args.time.as_nanos() < task.period_ns.into())
    {
        let name = &task.name;
        return Err(CommandFailure::usage(format!(
            "the --time is shorter than one period of task '{name}'; give a longer one"
        )));
    }
    let node_index = |flag: &str, node: u16| {
        let none = || format!("{flag}: no node {node}; nodes are 1 to {most}");
        if node <= most { Ok(node - 1) } else { Err(CommandFailure::usage(none())) }
    };
    args.check_ineffective_flags(&set)?;
    args.check_cores(&set)?;
    let mut clock_injected_ns = vec![0; usize::from(most)];
    for (node, offset) in args.node_offsets()? {
        clock_injected_ns[usize::from(node_index("--inject-clock-offset", node)?)] = offset.as_ns();
    }
    let slow_nodes = args
        .slow_node
        .iter()
        .map(|(node, factor)| Ok((node_index("--slow-node", *node)?, *factor)));
    let slow_nodes = slow_nodes.collect::<Result<_, CommandFailure>>()?;
    if args.live {
        require_terminal()?;
    }
    let files = args.files.open_distinct_from("--log", args.log.as_deref())?;
    let local = if cluster.is_some() { 1 } else { most };
    for note in notes(&set, args.tasks.cores(), (most, local)) {
        output::print_note(&note);
    }
    output::install_interrupt_handler()?;
    let mut reporter = CycleRunObserver::new(args.live, args.log.as_deref())?;
    let options = RunOptions {
        program: PathBuf::from("/proc/self/exe"),
        arguments: NODE_COMMAND.map(str::to_owned).to_vec(),
        set,
        time: args.time,
        nodes: args.nodes.0,
        policies: args.compare,
        divide: args.split_work,
        slow: slow_nodes,
        cores: args.tasks.cores().to_vec(),
        injected_offset_ns: clock_injected_ns,
        hold_awake: !args.allow_idle_states,
        timeout: args.timeout,
        signal_by_packet: args.release_signal == ReleaseSignalArg::Udp,
        cluster,
        command: output::command_line(),
    };
    let run_result = cycle::run(&options, &mut reporter);
    let log_result = reporter.finish();
    let mut result = run_result?;
    let finished = files.finish(&mut result, &args.fail_if);
    log_result?;
    finished
}

/// Returns notes on settings that may be unintended, to print before the run. `most` is the largest
/// number of nodes of any run, `local` the number of these on this host.
fn notes(set: &TaskSet, cores: &[usize], (most, local): (u16, u16)) -> Vec<String> {
    let mut notes = Vec::new();
    let has_synchronisation = |work: &TaskWork| match work {
        TaskWork::Steps(steps) => steps.iter().any(|step| step.message.is_some() || step.barrier),
        _ => false,
    };
    if most < 2
        && let Some(task) = set.tasks().iter().find(|task| has_synchronisation(&task.work))
    {
        notes.push(format!(
            "task '{}' has a message or a barrier, but there is one node: it has no peer; use \
             --nodes 2 or more",
            task.name
        ));
    }
    let is_pinned = |task: &&Task| match cores {
        [] => task.schedule.core.is_some(),
        [_] => task.schedule.policy != TaskSchedulingPolicy::Deadline,
        _ => false,
    };
    if local > 1
        && let Some(task) = set.tasks().iter().find(is_pinned)
        && let Some(core) = cores.first().copied().or(task.schedule.core)
    {
        let (from, way) = if cores.is_empty() {
            ("core in the file", "leave it out there")
        } else {
            ("--core", "name more, such as --core 0,1")
        };
        notes.push(format!(
            "all {local} nodes run task '{}' on core {core} of this host, one after the other: \
             {from} applies to each of them; {way}",
            task.name
        ));
    }
    notes
}

impl CycleRunArgs {
    /// Rejects cores that this host does not have. With `--listen`, only the first core of `--core`
    /// is for this host.
    fn check_cores(&self, set: &TaskSet) -> Result<(), CommandFailure> {
        let file_cores = set.tasks().iter().filter_map(|task| task.schedule.core);
        let checked_cores: Vec<usize> = match (self.tasks.cores(), self.cluster.listen) {
            ([], _) => file_cores.collect(),
            ([first, ..], Some(_)) => vec![*first],
            (all, None) => all.to_vec(),
        };
        if !checked_cores.is_empty() {
            horolog_cycle::select_cores(&checked_cores)?;
        }
        Ok(())
    }

    /// Returns the offset to inject into this node's clock with `--join`, 0 by default.
    fn own_offset(&self) -> Result<Span, CommandFailure> {
        match self.inject_clock_offset[..] {
            [] => Ok(Span::ZERO),
            [InjectedClockOffset { node: None, offset }] => Ok(offset),
            _ => Err(CommandFailure::usage(
                "--inject-clock-offset: with --join, write the offset of this node alone, such as +3ms",
            )),
        }
    }

    /// Returns the offsets to inject, each with its node, from 1; an error if one has no node.
    fn node_offsets(&self) -> Result<Vec<(u16, Span)>, CommandFailure> {
        let numbered_offset = |one: &InjectedClockOffset| Some((one.node?, one.offset));
        let offsets = self.inject_clock_offset.iter().map(numbered_offset).collect::<Option<_>>();
        offsets.ok_or_else(|| {
            CommandFailure::usage("--inject-clock-offset: name the node as well, such as 2=+3ms")
        })
    }

    /// Rejects repeated values, and flags that would have no effect.
    fn check_ineffective_flags(&self, set: &TaskSet) -> Result<(), CommandFailure> {
        if let Some(policy) = first_duplicate(&self.compare) {
            let name = policy.name();
            return Err(CommandFailure::usage(format!("--compare: {name} given twice")));
        }
        let offsets = self.node_offsets()?;
        let nodes_by_flag = [
            ("--inject-clock-offset", offsets.iter().map(|(node, _)| *node).collect::<Vec<_>>()),
            ("--slow-node", self.slow_node.iter().map(|(node, _)| *node).collect()),
        ];
        for (flag, nodes) in nodes_by_flag {
            if let Some(node) = first_duplicate(&nodes) {
                return Err(CommandFailure::usage(format!(
                    "{flag}: node {node} given twice; give it once"
                )));
            }
        }
        if self.log.as_deref().is_some_and(output::is_stdout) {
            return Err(CommandFailure::usage(
                "--log takes a file: the result goes to standard output; name one",
            ));
        }
        if !offsets.is_empty() && self.release_signal == ReleaseSignalArg::Udp {
            return Err(CommandFailure::usage(
                "--inject-clock-offset has no effect with --release-signal udp; leave one out",
            ));
        }
        if self.cluster.listen.is_some() && offsets.iter().any(|(node, _)| *node > 1) {
            return Err(CommandFailure::usage(
                "--inject-clock-offset: only node 1 is on this host; give the option to the node \
                 that joins",
            ));
        }
        let flag = if self.split_work { "--split-work" } else { "--slow-node" };
        let changes_computation = self.split_work || !self.slow_node.is_empty();
        if changes_computation
            && !set.tasks().iter().any(|task| matches!(task.work, TaskWork::Steps(_)))
        {
            return Err(CommandFailure::usage(format!(
                "{flag} changes the computation of tasks, and these are commands, programs or \
                    servers"
            )));
        }
        Ok(())
    }
}

impl MultiHostArgs {
    /// Returns the options of a run on several hosts; `None` without `--listen`. An error for flags
    /// that do not fit together, or an unspecified address.
    fn options(&self, set: &TaskSet, nodes: u16) -> Result<Option<ClusterOptions>, CommandFailure> {
        let Some(listen) = self.listen else {
            return match self.join_timeout {
                Some(_) => Err(CommandFailure::usage("--join-timeout needs --listen or --join")),
                None => Ok(None),
            };
        };
        if nodes < 2 {
            return Err(CommandFailure::usage(
                "--listen waits for other nodes; use --nodes 2 or more, or omit it",
            ));
        }
        if listen.ip().is_unspecified() {
            return Err(CommandFailure::usage(format!(
                "--listen {listen}: the other nodes need an address of this host to send to; \
                 give one"
            )));
        }
        let shortest = set.tasks().iter().map(|task| task.period_ns).min().unwrap_or(0);
        let max_offset = self.max_offset.map(|span| span.as_ns().unsigned_abs());
        let max_offset_ns = max_offset.unwrap_or(shortest / 10);
        Ok(Some(ClusterOptions { listen, max_offset_ns, wait: self.join_timeout }))
    }
}

impl From<RunError> for CommandFailure {
    fn from(error: RunError) -> Self {
        Self::environment(error)
    }
}

/// Observer that shows the progress of a run and logs its periods.
pub(super) struct CycleRunObserver {
    display: RunDisplay<Vec<TaskSnapshot>>,
    log: Option<PeriodLogFile>,
}

/// CSV file of `--log`, with a line for each period.
struct PeriodLogFile {
    path: PathBuf,
    writer: BufWriter<File>,
    /// First error of writing, after which nothing more is written; `None` if there was none.
    write_error: Option<io::Error>,
}

impl CycleRunObserver {
    pub(super) fn new(live: bool, log: Option<&Path>) -> Result<Self, CommandFailure> {
        let log = log.map(PeriodLogFile::open).transpose()?;
        let run = LiveRun::new("cycle run", String::new(), "run");
        let initial_state = "no periods completed yet".to_owned();
        let display = RunDisplay::start(LiveRun { initial_state, ..run }, live)?;
        Ok(Self { display, log })
    }

    /// Restores the terminal and completes the log; an error if a line could not be written.
    pub(super) fn finish(self) -> Result<(), CommandFailure> {
        self.display.finish();
        self.log.map_or(Ok(()), PeriodLogFile::finish)
    }
}

impl RunObserver<(), CycleRunEvent<'_>, Vec<TaskSnapshot>> for CycleRunObserver {
    fn wants_snapshots(&self) -> bool {
        true
    }

    fn snapshot(&mut self, snapshot: Snapshot<Vec<TaskSnapshot>>) {
        self.display.show(snapshot);
    }

    fn event(&mut self, event: &CycleRunEvent<'_>) {
        match *event {
            CycleRunEvent::Joined { members, of } => {
                let text = format!("{members} of {of} other nodes have joined");
                if self.display.has_view() {
                    self.display.set_initial_state(text);
                } else if members < of {
                    output::print_note(&text);
                }
            }
            CycleRunEvent::Logged(line) => {
                if let Some(log) = &mut self.log {
                    log.write_line(&line);
                }
            }
        }
    }

    fn flow(&self) -> ControlFlow<()> {
        output::check_stop_request()
    }
}

impl PeriodLogFile {
    fn open(path: &Path) -> Result<Self, CommandFailure> {
        let unwritable = |error| CommandFailure::environment(write_failure_text(path, &error));
        let mut to = BufWriter::new(File::create(path).map_err(unwritable)?);
        writeln!(to, "{LOG_HEADER}").map_err(unwritable)?;
        Ok(Self { path: path.to_owned(), writer: to, write_error: None })
    }

    fn write_line(&mut self, line: &PeriodLogLine<'_>) {
        if self.write_error.is_none() {
            self.write_error = writeln!(self.writer, "{line}").err();
        }
    }

    fn finish(mut self) -> Result<(), CommandFailure> {
        let written = self.write_error.map_or_else(|| self.writer.flush(), Err);
        written.map_err(|error| CommandFailure::environment(write_failure_text(&self.path, &error)))
    }
}

fn write_failure_text(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; choose another file", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_a_node_without_peers_and_nodes_on_one_core() {
        let set = |more: &str| {
            let text = format!("[[task]]\nname = \"a\"\nperiod = \"1ms\"\nunits = 1\n{more}");
            TaskSet::parse(&text).unwrap()
        };
        let (plain, barrier, tied) = (set(""), set("barrier = true\n"), set("core = 3\n"));
        assert!(notes(&plain, &[], (1, 1)).is_empty() && notes(&plain, &[], (2, 2)).is_empty());
        assert!(notes(&barrier, &[], (1, 1))[0].contains("no peer"));
        assert!(notes(&barrier, &[], (2, 2)).is_empty());
        assert!(notes(&tied, &[], (1, 1)).is_empty() && notes(&tied, &[], (2, 1)).is_empty());
        let of_file = notes(&tied, &[], (2, 2));
        assert!(of_file[0].contains("all 2 nodes run task 'a' on core 3"), "{of_file:?}");
        assert!(of_file[0].contains("core in the file"), "{of_file:?}");
        let of_flag = notes(&plain, &[0], (4, 4));
        assert!(of_flag[0].contains("on core 0") && of_flag[0].contains("--core 0,1"));
        assert!(notes(&plain, &[0, 1], (4, 4)).is_empty());
        assert!(notes(&plain.with_policy(TaskSchedulingPolicy::Deadline), &[0], (2, 2)).is_empty());
    }
}
