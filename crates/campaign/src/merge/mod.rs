//! Merge of the results of agents: one record of each role's results on all agents, together with
//! the unchanged parts. Pure. Counts are summed and histograms merged bucket by bucket; nothing is
//! averaged, and results that cannot be merged are reported and stay in their parts.

mod cycles;
mod distributions;
mod findings;
mod load;
mod paths;
mod propagated;
mod relays;
mod start;

use std::collections::BTreeMap;

use horolog_record::{
    CAMPAIGN_SCHEMA, CampaignExclusions, CampaignInstance, CampaignPlan, CampaignResult,
    CampaignRole, Distribution, Finding, Host, InstanceClockState, InstanceEnd,
};
use serde::de::DeserializeOwned;

use crate::id::{CampaignId, JobId};
use crate::order::{JobEnd, JobOutcome};
use crate::placement::{Colocation, PlacedJob, Placement};
use crate::plan::{Plan, Role};
use crate::role::RoleKind;

/// Input of a merge: everything known after a campaign.
#[derive(Clone, Debug)]
pub struct MergeInput<'a> {
    /// Plan.
    pub plan: &'a Plan,
    /// Placement of its roles.
    pub placement: &'a Placement,
    /// Campaign identifier.
    pub campaign: &'a CampaignId,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line.
    pub command: Vec<String>,
    /// Controller's host.
    pub host: Host,
    /// True if all agents were lab hosts of one machine.
    pub local: bool,
    /// True if the run was interrupted before its end.
    pub interrupted: bool,
    /// Start time, UTC in ns since 1970, if one was set.
    pub at_ns: Option<i64>,
    /// Delivery counts; absent if there was no network in between.
    pub delivery: Option<CampaignExclusions>,
    /// Reported outcomes. Of several for one job the first counts; those for jobs that were not
    /// placed do not count.
    pub outcomes: Vec<JobOutcome>,
    /// Findings of the controller.
    pub findings: Vec<Finding>,
}

/// Instance with its outcome.
struct MergedPart<'a> {
    placed: &'a PlacedJob,
    outcome: Option<JobOutcome>,
}

/// Merges everything.
#[must_use]
pub fn merge(gathered: MergeInput<'_>) -> CampaignResult {
    let mut outcomes: BTreeMap<JobId, JobOutcome> = BTreeMap::new();
    for outcome in gathered.outcomes {
        outcomes.entry(outcome.job.clone()).or_insert(outcome);
    }
    let placed = gathered.placement.jobs.iter();
    let parts: Vec<_> = placed
        .map(|placed| MergedPart { placed, outcome: outcomes.remove(&placed.job.id) })
        .collect();
    let mut findings = gathered.findings;
    let start = gathered.at_ns.and_then(|at_ns| start::of(at_ns, &parts));
    let roles = gathered.plan.roles.iter().map(|role| merged(role, &parts, &mut findings));
    let roles = roles.collect();
    let about = findings::CampaignRunContext {
        plan: gathered.plan,
        local: gathered.local,
        interrupted: gathered.interrupted,
        campaign: (!gathered.local).then_some(gathered.campaign),
        at_ns: gathered.at_ns,
        start: start.as_ref(),
    };
    findings::add(&about, &parts, &mut findings);
    CampaignResult {
        schema: CAMPAIGN_SCHEMA.to_owned(),
        started: gathered.started,
        command: gathered.command,
        host: gathered.host,
        campaign: gathered.campaign.to_string(),
        plan: CampaignPlan {
            name: gathered.plan.name.clone(),
            description: gathered.plan.description.clone(),
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

/// Merges the results of one role.
fn merged(role: &Role, parts: &[MergedPart<'_>], findings: &mut Vec<Finding>) -> CampaignRole {
    let own: Vec<&MergedPart<'_>> =
        parts.iter().filter(|part| part.placed.job.id.role == role.name).collect();
    let mut unmerged = MergeFailures { role: role.name.as_str(), findings };
    let merged = match role.kind {
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
        merged,
    }
}

impl MergedPart<'_> {
    fn result(&self) -> Option<&serde_json::Value> {
        self.outcome.as_ref()?.result.as_ref()
    }

    /// Parses the record of a part. A record of another type is reported and omitted.
    fn read<T: DeserializeOwned>(&self, unmerged: &mut MergeFailures<'_>) -> Option<T> {
        let read = T::deserialize(self.result()?);
        read.map_err(|error| unmerged.add_finding(&format!("{}: {error}", self.placed.job.id))).ok()
    }
}

/// Collector of the results that could not be merged.
struct MergeFailures<'a> {
    role: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl MergeFailures<'_> {
    fn add_finding(&mut self, what: &str) {
        self.findings.push(findings::unmerged(self.role, what));
    }

    /// Merges distributions.
    fn distribution(&mut self, all: &[&Distribution]) -> Option<Distribution> {
        let merged = Distribution::merge(all.iter().copied());
        merged.map_err(|error| self.add_finding(&error.to_string())).ok().flatten()
    }
}

fn record(part: MergedPart<'_>, placement: &Placement) -> CampaignInstance {
    let PlacedJob { agent, address, job, colocation } = part.placed;
    let to = match colocation {
        Colocation::Pair(_, other) => {
            let other = placement.jobs.iter().find(|placed| placed.job.id == *other);
            other.map(|placed| placed.agent.to_string())
        }
        Colocation::None | Colocation::With(_) => None,
    };
    let (end, status, message) = ended(part.outcome.as_ref());
    let mut record = CampaignInstance {
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
        record.clock = outcome.clock.map(|clock| InstanceClockState {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
            source: clock.source,
        });
        record.errors = outcome.stderr_tail;
        record.result = outcome.result;
    }
    record
}

/// Returns the end of a part, with its status and the reason.
fn ended(outcome: Option<&JobOutcome>) -> (InstanceEnd, Option<i32>, Option<String>) {
    let Some(outcome) = outcome else { return (InstanceEnd::Lost, None, None) };
    match &outcome.ending {
        JobEnd::Done { status } => (InstanceEnd::Done, Some(*status), None),
        JobEnd::Failed { status, message } => {
            (InstanceEnd::Failed, Some(*status), Some(message.clone()))
        }
        JobEnd::Signalled { signal } => {
            (InstanceEnd::Signalled, None, Some(format!("signal {signal}")))
        }
        JobEnd::TimedOut => (InstanceEnd::TimedOut, None, None),
        JobEnd::Abandoned => (InstanceEnd::Abandoned, None, None),
        JobEnd::Refused { reason } => (InstanceEnd::Refused, None, Some(reason.clone())),
        JobEnd::Interrupted { reason } => (InstanceEnd::Interrupted, None, Some(reason.clone())),
    }
}

#[cfg(test)]
mod tests;
