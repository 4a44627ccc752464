//! Main loop of an agent: one event queue connects the state machine, the job executor, the spool
//! and the broker link. Errors are logged and tolerated; the agent ends only if it cannot start, if
//! its operator ends it, or if a later agent with the same name exists.

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
    AgentAction, AgentClockReadings, AgentIdentityAndPolicy, AgentStateMachine, PersistentState,
};
use crate::assignment::{Assignment, AssignmentError};
use crate::id::IdError;
use crate::job::{self, JobExecutionEnvironment};
use crate::nats::{BrokerOptions, BrokerStore, NatsError};
use crate::order::{AgentCapabilities, Order, PROTOCOL};
use crate::policy::AgentPolicy;
use crate::report::{AgentReport, AgentReportContent};
use crate::spool::{Spool, SpoolEntry, SpoolError, SpoolLimits};
use crate::{AgentName, CampaignId};

/// Longest time for which a starting agent waits for an unreachable broker.
const BROKER_TIMEOUT: Duration = Duration::from_secs(30);
const BROKER_RETRY: Duration = Duration::from_secs(1);
/// Interval of the ticks of the state machine.
const TICK: Duration = Duration::from_millis(100);
/// Grace period in which running jobs end with their results when the agent is terminated.
const END_GRACE_PERIOD: Duration = Duration::from_secs(15);
const DELIVERY_GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Largest number of queued progress events.
const PROGRESS_EVENTS_MAX: usize = 256;

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Broker from which the agent receives assignments.
    pub broker: BrokerOptions,
    /// Agent name.
    pub name: AgentName,
    /// Version of horolog.
    pub version: String,
    /// Labels set by the operator.
    pub labels: BTreeMap<String, String>,
    /// Addresses at which the jobs of other agents reach this host, preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Capabilities that the agent publishes.
    pub capabilities: AgentCapabilities,
    /// Policy on what the agent may run.
    pub policy: AgentPolicy,
    /// Directory of the spool, the persistent state and the jobs.
    pub state: PathBuf,
    /// Time server for comparison with the local clock; the kernel's clock state by default.
    pub clock_server: Option<String>,
    /// Path of the `horolog` binary to run.
    pub program: PathBuf,
}

/// Callbacks by which [`run`] communicates with its caller.
#[derive(Clone, Copy)]
pub struct AgentCallbacks<'a> {
    /// Receives log lines.
    pub log: &'a dyn Fn(&str),
    /// Called when the agent is ready.
    pub ready: &'a dyn Fn(),
    /// Returns `Break` if the agent must shut down.
    pub flow: &'a dyn Fn() -> ControlFlow<()>,
}

/// Reason why an agent cannot start or continue; formatted as one line.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The broker cannot be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The spool cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Another agent with this name has taken over.
    #[error("another agent with the name {0} was started later; choose unique names with --name")]
    Replaced(AgentName),
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A system call failed, such as the creation of a thread or a timer.
    #[error("a system call of the agent failed: {0}")]
    System(#[from] io::Error),
}

/// Event that the main loop of an agent handles.
pub(super) enum AgentLoopEvent {
    /// New assignment of this agent; `Ok(None)` if the order was deleted.
    AssignmentRead(Result<Option<Assignment>, AssignmentError>),
    /// Event of the job executor, for the order of this campaign.
    Job(CampaignId, job::JobEvent),
    /// Line to log.
    Log(String),
    /// A later agent with this name exists.
    Replaced,
}

/// Runs an agent until `AgentCallbacks::flow` returns `Break`.
///
/// # Errors
///
/// The agent cannot start, or an agent with the same name was started later.
pub fn run(options: AgentOptions, callbacks: AgentCallbacks<'_>) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(Box::pin(run_agent(options, callbacks)));
    // A clock measurement may still wait for its server.
    runtime.shutdown_background();
    ended
}

async fn run_agent(options: AgentOptions, callbacks: AgentCallbacks<'_>) -> Result<(), AgentError> {
    let (spool, corrupted_paths) = Spool::open(&options.state, SpoolLimits::default())?;
    for path in corrupted_paths {
        (callbacks.log)(&format!("{} was corrupted on disk; its report is lost", path.display()));
    }
    let jobs = executor::create_job_directory(&options.state)?;
    let persistent_state: PersistentState = spool.load_state()?.unwrap_or_default();
    let Some(store) = Box::pin(open_broker_store(&options, callbacks)).await? else {
        return Ok(());
    };
    let identity = AgentIdentityAndPolicy {
        name: options.name.clone(),
        version: options.version.clone(),
        policy: options.policy.clone(),
    };
    let (machine, actions) =
        AgentStateMachine::new(identity, persistent_state, (utc_ns() / 1_000_000) as u64);
    let clock = broker_link::measure_clock(&options).await;
    if clock.is_none() {
        (callbacks.log)(&clock_unknown_warning(options.clock_server.as_deref()));
    }
    let shared = AgentContext::new(options, store, machine.incarnation(), spool, clock)?;
    Agent::start(Arc::new(shared), machine, jobs, callbacks).run_loop(actions).await
}

