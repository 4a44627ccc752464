//! Findings on the merged metrics: missing results and their causes.

use std::collections::BTreeMap;

use horolog_record::{Finding, FindingCode, Severity, StartAccuracy};

use super::{InstanceOutcome, end_status, propagated};
use crate::CampaignId;
use crate::order::JobEnd;
use crate::plan::Plan;

/// Spread of the actual start times above which a finding is added, in ns.
const SPREAD_MAX_NS: u64 = 5_000_000;

/// Facts about the campaign from which its findings follow.
pub(super) struct CampaignFindingsContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) local: bool,
    pub(super) interrupted: bool,
    /// Identifier of the campaign, if it can be resumed to collect missing results.
    pub(super) campaign: Option<&'a CampaignId>,
    pub(super) at_ns: Option<i64>,
    pub(super) start: Option<&'a StartAccuracy>,
}

fn finding(code: FindingCode, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// Returns the finding that results of a role could not be merged.
pub(super) fn unmerged_finding(role: &str, what: &str) -> Finding {
    finding(
        FindingCode::MergeIncomplete,
        Severity::Warning,
        format!("Results of role {role} were not merged completely: {what}."),
        "The parts contain each result unmerged.",
    )
}

pub(super) fn add_findings(
    context: &CampaignFindingsContext<'_>,
    parts: &[InstanceOutcome<'_>],
    findings: &mut Vec<Finding>,
) {
    if context.interrupted {
        findings.push(finding(
            FindingCode::Interrupted,
            Severity::Warning,
            "The campaign was interrupted; results cover the time until then.".to_owned(),
            "Run it again to completion for the rest.",
        ));
    }
    findings.extend(lost_agent_findings(context.campaign, parts));
    findings.extend(parts.iter().filter_map(|part| failed_part_finding(context, part)));
    findings.extend(propagated::propagate(context.plan, parts));
    findings.extend(context.start.and_then(start_spread_finding));
    findings.extend(start_time_finding(context.at_ns, parts));
    if context.local {
        findings.push(finding(
            FindingCode::SharedMachine,
            Severity::Note,
            "All roles shared the CPUs of one machine.".to_owned(),
            "Run the plan on several machines for independent results.",
        ));
    }
}

/// Returns findings on lost agents, with the results missing because of them.
fn lost_agent_findings(
    campaign: Option<&CampaignId>,
    parts: &[InstanceOutcome<'_>],
) -> Vec<Finding> {
    let mut by_agent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.outcome.is_none()) {
        let jobs = by_agent.entry(part.placed.agent.as_str()).or_default();
        jobs.push(part.placed.job.id.to_string());
    }
    let later = campaign.map(|campaign| {
        format!(
            " Results it delivers later are available with 'horolog campaign run --resume \
             {campaign}', for a week."
        )
    });
    let advice = format!("Check that agent.{}", later.unwrap_or_default());
    let lost = |(agent, jobs): (&str, Vec<String>)| {
        finding(
            FindingCode::AgentLost,
            Severity::Error,
            format!("Agent {agent} did not report: results of {} are missing.", jobs.join(", ")),
            &advice,
        )
    };
    by_agent.into_iter().map(lost).collect()
}

/// Returns the finding on a part that did not complete; `None` if it did, if it has no outcome, or
/// if it was abandoned because the campaign was interrupted.
fn failed_part_finding(
    context: &CampaignFindingsContext<'_>,
    part: &InstanceOutcome<'_>,
) -> Option<Finding> {
    let ending = &part.outcome.as_ref()?.ending;
    let how = match ending {
        JobEnd::Done { .. } => return None,
        // All parts were abandoned, which is reported once.
        JobEnd::Abandoned if context.interrupted => return None,
        JobEnd::Abandoned => "was abandoned".to_owned(),
        JobEnd::TimedOut => {
            let time = context.plan.duration_max.as_secs_f64();
            format!("exceeded the plan's duration-max of {time} s, and was terminated")
        }
        JobEnd::Failed { .. } => "failed".to_owned(),
        JobEnd::Signalled { .. } => "was terminated by a signal".to_owned(),
        JobEnd::Refused { .. } => "was not started".to_owned(),
        JobEnd::Interrupted { .. } => "ended with its agent".to_owned(),
    };
    let (_, _, why) = end_status(part.outcome.as_ref());
    let why = why.map(|why| format!(": {}", why.trim_end_matches('.'))).unwrap_or_default();
    let has = if part.result().is_some() { "Its result covers the time until then." } else { "" };
    let message = format!("{} on {} {how}{why}.", part.placed.job.id, part.placed.agent);
    Some(finding(FindingCode::PartUnmeasured, Severity::Error, message, has))
}

fn start_spread_finding(start: &StartAccuracy) -> Option<Finding> {
    (start.spread_ns > SPREAD_MAX_NS).then(|| {
        let spread = start.spread_ns as f64 / 1e6;
        finding(
            FindingCode::StartSpreadLarge,
            Severity::Warning,
            format!("Processes started up to {spread:.1} ms apart."),
            "Busy machines start processes late; leave a CPU idle, or run agents as root, which \
             enables real-time priority at the start.",
        )
    })
}

/// Returns the finding on parts whose start time differs from the campaign's; `None` if none does.
fn start_time_finding(at_ns: Option<i64>, parts: &[InstanceOutcome<'_>]) -> Option<Finding> {
    let intended = |part: &InstanceOutcome<'_>| part.outcome.as_ref()?.intended_ns;
    let at_ns = at_ns.or_else(|| parts.iter().find_map(intended))?;
    let others = parts.iter().filter(|part| intended(part).is_some_and(|other| other != at_ns));
    let others: Vec<_> = others.map(|part| part.placed.job.id.to_string()).collect();
    (!others.is_empty()).then(|| {
        finding(
            FindingCode::StartTimesDiffer,
            Severity::Error,
            format!("Start times other than that of the others: {}.", others.join(", ")),
            "Results of the roles are from different times; run the campaign again.",
        )
    })
}
