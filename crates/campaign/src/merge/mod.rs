//! Merge of the results of agents: for each role one merged record of all its instances, together
//! with their unchanged results (the parts). Pure. Counts are summed and histograms merged bucket
//! by bucket; nothing is averaged. Results that cannot be merged are reported as findings and
//! remain in their parts.

mod cycles;
mod distributions;
mod findings;
mod load;
mod paths;
mod propagated;
mod relays;

use std::collections::BTreeMap;

use horolog_record::{
    CAMPAIGN_SCHEMA, CampaignExclusions, CampaignInstanceOutcome, CampaignInstanceResult,
    CampaignPlan, CampaignResult, CampaignRoleResult, Distribution, Finding, Host,
    InstanceClockOffset, SignedDistribution, StartAccuracy,
};
use horolog_stats::SignedHistogram;
use serde::de::DeserializeOwned;

use crate::id::{CampaignId, JobId};
use crate::order::{JobEnd, JobOutcome};
use crate::placement::{ColocationTarget, PlacedJob, Placement};
use crate::plan::{Plan, Role};
use crate::role::RoleKind;

/// Input of the merge of a campaign.
#[derive(Clone, Debug)]
pub struct MergeInput<'a> {
    /// Plan.
    pub plan: &'a Plan,
    /// Placement of the plan's roles.
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
    /// Start time, UTC in ns since 1970; `None` if none was set.
    pub at_ns: Option<i64>,
    /// Counts of reports that were not used; `None` for a local run.
    pub delivery: Option<CampaignExclusions>,
    /// Reported outcomes. Only the first outcome of each job is used; those of jobs that were not
    /// placed are ignored.
    pub outcomes: Vec<JobOutcome>,
    /// Findings of the controller.
    pub findings: Vec<Finding>,
}

/// Placed instance and its outcome; `None` if none was reported.
struct InstanceOutcome<'a> {
    placed: &'a PlacedJob,
    outcome: Option<JobOutcome>,
}

/// Merges the outcomes of a campaign into its result.
#[must_use]
pub fn merge(input: MergeInput<'_>) -> CampaignResult {
    let mut outcomes: BTreeMap<JobId, JobOutcome> = BTreeMap::new();
    for outcome in input.outcomes {
        outcomes.entry(outcome.job.clone()).or_insert(outcome);
    }
    let placed = input.placement.jobs.iter();
    let parts: Vec<_> = placed
        .map(|placed| InstanceOutcome { placed, outcome: outcomes.remove(&placed.job.id) })
        .collect();
    let mut findings = input.findings;
    let start = input.at_ns.and_then(|at_ns| start_accuracy(at_ns, &parts));
    let roles = input.plan.roles.iter().map(|role| merge_role(role, &parts, &mut findings));
    let roles = roles.collect();
    let context = findings::CampaignFindingsContext {
        plan: input.plan,
        local: input.local,
        interrupted: input.interrupted,
        campaign: (!input.local).then_some(input.campaign),
        at_ns: input.at_ns,
        start: start.as_ref(),
    };
    findings::add_findings(&context, &parts, &mut findings);
    CampaignResult {
        schema: CAMPAIGN_SCHEMA.to_owned(),
        started: input.started,
        command: input.command,
        host: input.host,
        campaign: input.campaign.to_string(),
        plan: CampaignPlan {
            name: input.plan.name.clone(),
            description: input.plan.description.clone(),
            hash: input.plan.hash.clone(),
            parameters: input.plan.parameters.clone(),
            text: input.plan.text.clone(),
        },
        local: input.local,
        interrupted: input.interrupted,
        start,
        delivery: input.delivery,
        roles,
        parts: parts.into_iter().map(|part| campaign_instance(part, input.placement)).collect(),
        findings,
    }
}

/// Merges the results of one role.
fn merge_role(
    role: &Role,
    parts: &[InstanceOutcome<'_>],
    findings: &mut Vec<Finding>,
) -> CampaignRoleResult {
    let role_parts: Vec<&InstanceOutcome<'_>> =
        parts.iter().filter(|part| part.placed.job.id.role == role.name).collect();
    let mut failures = MergeFailureCollector { role: role.name.as_str(), findings };
    let merged = match role.kind {
        RoleKind::LoadNtp | RoleKind::LoadPtpDelay => load::merge(&role_parts, &mut failures),
        RoleKind::PathUdp => paths::merge(&role_parts, parts, &mut failures),
        RoleKind::RelayRun => relays::merge(&role_parts, parts, &mut failures),
        RoleKind::CycleLead => cycles::merge(&role_parts, parts, &mut failures),
        RoleKind::Serve
        | RoleKind::Query
        | RoleKind::PathServe
        | RoleKind::PathTcp
        | RoleKind::HostTimer
        | RoleKind::CycleJoin => distributions::merge(&role_parts, &mut failures),
    };
    CampaignRoleResult {
        role: role.name.to_string(),
        kind: role.kind.to_string(),
        instances: role_parts.len() as u64,
        results: role_parts.iter().filter(|part| part.result().is_some()).count() as u64,
        merged,
    }
}

impl InstanceOutcome<'_> {
    fn result(&self) -> Option<&serde_json::Value> {
        self.outcome.as_ref()?.result.as_ref()
    }

    /// Parses the result of a part. `None` if it has none, or if it cannot be parsed as `T`, which
    /// is reported as a finding.
    fn parse_result<T: DeserializeOwned>(
        &self,
        failures: &mut MergeFailureCollector<'_>,
    ) -> Option<T> {
        let read = T::deserialize(self.result()?);
        read.map_err(|error| failures.add_finding(&format!("{}: {error}", self.placed.job.id))).ok()
    }
}

