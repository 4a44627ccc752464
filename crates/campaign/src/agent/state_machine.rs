//! Agent state machine: receives assignments, job events and timer ticks, and returns a sequence of
//! actions. It executes one order at a time, and recognises the orders of the last ended campaigns.
//! It reads no clock and has no side effects, so every sequence of events can be tested.
//!
//! An assignment is a state, not an event: the same one may be read any number of times, and one
//! that is soon replaced may never be read.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::assignment::{Assignment, AssignmentError};
use crate::file_error::count_text;
use crate::order::{Job, JobEnd, JobOutcome, LEAD_NS_MAX, Order, OrderCommand, OrderEvent};
use crate::policy::AgentPolicy;
use crate::report::AgentReportContent;
use crate::{AgentName, CampaignId, JobId};

/// Longest time between the acceptance of an order and its start command, in ns; then the agent
/// abandons the order.
pub const START_WAIT_MAX_NS: u64 = 300_000_000_000;
/// Grace period after the deadline of an order's jobs, in ns; then the agent abandons the order
/// even without a command from the controller.
pub const ABANDON_GRACE_NS: u64 = 30_000_000_000;
/// Number of ended campaigns that are retained, so that their orders are not executed again.
const ENDED_CAMPAIGNS_MAX: usize = 32;

/// Identity and policy of an agent.
#[derive(Clone, Debug)]
pub struct AgentIdentityAndPolicy {
    /// Agent name.
    pub name: AgentName,
    /// Version of horolog.
    pub version: String,
    /// Policy on what the agent may run.
    pub policy: AgentPolicy,
}

/// Action that the caller of the state machine must execute.
#[derive(Clone, PartialEq, Debug)]
pub enum AgentAction {
    /// Queue a report for the controller of a campaign (reliable event).
    QueueReport(CampaignId, AgentReportContent),
    /// Send an event to the controller of a campaign (best-effort event).
    SendProgress(CampaignId, OrderEvent),
    /// Create the processes of an order and start its services.
    Begin(Order),
    /// Start the jobs that are not services at this time, UTC in ns since 1970.
    Start(i64),
    /// Terminate the services.
    Finish,
    /// Terminate all jobs.
    Abandon,
    /// Drop the job executor: all jobs of the order have outcomes.
    DropExecutor,
    /// Persist [`AgentStateMachine::persistent_state`] as it is when this action is executed; it
    /// then includes all changes made with the other actions of the same sequence.
    Persist,
    /// Log a line for the operator.
    Log(String),
}

/// State that an agent needs after a restart.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentState {
    /// Incarnation of the last start (see [`AgentStateMachine::incarnation`]).
    pub incarnation: u64,
    /// Ended campaigns, most recent last.
    pub over: VecDeque<CampaignId>,
    /// Campaign in progress, its jobs without an outcome, and their start time.
    pub current: Option<InterruptedOrder>,
}

/// Order that was in progress when the state was persisted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InterruptedOrder {
    /// Campaign.
    pub campaign: CampaignId,
    /// Jobs without an outcome.
    pub jobs: BTreeSet<JobId>,
    /// Start time of the jobs, UTC in ns since 1970.
    pub at_ns: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OrderPhase {
    /// Services are being started.
    Preparing,
    /// The start time is not known yet.
    Waiting,
    /// The start time is known.
    Started,
    /// All jobs are being terminated.
    Ending,
}

#[derive(Clone, Debug)]
struct CurrentOrder {
    order: Order,
    phase: OrderPhase,
    open_jobs: BTreeSet<JobId>,
    start_ns: Option<i64>,
    /// Last command that was executed.
    executed_command: Option<OrderCommand>,
    /// Last command that was read.
    last_read_command: Option<OrderCommand>,
    /// Monotonic time, in ns, from which the timeout of the phase counts: acceptance of the order
    /// or, once it is known, the start time.
    since_ns: u64,
}

/// Readings of an agent's two clocks, in ns.
#[derive(Clone, Copy, Debug)]
pub struct AgentClockReadings {
    /// UTC since 1970.
    pub utc_ns: i64,
    /// Monotonic time since an arbitrary instant, never stepped.
    pub monotonic_ns: u64,
}

/// Identity, incarnation, current order and ended campaigns of an agent.
#[derive(Clone, Debug)]
pub struct AgentStateMachine {
    identity: AgentIdentityAndPolicy,
    ended_campaigns: VecDeque<CampaignId>,
    incarnation: u64,
    current: Option<CurrentOrder>,
}

