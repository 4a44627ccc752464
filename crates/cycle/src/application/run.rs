//! Run of a test: a process for each node, a thread for the simulated sources, and the calling
//! thread, which collects the entries of the nodes, stops and kills nodes as planned, and computes
//! the result. It ends on time whatever the nodes do, and leaves no process running.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};

use horolog_record::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestFaultKind as FaultKind, CycleTestFaultResult,
    CycleTestNodeResult, CycleTestResult, CycleTestRunResult, Distribution, Host, PartProgress,
    RunObserver, SnapshotTimer, rfc3339_now,
};
use horolog_stats::search::SearchConfigError;
use horolog_sys::clock::ClockMonotonic;
use horolog_sys::explain::explain;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use thiserror::Error;

use super::findings::{self, ApplicationTestEnd};
use super::generator::{self, SimulatedReportSender, SimulatedReportSenderOutcome};
use super::node::{ApplicationNodeOrder, ApplicationNodeReady, ApplicationStartCommand};
use super::node_event::NodeFaultEvent;
use super::plan::ApplicationTestPlan;
use super::score;
use super::search::{self, ApplicationSearchOptions};
use super::test_stats::ApplicationTestStats;
use crate::entry::PeriodEntry;
use crate::predict::CostInput;
use crate::run::child::{NodeChildProcess, NodeStartError};
use crate::run::collection::{CollectionState, collect_until_finished};
use crate::run::node_name;

/// Time from the last node's report that it is ready to the first release.
const START_DELAY: Span = Span::from_ms(100);
/// Addition to [`START_DELAY`] with several nodes, in which they measure the latency of the
/// network.
const BASELINE_TIME: Span = Span::from_ms(300);
/// Interval between two collections of entries.
const COLLECT_INTERVAL: Span = Span::from_ms(10);
/// Time beyond the planned end after which a run is stopped; also the grace period of the nodes
/// after that.
const GRACE_PERIOD: Span = Span::from_ms(1_000);
/// Timeout for a node to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of an application test.
#[derive(Clone, Debug)]
pub struct ApplicationTestOptions {
    /// Program that calls [`super::node::serve`] when it is started with `arguments`.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Plan of the test.
    pub plan: ApplicationTestPlan,
    /// Load: factor of report rates and of fixed computation.
    pub load: f64,
    /// Options of a search for the largest load; `None` to run the plan once.
    pub search: Option<ApplicationSearchOptions>,
    /// True if deep idle states are prevented.
    pub hold_awake: bool,
    /// Costs measured on the host, for the scorecard.
    pub measured: Vec<CostInput>,
    /// Command line, for the result.
    pub command: Vec<String>,
}

/// Reason for which a test cannot start.
#[derive(Debug, Error)]
pub enum ApplicationTestError {
    /// A node could not be started or did not become ready.
    #[error(transparent)]
    NodeStart(#[from] NodeStartError),
    /// The sockets or the thread of the sources could not be created.
    #[error("cannot send reports: {why}", why = explain(.0))]
    Sources(io::Error),
    /// The search has invalid parameters.
    #[error("invalid loads for a search: {0}")]
    Search(SearchConfigError),
    /// The trials of a search would be too short.
    #[error(
        "runs of a search need at least {least} periods, which is {} ms; use longer ones",
        least_ns / 1_000_000
    )]
    TrialTooShort {
        /// Smallest number of periods.
        least: u64,
        /// Duration of these periods, in ns.
        least_ns: u64,
    },
}

/// Observer of a test, with the timer of its snapshots.
pub(super) struct TestObserver<'a> {
    pub(super) observer: &'a mut dyn RunObserver<(), (), ApplicationTestValues>,
    pub(super) timer: SnapshotTimer,
}

impl TestObserver<'_> {
    /// Returns true if the test must stop now.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.observer.flow().is_break()
    }
}

