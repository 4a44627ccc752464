//! Run of a test: a process for each node, a thread that simulates the sources, and this one, which
//! collects the nodes' entries, stops and ends nodes according to the plan, and judges. It ends in
//! time whatever a node does, and leaves no process running.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_record::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestFaultKind as FaultKind, CycleTestNode,
    CycleTestResult, CycleTestRun, Distribution, Host, rfc3339_now,
};
use horolog_stats::search::SearchConfigError;
use horolog_sys::clock::MonotonicClock;
use horolog_sys::explain::explain;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use thiserror::Error;

use super::findings::{self, TestEnd};
use super::generator::{self, GeneratorOutcome, ReportGenerator};
use super::node::{TestOrder, TestReady, TestStart};
use super::node_event::NodeEvent;
use super::plan::TestPlan;
use super::score;
use super::search::{self, SearchOptions};
use super::snapshot::TestSnapshot;
use super::test_stats::{TestStats, node_name};
use crate::entry::PeriodEntry;
use crate::predict::CostInput;
use crate::run::child::TaskProcess;

/// Time from the last node's report that it is ready to the first release.
const HEAD_START: Span = Span::from_ms(100);
/// Additional time if nodes exchange messages: they measure the baseline of the network meanwhile.
const ACQUAINTANCE: Span = Span::from_ms(300);
/// Interval between two collections.
const ROUND: Span = Span::from_ms(10);
/// Interval between two calls of the observer.
const SHOW: Span = Span::from_ms(250);
/// Time beyond the planned end after which a run is ended, and grace period of its nodes.
const GRACE_PERIOD: Span = Span::from_ms(1_000);
/// Time for a node to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Test and its options.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// Program that calls [`super::node::serve`] when it is started with `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The test.
    pub plan: TestPlan,
    /// Multiplier of rates and fixed computation.
    pub load: f64,
    /// Searches for the largest load instead of running the plan.
    pub search: Option<SearchOptions>,
    /// True if deep idle states are prevented.
    pub hold_awake: bool,
    /// Measurements of the host, for the scorecard.
    pub measured: Vec<CostInput>,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Reason for which a test cannot begin.
#[derive(Debug, Error)]
pub enum TestError {
    /// A node's process could not be started.
    #[error("cannot start {node}: {why}", why = explain(.error))]
    Start {
        /// The node.
        node: String,
        /// The system's error.
        error: io::Error,
    },
    /// A node is not ready.
    #[error("{node} is not ready: {reason}")]
    Ready {
        /// The node.
        node: String,
        /// Its reason, or that it sent none.
        reason: String,
    },
    /// Reports cannot be sent.
    #[error("cannot send reports: {why}", why = explain(.0))]
    Sources(io::Error),
    /// The search has invalid parameters.
    #[error("invalid loads for a search: {0}")]
    Search(SearchConfigError),
    /// The runs of a search would be too short.
    #[error(
        "runs of a search need at least {least} periods, which is {} ms; use longer ones",
        least_ns / 1_000_000
    )]
    Short {
        /// Periods.
        least: u64,
        /// Their duration.
        least_ns: u64,
    },
}

/// Observer of a test.
pub trait TestObserver {
    /// Receives the state, several times a second.
    fn snapshot(&mut self, snapshot: &TestSnapshot<'_>);
    /// Returns true if the test is to end now.
    fn is_over(&self) -> bool;
}

/// Tests an application.
///
/// # Errors
///
/// If a node cannot begin.
pub fn test(
    options: &TestOptions,
    watch: &mut dyn TestObserver,
) -> Result<CycleTestResult, TestError> {
    let started = rfc3339_now();
    let plan = &options.plan;
    let (ran, found, is_called) = match &options.search {
        None => {
            let what = format!("load {}", options.load);
            (Some(run_once(options, plan, options.load, (&what, watch))?), None, false)
        }
        Some(search) => {
            let searched = search::search(options, search, watch)?;
            (searched.ran, Some(searched.found), searched.is_called)
        }
    };
    let (run, mut ending) =
        ran.map_or((None, TestEnd::default()), |ran| (Some(ran.run), ran.ending));
    ending.is_interrupted |= is_called;
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
        search: found,
        limits: Vec::new(),
        findings: Vec::new(),
    };
    result.findings = findings::findings(&result, &ending, &options.measured);
    Ok(result)
}

