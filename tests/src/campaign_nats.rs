//! Scenarios of campaigns over NATS: agents in lab hosts, a real broker, and crashes and partitions
//! of each of them. In every case each job has one outcome in the result: none is lost, and none
//! counts twice.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_campaign::nats::{BrokerOptions, BrokerStore};
use serde_json::{Value, json};

use crate::campaign_lab::{CampaignTestbed, campaign_id, timer_plan};
use crate::scenario::{Need, Scenario};
use crate::{campaign_nats, scenarios};

mod crashes;
mod partitions;
mod plans;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Number of agents in most scenarios.
const AGENTS: usize = 3;
/// Duration of their jobs, in seconds.
const SECONDS: u32 = 6;
/// Outage of the broker, longer than the detection of a dead connection and a reconnection.
const OUTAGE: Duration = Duration::from_secs(4);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(NATS, campaign_nats:
        a_campaign_runs_from_orders_to_one_result,
        a_broker_may_die_before_the_start,
        a_broker_may_die_while_jobs_run,
        a_broker_may_die_while_results_arrive,
        a_controller_may_die_before_the_start,
        a_controller_may_die_while_jobs_run,
        a_controller_may_die_after_all_results_are_reported,
        an_agent_that_dies_is_named_as_lost,
        a_restarted_agent_reports_the_job_that_it_lost,
        a_healed_network_partition_loses_nothing,
        an_interrupted_controller_keeps_its_results,
        a_cluster_of_agents_runs_in_step,
    ));
    for more in [partitions::all(), plans::all(), crashes::all()] {
        all.extend(more);
    }
    all
}

/// Returns the outcome of each job by its name; each job must occur once in the result.
pub(crate) fn job_outcomes(result: &Value) -> Result<BTreeMap<String, String>> {
    let parts = result["parts"].as_array().context("no parts")?;
    let mut endings = BTreeMap::new();
    for part in parts {
        let job = part["job"].as_str().context("no job")?.to_owned();
        let how = part["end"].as_str().unwrap_or("none").to_owned();
        ensure!(endings.insert(job.clone(), how).is_none(), "duplicate outcome of {job}");
    }
    Ok(endings)
}

/// Checks that all timer jobs are done, each once and with its own result.
pub(crate) fn check_all_done(result: &Value, agents: usize) -> Result<()> {
    let endings = job_outcomes(result)?;
    let expected = (1..=agents).map(|number| (format!("timer.{number}"), "done".to_owned()));
    ensure!(endings == expected.collect(), "{endings:?}");
    for part in result["parts"].as_array().into_iter().flatten() {
        let schema = part["result"]["schema"].as_str().unwrap_or_default();
        ensure!(schema.starts_with("horolog.host-timer/"), "{}: '{schema}'", part["job"]);
    }
    Ok(())
}

