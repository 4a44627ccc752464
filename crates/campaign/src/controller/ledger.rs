//! Event-sourced state of a campaign, from the reports of agents. Pure: reports come in any order
//! and any number of times, and each counts once. A restarted controller reads all of them again
//! and obtains the same state.

use std::collections::{BTreeMap, BTreeSet};

use crate::order::{JobOutcome, Order, OrderEvent};
use crate::report::{AgentReport, AgentReportContent};
use crate::{AgentName, CampaignId, JobId};

/// Progress of one agent in its order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AgentProgress {
    /// Jobs that are not services.
    pub measurements: BTreeSet<JobId>,
    /// Services.
    pub services: BTreeSet<JobId>,
    /// `Ok` if the agent accepted its order, or the reason for the refusal; `None` without a reply.
    pub acceptance: Option<Result<(), String>>,
    /// `Ok` if all services are ready, or the reason why they are not; `None` before its report.
    pub readiness: Option<Result<(), String>>,
    /// Actual start times of the agent's jobs by its clock: UTC, in ns since 1970.
    pub started: BTreeMap<JobId, i64>,
}

/// Reported state of a campaign: progress of the agents and outcomes of the jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct Ledger {
    campaign: CampaignId,
    agents: BTreeMap<AgentName, AgentProgress>,
    outcomes: BTreeMap<JobId, JobOutcome>,
    /// Repeated outcomes that were not counted.
    pub duplicates: u64,
    /// Reports of unknown agents, or of jobs that were not assigned.
    pub unexpected: u64,
}

/// Change of the ledger by a report.
#[derive(Clone, PartialEq, Debug)]
pub enum LedgerChange {
    /// Event of an agent.
    Event(AgentName, OrderEvent),
    /// Outcome of a job.
    Outcome(JobId),
    /// The report repeats a known event or outcome, is unexpected, or is a best-effort event.
    Ignored,
}

impl Ledger {
    /// Returns a ledger of these orders without any reports.
    #[must_use]
    pub fn new(campaign: CampaignId, orders: &[Order]) -> Self {
        let new_progress = |order: &Order| {
            let (services, measurements): (Vec<_>, Vec<_>) =
                order.jobs.iter().partition(|job| job.service);
            let ids = |jobs: Vec<&crate::order::Job>| {
                jobs.into_iter().map(|job| job.id.clone()).collect()
            };
            AgentProgress {
                measurements: ids(measurements),
                services: ids(services),
                ..AgentProgress::default()
            }
        };
        let agents =
            orders.iter().map(|order| (order.agent.clone(), new_progress(order))).collect();
        Self { campaign, agents, outcomes: BTreeMap::new(), duplicates: 0, unexpected: 0 }
    }

    /// Ingests a report received on the subject of `agent`.
    pub fn ingest(&mut self, agent: &str, report: AgentReport) -> LedgerChange {
        let is_from_agent = report.campaign == self.campaign && report.agent.as_str() == agent;
        let Some(progress) = self.agents.get_mut(&report.agent).filter(|_| is_from_agent) else {
            self.unexpected += 1;
            return LedgerChange::Ignored;
        };
        match report.content {
            AgentReportContent::Event(event) => {
                let ingested = LedgerChange::Event(report.agent, event.clone());
                if progress.ingest(event) { ingested } else { LedgerChange::Ignored }
            }
            AgentReportContent::Outcome(outcome) => {
                let is_assigned = outcome.campaign == self.campaign
                    && outcome.agent == report.agent
                    && progress.has_job(&outcome.job);
                if !is_assigned {
                    self.unexpected += 1;
                    return LedgerChange::Ignored;
                }
                if self.outcomes.contains_key(&outcome.job) {
                    self.duplicates += 1;
                    return LedgerChange::Ignored;
                }
                let job = outcome.job.clone();
                self.outcomes.insert(job.clone(), *outcome);
                LedgerChange::Outcome(job)
            }
        }
    }

    /// Returns the outcomes of jobs so far.
    #[must_use]
    pub const fn outcomes(&self) -> &BTreeMap<JobId, JobOutcome> {
        &self.outcomes
    }

