//! Scenarios of crashes at rarer points of a campaign: of an agent with undelivered results, of one
//! with a start time before that time, of any participant while services end, and of all at once.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::campaign_lab::{CampaignTestbed, Program, campaign_id, timer_plan};
use crate::campaign_nats::{check_all_done, crashes, job_outcomes};
use crate::scenario::{Need, Scenario};
use crate::scenarios;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Longer than the reaction of a controller to a message.
const REACTION_TIME: Duration = Duration::from_secs(1);

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(NATS, crashes:
        an_agent_that_dies_with_its_result_delivers_it_later,
        an_agent_that_dies_before_the_start_time_does_not_measure,
        a_broker_may_die_while_services_end,
        a_controller_may_die_while_services_end,
        an_agent_that_dies_while_services_end_is_named,
        an_abandoned_campaign_stays_abandoned,
        all_may_die_at_once,
    ))
}

/// Checks that an agent that measured during an outage of the broker, and is killed before it could
/// report, delivers its result after a restart.
pub(crate) fn an_agent_that_dies_with_its_result_delivers_it_later() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(&timer_plan(2, 2), &[])?;
    controller.await_output("timer.2: started")?;
    field.nats.crash()?;
    for agent in field.agents.values_mut() {
        agent.await_output("is finished here")?;
    }
    field.kill_agent(2)?;
    field.nats.restart(field.lab.client())?;
    controller.await_output("timer.1: done with status")?;
    ensure!(!controller.output().contains("timer.2: done"), "{}", controller.output());
    field.start_agent(2, &[])?;
    let result = field.result(&mut controller, 0)?;
    ensure!(result["delivery"]["duplicate_outcomes"] == 0, "{}", result["delivery"]);
    check_all_done(&result, 2)
}

/// Checks that an agent that is restarted after it received a start time reports its job as
/// interrupted and does not begin it late.
pub(crate) fn an_agent_that_dies_before_the_start_time_does_not_measure() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(&timer_plan(2, 1), &["--lead-time", "10s"])?;
    controller.await_output("all are ready")?;
    field.kill_agent(2)?;
    field.start_agent(2, &[])?;
    let result = field.result(&mut controller, 1)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings["timer.1"] == "done" && endings["timer.2"] == "interrupted", "{endings:?}");
    ensure!(!controller.output().contains("timer.2: started"), "{}", controller.output());
    Ok(())
}

/// Plan with a service on the second agent and a measurement on the first.
const SERVICE_PLAN: &str = r#"
schema = "horolog.plan/2"
name = "served"
duration-max = "30s"
max-offset = "100ms"
[[role]]
name = "far"
kind = "path-serve"
labels = { number = "2" }
[role.options]
listen = "{self}:4001"
[[role]]
name = "timer"
kind = "host-timer"
labels = { number = "1" }
[role.options]
time = "1s"
"#;

/// Starts a campaign until its measurements are reported and the controller has requested the end
/// of its service, whose agent is stopped.
fn campaign_with_ending_service() -> Result<(CampaignTestbed, Program, String)> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(SERVICE_PLAN, &[])?;
    let campaign = campaign_id(&mut controller)?;
    controller.await_output("timer.1: started")?;
    field.agents.get_mut(&2).context("no agent")?.signal("STOP")?;
    controller.await_output("timer.1: done with status 0; 1 job left")?;
    thread::sleep(REACTION_TIME);
    Ok((field, controller, campaign))
}

fn check_all_ended(field: &CampaignTestbed, controller: &mut Program) -> Result<()> {
    let endings = job_outcomes(&field.result(controller, 0)?)?;
    ensure!(endings.len() == 2 && endings.values().all(|how| how == "done"), "{endings:?}");
    Ok(())
}

pub(crate) fn a_broker_may_die_while_services_end() -> Result<()> {
    let (mut field, mut controller, _) = campaign_with_ending_service()?;
    field.nats.crash()?;
    let agent = field.agents.get_mut(&2).context("no agent")?;
    agent.signal("CONT")?;
    controller.await_output("waiting for it")?;
    field.nats.restart(field.lab.client())?;
    check_all_ended(&field, &mut controller)
}

pub(crate) fn a_controller_may_die_while_services_end() -> Result<()> {
    let (mut field, controller, campaign) = campaign_with_ending_service()?;
    controller.kill()?;
    let mut resumed = field.resume(&campaign, &[])?;
    resumed.await_output("timer.1: done with status")?;
    field.agents.get_mut(&2).context("no agent")?.signal("CONT")?;
    check_all_ended(&field, &mut resumed)
}

/// Checks that the measurements remain in the result, and that a finding names the agent.
pub(crate) fn an_agent_that_dies_while_services_end_is_named() -> Result<()> {
    let (mut field, mut controller, _) = campaign_with_ending_service()?;
    field.kill_agent(2)?;
    field.start_agent(2, &[])?;
    let result = field.result(&mut controller, 1)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings["timer.1"] == "done" && endings["far.1"] == "interrupted", "{endings:?}");
    ensure!(result["findings"].to_string().contains("far.1 on n2 ended with its agent"));
    Ok(())
}

/// Checks that a campaign remains abandoned if its controller is interrupted and dies before all
/// jobs have ended.
pub(crate) fn an_abandoned_campaign_stays_abandoned() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(&timer_plan(2, 60), &[])?;
    let campaign = campaign_id(&mut controller)?;
    controller.await_output("timer.2: started")?;
    field.agents.get_mut(&2).context("no agent")?.signal("STOP")?;
    controller.signal("INT")?;
    controller.await_output("timer.1: ended early")?;
    controller.kill()?;
    let mut resumed = field.resume(&campaign, &[])?;
    resumed.await_output("timer.1: ended early")?;
    field.agents.get_mut(&2).context("no agent")?.signal("CONT")?;
    let result = field.result(&mut resumed, 0)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings.len() == 2 && endings.values().all(|how| how == "abandoned"), "{endings:?}");
    ensure!(result["interrupted"] == true, "the result is not marked as interrupted");
    Ok(())
}

/// Checks that broker, controller and an agent may be killed at once during measurement.
pub(crate) fn all_may_die_at_once() -> Result<()> {
    let mut field = CampaignTestbed::new(3)?;
    let mut controller = field.run(&timer_plan(3, 4), &[])?;
    let campaign = campaign_id(&mut controller)?;
    for number in 1..=3 {
        controller.await_output(&format!("timer.{number}: started"))?;
    }
    field.nats.crash()?;
    controller.kill()?;
    field.kill_agent(2)?;
    for number in [1, 3] {
        field.agents.get_mut(&number).context("no agent")?.await_output("is finished here")?;
    }
    field.nats.restart(field.lab.client())?;
    field.start_agent(2, &[])?;
    let mut resumed = field.resume(&campaign, &[])?;
    let result = field.result(&mut resumed, 1)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings.len() == 3 && endings["timer.2"] == "interrupted", "{endings:?}");
    ensure!(endings["timer.1"] == "done" && endings["timer.3"] == "done", "{endings:?}");
    ensure!(result["delivery"]["duplicate_outcomes"] == 0, "{}", result["delivery"]);
    Ok(())
}