/// Checks a campaign with a far end, a path and a timer, on agents that the plan selects by their
/// labels.
pub(crate) fn a_campaign_runs_from_orders_to_one_result() -> Result<()> {
    let mut field =
        CampaignTestbed::without_agents(2, crate::campaign_lab::NatsServer::start_open)?;
    let (far, near) =
        (field.lab.client().interfaces[0].ipv4, field.lab.host(1).first_interface().ipv4);
    // The agent on the broker's host serves the far end, which agent 1 reaches.
    let mut command = field.lab.client().command(crate::process::binary()?);
    command.args(["campaign", "agent", "--name", "n0", "--clock-server", &far.to_string()]);
    command.args(["--address", &far.to_string(), "--label", "number=0", "--state"]);
    command.arg(field.directory.path().join("state0"));
    let log = field.directory.path().join("agent0.log");
    let mut agent = crate::campaign_lab::Program::start(&mut command, log)?;
    agent.await_output("is ready")?;
    for number in [1, 2] {
        field.start_agent(number, &[])?;
    }
    let plan = r#"
schema = "horolog.plan/2"
name = "mixed"
duration-max = "30s"
max-offset = "100ms"
[[role]]
name = "far"
kind = "path-serve"
count = 1
labels = { number = "0" }
[role.options]
listen = "{self}:4001"
[[role]]
name = "near"
kind = "path-udp"
count = 1
labels = { number = "1" }
[role.options]
target = "{far}:4001"
[[role]]
name = "timer"
kind = "host-timer"
count = 1
labels = { number = "2" }
[role.options]
time = "2s"
"#;
    let mut controller = field.run(plan, &[])?;
    let result = field.result(&mut controller, 0)?;
    let endings = job_outcomes(&result)?;
    let done = |job: &str| endings.get(job).is_some_and(|how| how == "done");
    ensure!(done("far.1") && done("near.1") && done("timer.1"), "{endings:?}");
    let controller_output = controller.output();
    ensure!(controller_output.contains("n1: near.1: started"), "{controller_output}");
    ensure!(
        controller_output.contains("n0: accepted") && controller_output.contains("n2: ready"),
        "{controller_output}"
    );
    let parts = result["parts"].as_array().context("no parts")?;
    let part = parts.iter().find(|part| part["job"] == "near.1").context("no path")?;
    ensure!(part["agent"] == "n1" && part["address"] == near.to_string(), "{part}");
    // The campaign is no longer stored at the broker, and the agents are free.
    let mut list = field.lab.client().command(crate::process::binary()?);
    list.args(["campaign", "list", "--json"]);
    let output = crate::process::run_to_end(&mut list, crate::process::TIMEOUT)?;
    let list: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(list["campaigns"] == serde_json::json!([]), "{list}");
    ensure!(list["agents"].as_array().is_some_and(|agents| agents.len() == 3), "{list}");
    Ok(())
}

/// Kills the broker and restarts it after an outage.
fn interrupt_broker(field: &mut CampaignTestbed) -> Result<()> {
    field.nats.crash()?;
    thread::sleep(OUTAGE);
    field.nats.restart(field.lab.client())
}

pub(crate) fn a_broker_may_die_before_the_start() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    // The lead time exceeds the outage, so that agents without the start time still receive it.
    let mut controller = field.run(&timer_plan(AGENTS, 1), &["--lead-time", "10s"])?;
    controller.await_output("all are ready")?;
    interrupt_broker(&mut field)?;
    check_all_done(&field.result(&mut controller, 0)?, AGENTS)
}

pub(crate) fn a_broker_may_die_while_jobs_run() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    let mut controller = field.run(&timer_plan(AGENTS, SECONDS), &[])?;
    controller.await_output("timer.1: started")?;
    interrupt_broker(&mut field)?;
    let result = field.result(&mut controller, 0)?;
    ensure!(controller.output().contains("waiting for it"), "{}", controller.output());
    check_all_done(&result, AGENTS)
}

/// Checks that results arrive if the broker dies before the jobs end and restarts after all have
/// ended, so that every result waits in a spool.
pub(crate) fn a_broker_may_die_while_results_arrive() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    let mut controller = field.run(&timer_plan(AGENTS, 2), &[])?;
    controller.await_output("timer.1: started")?;
    field.nats.crash()?;
    for agent in field.agents.values_mut() {
        agent.await_output("is finished here")?;
    }
    field.nats.restart(field.lab.client())?;
    // A second outage after the first result.
    controller.await_output("done with status")?;
    interrupt_broker(&mut field)?;
    check_all_done(&field.result(&mut controller, 0)?, AGENTS)
}

/// Kills the controller when its output contains `expected`, and returns the result of a resumed
/// one.
fn kill_and_resume(
    field: &CampaignTestbed,
    expected: &str,
    lead: &str,
    seconds: u32,
) -> Result<Value> {
    let mut controller = field.run(&timer_plan(AGENTS, seconds), &["--lead-time", lead])?;
    let campaign = campaign_id(&mut controller)?;
    controller.await_output(expected)?;
    controller.kill()?;
    let mut resumed = field.resume(&campaign, &[])?;
    field.result(&mut resumed, 0)
}

