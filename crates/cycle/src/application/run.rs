//! A test: a process for each node, a thread that plays the world outside, and this one, which
//! collects what nodes hand over, stops and ends those that are to be stopped or ended, and judges.
//! It ends in time whatever a node does, and leaves no process behind.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_record::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestFaultKind as FaultKind, CycleTestNode,
    CycleTestResult, CycleTestRun, Distribution, Host, rfc3339_now,
};
use horolog_stats::search::ConfigError;
use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, Timestamp};
use thiserror::Error;

use super::account::{Account, node_name};
use super::findings::{self, Ending};
use super::generator::{self, Generator, Sent};
use super::glance::Glance;
use super::node::{Go, Order, Ready};
use super::notice::Notice;
use super::plan::Plan;
use super::score;
use super::search::{self, SearchOptions};
use crate::entry::Entry;
use crate::predict::Source;
use crate::run::child::Child;

/// From when all nodes are ready to the first release.
const HEAD_START: Span = Span::from_ms(100);
/// What is added where they send each other messages: they get to know each other meanwhile.
const ACQUAINTANCE: Span = Span::from_ms(300);
/// How often what was handed over is taken.
const ROUND: Span = Span::from_ms(10);
/// How often it is shown to who watches.
const SHOW: Span = Span::from_ms(250);
/// What is added to the time that a run takes by its plan before it is ended, and how long nodes
/// have for that.
const PATIENCE: Span = Span::from_ms(1_000);
/// What a node may take to be ready.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// What to test, and how.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// The program that [`super::node::serve`]s when it is given `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The test.
    pub plan: Plan,
    /// By what rates and fixed computation are multiplied.
    pub load: f64,
    /// Looks for the largest load instead of running the plan.
    pub search: Option<SearchOptions>,
    /// Whether deep idle states are held off.
    pub hold_awake: bool,
    /// Measurements of the machine, for the scorecard.
    pub measured: Vec<Source>,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// Why a test cannot begin.
#[derive(Debug, Error)]
pub enum TestError {
    /// A node's process could not be started.
    #[error("{node} cannot be started: {error}")]
    Start {
        /// The node.
        node: String,
        /// What the system says.
        error: io::Error,
    },
    /// A node is not ready.
    #[error("{node} is not ready: {reason}")]
    Ready {
        /// The node.
        node: String,
        /// What it says, or that it says nothing.
        reason: String,
    },
    /// Reports cannot be sent.
    #[error("reports cannot be sent: {0}")]
    Sources(io::Error),
    /// A search cannot be made so.
    #[error("such loads cannot be searched: {0}")]
    Search(ConfigError),
    /// The runs of a search would be too short.
    #[error(
        "runs of a search have {least} periods at least, which is {} ms; give longer ones",
        least_ns / 1_000_000
    )]
    Short {
        /// Periods.
        least: u64,
        /// How long they are.
        least_ns: u64,
    },
}

