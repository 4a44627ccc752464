//! `horolog campaign list`: lists the agents with a heartbeat and the campaigns in progress.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_campaign::controller::{BrokerListing, list};
use horolog_campaign::order::AgentState;
use horolog_report::{to_json, units};
use serde_json::json;

use super::broker::BrokerArgs;
use crate::failure::CommandFailure;
use crate::output;

/// List the agents that are present, and the campaigns in progress.
#[derive(Args, Debug)]
pub(super) struct CampaignListArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CampaignListArgs) -> Result<(), CommandFailure> {
    let BrokerListing { agents, campaigns } =
        list(&args.broker.broker_options(), env!("CARGO_PKG_VERSION"))?;
    if args.json {
        let unusable = agents.unusable.iter();
        let unusable: Vec<_> =
            unusable.map(|(name, why)| json!({ "name": name, "reason": why })).collect();
        let list = json!({
            "schema": "horolog.campaign-list/2",
            "agents": agents.usable,
            "unusable": unusable,
            "campaigns": campaigns,
        });
        return output::print_line(to_json(&list).trim_end());
    }
    if agents.usable.is_empty() && agents.unusable.is_empty() {
        output::print_note("horolog: no agents");
    }
    for agent in &agents.usable {
        output::print_line(&agent_line(agent))?;
    }
    for (name, why) in &agents.unusable {
        output::print_line(&format!("{name}  unusable: {why}"))?;
    }
    for campaign in &campaigns {
        output::print_line(&format!("campaign {campaign} in progress"))?;
    }
    Ok(())
}

fn agent_line(agent: &AgentState) -> String {
    let labels: Vec<_> =
        agent.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let addresses: Vec<_> = agent.addresses.iter().map(ToString::to_string).collect();
    let clock = agent.clock.as_ref().map_or_else(
        || "clock unknown".to_owned(),
        |clock| {
            let offset = units::signed_ns(clock.offset_ns);
            let error = units::human_ns(clock.error_ns);
            format!("clock {offset} ± {error} ({})", clock.source)
        },
    );
    let busy = agent
        .busy
        .as_ref()
        .map_or_else(|| "free".to_owned(), |campaign| format!("busy with {campaign}"));
    let mut parts =
        vec![agent.name.to_string(), busy, addresses.join(" "), labels.join(" "), clock];
    parts.retain(|part| !part.is_empty());
    parts.join("  ")
}