/// Run with its end.
pub(super) struct TestRun {
    pub(super) run: CycleTestRun,
    pub(super) ending: TestEnd,
}

/// Runs a plan once under a load.
pub(super) fn run_once(
    options: &TestOptions,
    plan: &TestPlan,
    load: f64,
    (what, watch): (&str, &mut dyn TestObserver),
) -> Result<TestRun, TestError> {
    let mut nodes = Vec::new();
    for node in 0..plan.nodes {
        // One after the other: they would disturb each other's calibration.
        nodes.push(NodeProcess::ready(options, plan, (node, load), &|| watch.is_over())?);
    }
    let sockets = generator::sockets(plan).map_err(TestError::Sources)?;
    let head_start = if plan.nodes > 1 { HEAD_START + ACQUAINTANCE } else { HEAD_START };
    let begin = MonotonicClock.now() + head_start;
    let go = TestStart {
        begin_ns: begin.as_ns(),
        peers: nodes.iter().map(|node| node.ready.messages).collect(),
        sources: sockets.iter().map(|(_, address)| *address).collect(),
    };
    for node in &mut nodes {
        let start = |error| TestError::Start { node: node.name.clone(), error };
        node.child.send(&go).map_err(start)?;
    }
    let reports = nodes.iter().map(|node| node.ready.reports).collect();
    let generator = ReportGenerator::new(plan, load, sockets, reports, begin);
    let account = TestStats::new(plan, begin.as_ns());
    let mut collector = TestCollector::new(plan, nodes, account, begin);
    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let named = thread::Builder::new().name("sources".into());
        let playing =
            named.spawn_scoped(scope, || generator.run(&stop)).map_err(TestError::Sources)?;
        collector.collect(what, watch);
        stop.store(true, Ordering::Relaxed);
        // The thread does not panic; if it did, the panic would continue here.
        Ok(playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(collector.into_test_run(load, sent))
}

/// Process of a node.
struct NodeProcess {
    name: String,
    child: TaskProcess<Result<TestReady, String>>,
    ready: TestReady,
    exit_reason: Option<String>,
}

impl NodeProcess {
    fn ready(
        options: &TestOptions,
        plan: &TestPlan,
        (node, load): (u16, f64),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, TestError> {
        let name = node_name(node);
        let order = TestOrder { plan: plan.clone(), node, load, hold_awake: options.hold_awake };
        let mut child: TaskProcess<Result<TestReady, String>> =
            TaskProcess::start(&options.program, &options.arguments, &order, 1)
                .map_err(|error| TestError::Start { node: name.clone(), error })?;
        let ready = child.receive(READY_TIMEOUT, is_over).and_then(|answer| answer);
        let ready = ready.map_err(|reason| TestError::Ready { node: name.clone(), reason })?;
        Ok(Self { name, child, ready, exit_reason: None })
    }

    fn is_through(&self) -> bool {
        self.exit_reason.is_some() || self.child.shared().is_over(0)
    }
}

/// Action on a node, with its time.
#[derive(Clone, Copy)]
struct ScheduledFault {
    at_ns: u64,
    node: u16,
    fault: usize,
    kind: FaultAction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FaultAction {
    Stop,
    Resume,
    End,
}

/// Collector of the nodes' entries.
struct TestCollector<'a> {
    plan: &'a TestPlan,
    nodes: Vec<NodeProcess>,
    account: TestStats<'a>,
    begin: Timestamp<Monotonic>,
    /// The next one is last.
    pending_actions: Vec<ScheduledFault>,
    ending: TestEnd,
    /// Time of the next call of the observer.
    show_at: Timestamp<Monotonic>,
}

impl<'a> TestCollector<'a> {
    fn new(
        plan: &'a TestPlan,
        nodes: Vec<NodeProcess>,
        account: TestStats<'a>,
        begin: Timestamp<Monotonic>,
    ) -> Self {
        let (pending_actions, ending) = (scheduled_actions(plan), TestEnd::default());
        Self { plan, nodes, account, begin, pending_actions, ending, show_at: begin }
    }

    /// Collects until all nodes have finished, or their time is over.
    fn collect(&mut self, what: &str, watch: &mut dyn TestObserver) {
        let mut until = self.begin + Span::from_ns(self.total_ns() as i64) + GRACE_PERIOD;
        let mut is_called_off = false;
        loop {
            // Checked before the remaining entries are taken, so that none can follow.
            self.record_early_exits();
            let is_over = self.nodes.iter().all(NodeProcess::is_through);
            self.act();
            self.take();
            let now = MonotonicClock.now();
            if is_over || now >= self.show_at {
                self.show_at = now + SHOW;
                self.show(what, watch);
            }
            if is_over {
                return;
            }
            let is_late = now > until;
            if is_late && is_called_off {
                self.ending.stuck.extend(
                    self.nodes
                        .iter()
                        .filter(|node| !node.is_through())
                        .map(|node| node.name.clone()),
                );
                return;
            }
            if (is_late || watch.is_over()) && !is_called_off {
                self.ending.is_interrupted = !is_late;
                self.ending.is_truncated = is_late;
                is_called_off = true;
                self.call_off();
                until = now + GRACE_PERIOD;
            }
            let next = self
                .pending_actions
                .last()
                .map_or(now + ROUND, |action| self.instant(action.at_ns));
            let wait_ns = (next.min(now + ROUND) - now).as_ns().max(0).unsigned_abs();
            thread::sleep(Duration::from_nanos(wait_ns));
        }
    }

    fn show(&self, what: &str, watch: &mut dyn TestObserver) {
        let total_ns = self.total_ns();
        let elapsed_ns = self.now_ns().min(total_ns);
        watch.snapshot(&TestSnapshot {
            what,
            elapsed: Duration::from_nanos(elapsed_ns),
            total: Duration::from_nanos(total_ns),
            state: self.plan.state_at(elapsed_ns),
            nodes: &self.account.snapshot(),
            faults: &self.account.faults(),
        });
    }

    fn total_ns(&self) -> u64 {
        self.plan.cycles().saturating_mul(self.plan.period_ns)
    }

    fn instant(&self, ns: u64) -> Timestamp<Monotonic> {
        self.begin + Span::from_ns(ns as i64)
    }

    fn now_ns(&self) -> u64 {
        (MonotonicClock.now() - self.begin).as_ns().max(0).unsigned_abs()
    }

    /// Requests all nodes to end at their next release; stopped ones are resumed for that.
    fn call_off(&mut self) {
        self.pending_actions.clear();
        for node in &self.nodes {
            node.child.shared().stop();
            // A node that has ended need not be resumed.
            let _ = node.child.handle().and_then(|handle| handle.resume());
        }
    }

    /// Records the nodes that have ended early.
    fn record_early_exits(&mut self) {
        let now_ns = self.now_ns();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let ended = node.child.ended();
            if node.exit_reason.is_none() && !node.child.shared().is_over(0) && ended.is_some() {
                node.exit_reason = ended;
                self.account.exited_ns[at].get_or_insert(now_ns);
            }
        }
    }

    /// Executes the actions that are due.
    fn act(&mut self) {
        while let Some(action) = self.pending_actions.last().copied() {
            if self.now_ns() < action.at_ns {
                return;
            }
            self.pending_actions.pop();
            let node = &mut self.nodes[usize::from(action.node)];
            let done = match action.kind {
                FaultAction::Stop => node.child.handle().and_then(|handle| handle.stop()),
                FaultAction::Resume => node.child.handle().and_then(|handle| handle.resume()),
                FaultAction::End => node.child.end(),
            };
            let now_ns = self.now_ns();
            if done.is_err() {
                continue;
            }
            if action.kind == FaultAction::Resume {
                self.account.ended(action.fault, now_ns);
                continue;
            }
            self.account.injected(action.fault, 1, now_ns);
            if action.kind == FaultAction::End {
                self.account.ended(action.fault, now_ns);
                self.account.exited_ns[usize::from(action.node)] = Some(now_ns);
                self.ending.killed.push(self.nodes[usize::from(action.node)].name.clone());
            }
        }
    }

    /// Takes the entries that nodes have published.
    fn take(&mut self) {
        let account = &mut self.account;
        for (node, one) in (0..).zip(&self.nodes) {
            one.child.take_words(0, &mut |words| {
                if let Some(notice) = NodeEvent::from_words(words) {
                    account.notice(node, &notice);
                } else if let Some(entry) = PeriodEntry::from_words(words) {
                    account.entry(node, &entry);
                }
            });
        }
    }

    fn into_test_run(mut self, load: f64, sent: GeneratorOutcome) -> TestRun {
        let elapsed_ns = self.now_ns().min(self.total_ns());
        for (fault, (count, first_ns)) in sent.faults.iter().enumerate() {
            self.account.injected(fault, *count, first_ns.unwrap_or(0));
        }
        self.ending.missed_apart = self.account.missed_apart;
        for node in &self.nodes {
            let is_meant = self.ending.killed.contains(&node.name);
            if let Some(how) = node.exit_reason.as_ref().filter(|_| !is_meant) {
                self.ending.died.push((node.name.clone(), how.clone()));
            }
        }
        let conditions = self.nodes.first().map(|node| node.ready.conditions.clone());
        let run = CycleTestRun {
            load,
            elapsed_s: elapsed_ns as f64 / 1e9,
            conditions: conditions.unwrap_or_default(),
            nodes: self.nodes.iter().enumerate().map(|(at, node)| self.node(at, node)).collect(),
            stages: self.account.stages(),
            imbalance: self.account.imbalance(),
            sources: sent.sources,
            states: self.account.states(),
            faults: self.account.faults(),
            detections: self.account.all_noticed(),
        };
        TestRun { run, ending: self.ending }
    }

    fn node(&self, at: usize, node: &NodeProcess) -> CycleTestNode {
        let stats = &self.account.nodes[at];
        let state = node.child.state(0);
        CycleTestNode {
            name: node.name.clone(),
            scheduling: node.ready.scheduling.clone(),
            unit_ns: node.ready.unit_ns,
            latency_ns: state.latency_ns,
            planned: self.plan.cycles(),
            periods: stats.periods,
            missed: stats.missed,
            overrun: stats.overrun,
            uncounted: state.lost,
            response_ns: Distribution::of_recorder(&stats.response),
            computation_ns: Distribution::of_recorder(&stats.computation),
            communication_ns: Distribution::of_recorder(&stats.communication),
            idle_ns: Distribution::of_recorder(&stats.idle),
            ended: node.exit_reason.clone(),
        }
    }
}

/// Returns the actions on nodes, the last one first.
fn scheduled_actions(plan: &TestPlan) -> Vec<ScheduledFault> {
    let mut actions = Vec::new();
    for (fault, one) in plan.faults.iter().enumerate() {
        let Some(node) = one.node else { continue };
        let mut schedule = |at_ns, kind| actions.push(ScheduledFault { at_ns, node, fault, kind });
        match one.kind {
            FaultKind::Stop => {
                schedule(one.at_ns, FaultAction::Stop);
                schedule(one.until_ns(), FaultAction::Resume);
            }
            FaultKind::End => schedule(one.at_ns, FaultAction::End),
            _ => {}
        }
    }
    actions.sort_by_key(|action| std::cmp::Reverse(action.at_ns));
    actions
}