impl AgentStateMachine {
    /// Creates the state machine of an agent started at `now_ms` (ms since 1970) from the persisted
    /// state, and returns it with its first actions. Each job that had no outcome when the agent
    /// stopped gets the outcome [`JobEnd::Interrupted`].
    #[must_use]
    pub fn new(
        identity: AgentIdentityAndPolicy,
        persistent_state: PersistentState,
        now_ms: u64,
    ) -> (Self, Vec<AgentAction>) {
        let incarnation = now_ms.max(persistent_state.incarnation + 1);
        let mut machine =
            Self { identity, ended_campaigns: persistent_state.over, incarnation, current: None };
        let mut actions = Vec::new();
        if let Some(interrupted) = persistent_state.current {
            actions.push(AgentAction::Log(format!(
                "this agent stopped during {}; {} of its jobs had no result",
                interrupted.campaign,
                interrupted.jobs.len()
            )));
            for job in interrupted.jobs {
                let reason = "the agent stopped before the job and was restarted".to_owned();
                let ending = JobEnd::Interrupted { reason };
                let outcome =
                    machine.outcome_report(&interrupted.campaign, job, ending, interrupted.at_ns);
                actions.push(AgentAction::QueueReport(interrupted.campaign.clone(), outcome));
            }
            machine.remember_ended(interrupted.campaign);
        }
        actions.push(AgentAction::Persist);
        (machine, actions)
    }

    /// Returns the incarnation: a number that is greater at each start of the agent.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the campaign of the current order; `None` if there is no order.
    #[must_use]
    pub fn busy(&self) -> Option<&CampaignId> {
        self.current.as_ref().map(|current| &current.order.campaign)
    }

    /// Returns the state that [`Self::new`] needs after a restart.
    #[must_use]
    pub fn persistent_state(&self) -> PersistentState {
        let current = self.current.as_ref().map(|current| InterruptedOrder {
            campaign: current.order.campaign.clone(),
            jobs: current.open_jobs.clone(),
            at_ns: current.start_ns,
        });
        PersistentState {
            incarnation: self.incarnation,
            over: self.ended_campaigns.clone(),
            current,
        }
    }

    fn remember_ended(&mut self, campaign: CampaignId) {
        self.ended_campaigns.push_back(campaign);
        while self.ended_campaigns.len() > ENDED_CAMPAIGNS_MAX {
            self.ended_campaigns.pop_front();
        }
    }

    fn outcome_report(
        &self,
        campaign: &CampaignId,
        job: JobId,
        ending: JobEnd,
        intended_ns: Option<i64>,
    ) -> AgentReportContent {
        let agent = self.identity.name.clone();
        let outcome = JobOutcome::new(campaign.clone(), agent, job, ending);
        AgentReportContent::Outcome(Box::new(JobOutcome { intended_ns, ..outcome }))
    }

    /// Handles the assignment read from the broker. `room` is an error if the spool has no room for
    /// results.
    #[must_use]
    pub fn on_assignment(
        &mut self,
        assignment: Result<Option<Assignment>, AssignmentError>,
        room: Result<(), String>,
        now: AgentClockReadings,
    ) -> Vec<AgentAction> {
        match assignment {
            Ok(None) => self.handle_deleted_order(),
            Ok(Some(Assignment { order, word: command })) => {
                if self.busy() == Some(&order.campaign) {
                    return self.execute_command(command, now);
                }
                if self.ended_campaigns.contains(&order.campaign) || !can_begin_with(command) {
                    return Vec::new();
                }
                let mut actions = self.accept_or_refuse(order, room, now);
                actions.extend(self.execute_command(command, now));
                actions
            }
            Err(AssignmentError::OtherVersion { campaign, reason }) => {
                self.refuse(campaign, reason)
            }
            Err(AssignmentError::Unreadable) => Vec::new(),
        }
    }

    /// Handles the deletion of the order. An order without a start time is abandoned; started jobs
    /// run to their end, because the broker may only have lost its data.
    fn handle_deleted_order(&mut self) -> Vec<AgentAction> {
        match &mut self.current {
            Some(current)
                if matches!(current.phase, OrderPhase::Preparing | OrderPhase::Waiting) =>
            {
                current.phase = OrderPhase::Ending;
                vec![AgentAction::Abandon]
            }
            _ => Vec::new(),
        }
    }

    fn refuse(&mut self, campaign: CampaignId, reason: String) -> Vec<AgentAction> {
        if self.ended_campaigns.contains(&campaign) {
            return Vec::new();
        }
        self.remember_ended(campaign.clone());
        let notice = AgentAction::Log(format!("refused {campaign}: {reason}"));
        let refused = AgentReportContent::Event(OrderEvent::Refused { reason });
        vec![notice, AgentAction::QueueReport(campaign, refused), AgentAction::Persist]
    }