/// Returns the warning that campaigns exclude this agent because its clock offset is unknown.
fn clock_unknown_warning(server: Option<&str>) -> String {
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

/// Connects to the broker and opens its buckets. An unreachable broker is retried for
/// [`BROKER_TIMEOUT`]; other errors are returned at once. `None` if the agent is ended meanwhile.
async fn open_broker_store(
    options: &AgentOptions,
    callbacks: AgentCallbacks<'_>,
) -> Result<Option<BrokerStore>, NatsError> {
    let BrokerOptions { replicas, .. } = options.broker;
    let started = Instant::now();
    let mut has_logged = false;
    while (callbacks.flow)().is_continue() {
        // The broker can limit each agent to its own inbox, so that no other one reads its replies.
        let inbox = format!("horolog-agent.{}", options.name);
        let client = options.broker.connect(&format!("horolog {}", options.name), &inbox).await;
        let opened = match client {
            Ok(client) => BrokerStore::open(client, &options.broker.servers_text(), replicas).await,
            Err(error) => Err(error),
        };
        match opened {
            Err(error @ (NatsError::Unreachable { .. } | NatsError::Timeout(_)))
                if started.elapsed() < BROKER_TIMEOUT =>
            {
                if !has_logged {
                    (callbacks.log)(&format!("{error}; waiting for it"));
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
    callbacks: AgentCallbacks<'a>,
    started_at: Instant,
    executor: Option<JobExecutor>,
    /// Directory of job files.
    jobs: PathBuf,
    event_sender: UnboundedSender<AgentLoopEvent>,
    events: UnboundedReceiver<AgentLoopEvent>,
    progress_events: mpsc::Sender<(CampaignId, Vec<u8>)>,
    /// Number of reports made since the agent was started.
    report_count: u64,
    /// Reports that could not be written to disk.
    unspooled: VecDeque<AgentReport>,
    replaced: bool,
}

impl<'a> Agent<'a> {
    fn start(
        shared: Arc<AgentContext>,
        machine: AgentStateMachine,
        jobs: PathBuf,
        callbacks: AgentCallbacks<'a>,
    ) -> Self {
        let (event_sender, events) = mpsc::unbounded_channel();
        let (progress_sender, queue) = mpsc::channel(PROGRESS_EVENTS_MAX);
        tokio::spawn(broker_link::send_heartbeats(shared.clone(), event_sender.clone()));
        tokio::spawn(broker_link::watch_assignment(shared.clone(), event_sender.clone()));
        tokio::spawn(broker_link::deliver_reports(shared.clone(), event_sender.clone()));
        tokio::spawn(broker_link::monitor_clock(shared.clone()));
        tokio::spawn(publish_progress_events(shared.clone(), queue));
        Self {
            shared,
            machine,
            callbacks,
            started_at: Instant::now(),
            executor: None,
            jobs,
            event_sender,
            events,
            progress_events: progress_sender,
            report_count: 0,
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

    async fn run_loop(mut self, actions: Vec<AgentAction>) -> Result<(), AgentError> {
        self.execute_actions(actions);
        (self.callbacks.ready)();
        (self.callbacks.log)(&format!("agent {} is ready", self.shared.options.name));
        let mut ticks = interval(TICK);
        while (self.callbacks.flow)().is_continue() && !self.replaced {
            self.process_next_event(&mut ticks).await;
        }
        self.shut_down(&mut ticks).await;
        if self.replaced {
            return Err(AgentError::Replaced(self.shared.options.name.clone()));
        }
        // If this fails, the heartbeat expires soon anyway.
        let _ = self.shared.store.delete_agent(&self.shared.options.name).await;
        Ok(())
    }

    /// Terminates the running jobs, then waits for the delivery of their results, each for a grace
    /// period. Reports that remain in the spool are delivered after the next start.
    async fn shut_down(&mut self, ticks: &mut tokio::time::Interval) {
        let actions = self.machine.shut_down();
        self.execute_actions(actions);
        let started = Instant::now();
        while self.machine.busy().is_some() && started.elapsed() < END_GRACE_PERIOD {
            self.process_next_event(ticks).await;
        }
        let started = Instant::now();
        while !self.shared.spool().is_empty() && started.elapsed() < DELIVERY_GRACE_PERIOD {
            ticks.tick().await;
        }
    }

    /// Waits for one event and handles it.
    async fn process_next_event(&mut self, ticks: &mut tokio::time::Interval) {
        let actions = tokio::select! {
            Some(event) = self.events.recv() => self.handle_event(event),
            _ = ticks.tick() => {
                self.retry_unspooled();
                self.machine.tick(self.now())
            }
        };
        self.execute_actions(actions);
    }

    fn handle_event(&mut self, event: AgentLoopEvent) -> Vec<AgentAction> {
        match event {
            AgentLoopEvent::AssignmentRead(assignment) => {
                let room = self.shared.spool().check_capacity().map_err(|error| error.to_string());
                self.machine.on_assignment(assignment, room, self.now())
            }
            // Late events of an ended campaign are ignored.
            AgentLoopEvent::Job(campaign, event) if self.machine.busy() == Some(&campaign) => {
                match event {
                    job::JobEvent::OrderEvent(order_event) => {
                        self.machine.on_job_event(order_event, self.now())
                    }
                    job::JobEvent::Outcome(outcome) => self.machine.on_outcome(outcome),
                }
            }
            AgentLoopEvent::Job(..) => Vec::new(),
            AgentLoopEvent::Log(text) => vec![AgentAction::Log(text)],
            AgentLoopEvent::Replaced => {
                self.replaced = true;
                Vec::new()
            }
        }
    }

    fn execute_actions(&mut self, actions: Vec<AgentAction>) {
        for action in actions {
            match action {
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
                AgentAction::DropExecutor => self.executor = None,
                AgentAction::Persist => self.persist_state(),
                AgentAction::Log(text) => (self.callbacks.log)(&text),
            }
        }
        self.shared.set_busy(self.machine.busy());
    }

    fn with_executor(&self, operation: impl FnOnce(&JobExecutor)) {
        if let Some(job_executor) = &self.executor {
            operation(job_executor);
        }
    }

    /// Persists the state of the state machine, unless a report that this state counts as made is
    /// not on disk yet: a restart from that state would never deliver it.
    fn persist_state(&mut self) {
        if !self.unspooled.is_empty() {
            return;
        }
        let saved = self.shared.spool().save_state(&self.machine.persistent_state());
        if let Err(error) = saved {
            (self.callbacks.log)(&error.to_string());
        }
    }

    fn queue_report(&mut self, campaign: CampaignId, content: AgentReportContent) {
        self.report_count += 1;
        let report = AgentReport {
            protocol: PROTOCOL,
            campaign,
            agent: self.shared.options.name.clone(),
            incarnation: self.machine.incarnation(),
            number: self.report_count,
            content,
        };
        if let Err(error) = self.spool_report(&report) {
            (self.callbacks.log)(&format!("{error}; retrying"));
            self.unspooled.push_back(report);
        }
    }

    /// Appends a report to the spool. A result that is too large is replaced by a line in the
    /// report's standard error.
    fn spool_report(&self, report: &AgentReport) -> Result<(), SpoolError> {
        let packed = report.pack().or_else(|_| without_result(report).pack()).unwrap_or_default();
        let AgentReport { campaign, agent, .. } = report.clone();
        self.shared.spool().append(&SpoolEntry { id: report.id(), campaign, agent, packed })?;
        self.shared.report_spooled.notify_one();
        Ok(())
    }

    fn retry_unspooled(&mut self) {
        let had_unspooled = !self.unspooled.is_empty();
        while let Some(report) = self.unspooled.pop_front() {
            if self.spool_report(&report).is_err() {
                self.unspooled.push_front(report);
                return;
            }
        }
        if had_unspooled {
            self.persist_state();
        }
    }

    fn begin(&mut self, order: Order) {
        let campaign = order.campaign.clone();
        let (event_sender, event_campaign) = (self.event_sender.clone(), campaign.clone());
        let event_sink = Arc::new(move |event| {
            drop(event_sender.send(AgentLoopEvent::Job(event_campaign.clone(), event)));
        });
        let directory = self.jobs.clone();
        let environment = JobExecutionEnvironment {
            program: self.shared.options.program.clone(),
            directory,
            host: None,
        };
        self.executor =
            Some(JobExecutor::begin(order, environment, self.shared.clock(), event_sink));
    }
}

fn without_result(report: &AgentReport) -> AgentReport {
    let mut report = report.clone();
    if let AgentReportContent::Outcome(outcome) = &mut report.content {
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
