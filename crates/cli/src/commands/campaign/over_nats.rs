//! `horolog campaign run` by agents: progress on standard error, and what came of it to one result.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_campaign::CampaignId;
use horolog_campaign::controller::{self, CampaignError, Collected, ControllerOptions, Step, What};
use horolog_campaign::merge::{Gathered, merge};
use horolog_campaign::order::LEAD_NS_MAX;
use horolog_record::{
    CampaignDelivery, CampaignResult, CampaignUnusable, Code, Finding, Host, Severity, rfc3339_now,
};
use horolog_report::{html, table, to_json};
use horolog_time::Span;

use super::broker::BrokerArgs;
use crate::failure::{Failure, no_error};
use crate::files::FileArgs;
use crate::output;
use crate::values;

/// Where agents are, and how patiently they are waited for.
#[derive(Args, Debug)]
pub(super) struct OverNatsArgs {
    /// Go on with this campaign, whose controller has ended.
    #[arg(long, value_name = "CAMPAIGN", conflicts_with = "local")]
    resume: Option<CampaignId>,
    #[command(flatten)]
    broker: BrokerArgs,
    /// How long before the instant agents are told of it, up to an hour.
    #[arg(
        long, value_name = "TIME", value_parser = lead, default_value = "2s"
    )]
    lead: Duration,
    /// How long jobs may take to end and results to come, behind the plan's duration-max.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, default_value = "30s")]
    grace: Duration,
    /// How long an agent may have said nothing before its part is given up, once all others are
    /// done. Less than 10s is as 10s, for so long the NATS server knows an agent.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, default_value = "60s")]
    lost_after: Duration,
    /// How long the NATS server may be gone before the result is made of what has come.
    #[arg(long, value_name = "TIME", value_parser = values::long_duration, default_value = "5m")]
    broker_patience: Duration,
    /// Set this controller's clock wrong by so much, such as +3s, to see what that does.
    #[arg(long, value_name = "TIME", value_parser = values::signed_span, default_value = "0s",
          hide_default_value = true, allow_hyphen_values = true)]
    clock_ahead: Span,
}

fn lead(text: &str) -> Result<Duration, String> {
    let lead = values::long_duration(text)?;
    let is_possible = lead.as_nanos() <= LEAD_NS_MAX.unsigned_abs().into();
    if is_possible { Ok(lead) } else { Err("agents wait for up to an hour".to_owned()) }
}

impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        let text = error.to_string();
        failure(error, text)
    }
}

/// An error in these words.
fn failure(error: CampaignError, text: String) -> Failure {
    match error {
        CampaignError::Plan(_) | CampaignError::Unknown(_) => Failure::usage(text),
        CampaignError::Place { fault, .. } if fault.is_option => Failure::usage(text),
        CampaignError::Nats(error) => error.into(),
        _ => Failure::environment(text),
    }
}

impl OverNatsArgs {
    /// Runs a plan that is called so in complaints, with values for its parameters.
    pub(super) fn run(
        &self,
        (plan, name): (String, &str),
        settings: Vec<(String, String)>,
        files: &FileArgs,
    ) -> Result<(), Failure> {
        self.conduct(What::Plan(plan, settings), name, files)
    }

    /// Goes on with a campaign.
    pub(super) fn resume(&self, files: &FileArgs) -> Result<(), Failure> {
        // The flags ask for one of the two.
        let id = self.resume.clone().ok_or_else(|| Failure::usage("name a plan"))?;
        let name = format!("plan of {id}");
        self.conduct(What::Resume(id), &name, files)
    }

    fn conduct(&self, what: What, plan: &str, files: &FileArgs) -> Result<(), Failure> {
        let files = files.open()?;
        let started = rfc3339_now();
        // Before any thread is there.
        output::end_gently()?;
        let options = ControllerOptions {
            broker: self.broker.broker(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            what,
            lead: self.lead,
            grace: self.grace,
            lost_after: self.lost_after,
            broker_patience: self.broker_patience,
            clock_injected_ns: self.clock_ahead.as_ns(),
        };
        let tell = |step: &Step<'_>| output::note(&format!("horolog: {step}"));
        let ran = controller::run(options, &tell, &output::flow, |collected| {
            let result = merged(collected, started);
            let written = files.write(&result, [to_json, html::campaign], table::campaign);
            // What could not be written can be collected once more.
            let is_kept = written.is_ok();
            (written.and_then(|()| no_error(&result.findings)), is_kept)
        });
        ran.map_err(|error| {
            let text = error.of_plan(plan);
            failure(error, text)
        })?
    }
}

fn merged(collected: Collected, started: String) -> CampaignResult {
    let broker_gone = collected.broker_gone.map(|message| Finding {
        code: Code::BrokerGone,
        severity: Severity::Warning,
        message: format!("The result was made without the NATS server: {message}."),
        advice: "See to the NATS server; the campaign can be resumed for a week.".to_owned(),
        trial: None,
    });
    let unusable = collected.unusable.into_iter();
    let unusable = unusable.map(|(agent, reason)| CampaignUnusable { agent, reason });
    merge(Gathered {
        plan: &collected.plan,
        placement: &collected.placement,
        campaign: &collected.campaign,
        started,
        command: output::command_line(),
        host: Host::read(),
        local: false,
        interrupted: collected.abandoned,
        at_ns: collected.at_ns,
        delivery: Some(CampaignDelivery {
            unusable: unusable.collect(),
            outcomes_twice: collected.twice,
            reports_strange: collected.strange,
            messages_unreadable: collected.unreadable,
        }),
        outcomes: collected.outcomes.into_values().collect(),
        findings: broker_gone.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_named_up_to_an_hour_ahead() {
        for (text, seconds) in [("2", 2), ("500ms", 0), ("10m", 600), ("1h", 3_600)] {
            assert_eq!(lead(text).map(|lead| lead.as_secs()), Ok(seconds), "{text}");
        }
        for (text, why) in [("61m", "up to an hour"), ("2h", "up to an hour"), ("0s", "longer")] {
            assert!(lead(text).is_err_and(|told| told.contains(why)), "{text}");
        }
    }
}
