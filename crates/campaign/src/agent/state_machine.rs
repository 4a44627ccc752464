//! Agent state machine. Pure: takes assignments, job events and clock ticks, returns actions in
//! order. It executes one campaign at a time and remembers the last few. It reads no clock and has
//! no side effects, so every order of events can be tested.
//!
//! An assignment is a state, not an event: the same one may be read any number of times, and some
//! may never be read.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::assignment::{Assignment, AssignmentError};
use crate::file_error::counted;
use crate::order::{Job, JobEnd, JobOutcome, LEAD_NS_MAX, Order, OrderCommand, OrderEvent};
use crate::policy::Policy;
use crate::report::ReportContent;
use crate::{AgentName, CampaignId, JobId};

/// Longest time for which an order may wait for its start time before the agent is free again, in
/// ns.
pub const WAIT_MAX_NS: u64 = 300_000_000_000;
/// Time after the deadline of its jobs at which a campaign ends, regardless of its controller, in
/// ns.
pub const LINGER_NS: u64 = 30_000_000_000;
/// Number of ended campaigns that are remembered, so that they are not started again.
const REMEMBERED: usize = 32;

/// Identity and policy of an agent.
#[derive(Clone, Debug)]
pub struct AgentIdentity {
    /// Agent name.
    pub name: AgentName,
    /// Version of horolog.
    pub version: String,
    /// Policy on what it may run.
    pub policy: Policy,
}

/// Action of an agent.
#[derive(Clone, PartialEq, Debug)]
pub enum AgentAction {
    /// Send a campaign's controller a reliable event.
    QueueReport(CampaignId, ReportContent),
    /// Send it a best-effort event.
    SendProgress(CampaignId, OrderEvent),
    /// Create the processes of an order and start its services.
    Begin(Order),
    /// Start the other jobs at this time, UTC in ns since 1970.
    Start(i64),
    /// Terminate the services.
    Finish,
    /// Terminate everything.
    Abandon,
    /// Release an order that is over.
    Leave,
    /// Persist [`AgentStateMachine::memory`] as it is when this action is executed; it includes
    /// everything decided together with this action.
    Persist,
    /// Log a line for the operator.
    Log(String),
}

/// State that an agent needs after a restart.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentState {
    /// Number of the start.
    pub incarnation: u64,
    /// Ended campaigns, most recent last.
    pub over: VecDeque<CampaignId>,
    /// Campaign in progress, its jobs without an outcome, and their start time.
    pub current: Option<InterruptedOrder>,
}

/// Order that was in progress.
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
    /// Everything must end.
    Ending,
}

#[derive(Clone, Debug)]
struct CurrentOrder {
    order: Order,
    stage: OrderPhase,
    open: BTreeSet<JobId>,
    at_ns: Option<i64>,
    /// Last command that was executed.
    word: Option<OrderCommand>,
    /// Last command that was read.
    last_read: Option<OrderCommand>,
    /// Monotonic time at which the order was accepted or, later, its start time, in ns.
    since_ns: u64,
}

/// Readings of the two clocks, in ns.
#[derive(Clone, Copy, Debug)]
pub struct AgentClockReadings {
    /// UTC since 1970.
    pub utc_ns: i64,
    /// Monotonic time since an arbitrary instant, never stepped.
    pub monotonic_ns: u64,
}

/// State of an agent.
#[derive(Clone, Debug)]
pub struct AgentStateMachine {
    character: AgentIdentity,
    over: VecDeque<CampaignId>,
    incarnation: u64,
    current: Option<CurrentOrder>,
}

impl AgentStateMachine {
    /// Returns an agent started at this time (ms since 1970), with its persistent state. An order
    /// in progress at that time is over: each of its jobs without an outcome gets one that states
    /// the interruption.
    #[must_use]
    pub fn new(
        character: AgentIdentity,
        memory: PersistentState,
        now_ms: u64,
    ) -> (Self, Vec<AgentAction>) {
        let incarnation = now_ms.max(memory.incarnation + 1);
        let mut machine = Self { character, over: memory.over, incarnation, current: None };
        let mut acts = Vec::new();
        if let Some(left) = memory.current {
            acts.push(AgentAction::Log(format!(
                "this agent stopped during {}; {} of its jobs had no result",
                left.campaign,
                left.jobs.len()
            )));
            for job in left.jobs {
                let reason = "the agent stopped before the job and was restarted".to_owned();
                let ending = JobEnd::Interrupted { reason };
                let outcome = machine.outcome(&left.campaign, job, ending, left.at_ns);
                acts.push(AgentAction::QueueReport(left.campaign.clone(), outcome));
            }
            machine.is_over(left.campaign);
        }
        acts.push(AgentAction::Persist);
        (machine, acts)
    }

    /// Returns the number of its start: later ones are greater.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the campaign that it works for.
    #[must_use]
    pub fn busy(&self) -> Option<&CampaignId> {
        self.current.as_ref().map(|current| &current.order.campaign)
    }