pub(crate) fn a_controller_may_die_before_the_start() -> Result<()> {
    let field = CampaignTestbed::new(AGENTS)?;
    check_all_done(&kill_and_resume(&field, "jobs on", "2s", 1)?, AGENTS)?;
    check_all_done(&kill_and_resume(&field, "accepted", "2s", 1)?, AGENTS)?;
    check_all_done(&kill_and_resume(&field, "all are ready", "4s", 1)?, AGENTS)
}

pub(crate) fn a_controller_may_die_while_jobs_run() -> Result<()> {
    let field = CampaignTestbed::new(AGENTS)?;
    check_all_done(&kill_and_resume(&field, "timer.2: started", "2s", 3)?, AGENTS)?;
    check_all_done(&kill_and_resume(&field, "done with status", "2s", 1)?, AGENTS)
}

/// Checks that a resumed controller collects the results if the first one dies before all are
/// reported and nothing more will be.
pub(crate) fn a_controller_may_die_after_all_results_are_reported() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    let mut controller = field.run(&timer_plan(AGENTS, 1), &[])?;
    let campaign = campaign_id(&mut controller)?;
    controller.await_output("started")?;
    controller.kill()?;
    for agent in field.agents.values_mut() {
        agent.await_output("is finished here")?;
    }
    // Stores a duplicate outcome, an unexpected report and an unreadable message.
    field.lab.client().run(|| report_again(&campaign))??;
    let mut resumed = field.resume(&campaign, &[])?;
    let result = field.result(&mut resumed, 0)?;
    check_all_done(&result, AGENTS)?;
    let delivery = json!({
        "unusable": [], "duplicate_outcomes": 1, "unexpected_reports": 1, "unreadable_messages": 1,
    });
    ensure!(result["delivery"] == delivery, "{}", result["delivery"]);
    // A campaign cannot be resumed after its result was written.
    let mut again = field.resume(&campaign, &[])?;
    let ended = again.wait()?;
    ensure!(ended.code() == Some(2), "{ended}: {}", again.output());
    ensure!(again.output().contains("is unknown or finished"), "{}", again.output());
    Ok(())
}

/// Publishes a stored outcome again, under another identifier and by an unknown agent, and bytes
/// that are no report.
fn report_again(campaign: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let broker = BrokerOptions::unencrypted(vec!["nats://127.0.0.1:4222".to_owned()]);
        let store =
            BrokerStore::open(broker.connect("again", "again").await?, &broker.servers_text(), 1)
                .await?;
        let (campaign, mut from) = (campaign.parse()?, 0);
        let report = loop {
            let report =
                store.next_report(&campaign, from).await?.context("no outcome is stored")?;
            from = report.sequence + 1;
            // The line before a report has its identifier, which ends with the job.
            let line = report.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            if String::from_utf8_lossy(line).contains("timer.") {
                break report;
            }
        };
        store
            .publish_report(&campaign, &report.agent.parse()?, "again", report.bytes.clone())
            .await?;
        store.publish_report(&campaign, &"stranger".parse()?, "strange", report.bytes).await?;
        Ok(store.publish_report(&campaign, &"n1".parse()?, "nothing", b"nothing".to_vec()).await?)
    })
}

pub(crate) fn an_agent_that_dies_is_named_as_lost() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    let plan = timer_plan(AGENTS, 3);
    let mut controller = field.run(&plan, &["--agent-timeout", "2s"])?;
    controller.await_output("n2: timer.2: started")?;
    field.kill_agent(2)?;
    let result = field.result(&mut controller, 1)?;
    let endings = job_outcomes(&result)?;
    let done = |job: &str| endings.get(job).is_some_and(|how| how == "done");
    ensure!(done("timer.1") && done("timer.3"), "{endings:?}");
    ensure!(endings["timer.2"] == "lost", "{endings:?}");
    ensure!(controller.output().contains("n2: lost"), "{}", controller.output());
    let findings = result["findings"].to_string();
    ensure!(findings.contains("n2"), "{findings}");
    Ok(())
}

