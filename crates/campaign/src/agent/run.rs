//! Main loop of an agent: state machine, processes, spool, and a broker that may be unreachable,
//! connected by events in one queue. Errors are logged and tolerated; the agent ends only if it
//! cannot work as an agent.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{interval, sleep};

use super::broker_link::{self, AgentContext};
use super::executor::{self, JobExecutor};
use super::state_machine::{
    AgentAction, AgentClockReadings, AgentIdentity, AgentStateMachine, PersistentState,
};
use crate::assignment::{Assignment, AssignmentError};
use crate::id::IdError;
use crate::job::{self, ExecutionEnv};
use crate::nats::{BrokerOptions, BrokerStore, NatsError};
use crate::order::{AgentCapabilities, Order, PROTOCOL};
use crate::policy::Policy;
use crate::report::{AgentReport, ReportContent};
use crate::spool::{Spool, SpoolEntry, SpoolError, SpoolLimits};
use crate::{AgentName, CampaignId};

/// Longest time for which a starting agent waits for an unreachable broker.
const BROKER_TIMEOUT: Duration = Duration::from_secs(30);
const BROKER_RETRY: Duration = Duration::from_secs(1);
/// Interval of the ticks of the state machine.
const TICK: Duration = Duration::from_millis(100);
/// Grace period for running jobs to end with their results when the agent is terminated, and then
/// for the delivery of the results.
const END_GRACE_PERIOD: Duration = Duration::from_secs(15);
const DELIVERY_GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Largest number of queued progress events.
const PROGRESS_EVENTS_MAX: usize = 256;

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Broker that holds its assignments.
    pub broker: BrokerOptions,
    /// Agent name.
    pub name: AgentName,
    /// Version of horolog.
    pub version: String,
    /// Labels set by the operator.
    pub labels: BTreeMap<String, String>,
    /// Addresses at which others reach it, preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Capabilities.
    pub capabilities: AgentCapabilities,
    /// Policy on what it may run.
    pub policy: Policy,
    /// Directory of undelivered reports and state.
    pub state: PathBuf,
    /// Time server for comparison with the local clock; the kernel's clock state by default.
    pub clock_server: Option<String>,
    /// Path of the `horolog` binary to run.
    pub program: PathBuf,
}

/// Callbacks of the program that runs an agent.
#[derive(Clone, Copy)]
pub struct AgentCallbacks<'a> {
    /// Receives log lines.
    pub log: &'a dyn Fn(&str),
    /// Called when the agent is ready.
    pub ready: &'a dyn Fn(),
    /// Returns whether to continue.
    pub flow: &'a dyn Fn() -> ControlFlow<()>,
}

/// Reason why an agent cannot run or continue; one line.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The broker cannot be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// Its spool cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Another agent with this name has taken over.
    #[error("another agent with the name {0} was started later; choose unique names with --name")]
    Replaced(AgentName),
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] IdError),
    /// The system refuses a thread or timer.
    #[error("a system call of the agent failed: {0}")]
    System(#[from] io::Error),
}

/// Event of the main loop.
pub(super) enum AgentEvent {
    /// The assignment of this agent at the broker has changed.
    AssignmentRead(Result<Option<Assignment>, AssignmentError>),
    /// Event of a campaign's processes.
    Job(CampaignId, job::JobEvent),
    /// Line to log.
    Log(String),
    /// A later agent with this name exists.
    Replaced,
}

/// Runs an agent until its operator ends it.
///
/// # Errors
///
/// It cannot start, or another agent with its name has taken over.
pub fn run(options: AgentOptions, owner: AgentCallbacks<'_>) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(Box::pin(live(options, owner)));
    // A clock measurement may still wait for its server.
    runtime.shutdown_background();
    ended
}

async fn live(options: AgentOptions, owner: AgentCallbacks<'_>) -> Result<(), AgentError> {
    let (spool, spoilt) = Spool::open(&options.state, SpoolLimits::default())?;
    for path in spoilt {
        (owner.log)(&format!("{} was corrupted on disk; its report is lost", path.display()));
    }
    let jobs = executor::directory(&options.state)?;
    let memory: PersistentState = spool.state()?.unwrap_or_default();
    let Some(store) = Box::pin(reach(&options, owner)).await? else { return Ok(()) };
    let character = AgentIdentity {
        name: options.name.clone(),
        version: options.version.clone(),
        policy: options.policy.clone(),
    };
    let (machine, acts) = AgentStateMachine::new(character, memory, (utc_ns() / 1_000_000) as u64);
    let clock = broker_link::measure_clock(&options).await;
    if clock.is_none() {
        (owner.log)(&clock_unknown(options.clock_server.as_deref()));
    }
    let shared = AgentContext::new(options, store, machine.incarnation(), spool, clock)?;
    Agent::start(Arc::new(shared), machine, jobs, owner).live(acts).await
}

