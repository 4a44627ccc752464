//! What a controller knows of its campaign, from what agents have told. Pure: reports come in, in
//! whatever order and however often, and each counts once. A controller that was killed reads all
//! of them again and knows the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{Content, Report};
use crate::order::{News, Order, Outcome};
use crate::{AgentName, CampaignId, JobId};

/// What is known of one agent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Standing {
    /// Its jobs that are no services.
    pub measurements: BTreeSet<JobId>,
    /// Its services.
    pub services: BTreeSet<JobId>,
    /// Whether it does what it was ordered, or why not.
    pub answer: Option<Result<(), String>>,
    /// Whether its services are ready, or why not.
    pub ready: Option<Result<(), String>>,
    /// When its jobs were started, by its clock: UTC, in ns since 1970.
    pub started: BTreeMap<JobId, i64>,
}

/// What is known of a campaign.
#[derive(Clone, PartialEq, Debug)]
pub struct Ledger {
    campaign: CampaignId,
    agents: BTreeMap<AgentName, Standing>,
    outcomes: BTreeMap<JobId, Outcome>,
    /// Outcomes that came again and were not counted.
    pub twice: u64,
    /// Reports of strangers, or of jobs that nobody was given.
    pub strange: u64,
}

/// What a report was.
#[derive(Clone, PartialEq, Debug)]
pub enum Heard {
    /// News of an agent.
    News(AgentName, News),
    /// The outcome of a job.
    Outcome(JobId),
    /// Nothing that was not known, or that counts.
    Nothing,
}

impl Ledger {
    /// Nothing told so far of these orders.
    #[must_use]
    pub fn new(campaign: CampaignId, orders: &[Order]) -> Self {
        let standing = |order: &Order| {
            let (services, measurements): (Vec<_>, Vec<_>) =
                order.jobs.iter().partition(|job| job.service);
            let ids = |jobs: Vec<&crate::order::Job>| {
                jobs.into_iter().map(|job| job.id.clone()).collect()
            };
            Standing {
                measurements: ids(measurements),
                services: ids(services),
                ..Standing::default()
            }
        };
        let agents = orders.iter().map(|order| (order.agent.clone(), standing(order))).collect();
        Self { campaign, agents, outcomes: BTreeMap::new(), twice: 0, strange: 0 }
    }

    /// Takes a report that came by the subject of `agent`.
    pub fn take(&mut self, agent: &str, report: Report) -> Heard {
        let is_own = report.campaign == self.campaign && report.agent.as_str() == agent;
        let Some(standing) = self.agents.get_mut(&report.agent).filter(|_| is_own) else {
            self.strange += 1;
            return Heard::Nothing;
        };
        match report.content {
            Content::News(news) => {
                let heard = Heard::News(report.agent, news.clone());
                if standing.take(news) { heard } else { Heard::Nothing }
            }
            Content::Outcome(outcome) => {
                let is_its = outcome.campaign == self.campaign
                    && outcome.agent == report.agent
                    && standing.has(&outcome.job);
                if !is_its {
                    self.strange += 1;
                    return Heard::Nothing;
                }
                if self.outcomes.contains_key(&outcome.job) {
                    self.twice += 1;
                    return Heard::Nothing;
                }
                let job = outcome.job.clone();
                self.outcomes.insert(job.clone(), *outcome);
                Heard::Outcome(job)
            }
        }
    }

    /// What became of jobs, as far as that is known.
    #[must_use]
    pub const fn outcomes(&self) -> &BTreeMap<JobId, Outcome> {
        &self.outcomes
    }

    /// The same, when nothing more is to come; none is left here.
    #[must_use]
    pub fn take_outcomes(&mut self) -> BTreeMap<JobId, Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// The agents that will not do what they were ordered, and why; so is one that has told what
    /// became of a job before there was an instant.
    #[must_use]
    pub fn refusals(&self) -> Vec<(AgentName, String)> {
        let refusal = |standing: &Standing| {
            let refused = standing.answer.clone().and_then(Result::err);
            let unready = || standing.ready.clone().and_then(Result::err);
            let over = || {
                let over = standing.jobs().find(|job| self.outcomes.contains_key(job))?;
                Some(format!("{over} ended before there was an instant"))
            };
            refused.or_else(unready).or_else(over)
        };
        let agents = self.agents.iter();
        agents.filter_map(|(name, standing)| Some((name.clone(), refusal(standing)?))).collect()
    }

    /// The agents that have not answered.
    #[must_use]
    pub fn silent(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.answer.is_none())
    }

    /// The agents whose services are not ready.
    #[must_use]
    pub fn unready(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.ready != Some(Ok(())))
    }

    /// The agents that have accepted measurements of which one has no outcome.
    #[must_use]
    pub fn measuring(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.has_accepted() && self.is_open(&standing.measurements))
    }

    /// The agents that have accepted services of which one has none.
    #[must_use]
    pub fn serving(&self) -> Vec<&AgentName> {
        self.without(|standing| standing.has_accepted() && self.is_open(&standing.services))
    }

    /// Whether all jobs of an agent have outcomes.
    #[must_use]
    pub fn has_told_all(&self, name: &AgentName) -> bool {
        let has = |standing: &Standing| standing.jobs().all(|job| self.outcomes.contains_key(job));
        self.agents.get(name).is_some_and(has)
    }

    fn without(&self, is_so: impl Fn(&Standing) -> bool) -> Vec<&AgentName> {
        let which = self.agents.iter().filter(|(_, standing)| is_so(standing));
        which.map(|(name, _)| name).collect()
    }

    fn is_open(&self, jobs: &BTreeSet<JobId>) -> bool {
        jobs.iter().any(|job| !self.outcomes.contains_key(job))
    }

    /// Whether any job is known to have been started.
    #[must_use]
    pub fn has_started(&self) -> bool {
        let has = |standing: &Standing| {
            let of_it =
                |job: &JobId| standing.started.contains_key(job) || self.outcomes.contains_key(job);
            standing.measurements.iter().any(of_it)
        };
        self.agents.values().any(has)
    }
}

impl Standing {
    fn jobs(&self) -> impl Iterator<Item = &JobId> {
        self.services.iter().chain(&self.measurements)
    }

    fn has_accepted(&self) -> bool {
        self.answer == Some(Ok(()))
    }

    fn has(&self, job: &JobId) -> bool {
        self.services.contains(job) || self.measurements.contains(job)
    }

    /// Takes news; says whether they were new.
    fn take(&mut self, news: News) -> bool {
        match news {
            News::Accepted { .. } => set(&mut self.answer, Ok(())),
            News::Refused { reason } => set(&mut self.answer, Err(reason)),
            News::Ready => set(&mut self.ready, Ok(())),
            News::NotReady { job, reason } => set(&mut self.ready, Err(format!("{job}: {reason}"))),
            News::Started { job, at_ns } => {
                self.has(&job) && self.started.insert(job, at_ns).is_none()
            }
            News::Progress { .. } | News::Ended { .. } => false,
        }
    }
}

/// The first word counts.
fn set<T>(place: &mut Option<T>, value: T) -> bool {
    let is_new = place.is_none();
    place.get_or_insert(value);
    is_new
}

#[cfg(test)]
mod tests;