    /// Moves the outcomes out of the ledger; for use after the last report.
    #[must_use]
    pub fn take_outcomes(&mut self) -> BTreeMap<JobId, JobOutcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Returns the agents that cannot take part in the start, and the reasons: the order was
    /// refused, services are not ready, or a job has an outcome already. For use before the start
    /// time is set.
    #[must_use]
    pub fn refusals(&self) -> Vec<(AgentName, String)> {
        let refusal = |progress: &AgentProgress| {
            let refused = progress.acceptance.clone().and_then(Result::err);
            let unready = || progress.readiness.clone().and_then(Result::err);
            let over = || {
                let over = progress.jobs().find(|job| self.outcomes.contains_key(job))?;
                Some(format!("{over} ended before the start time was set"))
            };
            refused.or_else(unready).or_else(over)
        };
        let agents = self.agents.iter();
        agents.filter_map(|(name, progress)| Some((name.clone(), refusal(progress)?))).collect()
    }

    /// Returns the agents that have neither accepted nor refused their orders.
    #[must_use]
    pub fn unanswered(&self) -> Vec<&AgentName> {
        self.agents_where(|progress| progress.acceptance.is_none())
    }

    /// Returns the agents whose services are not ready.
    #[must_use]
    pub fn unready(&self) -> Vec<&AgentName> {
        self.agents_where(|progress| progress.readiness != Some(Ok(())))
    }

    /// Returns the agents that accepted their orders and have a measurement without an outcome.
    #[must_use]
    pub fn measuring(&self) -> Vec<&AgentName> {
        self.agents_where(|progress| {
            progress.has_accepted() && self.is_open(&progress.measurements)
        })
    }

    /// Returns the agents that accepted their orders and have a service without an outcome.
    #[must_use]
    pub fn serving(&self) -> Vec<&AgentName> {
        self.agents_where(|progress| progress.has_accepted() && self.is_open(&progress.services))
    }

    /// Returns true if all jobs of an agent have outcomes.
    #[must_use]
    pub fn has_all_outcomes(&self, name: &AgentName) -> bool {
        let has =
            |progress: &AgentProgress| progress.jobs().all(|job| self.outcomes.contains_key(job));
        self.agents.get(name).is_some_and(has)
    }

    fn agents_where(&self, predicate: impl Fn(&AgentProgress) -> bool) -> Vec<&AgentName> {
        let selected = self.agents.iter().filter(|(_, progress)| predicate(progress));
        selected.map(|(name, _)| name).collect()
    }

    fn is_open(&self, jobs: &BTreeSet<JobId>) -> bool {
        jobs.iter().any(|job| !self.outcomes.contains_key(job))
    }

    /// Returns true if a measurement is known to have been started: its start or its outcome was
    /// reported.
    #[must_use]
    pub fn has_started(&self) -> bool {
        let has = |progress: &AgentProgress| {
            let is_started =
                |job: &JobId| progress.started.contains_key(job) || self.outcomes.contains_key(job);
            progress.measurements.iter().any(is_started)
        };
        self.agents.values().any(has)
    }
}

impl AgentProgress {
    fn jobs(&self) -> impl Iterator<Item = &JobId> {
        self.services.iter().chain(&self.measurements)
    }

    fn has_accepted(&self) -> bool {
        self.acceptance == Some(Ok(()))
    }

    fn has_job(&self, job: &JobId) -> bool {
        self.services.contains(job) || self.measurements.contains(job)
    }

    /// Ingests an event. Returns true if it was new.
    fn ingest(&mut self, event: OrderEvent) -> bool {
        match event {
            OrderEvent::Accepted { .. } => set_once(&mut self.acceptance, Ok(())),
            OrderEvent::Refused { reason } => set_once(&mut self.acceptance, Err(reason)),
            OrderEvent::Ready => set_once(&mut self.readiness, Ok(())),
            OrderEvent::NotReady { job, reason } => {
                set_once(&mut self.readiness, Err(format!("{job}: {reason}")))
            }
            OrderEvent::Started { job, at_ns } => {
                self.has_job(&job) && self.started.insert(job, at_ns).is_none()
            }
            OrderEvent::Progress { .. } | OrderEvent::Ended { .. } => false,
        }
    }
}

/// Sets an empty slot; a value already in it is retained. Returns true if the slot was empty.
fn set_once<T>(slot: &mut Option<T>, value: T) -> bool {
    let is_new = slot.is_none();
    slot.get_or_insert(value);
    is_new
}

#[cfg(test)]
mod tests;
