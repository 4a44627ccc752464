//! `horolog campaign list`: the agents that are there and the campaigns that are not over.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_campaign::controller::{Listed, list};
use horolog_campaign::order::AgentState;
use horolog_report::{to_json, units};
use serde_json::json;

use super::broker::BrokerArgs;
use crate::failure::Failure;
use crate::output;

/// List the agents that are there, and the campaigns that are not over.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    /// Write JSON instead of the text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> Result<(), Failure> {
    let Listed { look, campaigns } = list(&args.broker.broker(), env!("CARGO_PKG_VERSION"))?;
    if args.json {
        let unusable = look.unusable.iter();
        let unusable: Vec<_> =
            unusable.map(|(name, why)| json!({ "name": name, "why": why })).collect();
        let list = json!({
            "schema": "horolog.campaign-list/1",
            "agents": look.usable,
            "unusable": unusable,
            "campaigns": campaigns,
        });
        return output::line(to_json(&list).trim_end());
    }
    if look.usable.is_empty() && look.unusable.is_empty() {
        output::note("horolog: no agents");
    }
    for agent in &look.usable {
        output::line(&agent_line(agent))?;
    }
    for (name, why) in &look.unusable {
        output::line(&format!("{name}  cannot be used: {why}"))?;
    }
    for campaign in &campaigns {
        output::line(&format!("campaign {campaign} is not over"))?;
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
        .map_or_else(|| "free".to_owned(), |campaign| format!("works for {campaign}"));
    let mut parts =
        vec![agent.name.to_string(), busy, addresses.join(" "), labels.join(" "), clock];
    parts.retain(|part| !part.is_empty());
    parts.join("  ")
}