/// Describes why campaigns exclude this agent.
fn clock_unknown(server: Option<&str>) -> String {
    let (why, what) = match server {
        Some(server) => (
            format!("{server} does not report the error of this clock"),
            "name another --clock-server",
        ),
        None => (
            "the error of this host's clock is unknown: no time service reports it".into(),
            "start one, such as chronyd with rtcsync, or use --clock-server",
        ),
    };
    format!("warning: {why}, and campaigns exclude such agents; {what}")
}

/// Connects. An invalid configuration is an error; an unreachable broker is retried for a short
/// time.
async fn reach(
    options: &AgentOptions,
    owner: AgentCallbacks<'_>,
) -> Result<Option<BrokerStore>, NatsError> {
    let BrokerOptions { replicas, .. } = options.broker;
    let started = Instant::now();
    let mut has_logged = false;
    while (owner.flow)().is_continue() {
        // No other client with agent permissions receives the replies to this one.
        let inbox = format!("horolog-agent.{}", options.name);
        let client = options.broker.connect(&format!("horolog {}", options.name), &inbox).await;
        let opened = match client {
            Ok(client) => BrokerStore::open(client, &options.broker.shown(), replicas).await,
            Err(error) => Err(error),
        };
        match opened {
            Err(error @ (NatsError::Unreachable { .. } | NatsError::Late(_)))
                if started.elapsed() < BROKER_TIMEOUT =>
            {
                if !has_logged {
                    (owner.log)(&format!("{error}; waiting for it"));
                }
                has_logged = true;
                sleep(BROKER_RETRY).await;
            }
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

pub(super) fn utc_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64
}

struct Agent<'a> {
    shared: Arc<AgentContext>,
    machine: AgentStateMachine,
    owner: AgentCallbacks<'a>,
    started_at: Instant,
    executor: Option<JobExecutor>,
    /// Directory of job files.
    jobs: PathBuf,
    to: UnboundedSender<AgentEvent>,
    events: UnboundedReceiver<AgentEvent>,
    progress_events: mpsc::Sender<(CampaignId, Vec<u8>)>,
    /// Number of reports made by this agent.
    number: u64,
    /// Reports that could not be written to disk.
    unspooled: VecDeque<AgentReport>,
    replaced: bool,
}

impl<'a> Agent<'a> {
    fn start(
        shared: Arc<AgentContext>,
        machine: AgentStateMachine,
        jobs: PathBuf,
        owner: AgentCallbacks<'a>,
    ) -> Self {
        let (to, events) = mpsc::unbounded_channel();
        let (murmurs, queue) = mpsc::channel(PROGRESS_EVENTS_MAX);
        tokio::spawn(broker_link::send_heartbeats(shared.clone(), to.clone()));
        tokio::spawn(broker_link::watch_assignment(shared.clone(), to.clone()));
        tokio::spawn(broker_link::deliver_reports(shared.clone(), to.clone()));
        tokio::spawn(broker_link::monitor_clock(shared.clone()));
        tokio::spawn(publish_progress_events(shared.clone(), queue));
        Self {
            shared,
            machine,
            owner,
            started_at: Instant::now(),
            executor: None,
            jobs,
            to,
            events,
            progress_events: murmurs,
            number: 0,
            unspooled: VecDeque::new(),
            replaced: false,
        }
    }

    fn now(&self) -> AgentClockReadings {
        AgentClockReadings {
            utc_ns: utc_ns(),
            monotonic_ns: self.started_at.elapsed().as_nanos() as u64,
        }
    }

    async fn live(mut self, acts: Vec<AgentAction>) -> Result<(), AgentError> {
        self.act(acts);
        (self.owner.ready)();
        (self.owner.log)(&format!("agent {} is ready", self.shared.options.name));
        let mut ticks = interval(TICK);
        while (self.owner.flow)().is_continue() && !self.replaced {
            self.turn(&mut ticks).await;
        }
        self.end(&mut ticks).await;
        if self.replaced {
            return Err(AgentError::Replaced(self.shared.options.name.clone()));
        }
        // If this fails, the heartbeat expires soon anyway.
        let _ = self.shared.store.delete_agent(&self.shared.options.name).await;
        Ok(())
    }

    /// Terminates what runs, and delivers its results as far as the broker accepts them. The rest
    /// is delivered after the next start.
    async fn end(&mut self, ticks: &mut tokio::time::Interval) {
        let acts = self.machine.shut_down();
        self.act(acts);
        let started = Instant::now();
        while self.machine.busy().is_some() && started.elapsed() < END_GRACE_PERIOD {
            self.turn(ticks).await;
        }
        let started = Instant::now();
        while !self.shared.spool().is_empty() && started.elapsed() < DELIVERY_GRACE_PERIOD {
            ticks.tick().await;
        }
    }

    /// Waits for one event and handles it.
    async fn turn(&mut self, ticks: &mut tokio::time::Interval) {
        let acts = tokio::select! {
            Some(event) = self.events.recv() => self.handle_event(event),
            _ = ticks.tick() => {
                self.keep_the_unkept();
                self.machine.tick(self.now())
            }
        };
        self.act(acts);
    }

    fn handle_event(&mut self, event: AgentEvent) -> Vec<AgentAction> {
        match event {
            AgentEvent::AssignmentRead(assignment) => {
                let room = self.shared.spool().has_room().map_err(|error| error.to_string());
                self.machine.on_assignment(assignment, room, self.now())
            }
            // Late events of an ended campaign are ignored.
            AgentEvent::Job(campaign, event) if self.machine.busy() == Some(&campaign) => {
                match event {
                    job::JobEvent::OrderEvent(order_event) => {
                        self.machine.on_job_event(order_event, self.now())
                    }
                    job::JobEvent::Outcome(outcome) => self.machine.on_outcome(outcome),
                }
            }
            AgentEvent::Job(..) => Vec::new(),
            AgentEvent::Log(text) => vec![AgentAction::Log(text)],
            AgentEvent::Replaced => {
                self.replaced = true;
                Vec::new()
            }
        }
    }

    fn act(&mut self, acts: Vec<AgentAction>) {
        for act in acts {
            match act {
                AgentAction::QueueReport(campaign, content) => self.queue_report(campaign, content),
                AgentAction::SendProgress(campaign, order_event) => {
                    let bytes = serde_json::to_vec(&order_event).unwrap_or_default();
                    // Progress may be lost if the queue is full.
                    let _ = self.progress_events.try_send((campaign, bytes));
                }
                AgentAction::Begin(order) => self.begin(order),
                AgentAction::Start(at_ns) => {
                    self.with_executor(|job_executor| job_executor.start(at_ns));
                }
                AgentAction::Finish => self.with_executor(JobExecutor::finish),
                AgentAction::Abandon => self.with_executor(JobExecutor::abandon),
                AgentAction::Leave => self.executor = None,
                AgentAction::Persist => self.keep(),
                AgentAction::Log(text) => (self.owner.log)(&text),
            }
        }
        self.shared.set_busy(self.machine.busy());
    }

    fn with_executor(&self, act: impl FnOnce(&JobExecutor)) {
        if let Some(job_executor) = &self.executor {
            act(job_executor);
        }
    }

    /// Saves the state needed after a restart, unless a report that it counts as made is not on the
    /// disk yet: then a restart reports it.
    fn keep(&mut self) {
        if !self.unspooled.is_empty() {
            return;
        }
        let saved = self.shared.spool().save_state(&self.machine.memory());
        if let Err(error) = saved {
            (self.owner.log)(&error.to_string());
        }
    }

    fn queue_report(&mut self, campaign: CampaignId, content: ReportContent) {
        self.number += 1;
        let report = AgentReport {
            protocol: PROTOCOL,
            campaign,
            agent: self.shared.options.name.clone(),
            incarnation: self.machine.incarnation(),
            number: self.number,
            content,
        };
        if let Err(error) = self.put(&report) {
            (self.owner.log)(&format!("{error}; retrying"));
            self.unspooled.push_back(report);
        }
    }

    /// Puts a report into the spool. A result that is too large is omitted, which the report
    /// states.
    fn put(&self, report: &AgentReport) -> Result<(), SpoolError> {
        let packed = report.pack().or_else(|_| without_result(report).pack()).unwrap_or_default();
        let AgentReport { campaign, agent, .. } = report.clone();
        self.shared.spool().append(&SpoolEntry { id: report.id(), campaign, agent, packed })?;
        self.shared.put.notify_one();
        Ok(())
    }

    fn keep_the_unkept(&mut self) {
        let had = !self.unspooled.is_empty();
        while let Some(report) = self.unspooled.pop_front() {
            if self.put(&report).is_err() {
                self.unspooled.push_front(report);
                return;
            }
        }
        if had {
            self.keep();
        }
    }

    fn begin(&mut self, order: Order) {
        let campaign = order.campaign.clone();
        let (to, of) = (self.to.clone(), campaign.clone());
        let event_sink = Arc::new(move |event| drop(to.send(AgentEvent::Job(of.clone(), event))));
        let directory = self.jobs.clone();
        let means =
            ExecutionEnv { program: self.shared.options.program.clone(), directory, host: None };
        self.executor = Some(JobExecutor::begin(order, means, self.shared.clock(), event_sink));
    }
}

fn without_result(report: &AgentReport) -> AgentReport {
    let mut report = report.clone();
    if let ReportContent::Outcome(outcome) = &mut report.content {
        outcome.result = None;
        outcome
            .stderr_tail
            .push_str("\nhorolog: the result is too large to be sent, and was omitted");
    }
    report
}

/// Publishes queued progress events.
async fn publish_progress_events(
    shared: Arc<AgentContext>,
    mut queue: mpsc::Receiver<(CampaignId, Vec<u8>)>,
) {
    while let Some((campaign, bytes)) = queue.recv().await {
        shared.store.publish_progress(&campaign, &shared.options.name, bytes).await;
    }
}