pub(crate) fn a_restarted_agent_reports_the_job_that_it_lost() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    let mut controller = field.run(&timer_plan(AGENTS, 3), &[])?;
    controller.await_output("n2: timer.2: started")?;
    field.kill_agent(2)?;
    field.start_agent(2, &[])?;
    let result = field.result(&mut controller, 1)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings.get("timer.2").is_some_and(|how| how == "interrupted"), "{endings:?}");
    ensure!(endings.len() == AGENTS, "{endings:?}");
    // The agent is available to the next campaign.
    let mut controller = field.run(&timer_plan(AGENTS, 1), &[])?;
    check_all_done(&field.result(&mut controller, 0)?, AGENTS)
}

pub(crate) fn a_healed_network_partition_loses_nothing() -> Result<()> {
    let mut field = CampaignTestbed::new(AGENTS)?;
    let mut controller = field.run(&timer_plan(AGENTS, 2), &[])?;
    controller.await_output("n2: timer.2: started")?;
    field.set_link(2, false)?;
    let agent = field.agents.get_mut(&2).context("no agent")?;
    agent.await_output("is finished here")?;
    agent.await_output("continues without it")?;
    field.set_link(2, true)?;
    check_all_done(&field.result(&mut controller, 0)?, AGENTS)
}

pub(crate) fn an_interrupted_controller_keeps_its_results() -> Result<()> {
    let field = CampaignTestbed::new(AGENTS)?;
    let mut controller = field.run(&timer_plan(AGENTS, 60), &[])?;
    controller.await_output("n2: timer.2: started")?;
    thread::sleep(Duration::from_secs(1));
    controller.signal("INT")?;
    let result = field.result(&mut controller, 0)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings.len() == AGENTS, "{endings:?}");
    ensure!(endings.values().all(|how| how == "abandoned"), "{endings:?}");
    ensure!(result["interrupted"] == true, "the result is not marked as interrupted");
    Ok(())
}

/// Checks the built-in cluster plan with a slow second node: agents whose policy lists its kinds
/// run it, and the result names the agent for which the others wait.
pub(crate) fn a_cluster_of_agents_runs_in_step() -> Result<()> {
    let mut field =
        CampaignTestbed::without_agents(2, crate::campaign_lab::NatsServer::start_open)?;
    let policy = field.directory.path().join("policy.toml");
    let kinds = "schema = \"horolog.policy/1\"\nkinds = [\"cycle-lead\", \"cycle-join\"]\n";
    std::fs::write(&policy, kinds)?;
    let policy = policy.display().to_string();
    for number in [1, 2] {
        field.start_agent(number, &["--policy", &policy])?;
    }
    let (mut command, _) = field.controller(&["rt-cluster"])?;
    for set in ["nodes=2", "period=40ms", "time=1s", "slow=2=5"] {
        command.args(["--set", set]);
    }
    let log = field.directory.path().join("controller.log");
    let mut controller = crate::campaign_lab::Program::start(&mut command, log)?;
    let result = field.result(&mut controller, 0)?;
    let roles = result["roles"].as_array().context("no roles")?;
    let cycles = &roles[0]["merged"]["cycles"];
    ensure!(cycles["tasks"][0]["nodes"] == 2 && cycles["tasks"][0]["periods"] == 50, "{cycles}");
    ensure!(cycles["nodes"][1]["job"] == "member.1", "{cycles}");
    let agent = cycles["nodes"][1]["agent"].as_str().context("no agent")?;
    let named = format!("member1 is member.1 on {agent}.");
    ensure!(result["findings"].to_string().contains(&named), "{}", result["findings"]);
    ensure!(job_outcomes(&result)?.values().all(|how| how == "done"), "{result}");
    Ok(())
}
