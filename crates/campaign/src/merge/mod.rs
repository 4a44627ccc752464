//! Putting together what agents measured: one record with what each role found in all its places,
//! beside the parts as they came. Pure. Counts are added and histograms merged, bucket by bucket;
//! nothing is averaged, and what cannot be put together is said and left in its parts.

mod again;
mod cycles;
mod distributions;
mod doubts;
mod load;
mod paths;
mod relays;
mod start;

use std::collections::BTreeMap;

use horolog_record::{
    CAMPAIGN_SCHEMA, CampaignClock, CampaignDelivery, CampaignEnd, CampaignPart, CampaignPlan,
    CampaignResult, CampaignRole, Distribution, Finding, Host,
};
use serde::de::DeserializeOwned;

use crate::id::{CampaignId, JobId};
use crate::order::{Ending, Outcome};
use crate::place::{Beside, Placed, Placement};
use crate::plan::{Plan, Role};
use crate::role::RoleKind;

/// All that is known when a campaign is over.
#[derive(Clone, Debug)]
pub struct Gathered<'a> {
    /// What was planned.
    pub plan: &'a Plan,
    /// Where it was placed.
    pub placement: &'a Placement,
    /// What the run is known by.
    pub campaign: &'a CampaignId,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The controller's machine.
    pub host: Host,
    /// Whether all agents were private hosts of one machine.
    pub local: bool,
    /// Whether it was ended before it was through.
    pub interrupted: bool,
    /// The instant, UTC in ns since 1970, where one was named.
    pub at_ns: Option<i64>,
    /// What else came; absent where there was no network between.
    pub delivery: Option<CampaignDelivery>,
    /// What came. Of several for one job the first counts; those for jobs that nobody placed do
    /// not.
    pub outcomes: Vec<Outcome>,
    /// Doubts of the controller's own.
    pub findings: Vec<Finding>,
}

/// An instance with what became of it.
struct Part<'a> {
    placed: &'a Placed,
    outcome: Option<Outcome>,
}

/// Puts everything together.
#[must_use]
pub fn merge(gathered: Gathered<'_>) -> CampaignResult {
    let mut outcomes: BTreeMap<JobId, Outcome> = BTreeMap::new();
    for outcome in gathered.outcomes {
        outcomes.entry(outcome.job.clone()).or_insert(outcome);
    }
    let placed = gathered.placement.jobs.iter();
    let parts: Vec<_> =
        placed.map(|placed| Part { placed, outcome: outcomes.remove(&placed.job.id) }).collect();
    let mut findings = gathered.findings;
    let start = gathered.at_ns.and_then(|at_ns| start::of(at_ns, &parts));
    let roles = gathered.plan.roles.iter().map(|role| merged(role, &parts, &mut findings));
    let roles = roles.collect();
    let about = doubts::About {
        plan: gathered.plan,
        local: gathered.local,
        interrupted: gathered.interrupted,
        campaign: (!gathered.local).then_some(gathered.campaign),
        at_ns: gathered.at_ns,
        start: start.as_ref(),
    };
    doubts::add(&about, &parts, &mut findings);
    CampaignResult {
        schema: CAMPAIGN_SCHEMA.to_owned(),
        started: gathered.started,
        command: gathered.command,
        host: gathered.host,
        campaign: gathered.campaign.to_string(),
        plan: CampaignPlan {
            name: gathered.plan.name.clone(),
            about: gathered.plan.about.clone(),
            hash: gathered.plan.hash.clone(),
            parameters: gathered.plan.parameters.clone(),
            text: gathered.plan.text.clone(),
        },
        local: gathered.local,
        interrupted: gathered.interrupted,
        start,
        delivery: gathered.delivery,
        roles,
        parts: parts.into_iter().map(|part| record(part, gathered.placement)).collect(),
        findings,
    }
}

