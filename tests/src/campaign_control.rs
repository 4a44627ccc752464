//! Scenarios of controllers: a lost response of the broker, a takeover by another controller, an
//! agent that is unavailable, an end without all results.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_campaign::assignment::Assignment;
use horolog_campaign::nats::{BrokerOptions, BrokerStore};
use horolog_campaign::order::{Job, Order, PROTOCOL};
use horolog_campaign::role::RoleKind;

use crate::campaign_lab::{CampaignTestbed, campaign_id, timer_plan};
use crate::campaign_nats::{check_all_done, job_outcomes};
use crate::campaign_proxy::{self, PROXY_PORT, ResponseLoss};
use crate::scenario::{Need, Scenario};
use crate::{campaign_control, scenarios};

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Maximum time until an agent is released; much less than its wait for a start time.
const RELEASE_MAX: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(NATS, campaign_control:
        a_lost_broker_response_sets_no_second_start_time,
        a_superseded_controller_changes_nothing,
        an_occupied_agent_leaves_the_others_free,
        late_reports_of_a_lost_agent_are_collected,
        results_received_before_a_broker_is_lost_remain,
        an_agent_that_dies_before_the_start_is_named,
        a_broker_may_die_before_all_are_ready,
        a_broker_may_restart_empty,
        a_resumed_controller_has_its_clock_checked,
    ))
}

/// Checks that no second start time is set if the broker stores the one of the first agent but its
/// response is lost, and the other agent cannot be reached before that time has passed.
pub(crate) fn a_lost_broker_response_sets_no_second_start_time() -> Result<()> {
    let field = CampaignTestbed::new(2)?;
    let subject = "$KV.horolog-orders.n1".to_owned();
    // The first message on the subject is the order itself.
    let loss = ResponseLoss { subject, number: 2, outage: Duration::from_secs(4) };
    campaign_proxy::open_proxy(field.lab.client(), loss)?;
    let proxy = format!("nats://127.0.0.1:{PROXY_PORT}");
    let mut controller = field.run(&timer_plan(2, 1), &["--nats", &proxy])?;
    let result = field.result(&mut controller, 1)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings["timer.1"] == "done" && endings["timer.2"] == "refused", "{endings:?}");
    ensure!(
        !result["findings"].to_string().contains("start-times-differ"),
        "{}",
        result["findings"]
    );
    ensure!(controller.output().contains("waiting for it"), "{}", controller.output());
    Ok(())
}

pub(crate) fn a_superseded_controller_changes_nothing() -> Result<()> {
    let field = CampaignTestbed::new(2)?;
    let mut first = field.run(&timer_plan(2, 6), &[])?;
    let campaign = campaign_id(&mut first)?;
    first.await_output("timer.2: started")?;
    first.signal("STOP")?;
    let mut second = field.resume(&campaign, &["--grace", "5s"])?;
    second.await_output("timer.2: started")?;
    first.signal("CONT")?;
    ensure!(first.wait()?.code() == Some(3), "{}", first.output());
    ensure!(first.output().contains("another controller took over"), "{}", first.output());
    check_all_done(&field.result(&mut second, 0)?, 2)
}

/// Returns an order of another campaign for the second agent, which has not received it yet.
fn other_campaign_order() -> Result<Order> {
    let job = Job {
        id: "other.1".parse()?,
        kind: RoleKind::HostTimer,
        options: BTreeMap::new(),
        service: false,
    };
    Ok(Order {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        campaign: "another-1".parse()?,
        agent: "n2".parse()?,
        plan_hash: "00".to_owned(),
        deadline_ns: 1_000_000_000,
        jobs: vec![job],
    })
}

fn store_order(order: Order) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let broker = BrokerOptions::unencrypted(vec!["nats://127.0.0.1:4222".to_owned()]);
        let store = BrokerStore::open(
            broker.connect("another", "another").await?,
            &broker.servers_text(),
            1,
        )
        .await?;
        let agent = order.agent.clone();
        store.put_order(&agent, Assignment { order, word: None }.pack(), 0).await?;
        Ok(())
    })
}

pub(crate) fn an_occupied_agent_leaves_the_others_free() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let second = field.agents.remove(&2).context("no agent")?;
    // The agent is listed as free, but has an order that it will read before that of this campaign.
    second.signal("STOP")?;
    let order = other_campaign_order()?;
    field.lab.client().run(|| store_order(order))??;
    let mut controller = field.run(&timer_plan(2, 1), &[])?;
    let first = field.agents.get_mut(&1).context("no agent")?;
    first.await_output("executing timers")?;
    second.signal("CONT")?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.output());
    let output = controller.output();
    ensure!(output.contains("agent n2 is busy with campaign another-1"), "{output}");
    let began = Instant::now();
    first.await_output("is finished here")?;
    ensure!(began.elapsed() < RELEASE_MAX, "agent n1 was released after {:?}", began.elapsed());
    Ok(())
}

