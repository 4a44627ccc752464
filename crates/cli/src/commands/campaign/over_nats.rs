//! `horolog campaign run` with agents: runs the controller, prints its events on standard error,
//! and merges the collected results.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_campaign::CampaignId;
use horolog_campaign::controller::{
    self, CampaignError, CampaignProgressEvent, CollectedResults, ControllerOptions,
    NewOrResumedCampaign,
};
use horolog_campaign::merge::{MergeInput, merge};
use horolog_campaign::order::LEAD_NS_MAX;
use horolog_record::{
    CampaignExclusions, CampaignResult, Finding, FindingCode, Host, Severity, UnusableAgent,
    rfc3339_now,
};
use horolog_time::Span;

use super::broker::BrokerArgs;
use crate::failure::{CommandFailure, check_findings};
use crate::files::ResultFileArgs;
use crate::output;
use crate::values;

/// Agents of a campaign, and the controller's timeouts.
#[derive(Args, Debug)]
pub(super) struct NatsCampaignArgs {
    /// Resume this campaign (see 'horolog campaign list'), whose controller ('campaign run') has
    /// ended.
    #[arg(long, value_name = "CAMPAIGN", conflicts_with = "local")]
    resume: Option<CampaignId>,
    #[command(flatten)]
    broker: BrokerArgs,
    /// Time between the announcement of the start time and the start, up to 1h.
    #[arg(
        long, value_name = "TIME", value_parser = parse_lead_time, default_value = "2s"
    )]
    lead_time: Duration,
    /// Grace period after the plan's duration-max in which jobs end and results arrive.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "30s")]
    grace: Duration,
    /// Once all other parts are done, abandon the part of an agent that has sent no heartbeat for
    /// this time. At least 10s, the TTL of heartbeats on the NATS server.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "60s")]
    agent_timeout: Duration,
    /// Time without the NATS server after which the result is made from the reports received so
    /// far.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "5m")]
    broker_timeout: Duration,
    /// Pretend that this controller's clock is off by this time, such as +3s, to test the detection
    /// of wrong clocks; the system clock is not changed.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0s",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    inject_clock_offset: Span,
}

fn parse_lead_time(text: &str) -> Result<Duration, String> {
    let lead = values::positive_duration(text)?;
    let is_possible = lead.as_nanos() <= LEAD_NS_MAX.unsigned_abs().into();
    if is_possible { Ok(lead) } else { Err("agents wait for up to an hour".to_owned()) }
}

impl From<CampaignError> for CommandFailure {
    fn from(error: CampaignError) -> Self {
        let text = error.to_string();
        campaign_failure(error, text)
    }
}

/// Converts an error of the controller to a failure with its exit status and this text.
fn campaign_failure(error: CampaignError, text: String) -> CommandFailure {
    match error {
        CampaignError::Plan(_) | CampaignError::Unknown(_) => CommandFailure::usage(text),
        CampaignError::Placement { fault, .. } if fault.is_option => CommandFailure::usage(text),
        CampaignError::Nats(error) => error.into(),
        _ => CommandFailure::environment(text),
    }
}

impl NatsCampaignArgs {
    /// Runs the plan of this text. `name` stands for it in error messages; `settings` are names and
    /// values of plan parameters.
    pub(super) fn run(
        &self,
        (plan, name): (String, &str),
        settings: Vec<(String, String)>,
        files: &ResultFileArgs,
    ) -> Result<(), CommandFailure> {
        self.run_controller(NewOrResumedCampaign::Plan(plan, settings), name, files)
    }

    /// Resumes the campaign of `--resume`.
    pub(super) fn resume(&self, files: &ResultFileArgs) -> Result<(), CommandFailure> {
        // The ID is present, since clap requires a plan or --resume.
        let id = self.resume.clone().ok_or_else(|| CommandFailure::usage("name a plan"))?;
        let name = format!("plan of {id}");
        self.run_controller(NewOrResumedCampaign::Resume(id), &name, files)
    }

    fn run_controller(
        &self,
        what: NewOrResumedCampaign,
        plan: &str,
        files: &ResultFileArgs,
    ) -> Result<(), CommandFailure> {
        let files = files.open()?;
        let started = rfc3339_now();
        // Must precede the start of any thread.
        output::install_interrupt_handler()?;
        let options = ControllerOptions {
            broker: self.broker.broker_options(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: what,
            lead: self.lead_time,
            grace: self.grace,
            agent_timeout: self.agent_timeout,
            broker_timeout: self.broker_timeout,
            injected_offset_ns: self.inject_clock_offset.as_ns(),
        };
        let print_event =
            |step: &CampaignProgressEvent<'_>| output::print_note(&format!("horolog: {step}"));
        let outcome =
            controller::run(options, &print_event, &output::check_stop_request, |collected| {
                let result = merge_results(collected, started);
                let written = files.write(&result);
                // Unless the result was written, the campaign can be resumed to collect it again.
                let is_written = written.is_ok();
                (written.and_then(|()| check_findings(&result.findings)), is_written)
            });
        outcome.map_err(|error| {
            let text = error.in_file(plan);
            campaign_failure(error, text)
        })?
    }
}

fn merge_results(collected: CollectedResults, started: String) -> CampaignResult {
    let broker_finding = collected.broker_gone.map(|message| Finding {
        code: FindingCode::BrokerUnreachable,
        severity: Severity::Warning,
        message: format!("The result was made without the NATS server: {message}."),
        advice: "See to the NATS server; the campaign can be resumed for a week.".to_owned(),
        trial: None,
    });
    let unusable = collected.unusable.into_iter();
    let unusable = unusable.map(|(agent, reason)| UnusableAgent { agent, reason });
    merge(MergeInput {
        plan: &collected.plan,
        placement: &collected.placement,
        campaign: &collected.campaign,
        started,
        command: output::command_line(),
        host: Host::read(),
        local: false,
        interrupted: collected.abandoned,
        at_ns: collected.at_ns,
        delivery: Some(CampaignExclusions {
            unusable: unusable.collect(),
            duplicate_outcomes: collected.duplicate_outcomes,
            unexpected_reports: collected.unexpected_reports,
            unreadable_messages: collected.unreadable,
        }),
        outcomes: collected.outcomes.into_values().collect(),
        findings: broker_finding.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_named_up_to_an_hour_ahead() {
        for (text, seconds) in [("2", 2), ("500ms", 0), ("10m", 600), ("1h", 3_600)] {
            assert_eq!(parse_lead_time(text).map(|lead| lead.as_secs()), Ok(seconds), "{text}");
        }
        for (text, why) in [("61m", "up to an hour"), ("2h", "up to an hour"), ("0s", "longer")] {
            assert!(parse_lead_time(text).is_err_and(|told| told.contains(why)), "{text}");
        }
    }
}