/// Tests an application.
///
/// # Errors
///
/// A node or the sources cannot start, or the search is invalid.
pub fn test(
    options: &ApplicationTestOptions,
    observer: &mut dyn RunObserver<(), (), ApplicationTestValues>,
) -> Result<CycleTestResult, ApplicationTestError> {
    let started = rfc3339_now();
    let observer = &mut TestObserver { observer, timer: SnapshotTimer::start() };
    let plan = &options.plan;
    let (test_run, search_result, is_interrupted) = match &options.search {
        None => {
            let label = format!("load {}", options.load);
            (Some(run_once(options, plan, options.load, (&label, observer))?), None, false)
        }
        Some(search) => {
            let outcome = search::search(options, search, observer)?;
            (outcome.run, Some(outcome.search), outcome.is_interrupted)
        }
    };
    let (run, mut ending) =
        test_run.map_or((None, ApplicationTestEnd::default()), |ran| (Some(ran.run), ran.ending));
    ending.is_interrupted |= is_interrupted;
    let application = CycleTestApplication {
        name: plan.name.clone(),
        period_ns: plan.period_ns,
        deadline_ns: plan.deadline_ns,
        nodes: plan.nodes,
        steady: plan.steady,
        response_limit_ns: plan.response_limit_ns,
        node_timeout: plan.node_timeout,
    };
    let mut result = CycleTestResult {
        schema: CYCLE_TEST_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        scorecard: score::scorecard(run.as_ref(), &application, &options.measured),
        application,
        run,
        search: search_result,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    result.findings = findings::findings(&result, &ending, &options.measured);
    Ok(result)
}

/// Outcome of a run of a test: its result, and the circumstances of its end.
pub(super) struct ApplicationTestOutcome {
    pub(super) run: CycleTestRunResult,
    pub(super) ending: ApplicationTestEnd,
}

/// Runs a plan once. `load` multiplies the rates of reports and the fixed computation; `label` is
/// for the snapshots.
pub(super) fn run_once(
    options: &ApplicationTestOptions,
    plan: &ApplicationTestPlan,
    load: f64,
    (label, observer): (&str, &mut TestObserver<'_>),
) -> Result<ApplicationTestOutcome, ApplicationTestError> {
    let mut nodes = Vec::new();
    for node in 0..plan.nodes {
        // One node at a time: they would disturb each other's calibration.
        nodes.push(ApplicationNodeProcess::start(options, plan, (node, load), &|| {
            observer.is_stop_requested()
        })?);
    }
    let sockets = generator::open_sockets(plan).map_err(ApplicationTestError::Sources)?;
    let start_delay = if plan.nodes > 1 { START_DELAY + BASELINE_TIME } else { START_DELAY };
    let begin = ClockMonotonic.now() + start_delay;
    let start_command = ApplicationStartCommand {
        begin_ns: begin.as_ns(),
        peers: nodes.iter().map(|node| node.ready.messages).collect(),
        sources: sockets.iter().map(|(_, address)| *address).collect(),
    };
    for node in &mut nodes {
        let start = |error| NodeStartError::Failed { node: node.name.clone(), error };
        node.child.send(&start_command).map_err(start)?;
    }
    let reports = nodes.iter().map(|node| node.ready.reports).collect();
    let generator = SimulatedReportSender::new(plan, load, sockets, reports, begin);
    let stats = ApplicationTestStats::new(plan, begin.as_ns());
    let mut collector = ApplicationTestCollector::new(plan, nodes, stats, begin);
    let stop = AtomicBool::new(false);
    let generator_outcome = thread::scope(|scope| {
        let builder = thread::Builder::new().name("sources".into());
        let generator_thread = builder
            .spawn_scoped(scope, || generator.run(&stop))
            .map_err(ApplicationTestError::Sources)?;
        collector.collect(label, observer);
        stop.store(true, Ordering::Relaxed);
        // The thread does not panic; if it did, the panic would continue here.
        let outcome = generator_thread.join();
        Ok::<_, ApplicationTestError>(outcome.unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    Ok(collector.into_test_run(load, generator_outcome))
}

/// Process of a node, with its report that it is ready and, if it exited early, its exit reason.
struct ApplicationNodeProcess {
    name: String,
    child: NodeChildProcess<ApplicationNodeReady>,
    ready: ApplicationNodeReady,
    exit_reason: Option<String>,
}

impl ApplicationNodeProcess {
    fn start(
        options: &ApplicationTestOptions,
        plan: &ApplicationTestPlan,
        (node, load): (u16, f64),
        is_stop_requested: &dyn Fn() -> bool,
    ) -> Result<Self, NodeStartError> {
        let name = node_name(node);
        let order =
            ApplicationNodeOrder { plan: plan.clone(), node, load, hold_awake: options.hold_awake };
        let failed = |error| NodeStartError::Failed { node: name.clone(), error };
        let child = NodeChildProcess::start(&options.program, &options.arguments, &order, 1);
        let mut child: NodeChildProcess<ApplicationNodeReady> = child.map_err(failed)?;
        let ready = child
            .await_ready(READY_TIMEOUT, is_stop_requested)
            .map_err(|reason| NodeStartError::NotReady { node: name.clone(), reason })?;
        Ok(Self { name, child, ready, exit_reason: None })
    }

    fn has_finished(&self) -> bool {
        self.exit_reason.is_some() || self.child.shared().has_task_ended(0)
    }
}

/// Action of a fault on a node, with its time.
#[derive(Clone, Copy)]
struct ScheduledNodeProcessAction {
    at_ns: u64,
    node: u16,
    fault: usize,
    kind: NodeProcessAction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeProcessAction {
    Stop,
    Resume,
    Kill,
}

/// Collector of the nodes' entries, which also acts on the nodes as planned.
struct ApplicationTestCollector<'a> {
    plan: &'a ApplicationTestPlan,
    nodes: Vec<ApplicationNodeProcess>,
    stats: ApplicationTestStats<'a>,
    begin: Timestamp<Monotonic>,
    /// Remaining actions; the next one is the last element.
    pending_actions: Vec<ScheduledNodeProcessAction>,
    ending: ApplicationTestEnd,
}

impl<'a> ApplicationTestCollector<'a> {
    fn new(
        plan: &'a ApplicationTestPlan,
        nodes: Vec<ApplicationNodeProcess>,
        stats: ApplicationTestStats<'a>,
        begin: Timestamp<Monotonic>,
    ) -> Self {
        let (pending_actions, ending) = (scheduled_actions(plan), ApplicationTestEnd::default());
        Self { plan, nodes, stats, begin, pending_actions, ending }
    }

    /// Collects until all nodes have finished or have been given up.
    fn collect(&mut self, label: &str, observer: &mut TestObserver<'_>) {
        let deadline = self.instant(self.total_ns()) + GRACE_PERIOD;
        let collect = |this: &mut Self| this.collect_once(label, observer);
        collect_until_finished(self, deadline, collect, Self::stop);
        let stuck = self.nodes.iter().filter(|node| !node.has_finished());
        self.ending.stuck.extend(stuck.map(|node| node.name.clone()));
    }

    fn collect_once(&mut self, label: &str, observer: &mut TestObserver<'_>) -> CollectionState {
        self.record_early_exits();
        let all_finished = self.nodes.iter().all(ApplicationNodeProcess::has_finished);
        self.run_due_actions();
        self.collect_entries();
        let TestObserver { observer: to, timer } = observer;
        timer.publish(*to, all_finished, || self.progress_and_values(label));
        let ends_early = !all_finished && observer.is_stop_requested();
        let now = ClockMonotonic.now();
        let next = self.pending_actions.last().map(|action| self.instant(action.at_ns) - now);
        let pause = next.unwrap_or(COLLECT_INTERVAL).clamp(Span::ZERO, COLLECT_INTERVAL);
        let pause = Duration::from_nanos(pause.as_ns().unsigned_abs());
        CollectionState { all_finished, ends_early, pause }
    }

    /// Drops the pending actions, requests all nodes to end at their next releases, and resumes
    /// stopped ones so that they can. Returns the grace period.
    fn stop(&mut self, is_late: bool) -> Span {
        (self.ending.is_interrupted, self.ending.is_truncated) = (!is_late, is_late);
        self.pending_actions.clear();
        for node in &self.nodes {
            node.child.shared().stop();
            // The resumption of a node that has exited fails, which is harmless.
            let _ = node.child.handle().and_then(|handle| handle.resume());
        }
        GRACE_PERIOD
    }

    fn progress_and_values(&self, label: &str) -> (PartProgress, ApplicationTestValues) {
        let total_ns = self.total_ns();
        let elapsed_ns = self.now_ns().min(total_ns);
        let part = PartProgress {
            name: label.to_owned(),
            elapsed_s: elapsed_ns as f64 / 1e9,
            duration_s: Some(total_ns as f64 / 1e9),
            ..PartProgress::default()
        };
        let values = ApplicationTestValues {
            state: self.plan.state_at(elapsed_ns).to_owned(),
            nodes: self.stats.snapshot(),
            faults: self.stats.faults(),
        };
        (part, values)
    }

    fn total_ns(&self) -> u64 {
        self.plan.period_count().saturating_mul(self.plan.period_ns)
    }

    fn instant(&self, ns: u64) -> Timestamp<Monotonic> {
        self.begin + Span::from_ns(ns as i64)
    }

    fn now_ns(&self) -> u64 {
        (ClockMonotonic.now() - self.begin).as_ns().max(0).unsigned_abs()
    }

    /// Records the nodes that exited before their last period.
    fn record_early_exits(&mut self) {
        let now_ns = self.now_ns();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let exit_reason = node.child.exit_reason();
            if node.exit_reason.is_none()
                && !node.child.shared().has_task_ended(0)
                && exit_reason.is_some()
            {
                node.exit_reason = exit_reason;
                self.stats.exited_ns[at].get_or_insert(now_ns);
            }
        }
    }

    /// Executes the actions that are due.
    fn run_due_actions(&mut self) {
        while let Some(action) = self.pending_actions.last().copied() {
            if self.now_ns() < action.at_ns {
                return;
            }
            self.pending_actions.pop();
            let node = &mut self.nodes[usize::from(action.node)];
            let done = match action.kind {
                NodeProcessAction::Stop => node.child.handle().and_then(|handle| handle.stop()),
                NodeProcessAction::Resume => node.child.handle().and_then(|handle| handle.resume()),
                NodeProcessAction::Kill => node.child.kill(),
            };
            let now_ns = self.now_ns();
            if done.is_err() {
                continue;
            }
            if action.kind == NodeProcessAction::Resume {
                self.stats.set_end(action.fault, now_ns);
                continue;
            }
            self.stats.add_injections(action.fault, 1, now_ns);
            if action.kind == NodeProcessAction::Kill {
                self.stats.set_end(action.fault, now_ns);
                self.stats.exited_ns[usize::from(action.node)] = Some(now_ns);
                self.ending.killed.push(self.nodes[usize::from(action.node)].name.clone());
            }
        }
    }

    /// Collects the entries and events that nodes have published.
    fn collect_entries(&mut self) {
        let stats = &mut self.stats;
        for (node, one) in (0..).zip(&self.nodes) {
            one.child.take_words(0, &mut |words| {
                if let Some(event) = NodeFaultEvent::from_words(words) {
                    stats.add_event(node, &event);
                } else if let Some(entry) = PeriodEntry::from_words(words) {
                    stats.add_entry(node, &entry);
                }
            });
        }
    }

    fn into_test_run(
        mut self,
        load: f64,
        generator_outcome: SimulatedReportSenderOutcome,
    ) -> ApplicationTestOutcome {
        let elapsed_ns = self.now_ns().min(self.total_ns());
        for (fault, (count, first_ns)) in generator_outcome.faults.iter().enumerate() {
            self.stats.add_injections(fault, *count, first_ns.unwrap_or(0));
        }
        self.ending.missed_unexplained = self.stats.missed_unexplained;
        for node in &self.nodes {
            let is_planned = self.ending.killed.contains(&node.name);
            if let Some(how) = node.exit_reason.as_ref().filter(|_| !is_planned) {
                self.ending.exited.push((node.name.clone(), how.clone()));
            }
        }
        let conditions = self.nodes.first().map(|node| node.ready.conditions.clone());
        let run = CycleTestRunResult {
            load,
            elapsed_s: elapsed_ns as f64 / 1e9,
            conditions: conditions.unwrap_or_default(),
            nodes: self
                .nodes
                .iter()
                .enumerate()
                .map(|(at, node)| self.node_record(at, node))
                .collect(),
            stages: self.stats.stages(),
            imbalance: self.stats.imbalance(),
            sources: generator_outcome.sources,
            states: self.stats.states(),
            faults: self.stats.faults(),
            detections: self.stats.detection_records(),
        };
        ApplicationTestOutcome { run, ending: self.ending }
    }

    fn node_record(&self, at: usize, node: &ApplicationNodeProcess) -> CycleTestNodeResult {
        let stats = &self.stats.nodes[at];
        let state = node.child.task_state(0);
        CycleTestNodeResult {
            name: node.name.clone(),
            scheduling: node.ready.scheduling.clone(),
            unit_ns: node.ready.unit_ns,
            latency_ns: state.latency_ns,
            planned: self.plan.period_count(),
            periods: stats.periods,
            missed: stats.missed,
            overrun: stats.overrun,
            uncounted: state.lost,
            response_ns: Distribution::from_histogram(&stats.response),
            computation_ns: Distribution::from_histogram(&stats.computation),
            communication_ns: Distribution::from_histogram(&stats.communication),
            idle_ns: Distribution::from_histogram(&stats.idle),
            ended: node.exit_reason.clone(),
        }
    }
}

/// Returns the planned actions on nodes, sorted so that the next one is last.
fn scheduled_actions(plan: &ApplicationTestPlan) -> Vec<ScheduledNodeProcessAction> {
    let mut actions = Vec::new();
    for (fault, one) in plan.faults.iter().enumerate() {
        let Some(node) = one.node else { continue };
        let mut schedule =
            |at_ns, kind| actions.push(ScheduledNodeProcessAction { at_ns, node, fault, kind });
        match one.kind {
            FaultKind::Stop => {
                schedule(one.at_ns, NodeProcessAction::Stop);
                schedule(one.end_ns(), NodeProcessAction::Resume);
            }
            FaultKind::End => schedule(one.at_ns, NodeProcessAction::Kill),
            _ => {}
        }
    }
    actions.sort_by_key(|action| std::cmp::Reverse(action.at_ns));
    actions
}

/// Values of an application test in a snapshot. The part's name is the label of the run, with its
/// load.
#[derive(Clone, PartialEq, Debug)]
pub struct ApplicationTestValues {
    /// Label of the present state.
    pub state: String,
    /// Nodes, in the order of their indices.
    pub nodes: Vec<NodeSnapshot>,
    /// Faults of the plan, with their results so far.
    pub faults: Vec<CycleTestFaultResult>,
}

/// Values of a node in a snapshot of an application test.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeSnapshot {
    /// Name of the node.
    pub name: String,
    /// Completed periods.
    pub periods: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// Response time of the last period as a share of the deadline; `None` before the first.
    pub ratio: Option<f64>,
    /// True if the node's process has exited.
    pub has_exited: bool,
}
