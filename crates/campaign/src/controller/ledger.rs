//! Event-sourced state of a campaign, from the reports of agents. Pure: reports come in any order
//! and any number of times, and each counts once. A restarted controller reads all of them again
//! and obtains the same state.

use std::collections::{BTreeMap, BTreeSet};

use crate::order::{JobOutcome, Order, OrderEvent};
use crate::report::{AgentReport, ReportContent};
use crate::{AgentName, CampaignId, JobId};

/// Progress of one agent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AgentProgress {
    /// Jobs that are not services.
    pub measurements: BTreeSet<JobId>,
    /// Services.
    pub services: BTreeSet<JobId>,
    /// Acceptance of the order, or the reason for the refusal.
    pub answer: Option<Result<(), String>>,
    /// Readiness of its services, or the reason why they are not ready.
    pub ready: Option<Result<(), String>>,
    /// Start times of its jobs, by its clock: UTC, in ns since 1970.
    pub started: BTreeMap<JobId, i64>,
}

/// State of a campaign.
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

/// Content of an ingested report.
#[derive(Clone, PartialEq, Debug)]
pub enum Ingested {
    /// Event of an agent.
    Event(AgentName, OrderEvent),
    /// Outcome of a job.
    Outcome(JobId),
    /// Already known, or not counted.
    Nothing,
}

impl Ledger {
    /// Returns a ledger of these orders without any reports.
    #[must_use]
    pub fn new(campaign: CampaignId, orders: &[Order]) -> Self {
        let standing = |order: &Order| {
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
        let agents = orders.iter().map(|order| (order.agent.clone(), standing(order))).collect();
        Self { campaign, agents, outcomes: BTreeMap::new(), duplicates: 0, unexpected: 0 }
    }

    /// Ingests a report received on the subject of `agent`.
    pub fn ingest(&mut self, agent: &str, report: AgentReport) -> Ingested {
        let is_own = report.campaign == self.campaign && report.agent.as_str() == agent;
        let Some(standing) = self.agents.get_mut(&report.agent).filter(|_| is_own) else {
            self.unexpected += 1;
            return Ingested::Nothing;
        };
        match report.content {
            ReportContent::Event(event) => {
                let ingested = Ingested::Event(report.agent, event.clone());
                if standing.ingest(event) { ingested } else { Ingested::Nothing }
            }
            ReportContent::Outcome(outcome) => {
                let is_its = outcome.campaign == self.campaign
                    && outcome.agent == report.agent
                    && standing.has(&outcome.job);
                if !is_its {
                    self.unexpected += 1;
                    return Ingested::Nothing;
                }
                if self.outcomes.contains_key(&outcome.job) {
                    self.duplicates += 1;
                    return Ingested::Nothing;
                }
                let job = outcome.job.clone();
                self.outcomes.insert(job.clone(), *outcome);
                Ingested::Outcome(job)
            }
        }
    }

    /// Returns the outcomes of jobs so far.
    #[must_use]
    pub const fn outcomes(&self) -> &BTreeMap<JobId, JobOutcome> {
        &self.outcomes
    }

    /// Takes the outcomes out, when no more reports are expected.
    #[must_use]
    pub fn take_outcomes(&mut self) -> BTreeMap<JobId, JobOutcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Returns the agents that do not execute their orders, and the reasons; this includes an agent
    /// that reported the outcome of a job before a start time was set.
    #[must_use]
    pub fn refusals(&self) -> Vec<(AgentName, String)> {
        let refusal = |standing: &AgentProgress| {
            let refused = standing.answer.clone().and_then(Result::err);
            let unready = || standing.ready.clone().and_then(Result::err);
            let over = || {
                let over = standing.jobs().find(|job| self.outcomes.contains_key(job))?;
                Some(format!("{over} ended before the start time was set"))
            };
            refused.or_else(unready).or_else(over)
        };
        let agents = self.agents.iter();
        agents.filter_map(|(name, standing)| Some((name.clone(), refusal(standing)?))).collect()
    }

    /// Returns the agents that have not replied.
    #[must_use]
    pub fn unanswered(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.answer.is_none())
    }

    /// Returns the agents whose services are not ready.
    #[must_use]
    pub fn unready(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.ready != Some(Ok(())))
    }

    /// Returns the agents that accepted measurements of which at least one has no outcome.
    #[must_use]
    pub fn measuring(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.has_accepted() && self.is_open(&standing.measurements))
    }

    /// Returns the agents that accepted services of which at least one has no outcome.
    #[must_use]
    pub fn serving(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.has_accepted() && self.is_open(&standing.services))
    }

    /// Returns true if all jobs of an agent have outcomes.
    #[must_use]
    pub fn has_all_outcomes(&self, name: &AgentName) -> bool {
        let has =
            |standing: &AgentProgress| standing.jobs().all(|job| self.outcomes.contains_key(job));
        self.agents.get(name).is_some_and(has)
    }

    fn without(&self, is_so: impl Fn(&AgentProgress) -> bool) -> Vec<&AgentName> {
        let which = self.agents.iter().filter(|(_, standing)| is_so(standing));
        which.map(|(name, _)| name).collect()
    }

    fn is_open(&self, jobs: &BTreeSet<JobId>) -> bool {
        jobs.iter().any(|job| !self.outcomes.contains_key(job))
    }

    /// Returns true if any job is known to have been started.
    #[must_use]
    pub fn has_started(&self) -> bool {
        let has = |standing: &AgentProgress| {
            let of_it =
                |job: &JobId| standing.started.contains_key(job) || self.outcomes.contains_key(job);
            standing.measurements.iter().any(of_it)
        };
        self.agents.values().any(has)
    }
}

impl AgentProgress {
    fn jobs(&self) -> impl Iterator<Item = &JobId> {
        self.services.iter().chain(&self.measurements)
    }

    fn has_accepted(&self) -> bool {
        self.answer == Some(Ok(()))
    }

    fn has(&self, job: &JobId) -> bool {
        self.services.contains(job) || self.measurements.contains(job)
    }

    /// Ingests an event. Returns true if it was new.
    fn ingest(&mut self, event: OrderEvent) -> bool {
        match event {
            OrderEvent::Accepted { .. } => set(&mut self.answer, Ok(())),
            OrderEvent::Refused { reason } => set(&mut self.answer, Err(reason)),
            OrderEvent::Ready => set(&mut self.ready, Ok(())),
            OrderEvent::NotReady { job, reason } => {
                set(&mut self.ready, Err(format!("{job}: {reason}")))
            }
            OrderEvent::Started { job, at_ns } => {
                self.has(&job) && self.started.insert(job, at_ns).is_none()
            }
            OrderEvent::Progress { .. } | OrderEvent::Ended { .. } => false,
        }
    }
}

/// Sets a value once: the first report counts. Returns true if it was set.
fn set<T>(slot: &mut Option<T>, value: T) -> bool {
    let is_new = slot.is_none();
    slot.get_or_insert(value);
    is_new
}

#[cfg(test)]
mod tests;