/// What one role measured.
fn merged(role: &Role, parts: &[Part<'_>], findings: &mut Vec<Finding>) -> CampaignRole {
    let own: Vec<&Part<'_>> =
        parts.iter().filter(|part| part.placed.job.id.role == role.name).collect();
    let mut unmerged = Unmerged { role: role.name.as_str(), findings };
    let figures = match role.kind {
        RoleKind::LoadNtp | RoleKind::LoadPtpDelay => load::merge(&own, &mut unmerged),
        RoleKind::PathUdp => paths::merge(&own, parts, &mut unmerged),
        RoleKind::RelayRun => relays::merge(&own, parts, &mut unmerged),
        RoleKind::CycleLead => cycles::merge(&own, parts, &mut unmerged),
        RoleKind::Serve
        | RoleKind::Query
        | RoleKind::PathServe
        | RoleKind::PathTcp
        | RoleKind::HostTimer
        | RoleKind::CycleJoin => distributions::merge(&own, &mut unmerged),
    };
    CampaignRole {
        role: role.name.to_string(),
        kind: role.kind.to_string(),
        instances: own.len() as u64,
        results: own.iter().filter(|part| part.result().is_some()).count() as u64,
        figures,
    }
}

impl Part<'_> {
    fn result(&self) -> Option<&serde_json::Value> {
        self.outcome.as_ref()?.result.as_ref()
    }

    /// Its record as what it should be. One that is something else is said, and left out.
    fn read<T: DeserializeOwned>(&self, unmerged: &mut Unmerged<'_>) -> Option<T> {
        let read = T::deserialize(self.result()?);
        read.map_err(|error| unmerged.say(&format!("{}: {error}", self.placed.job.id))).ok()
    }
}

/// Where it is said what could not be put together.
struct Unmerged<'a> {
    role: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Unmerged<'_> {
    fn say(&mut self, what: &str) {
        self.findings.push(doubts::unmerged(self.role, what));
    }

    /// The distributions together.
    fn distribution(&mut self, all: &[&Distribution]) -> Option<Distribution> {
        let merged = Distribution::merge(all.iter().copied());
        merged.map_err(|error| self.say(&error.to_string())).ok().flatten()
    }
}

fn record(part: Part<'_>, placement: &Placement) -> CampaignPart {
    let Placed { agent, address, job, beside } = part.placed;
    let to = match beside {
        Beside::Pair(_, other) => {
            let other = placement.jobs.iter().find(|placed| placed.job.id == *other);
            other.map(|placed| placed.agent.to_string())
        }
        Beside::Nobody | Beside::One(_) => None,
    };
    let (end, status, message) = ended(part.outcome.as_ref());
    let mut record = CampaignPart {
        job: job.id.to_string(),
        role: job.id.role.to_string(),
        kind: job.kind.to_string(),
        service: job.service,
        agent: agent.to_string(),
        address: *address,
        to,
        end,
        status,
        message,
        started_ns: None,
        duration_s: None,
        clock: None,
        errors: String::new(),
        result: None,
    };
    if let Some(outcome) = part.outcome {
        let ran = outcome.started_ns.zip(outcome.ended_ns);
        record.started_ns = outcome.started_ns;
        record.duration_s = ran.map(|(from, to)| to.saturating_sub(from) as f64 / 1e9);
        record.clock = outcome.clock.map(|clock| CampaignClock {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
            source: clock.source,
        });
        record.errors = outcome.stderr_tail;
        record.result = outcome.result;
    }
    record
}

/// How a part ended, with its status and why.
fn ended(outcome: Option<&Outcome>) -> (CampaignEnd, Option<i32>, Option<String>) {
    let Some(outcome) = outcome else { return (CampaignEnd::Lost, None, None) };
    match &outcome.ending {
        Ending::Done { status } => (CampaignEnd::Done, Some(*status), None),
        Ending::Failed { status, message } => {
            (CampaignEnd::Failed, Some(*status), Some(message.clone()))
        }
        Ending::Signalled { signal } => {
            (CampaignEnd::Signalled, None, Some(format!("signal {signal}")))
        }
        Ending::TimedOut => (CampaignEnd::TimedOut, None, None),
        Ending::Abandoned => (CampaignEnd::Abandoned, None, None),
        Ending::Refused { reason } => (CampaignEnd::Refused, None, Some(reason.clone())),
        Ending::Interrupted { reason } => (CampaignEnd::Interrupted, None, Some(reason.clone())),
    }
}

#[cfg(test)]
mod tests;
