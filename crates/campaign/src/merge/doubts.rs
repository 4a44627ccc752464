//! What has to be known beside the merged figures: what is lacking and whose fault that is.

use std::collections::BTreeMap;

use horolog_record::{CampaignStart, Code, Finding, Severity};

use super::{Part, again, ended};
use crate::CampaignId;
use crate::order::Ending;
use crate::plan::Plan;

/// Starts further from one another than this are said.
const SPREAD_MAX_NS: u64 = 5_000_000;

/// What is known of the run.
pub(super) struct About<'a> {
    pub(super) plan: &'a Plan,
    pub(super) local: bool,
    pub(super) interrupted: bool,
    /// What it can be resumed by, where it can.
    pub(super) campaign: Option<&'a CampaignId>,
    pub(super) at_ns: Option<i64>,
    pub(super) start: Option<&'a CampaignStart>,
}

fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}

/// Something of a role could not be put together.
pub(super) fn unmerged(role: &str, what: &str) -> Finding {
    finding(
        Code::Unmerged,
        Severity::Warning,
        format!("Results of role {role} were not all put together: {what}."),
        "The parts hold each result as it came.",
    )
}

pub(super) fn add(about: &About<'_>, parts: &[Part<'_>], findings: &mut Vec<Finding>) {
    if about.interrupted {
        findings.push(finding(
            Code::Interrupted,
            Severity::Warning,
            "The campaign was ended before it was through; the figures are of what ran until then."
                .to_owned(),
            "Run it again for the rest.",
        ));
    }
    findings.extend(lost(about.campaign, parts));
    findings.extend(parts.iter().filter_map(|part| failed(about, part)));
    findings.extend(again::again(about.plan, parts));
    findings.extend(about.start.and_then(apart));
    findings.extend(differ(about.at_ns, parts));
    if about.local {
        findings.push(finding(
            Code::SharedMachine,
            Severity::Note,
            "All roles shared the processors of one machine.".to_owned(),
            "Run the plan on several machines for figures of each.",
        ));
    }
}

/// Agents of which nothing was heard, with what is lacking because of them.
fn lost(campaign: Option<&CampaignId>, parts: &[Part<'_>]) -> Vec<Finding> {
    let mut by_agent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.outcome.is_none()) {
        let jobs = by_agent.entry(part.placed.agent.as_str()).or_default();
        jobs.push(part.placed.job.id.to_string());
    }
    let later = campaign.map(|campaign| {
        format!(
            " What it delivers later is in the result of 'horolog campaign run --resume \
             {campaign}', for a week."
        )
    });
    let advice = format!("Look after that agent.{}", later.unwrap_or_default());
    let lost = |(agent, jobs): (&str, Vec<String>)| {
        finding(
            Code::AgentLost,
            Severity::Error,
            format!("Nothing was heard of agent {agent}: {} is lacking.", jobs.join(", ")),
            &advice,
        )
    };
    by_agent.into_iter().map(lost).collect()
}

/// A part that did not end as it should.
fn failed(about: &About<'_>, part: &Part<'_>) -> Option<Finding> {
    let ending = &part.outcome.as_ref()?.ending;
    let how = match ending {
        Ending::Done { .. } => return None,
        // All of them were, which is said once.
        Ending::Abandoned if about.interrupted => return None,
        Ending::Abandoned => "was given up".to_owned(),
        Ending::TimedOut => {
            let time = about.plan.duration_max.as_secs_f64();
            format!("did not end within the plan's duration-max of {time} s, and was ended")
        }
        Ending::Failed { .. } => "failed".to_owned(),
        Ending::Signalled { .. } => "was ended from outside".to_owned(),
        Ending::Refused { .. } => "was not started".to_owned(),
        Ending::Interrupted { .. } => "was ended with its agent".to_owned(),
    };
    let (_, _, why) = ended(part.outcome.as_ref());
    let why = why.map(|why| format!(": {}", why.trim_end_matches('.'))).unwrap_or_default();
    let has = if part.result().is_some() { "Its result is of what ran until then." } else { "" };
    let message = format!("{} on {} {how}{why}.", part.placed.job.id, part.placed.agent);
    Some(finding(Code::PartUnmeasured, Severity::Error, message, has))
}

fn apart(start: &CampaignStart) -> Option<Finding> {
    (start.spread_ns > SPREAD_MAX_NS).then(|| {
        let spread = start.spread_ns as f64 / 1e6;
        finding(
            Code::StartsApart,
            Severity::Warning,
            format!("Processes started up to {spread:.1} ms apart."),
            "Busy machines start processes late; leave a processor free, or give agents root's \
             rights, by which they start with a real-time priority.",
        )
    })
}

/// Parts that were told another instant than that of the campaign.
fn differ(at_ns: Option<i64>, parts: &[Part<'_>]) -> Option<Finding> {
    let intended = |part: &Part<'_>| part.outcome.as_ref()?.intended_ns;
    let at_ns = at_ns.or_else(|| parts.iter().find_map(intended))?;
    let others = parts.iter().filter(|part| intended(part).is_some_and(|other| other != at_ns));
    let others: Vec<_> = others.map(|part| part.placed.job.id.to_string()).collect();
    (!others.is_empty()).then(|| {
        finding(
            Code::InstantsDiffer,
            Severity::Error,
            format!("Told another instant to start at than the others: {}.", others.join(", ")),
            "Figures of the roles are not of one time; run the campaign again.",
        )
    })
}