/// Who watches a test.
pub trait Watch {
    /// Looks at it, some times a second.
    fn glance(&mut self, glance: &Glance<'_>);
    /// Whether it is to end now.
    fn is_over(&self) -> bool;
}

/// Tests an application.
///
/// # Errors
///
/// When a node cannot begin.
pub fn test(options: &TestOptions, watch: &mut dyn Watch) -> Result<CycleTestResult, TestError> {
    let started = rfc3339_now();
    let plan = &options.plan;
    let (ran, found, is_called) = match &options.search {
        None => {
            let what = format!("load {}", options.load);
            (Some(one(options, plan, options.load, (&what, watch))?), None, false)
        }
        Some(search) => {
            let searched = search::search(options, search, watch)?;
            (searched.ran, Some(searched.found), searched.is_called)
        }
    };
    let (run, mut ending) =
        ran.map_or((None, Ending::default()), |ran| (Some(ran.run), ran.ending));
    ending.is_called |= is_called;
    let application = CycleTestApplication {
        name: plan.name.clone(),
        period_ns: plan.period_ns,
        deadline_ns: plan.deadline_ns,
        nodes: plan.nodes,
        steady: plan.steady,
        slow_after_ns: plan.slow_after_ns,
        silent_after: plan.silent_after,
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

/// A run, and how it came to its end.
pub(super) struct Ran {
    pub(super) run: CycleTestRun,
    pub(super) ending: Ending,
}

/// One run of a plan under a load.
pub(super) fn one(
    options: &TestOptions,
    plan: &Plan,
    load: f64,
    (what, watch): (&str, &mut dyn Watch),
) -> Result<Ran, TestError> {
    let mut nodes = Vec::new();
    for node in 0..plan.nodes {
        // One after the other: they would find each other in the speed that they measure.
        nodes.push(Node::ready(options, plan, (node, load), &|| watch.is_over())?);
    }
    let sockets = generator::sockets(plan).map_err(TestError::Sources)?;
    let head_start = if plan.nodes > 1 { HEAD_START + ACQUAINTANCE } else { HEAD_START };
    let begin = MonotonicClock.now() + head_start;
    let go = Go {
        begin_ns: begin.as_ns(),
        peers: nodes.iter().map(|node| node.ready.messages).collect(),
        sources: sockets.iter().map(|(_, address)| *address).collect(),
    };
    for node in &mut nodes {
        let start = |error| TestError::Start { node: node.name.clone(), error };
        node.child.tell(&go).map_err(start)?;
    }
    let reports = nodes.iter().map(|node| node.ready.reports).collect();
    let generator = Generator::new(plan, load, sockets, reports, begin);
    let account = Account::new(plan, begin.as_ns());
    let mut collector = Collector::new(plan, nodes, account, begin);
    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let named = thread::Builder::new().name("sources".into());
        let playing =
            named.spawn_scoped(scope, || generator.run(&stop)).map_err(TestError::Sources)?;
        collector.collect(what, watch);
        stop.store(true, Ordering::Relaxed);
        // It does not panic; if it did, so would this.
        Ok(playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(collector.told(load, sent))
}

/// A node's process.
struct Node {
    name: String,
    child: Child<Result<Ready, String>>,
    ready: Ready,
    died: Option<String>,
}

impl Node {
    fn ready(
        options: &TestOptions,
        plan: &Plan,
        (node, load): (u16, f64),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, TestError> {
        let name = node_name(node);
        let order = Order { plan: plan.clone(), node, load, hold_awake: options.hold_awake };
        let mut child: Child<Result<Ready, String>> =
            Child::start(&options.program, &options.arguments, &order, 1)
                .map_err(|error| TestError::Start { node: name.clone(), error })?;
        let ready = child.said(READY_PATIENCE, is_over).and_then(|answer| answer);
        let ready = ready.map_err(|reason| TestError::Ready { node: name.clone(), reason })?;
        Ok(Self { name, child, ready, died: None })
    }

    fn is_through(&self) -> bool {
        self.died.is_some() || self.child.shared().is_over(0)
    }
}

/// What is to be done to a node, and when.
#[derive(Clone, Copy)]
struct Deed {
    at_ns: u64,
    node: u16,
    fault: usize,
    kind: DeedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeedKind {
    Stop,
    Resume,
    End,
}

/// Collects.
struct Collector<'a> {
    plan: &'a Plan,
    nodes: Vec<Node>,
    account: Account<'a>,
    begin: Timestamp<Monotonic>,
    /// The next one last.
    deeds: Vec<Deed>,
    ending: Ending,
    /// When it is shown again.
    show_at: Timestamp<Monotonic>,
}

impl<'a> Collector<'a> {
    fn new(
        plan: &'a Plan,
        nodes: Vec<Node>,
        account: Account<'a>,
        begin: Timestamp<Monotonic>,
    ) -> Self {
        let (deeds, ending) = (deeds(plan), Ending::default());
        Self { plan, nodes, account, begin, deeds, ending, show_at: begin }
    }

    /// Collects until all nodes are through, or have had the time for it.
    fn collect(&mut self, what: &str, watch: &mut dyn Watch) {
        let mut until = self.begin + Span::from_ns(self.total_ns() as i64) + PATIENCE;
        let mut is_called_off = false;
        loop {
            // Asked before what is left is taken, so that nothing comes behind it.
            self.look();
            let is_over = self.nodes.iter().all(Node::is_through);
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
                self.ending.is_called = !is_late;
                self.ending.is_cut = is_late;
                is_called_off = true;
                self.call_off();
                until = now + PATIENCE;
            }
            let next = self.deeds.last().map_or(now + ROUND, |deed| self.instant(deed.at_ns));
            let wait_ns = (next.min(now + ROUND) - now).as_ns().max(0).unsigned_abs();
            thread::sleep(Duration::from_nanos(wait_ns));
        }
    }

    fn show(&self, what: &str, watch: &mut dyn Watch) {
        let total_ns = self.total_ns();
        let elapsed_ns = self.now_ns().min(total_ns);
        watch.glance(&Glance {
            what,
            elapsed: Duration::from_nanos(elapsed_ns),
            total: Duration::from_nanos(total_ns),
            state: self.plan.state_at(elapsed_ns),
            nodes: &self.account.glance(),
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

    /// Has all nodes end at their next release; those that stand still go on for that.
    fn call_off(&mut self) {
        self.deeds.clear();
        for node in &self.nodes {
            node.child.shared().stop();
            // One that has ended needs none.
            let _ = node.child.handle().and_then(|handle| handle.resume());
        }
    }

    /// Notes which nodes have ended before their time.
    fn look(&mut self) {
        let now_ns = self.now_ns();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let ended = node.child.ended();
            if node.died.is_none() && !node.child.shared().is_over(0) && ended.is_some() {
                node.died = ended;
                self.account.died_ns[at].get_or_insert(now_ns);
            }
        }
    }

    /// Does to nodes what is to be done by now.
    fn act(&mut self) {
        while let Some(deed) = self.deeds.last().copied() {
            if self.now_ns() < deed.at_ns {
                return;
            }
            self.deeds.pop();
            let node = &mut self.nodes[usize::from(deed.node)];
            let done = match deed.kind {
                DeedKind::Stop => node.child.handle().and_then(|handle| handle.stop()),
                DeedKind::Resume => node.child.handle().and_then(|handle| handle.resume()),
                DeedKind::End => node.child.end(),
            };
            let now_ns = self.now_ns();
            if done.is_err() {
                continue;
            }
            if deed.kind == DeedKind::Resume {
                self.account.ended(deed.fault, now_ns);
                continue;
            }
            self.account.injected(deed.fault, 1, now_ns);
            if deed.kind == DeedKind::End {
                self.account.ended(deed.fault, now_ns);
                self.account.died_ns[usize::from(deed.node)] = Some(now_ns);
                self.ending.killed.push(self.nodes[usize::from(deed.node)].name.clone());
            }
        }
    }

    /// Takes what nodes have handed over.
    fn take(&mut self) {
        let account = &mut self.account;
        for (node, one) in (0..).zip(&self.nodes) {
            one.child.take_words(0, &mut |words| {
                if let Some(notice) = Notice::from_words(words) {
                    account.notice(node, &notice);
                } else if let Some(entry) = Entry::from_words(words) {
                    account.entry(node, &entry);
                }
            });
        }
    }

    fn told(mut self, load: f64, sent: Sent) -> Ran {
        let elapsed_ns = self.now_ns().min(self.total_ns());
        for (fault, (count, first_ns)) in sent.faults.iter().enumerate() {
            self.account.injected(fault, *count, first_ns.unwrap_or(0));
        }
        self.ending.missed_apart = self.account.missed_apart;
        for node in &self.nodes {
            let is_meant = self.ending.killed.contains(&node.name);
            if let Some(how) = node.died.as_ref().filter(|_| !is_meant) {
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
            noticed: self.account.all_noticed(),
        };
        Ran { run, ending: self.ending }
    }

    fn node(&self, at: usize, node: &Node) -> CycleTestNode {
        let book = &self.account.nodes[at];
        let state = node.child.state(0);
        CycleTestNode {
            name: node.name.clone(),
            scheduling: node.ready.scheduling.clone(),
            unit_ns: node.ready.unit_ns,
            latency_ns: state.latency_ns,
            planned: self.plan.cycles(),
            periods: book.periods,
            missed: book.missed,
            overrun: book.overrun,
            uncounted: state.lost,
            response_ns: Distribution::of_recorder(&book.response),
            computation_ns: Distribution::of_recorder(&book.computation),
            communication_ns: Distribution::of_recorder(&book.communication),
            idle_ns: Distribution::of_recorder(&book.idle),
            ended: node.died.clone(),
        }
    }
}

/// What is to be done to nodes, the last first.
fn deeds(plan: &Plan) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for (fault, one) in plan.faults.iter().enumerate() {
        let Some(node) = one.node else { continue };
        let mut deed = |at_ns, kind| deeds.push(Deed { at_ns, node, fault, kind });
        match one.kind {
            FaultKind::Stop => {
                deed(one.at_ns, DeedKind::Stop);
                deed(one.until_ns(), DeedKind::Resume);
            }
            FaultKind::End => deed(one.at_ns, DeedKind::End),
            _ => {}
        }
    }
    deeds.sort_by_key(|deed| std::cmp::Reverse(deed.at_ns));
    deeds
}