/// Checks that the reports of an agent that was disconnected until the result was written are in
/// the result of a resumed controller.
pub(crate) fn late_reports_of_a_lost_agent_are_collected() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(&timer_plan(2, 2), &["--agent-timeout", "2s"])?;
    let campaign = campaign_id(&mut controller)?;
    controller.await_output("n2: timer.2: started")?;
    field.set_link(2, false)?;
    let result = field.result(&mut controller, 1)?;
    ensure!(job_outcomes(&result)?["timer.2"] == "lost", "{result}");
    let findings = result["findings"].to_string();
    ensure!(findings.contains(&format!("--resume {campaign}")), "{findings}");
    field.set_link(2, true)?;
    let agent = field.agents.get_mut(&2).context("no agent")?;
    agent.await_output("reconnected")?;
    let mut resumed = field.resume(&campaign, &[])?;
    check_all_done(&field.result(&mut resumed, 0)?, 2)?;
    // The campaign has ended, and the agents are free.
    let mut again = field.resume(&campaign, &[])?;
    ensure!(again.wait()?.code() == Some(2), "{}", again.output());
    let mut next = field.run(&timer_plan(2, 1), &[])?;
    check_all_done(&field.result(&mut next, 0)?, 2)
}

pub(crate) fn results_received_before_a_broker_is_lost_remain() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let (short, long) = (timer_plan(1, 1), timer_plan(1, 8));
    let plan = format!(
        "{short}{}",
        long[long.find("[[role]]").context("no role")?..]
            .replace("name = \"timer\"", "name = \"late\"")
    );
    let mut controller = field.run(&plan, &["--broker-timeout", "2s"])?;
    let campaign = campaign_id(&mut controller)?;
    controller.await_output("timer.1: done with status")?;
    field.nats.crash()?;
    let result = field.result(&mut controller, 1)?;
    let outcomes = job_outcomes(&result)?;
    ensure!(outcomes["timer.1"] == "done" && outcomes["late.1"] == "lost", "{outcomes:?}");
    ensure!(
        result["findings"].to_string().contains("broker-unreachable"),
        "{}",
        result["findings"]
    );
    field.nats.restart(field.lab.client())?;
    let mut resumed = field.resume(&campaign, &[])?;
    let how = job_outcomes(&field.result(&mut resumed, 0)?)?;
    ensure!(how.values().all(|how| how == "done"), "{how:?}");
    Ok(())
}

/// Checks that nothing starts if an agent dies between its acceptance and the readiness of all, and
/// that the controller names the agent.
pub(crate) fn an_agent_that_dies_before_the_start_is_named() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    field.agents.get_mut(&2).context("no agent")?.signal("STOP")?;
    let mut controller = field.run(&timer_plan(2, 1), &[])?;
    controller.await_output("n1: ready")?;
    field.kill_agent(2)?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.output());
    let output = controller.output();
    ensure!(output.contains("no reply in time from n2"), "{output}");
    ensure!(!output.contains(": started"), "{output}");
    let first = field.agents.get_mut(&1).context("no agent")?;
    first.await_output("is finished here")
}

pub(crate) fn a_broker_may_die_before_all_are_ready() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut second = field.agents.remove(&2).context("no agent")?;
    second.signal("STOP")?;
    let mut controller = field.run(&timer_plan(2, 1), &[])?;
    controller.await_output("n1: ready")?;
    field.nats.crash()?;
    second.signal("CONT")?;
    controller.await_output("waiting for it")?;
    field.nats.restart(field.lab.client())?;
    let result = field.result(&mut controller, 0)?;
    second.await_output("is finished here")?;
    check_all_done(&result, 2)
}

/// Checks that results still arrive if the broker loses its storage while jobs run, so that the
/// sequence numbers of reports start again at the first.
pub(crate) fn a_broker_may_restart_empty() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(&timer_plan(2, 6), &[])?;
    controller.await_output("timer.2: started")?;
    field.nats.crash()?;
    std::fs::remove_dir_all(field.nats.directory().join("store"))?;
    field.nats.restart(field.lab.client())?;
    check_all_done(&field.result(&mut controller, 0)?, 2)
}

/// Checks that a resumed controller has its own clock compared with those of the agents, although
/// the one before has their replies.
pub(crate) fn a_resumed_controller_has_its_clock_checked() -> Result<()> {
    for (wrong, side) in [("-60s", "behind that of"), ("+60s", "ahead of that of")] {
        let mut field = CampaignTestbed::new(2)?;
        // The second agent replies only after the first controller was killed, so that no start
        // time is set.
        let second = field.agents.get_mut(&2).context("no agent")?;
        second.signal("STOP")?;
        let mut controller = field.run(&timer_plan(2, 1), &[])?;
        let campaign = campaign_id(&mut controller)?;
        controller.await_output("n1: ready")?;
        controller.kill()?;
        field.agents.get_mut(&2).context("no agent")?.signal("CONT")?;
        let mut resumed = field.resume(&campaign, &[&format!("--inject-clock-offset={wrong}")])?;
        let ended = resumed.wait()?;
        let output = resumed.output();
        ensure!(ended.code() == Some(3), "{ended}: {output}");
        ensure!(output.contains(&format!("{side} agent n")), "{output}");
        ensure!(!output.contains(": started"), "{output}");
        for agent in field.agents.values_mut() {
            agent.await_output(&format!("{campaign} is finished here"))?;
        }
    }
    Ok(())
}