    fn accept_or_refuse(
        &mut self,
        order: Order,
        room: Result<(), String>,
        now: AgentClockReadings,
    ) -> Vec<AgentAction> {
        let AgentIdentityAndPolicy { name, version, policy } = &self.identity;
        let busy = self.busy().map(|busy| format!("it is busy with {busy}; wait for its end"));
        let judged = order.check(name, version).map_err(|error| error.to_string());
        let judged = judged.and_then(|()| busy.map_or(Ok(()), Err)).and(room);
        let judged = judged.and_then(|()| policy.check(&order).map_err(|error| error.to_string()));
        let campaign = order.campaign.clone();
        if let Err(reason) = judged {
            return self.refuse(campaign, reason);
        }
        self.current = Some(CurrentOrder {
            open_jobs: order.jobs.iter().map(|job| job.id.clone()).collect(),
            order: order.clone(),
            phase: OrderPhase::Preparing,
            start_ns: None,
            executed_command: None,
            last_read_command: None,
            since_ns: now.monotonic_ns,
        });
        // Persisted before anything is done, so that a restart finds it.
        vec![
            AgentAction::Persist,
            AgentAction::Log(format!(
                "executing {campaign}: {}",
                count_text(order.jobs.len(), "job")
            )),
            AgentAction::QueueReport(
                campaign,
                AgentReportContent::Event(OrderEvent::Accepted { at_ns: now.utc_ns }),
            ),
            AgentAction::Begin(order),
        ]
    }

