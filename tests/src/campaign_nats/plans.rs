//! Scenarios of the built-in plans, run by agents over NATS: servers, loads, path ends and relays
//! are placed on agents that meet the requirements of the plans, and the counts of the parts agree.
//! The cluster plan is covered in `campaign_nats`, and lab hosts in `campaign_local`.

use anyhow::{Context, Result, bail, ensure};
use horolog_record::{CampaignInstanceOutcome, CampaignResult, MergedResults};

use crate::campaign_lab::{CampaignTestbed, Program};
use crate::campaign_nats::plans;
use crate::scenario::{Need, Scenario};
use crate::scenarios;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(NATS, plans: plans_of_the_program_are_run_by_agents))
}

/// Runs a plan to its end, and checks that all its parts are done.
fn run(field: &CampaignTestbed, plan: &str, sets: &[&str]) -> Result<CampaignResult> {
    let (mut command, _) = field.controller(&[plan])?;
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    let log = field.directory.path().join("controller.log");
    let mut controller = Program::start(&mut command, log)?;
    let result = serde_json::from_value(field.result(&mut controller, 0)?);
    let result: CampaignResult = result.context("not a campaign result")?;
    let is_done = |end: CampaignInstanceOutcome| end == CampaignInstanceOutcome::Done;
    ensure!(result.parts.iter().all(|part| is_done(part.end)), "{:?}", result.parts);
    ensure!(!result.local && result.start.is_some(), "{plan}: no start in the result");
    Ok(result)
}

fn merged_results<'a>(result: &'a CampaignResult, role: &str) -> Result<&'a MergedResults> {
    let role = result.roles.iter().find(|one| one.role == role);
    Ok(&role.context("no such role")?.merged)
}

pub(crate) fn plans_of_the_program_are_run_by_agents() -> Result<()> {
    let field = CampaignTestbed::new(4)?;
    let sets = ["generators=2", "rate=200-300", "time=500ms", "server-engine=socket"];
    let result = run(&field, "ntp-saturation", &sets)?;
    let MergedResults::Load { trials, .. } = merged_results(&result, "load")? else {
        bail!("no trials: {result:?}");
    };
    ensure!(trials.len() == 2 && trials.iter().all(|one| one.generators == 2), "{trials:?}");
    ensure!(trials.iter().all(|one| one.trial.received > 0), "no replies: {trials:?}");

    let result = run(&field, "udp-all-pairs", &["nodes=3", "rate=50", "time=500ms"])?;
    let MergedResults::Paths { pairs, .. } = merged_results(&result, "probe")? else {
        bail!("no paths: {result:?}");
    };
    ensure!(pairs.len() == 6 && pairs.iter().all(|pair| pair.counts.received > 0), "{pairs:?}");

    let result = run(&field, "relay-tree", &["leaves=1", "middles=1", "rate=100", "time=1s"])?;
    let relays = |role: &str| match merged_results(&result, role)? {
        MergedResults::Relays { relays, .. } => Ok(relays[0].clone()),
        other => bail!("{role}: {other:?}"),
    };
    let (root, leaf) = (relays("root")?, relays("leaf")?);
    ensure!(leaf.packets > 0 && leaf.packets == root.packets, "{root:?} and {leaf:?}");
    Ok(())
}
