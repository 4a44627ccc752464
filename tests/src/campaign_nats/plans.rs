//! Scenarios of the plans that come with the program, run by agents over NATS: servers, loads, path
//! ends and relays are placed on agents that have what plans ask for, and what the parts counted
//! agrees. The cluster's plan stands with what becomes of campaigns (`campaign_nats`), and private
//! hosts with `campaign_local`.

use anyhow::{Context, Result, bail, ensure};
use horolog_record::{CampaignInstanceOutcome, CampaignResult, MergedResults};
use libtest_mimic::Trial;

use crate::campaign_lab::{Field, Program};
use crate::campaign_nats::plans;
use crate::scenario::Need;
use crate::scenarios;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];

pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(NATS, plans: plans_of_the_program_are_run_by_agents))
}

/// Runs a plan to its end; all its parts are done, each on an agent.
fn run(field: &Field, plan: &str, sets: &[&str]) -> Result<CampaignResult> {
    let (mut command, _) = field.controller(&[plan])?;
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    let log = field.directory.path().join("controller.log");
    let mut controller = Program::start(&mut command, log)?;
    let result = serde_json::from_value(field.result(&mut controller, 0)?);
    let result: CampaignResult = result.context("it is no result of a campaign")?;
    let is_done = |end: CampaignInstanceOutcome| end == CampaignInstanceOutcome::Done;
    ensure!(result.parts.iter().all(|part| is_done(part.end)), "{:?}", result.parts);
    ensure!(!result.local && result.start.is_some(), "{plan}: it says nothing of its start");
    Ok(result)
}

fn figures<'a>(result: &'a CampaignResult, role: &str) -> Result<&'a MergedResults> {
    let role = result.roles.iter().find(|one| one.role == role);
    Ok(&role.context("no such role")?.merged)
}

pub(crate) fn plans_of_the_program_are_run_by_agents() -> Result<()> {
    let field = Field::new(4)?;
    let sets = ["generators=2", "rate=200-300", "time=500ms", "server-engine=socket"];
    let result = run(&field, "ntp-saturation", &sets)?;
    let MergedResults::Load { trials, .. } = figures(&result, "load")? else {
        bail!("no trials: {result:?}");
    };
    ensure!(trials.len() == 2 && trials.iter().all(|one| one.generators == 2), "{trials:?}");
    ensure!(trials.iter().all(|one| one.trial.received > 0), "nobody answered: {trials:?}");

    let result = run(&field, "udp-all-pairs", &["nodes=3", "rate=50", "time=500ms"])?;
    let MergedResults::Paths { pairs, .. } = figures(&result, "probe")? else {
        bail!("no paths: {result:?}");
    };
    ensure!(pairs.len() == 6 && pairs.iter().all(|pair| pair.counts.received > 0), "{pairs:?}");

    let result = run(&field, "relay-tree", &["leaves=1", "middles=1", "rate=100", "time=1s"])?;
    let relays = |role: &str| match figures(&result, role)? {
        MergedResults::Relays { relays, .. } => Ok(relays[0].clone()),
        other => bail!("{role}: {other:?}"),
    };
    let (root, leaf) = (relays("root")?, relays("leaf")?);
    ensure!(leaf.packets > 0 && leaf.packets == root.packets, "{root:?} and {leaf:?}");
    Ok(())
}