    /// Executes a command of the current order, once. A start command is executed only when all
    /// services are ready.
    fn execute_command(
        &mut self,
        command: Option<OrderCommand>,
        now: AgentClockReadings,
    ) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.last_read_command = command;
        if current.executed_command == command || current.phase == OrderPhase::Ending {
            return Vec::new();
        }
        match command {
            None => Vec::new(),
            Some(OrderCommand::Start { .. }) if current.phase != OrderPhase::Waiting => Vec::new(),
            Some(OrderCommand::Start { at_ns }) => {
                current.executed_command = command;
                current.phase = OrderPhase::Started;
                current.start_ns = Some(at_ns);
                let ahead_ns = at_ns.saturating_sub(now.utc_ns);
                if let Err(reason) = check_start_lead(ahead_ns) {
                    current.since_ns = now.monotonic_ns;
                    return self.refuse_missed_start(&reason);
                }
                current.since_ns = now.monotonic_ns.saturating_add_signed(ahead_ns);
                vec![AgentAction::Persist, AgentAction::Start(at_ns)]
            }
            // Also ends jobs that were never started: no start time follows this command.
            Some(OrderCommand::Finish) if current.phase == OrderPhase::Started => {
                current.executed_command = command;
                vec![AgentAction::Finish]
            }
            Some(OrderCommand::Finish | OrderCommand::Abandon) => {
                current.executed_command = command;
                current.phase = OrderPhase::Ending;
                vec![AgentAction::Abandon]
            }
        }
    }

    /// Handles a start time that cannot be met: each measurement without an outcome is reported as
    /// refused. Started later, it would not be simultaneous with those of other agents.
    fn refuse_missed_start(&mut self, reason: &str) -> Vec<AgentAction> {
        let Some(current) = &self.current else { return Vec::new() };
        let at_ns = current.start_ns;
        let campaign = current.order.campaign.clone();
        let is_open_measurement = |job: &&Job| !job.service && current.open_jobs.contains(&job.id);
        let open_measurements: Vec<_> =
            current.order.jobs.iter().filter(is_open_measurement).map(|job| &job.id).collect();
        let outcomes = open_measurements.into_iter().map(|job| {
            let ending = JobEnd::Refused { reason: reason.to_owned() };
            (job.clone(), self.outcome_report(&campaign, job.clone(), ending, at_ns))
        });
        let outcomes: Vec<_> = outcomes.collect();
        let mut actions = vec![AgentAction::Log(format!("{campaign}: {reason}"))];
        for (job, outcome) in outcomes {
            actions.push(AgentAction::QueueReport(campaign.clone(), outcome));
            actions.extend(self.close_job(&job));
        }
        // After all reports: the persistent state counts them as made.
        actions.push(AgentAction::Persist);
        actions
    }

    /// Handles an event of the processes of the current order.
    #[must_use]
    pub fn on_job_event(&mut self, event: OrderEvent, now: AgentClockReadings) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let campaign = current.order.campaign.clone();
        match event {
            OrderEvent::Ready => {
                let mut actions =
                    vec![AgentAction::QueueReport(campaign, AgentReportContent::Event(event))];
                if current.phase == OrderPhase::Preparing {
                    current.phase = OrderPhase::Waiting;
                }
                let command = current.last_read_command;
                actions.extend(self.execute_command(command, now));
                actions
            }
            OrderEvent::NotReady { .. } => {
                current.phase = OrderPhase::Ending;
                vec![
                    AgentAction::QueueReport(campaign, AgentReportContent::Event(event)),
                    AgentAction::Abandon,
                ]
            }
            OrderEvent::Started { .. }
            | OrderEvent::Accepted { .. }
            | OrderEvent::Refused { .. } => {
                vec![AgentAction::QueueReport(campaign, AgentReportContent::Event(event))]
            }
            OrderEvent::Progress { .. } | OrderEvent::Ended { .. } => {
                vec![AgentAction::SendProgress(campaign, event)]
            }
        }
    }

    /// Handles the outcome of a job of the current order.
    #[must_use]
    pub fn on_outcome(&mut self, outcome: Box<JobOutcome>) -> Vec<AgentAction> {
        let is_open = |current: &CurrentOrder| {
            current.order.campaign == outcome.campaign && current.open_jobs.contains(&outcome.job)
        };
        if !self.current.as_ref().is_some_and(is_open) {
            return Vec::new();
        }
        let (campaign, job) = (outcome.campaign.clone(), outcome.job.clone());
        // The report is written to disk before the persistent state counts it as made.
        let mut actions =
            vec![AgentAction::QueueReport(campaign, AgentReportContent::Outcome(outcome))];
        actions.extend(self.close_job(&job));
        actions.push(AgentAction::Persist);
        actions
    }

    fn close_job(&mut self, job: &JobId) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.open_jobs.remove(job);
        if !current.open_jobs.is_empty() {
            return Vec::new();
        }
        let campaign = current.order.campaign.clone();
        self.current = None;
        self.remember_ended(campaign.clone());
        vec![AgentAction::DropExecutor, AgentAction::Log(format!("{campaign} is finished here"))]
    }

    /// Handles timeouts: abandons an order without a start command after [`START_WAIT_MAX_NS`], and
    /// a started one [`ABANDON_GRACE_NS`] after its deadline.
    #[must_use]
    pub fn tick(&mut self, now: AgentClockReadings) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let max_ns = match current.phase {
            OrderPhase::Preparing | OrderPhase::Waiting => START_WAIT_MAX_NS,
            OrderPhase::Started => current.order.deadline_ns.saturating_add(ABANDON_GRACE_NS),
            OrderPhase::Ending => return Vec::new(),
        };
        if now.monotonic_ns.saturating_sub(current.since_ns) <= max_ns {
            return Vec::new();
        }
        current.phase = OrderPhase::Ending;
        let campaign = &current.order.campaign;
        vec![
            AgentAction::Log(format!("{campaign}: no message from its controller; abandoned")),
            AgentAction::Abandon,
        ]
    }

    /// Begins the shutdown: abandons the current order, whose jobs end with their results so far.
    #[must_use]
    pub fn shut_down(&mut self) -> Vec<AgentAction> {
        match &mut self.current {
            Some(current) if current.phase != OrderPhase::Ending => {
                current.phase = OrderPhase::Ending;
                vec![AgentAction::Abandon]
            }
            _ => Vec::new(),
        }
    }
}

/// Checks the time from now to the start time, in ns: above 0 and at most [`LEAD_NS_MAX`]. `Err`
/// holds the reason in one line.
fn check_start_lead(ahead_ns: i64) -> Result<(), String> {
    let ahead_s = ahead_ns as f64 / 1e9;
    if ahead_ns <= 0 {
        let late_s = -ahead_s;
        return Err(format!(
            "the start time had passed by {late_s:.3} s when this agent received it"
        ));
    }
    if ahead_ns > LEAD_NS_MAX {
        let max_s = LEAD_NS_MAX / 1_000_000_000;
        return Err(format!(
            "the start time is {ahead_s:.0} s ahead, and the limit of agents is \
                            {max_s} s"
        ));
    }
    Ok(())
}

/// Returns true if an order is accepted when it is first read with this command.
const fn can_begin_with(command: Option<OrderCommand>) -> bool {
    matches!(command, None | Some(OrderCommand::Start { .. }))
}

#[cfg(test)]
mod tests;