    /// Returns the state that it needs after a restart.
    #[must_use]
    pub fn memory(&self) -> PersistentState {
        let current = self.current.as_ref().map(|current| InterruptedOrder {
            campaign: current.order.campaign.clone(),
            jobs: current.open.clone(),
            at_ns: current.at_ns,
        });
        PersistentState { incarnation: self.incarnation, over: self.over.clone(), current }
    }

    fn is_over(&mut self, campaign: CampaignId) {
        self.over.push_back(campaign);
        while self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
    }

    fn outcome(
        &self,
        campaign: &CampaignId,
        job: JobId,
        ending: JobEnd,
        intended_ns: Option<i64>,
    ) -> ReportContent {
        let agent = self.character.name.clone();
        let outcome = JobOutcome::new(campaign.clone(), agent, job, ending);
        ReportContent::Outcome(Box::new(JobOutcome { intended_ns, ..outcome }))
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
            Ok(None) => self.without_order(),
            Ok(Some(Assignment { order, word })) => {
                if self.busy() == Some(&order.campaign) {
                    return self.word(word, now);
                }
                if self.over.contains(&order.campaign) || !is_beginning(word) {
                    return Vec::new();
                }
                let mut acts = self.take_on(order, room, now);
                acts.extend(self.word(word, now));
                acts
            }
            Err(AssignmentError::Foreign { campaign, reason }) => self.refuse(campaign, reason),
            Err(AssignmentError::Unreadable) => Vec::new(),
        }
    }

    /// Handles the deletion of the order: nothing more is started, but running jobs continue to
    /// their end: a broker that lost its data cannot be distinguished from a deletion.
    fn without_order(&mut self) -> Vec<AgentAction> {
        match &mut self.current {
            Some(current)
                if matches!(current.stage, OrderPhase::Preparing | OrderPhase::Waiting) =>
            {
                current.stage = OrderPhase::Ending;
                vec![AgentAction::Abandon]
            }
            _ => Vec::new(),
        }
    }

    fn refuse(&mut self, campaign: CampaignId, reason: String) -> Vec<AgentAction> {
        if self.over.contains(&campaign) {
            return Vec::new();
        }
        self.is_over(campaign.clone());
        let notice = AgentAction::Log(format!("refused {campaign}: {reason}"));
        let refused = ReportContent::Event(OrderEvent::Refused { reason });
        vec![notice, AgentAction::QueueReport(campaign, refused), AgentAction::Persist]
    }

    fn take_on(
        &mut self,
        order: Order,
        room: Result<(), String>,
        now: AgentClockReadings,
    ) -> Vec<AgentAction> {
        let AgentIdentity { name, version, policy } = &self.character;
        let busy = self.busy().map(|busy| format!("it is busy with {busy}; wait for its end"));
        let judged = order.check(name, version).map_err(|fault| fault.to_string());
        let judged = judged.and_then(|()| busy.map_or(Ok(()), Err)).and(room);
        let judged = judged.and_then(|()| policy.check(&order).map_err(|why| why.to_string()));
        let campaign = order.campaign.clone();
        if let Err(reason) = judged {
            return self.refuse(campaign, reason);
        }
        self.current = Some(CurrentOrder {
            open: order.jobs.iter().map(|job| job.id.clone()).collect(),
            order: order.clone(),
            stage: OrderPhase::Preparing,
            at_ns: None,
            word: None,
            last_read: None,
            since_ns: now.monotonic_ns,
        });
        // Persisted before anything is done, so that a restart finds it.
        vec![
            AgentAction::Persist,
            AgentAction::Log(format!("executing {campaign}: {}", counted(order.jobs.len(), "job"))),
            AgentAction::QueueReport(
                campaign,
                ReportContent::Event(OrderEvent::Accepted { at_ns: now.utc_ns }),
            ),
            AgentAction::Begin(order),
        ]
    }

    /// Executes a command of the current order, once; a start only when all services are ready.
    fn word(&mut self, word: Option<OrderCommand>, now: AgentClockReadings) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.last_read = word;
        if current.word == word || current.stage == OrderPhase::Ending {
            return Vec::new();
        }
        match word {
            None => Vec::new(),
            Some(OrderCommand::Start { .. }) if current.stage != OrderPhase::Waiting => Vec::new(),
            Some(OrderCommand::Start { at_ns }) => {
                current.word = word;
                current.stage = OrderPhase::Started;
                current.at_ns = Some(at_ns);
                let ahead_ns = at_ns.saturating_sub(now.utc_ns);
                if let Err(reason) = is_possible(ahead_ns) {
                    current.since_ns = now.monotonic_ns;
                    return self.missed(&reason);
                }
                current.since_ns = now.monotonic_ns.saturating_add_signed(ahead_ns);
                vec![AgentAction::Persist, AgentAction::Start(at_ns)]
            }
            // Services end, and so do jobs that were never started: no start time comes after this.
            Some(OrderCommand::Finish) if current.stage == OrderPhase::Started => {
                current.word = word;
                vec![AgentAction::Finish]
            }
            Some(OrderCommand::Finish | OrderCommand::Abandon) => {
                current.word = word;
                current.stage = OrderPhase::Ending;
                vec![AgentAction::Abandon]
            }
        }
    }

    /// Handles a start time that cannot be met. A measurement that begins while others are in
    /// progress would be counted as one of theirs, so it does not begin.
    fn missed(&mut self, reason: &str) -> Vec<AgentAction> {
        let Some(current) = &self.current else { return Vec::new() };
        let at_ns = current.at_ns;
        let campaign = current.order.campaign.clone();
        let is_late = |job: &&Job| !job.service && current.open.contains(&job.id);
        let late: Vec<_> = current.order.jobs.iter().filter(is_late).map(|job| &job.id).collect();
        let outcomes = late.into_iter().map(|job| {
            let ending = JobEnd::Refused { reason: reason.to_owned() };
            (job.clone(), self.outcome(&campaign, job.clone(), ending, at_ns))
        });
        let outcomes: Vec<_> = outcomes.collect();
        let mut acts = vec![AgentAction::Log(format!("{campaign}: {reason}"))];
        for (job, outcome) in outcomes {
            acts.push(AgentAction::QueueReport(campaign.clone(), outcome));
            acts.extend(self.close(&job));
        }
        // After all reports: the persistent state counts them as made.
        acts.push(AgentAction::Persist);
        acts
    }

    /// Handles an event of the processes of the current order.
    #[must_use]
    pub fn on_job_event(&mut self, event: OrderEvent, now: AgentClockReadings) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let campaign = current.order.campaign.clone();
        match event {
            OrderEvent::Ready => {
                let mut acts =
                    vec![AgentAction::QueueReport(campaign, ReportContent::Event(event))];
                if current.stage == OrderPhase::Preparing {
                    current.stage = OrderPhase::Waiting;
                }
                let command = current.last_read;
                acts.extend(self.word(command, now));
                acts
            }
            OrderEvent::NotReady { .. } => {
                current.stage = OrderPhase::Ending;
                vec![
                    AgentAction::QueueReport(campaign, ReportContent::Event(event)),
                    AgentAction::Abandon,
                ]
            }
            OrderEvent::Started { .. }
            | OrderEvent::Accepted { .. }
            | OrderEvent::Refused { .. } => {
                vec![AgentAction::QueueReport(campaign, ReportContent::Event(event))]
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
            current.order.campaign == outcome.campaign && current.open.contains(&outcome.job)
        };
        if !self.current.as_ref().is_some_and(is_open) {
            return Vec::new();
        }
        let (campaign, job) = (outcome.campaign.clone(), outcome.job.clone());
        // Written to disk before it is remembered as reported.
        let mut acts = vec![AgentAction::QueueReport(campaign, ReportContent::Outcome(outcome))];
        acts.extend(self.close(&job));
        acts.push(AgentAction::Persist);
        acts
    }

    fn close(&mut self, job: &JobId) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.open.remove(job);
        if !current.open.is_empty() {
            return Vec::new();
        }
        let campaign = current.order.campaign.clone();
        self.current = None;
        self.is_over(campaign.clone());
        vec![AgentAction::Leave, AgentAction::Log(format!("{campaign} is finished here"))]
    }

    /// Handles timeouts: an order whose start time never comes is abandoned, and so are services
    /// that are not terminated.
    #[must_use]
    pub fn tick(&mut self, now: AgentClockReadings) -> Vec<AgentAction> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let max_ns = match current.stage {
            OrderPhase::Preparing | OrderPhase::Waiting => WAIT_MAX_NS,
            OrderPhase::Started => current.order.deadline_ns.saturating_add(LINGER_NS),
            OrderPhase::Ending => return Vec::new(),
        };
        if now.monotonic_ns.saturating_sub(current.since_ns) <= max_ns {
            return Vec::new();
        }
        current.stage = OrderPhase::Ending;
        let campaign = &current.order.campaign;
        vec![
            AgentAction::Log(format!("{campaign}: no message from its controller; abandoned")),
            AgentAction::Abandon,
        ]
    }

    /// Shuts the agent down: its jobs end first, with the results so far.
    #[must_use]
    pub fn shut_down(&mut self) -> Vec<AgentAction> {
        match &mut self.current {
            Some(current) if current.stage != OrderPhase::Ending => {
                current.stage = OrderPhase::Ending;
                vec![AgentAction::Abandon]
            }
            _ => Vec::new(),
        }
    }
}

/// Checks that a start time this far ahead can be met: it has not passed, and it does not hold the
/// agent for too long.
fn is_possible(ahead_ns: i64) -> Result<(), String> {
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

/// Returns true if a campaign may begin with this as the first command that is read.
const fn is_beginning(word: Option<OrderCommand>) -> bool {
    matches!(word, None | Some(OrderCommand::Start { .. }))
}

#[cfg(test)]
mod tests;