/// Collector of findings on the results of a role that could not be merged.
struct MergeFailureCollector<'a> {
    role: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl MergeFailureCollector<'_> {
    fn add_finding(&mut self, what: &str) {
        self.findings.push(findings::unmerged_finding(self.role, what));
    }

    /// Merges distributions; `None` if there are none, or on an error, which is reported as a
    /// finding.
    fn merge_distributions(&mut self, all: &[&Distribution]) -> Option<Distribution> {
        let merged = Distribution::merge(all.iter().copied());
        merged.map_err(|error| self.add_finding(&error.to_string())).ok().flatten()
    }
}

fn campaign_instance(part: InstanceOutcome<'_>, placement: &Placement) -> CampaignInstanceResult {
    let PlacedJob { agent, address, job, colocation } = part.placed;
    let to = match colocation {
        ColocationTarget::Pair(_, other) => {
            let other = placement.jobs.iter().find(|placed| placed.job.id == *other);
            other.map(|placed| placed.agent.to_string())
        }
        ColocationTarget::None | ColocationTarget::With(_) => None,
    };
    let (end, status, message) = end_status(part.outcome.as_ref());
    let mut record = CampaignInstanceResult {
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
        record.clock = outcome.clock.map(|clock| InstanceClockOffset {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
            source: clock.source,
        });
        record.errors = outcome.stderr_tail;
        record.result = outcome.result;
    }
    record
}

/// Returns how a part ended, its exit status and the reason, if known.
fn end_status(
    outcome: Option<&JobOutcome>,
) -> (CampaignInstanceOutcome, Option<i32>, Option<String>) {
    let Some(outcome) = outcome else { return (CampaignInstanceOutcome::Lost, None, None) };
    match &outcome.ending {
        JobEnd::Done { status } => (CampaignInstanceOutcome::Done, Some(*status), None),
        JobEnd::Failed { status, message } => {
            (CampaignInstanceOutcome::Failed, Some(*status), Some(message.clone()))
        }
        JobEnd::Signalled { signal } => {
            (CampaignInstanceOutcome::Signalled, None, Some(format!("signal {signal}")))
        }
        JobEnd::TimedOut => (CampaignInstanceOutcome::TimedOut, None, None),
        JobEnd::Abandoned => (CampaignInstanceOutcome::Abandoned, None, None),
        JobEnd::Refused { reason } => {
            (CampaignInstanceOutcome::Refused, None, Some(reason.clone()))
        }
        JobEnd::Interrupted { reason } => {
            (CampaignInstanceOutcome::Interrupted, None, Some(reason.clone()))
        }
    }
}

#[cfg(test)]
mod tests;

/// Returns the accuracy of the starts at `instant_ns` (UTC, in ns since 1970), corrected for the
/// clock offsets of the agents; `None` if no process was started at this time.
fn start_accuracy(instant_ns: i64, parts: &[InstanceOutcome<'_>]) -> Option<StartAccuracy> {
    let mut start_offsets = SignedHistogram::new();
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    let mut clock_error_ns = Some(0);
    let outcomes = parts.iter().filter_map(|part| part.outcome.as_ref());
    for outcome in outcomes.filter(|outcome| outcome.intended_ns == Some(instant_ns)) {
        let Some(started_ns) = outcome.started_ns else { continue };
        let ahead_ns = outcome.clock.as_ref().map_or(0, |clock| clock.offset_ns);
        let true_ns = started_ns.saturating_sub(ahead_ns);
        start_offsets.record(true_ns.saturating_sub(instant_ns));
        (first, last) = (first.min(true_ns), last.max(true_ns));
        let error_ns = outcome.clock.as_ref().map(|clock| clock.error_ns);
        clock_error_ns = clock_error_ns.zip(error_ns).map(|(one, other)| one.max(other));
    }
    let late_ns = SignedDistribution::from_histogram(&start_offsets)?;
    Some(StartAccuracy { instant_ns, late_ns, spread_ns: last.abs_diff(first), clock_error_ns })
}
