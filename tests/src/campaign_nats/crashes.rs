//! Scenarios of campaigns in which something dies at a point that the others leave out: an agent
//! that has not delivered, or that has a start time and dies before it; anything while services
//! end; and everything at once.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::campaign_lab::{Field, Program, campaign_of, timers};
use crate::campaign_nats::{all_done, crashes, endings};
use crate::scenario::Need;
use crate::scenarios;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Longer than it takes a controller to act upon what it has read.
const ACTING: Duration = Duration::from_secs(1);

pub(crate) fn all() -> Vec<Trial> {
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

/// It has measured while the broker was away, and is killed before it could tell.
pub(crate) fn an_agent_that_dies_with_its_result_delivers_it_later() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(&timers(2, 2), &[])?;
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
    all_done(&result, 2)
}

/// Its next start finds that it had an order, and says so; nothing of it is begun late.
pub(crate) fn an_agent_that_dies_before_the_start_time_does_not_measure() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(&timers(2, 1), &["--lead-time", "10s"])?;
    controller.await_output("all are ready")?;
    field.kill_agent(2)?;
    field.start_agent(2, &[])?;
    let result = field.result(&mut controller, 1)?;
    let endings = endings(&result)?;
    ensure!(endings["timer.1"] == "done" && endings["timer.2"] == "interrupted", "{endings:?}");
    ensure!(!controller.output().contains("timer.2: started"), "{}", controller.output());
    Ok(())
}

/// The second agent has a service, the first a measurement.
const SERVED: &str = r#"
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

/// A campaign whose measurements are all told, and whose services have been told to end by a
/// controller, and have not, since their agent is stopped.
fn ending() -> Result<(Field, Program, String)> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(SERVED, &[])?;
    let campaign = campaign_of(&mut controller)?;
    controller.await_output("timer.1: started")?;
    field.agents.get_mut(&2).context("no agent")?.signal("STOP")?;
    controller.await_output("timer.1: done with status 0; 1 job left")?;
    thread::sleep(ACTING);
    Ok((field, controller, campaign))
}

fn served(field: &Field, controller: &mut Program) -> Result<()> {
    let endings = endings(&field.result(controller, 0)?)?;
    ensure!(endings.len() == 2 && endings.values().all(|how| how == "done"), "{endings:?}");
    Ok(())
}

pub(crate) fn a_broker_may_die_while_services_end() -> Result<()> {
    let (mut field, mut controller, _) = ending()?;
    field.nats.crash()?;
    let agent = field.agents.get_mut(&2).context("no agent")?;
    agent.signal("CONT")?;
    controller.await_output("waiting for it")?;
    field.nats.restart(field.lab.client())?;
    served(&field, &mut controller)
}

pub(crate) fn a_controller_may_die_while_services_end() -> Result<()> {
    let (mut field, controller, campaign) = ending()?;
    controller.kill()?;
    let mut resumed = field.resume(&campaign, &[])?;
    resumed.await_output("timer.1: done with status")?;
    field.agents.get_mut(&2).context("no agent")?.signal("CONT")?;
    served(&field, &mut resumed)
}

/// What was measured stays, and what is lacking is said.
pub(crate) fn an_agent_that_dies_while_services_end_is_named() -> Result<()> {
    let (mut field, mut controller, _) = ending()?;
    field.kill_agent(2)?;
    field.start_agent(2, &[])?;
    let result = field.result(&mut controller, 1)?;
    let endings = endings(&result)?;
    ensure!(endings["timer.1"] == "done" && endings["far.1"] == "interrupted", "{endings:?}");
    ensure!(result["findings"].to_string().contains("far.1 on n2 ended with its agent"));
    Ok(())
}

/// The controller has been interrupted and dies before all have ended; the next one ends it too.
pub(crate) fn an_abandoned_campaign_stays_abandoned() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(&timers(2, 60), &[])?;
    let campaign = campaign_of(&mut controller)?;
    controller.await_output("timer.2: started")?;
    field.agents.get_mut(&2).context("no agent")?.signal("STOP")?;
    controller.signal("INT")?;
    controller.await_output("timer.1: ended early")?;
    controller.kill()?;
    let mut resumed = field.resume(&campaign, &[])?;
    resumed.await_output("timer.1: ended early")?;
    field.agents.get_mut(&2).context("no agent")?.signal("CONT")?;
    let result = field.result(&mut resumed, 0)?;
    let endings = endings(&result)?;
    ensure!(endings.len() == 2 && endings.values().all(|how| how == "abandoned"), "{endings:?}");
    ensure!(result["interrupted"] == true, "it does not say so");
    Ok(())
}

/// The broker, the controller and an agent are killed in one moment, while all measure.
pub(crate) fn all_may_die_at_once() -> Result<()> {
    let mut field = Field::new(3)?;
    let mut controller = field.run(&timers(3, 4), &[])?;
    let campaign = campaign_of(&mut controller)?;
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
    let endings = endings(&result)?;
    ensure!(endings.len() == 3 && endings["timer.2"] == "interrupted", "{endings:?}");
    ensure!(endings["timer.1"] == "done" && endings["timer.3"] == "done", "{endings:?}");
    ensure!(result["delivery"]["duplicate_outcomes"] == 0, "{}", result["delivery"]);
    Ok(())
}
