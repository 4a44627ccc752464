//! Scenarios of controllers: one that loses an answer of its broker, one that another has taken
//! over from, one that cannot have an agent, one that ends without all that was measured.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_campaign::assignment::Assignment;
use horolog_campaign::nats::{BrokerOptions, BrokerStore};
use horolog_campaign::order::{Job, Order, PROTOCOL};
use horolog_campaign::role::RoleKind;
use libtest_mimic::Trial;

use crate::campaign_lab::{Field, campaign_of, timers};
use crate::campaign_nats::{all_done, endings};
use crate::campaign_proxy::{self, Loss, PROXY_PORT};
use crate::scenario::Need;
use crate::{campaign_control, scenarios};

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Much less than an agent waits for an instant.
const START_MAX: Duration = Duration::from_secs(20);
/// Longer than it takes until the broker knows that an agent is free.
const RELEASE_TIME: Duration = Duration::from_secs(4);

pub(crate) fn all() -> Vec<Trial> {
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

/// The broker has the instant for the first agent, nobody hears so, and the others cannot be told
/// before it is over.
pub(crate) fn a_lost_broker_response_sets_no_second_start_time() -> Result<()> {
    let field = Field::new(2)?;
    let subject = "$KV.horolog-orders.n1".to_owned();
    // Behind the order itself.
    let loss = Loss { subject, number: 2, away: Duration::from_secs(4) };
    campaign_proxy::open(field.lab.client(), loss)?;
    let proxy = format!("nats://127.0.0.1:{PROXY_PORT}");
    let mut controller = field.run(&timers(2, 1), &["--nats", &proxy])?;
    let result = field.result(&mut controller, 1)?;
    let endings = endings(&result)?;
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
    let field = Field::new(2)?;
    let mut first = field.run(&timers(2, 6), &[])?;
    let campaign = campaign_of(&mut first)?;
    first.await_output("timer.2: started")?;
    first.signal("STOP")?;
    let mut second = field.resume(&campaign, &["--grace", "5s"])?;
    second.await_output("timer.2: started")?;
    first.signal("CONT")?;
    ensure!(first.wait()?.code() == Some(3), "{}", first.output());
    ensure!(first.output().contains("another controller took over"), "{}", first.output());
    all_done(&field.result(&mut second, 0)?, 2)
}

/// An order of another campaign for the second agent, which has not seen it yet.
fn order_of_another() -> Result<Order> {
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
    let mut field = Field::new(2)?;
    let second = field.agents.remove(&2).context("no agent")?;
    // It is known as free, and has an order that it does not see before this campaign's is given.
    second.signal("STOP")?;
    let order = order_of_another()?;
    field.lab.client().run(|| store_order(order))??;
    let mut controller = field.run(&timers(2, 1), &[])?;
    let first = field.agents.get_mut(&1).context("no agent")?;
    first.await_output("executing timers")?;
    second.signal("CONT")?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.output());
    let output = controller.output();
    ensure!(output.contains("agent n2 is busy with campaign another-1"), "{output}");
    let began = Instant::now();
    first.await_output("is finished here")?;
    ensure!(began.elapsed() < START_MAX, "it took {:?}", began.elapsed());
    Ok(())
}

/// Its network is away until the result is written; then it is in the result of whoever goes on.
pub(crate) fn late_reports_of_a_lost_agent_are_collected() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(&timers(2, 2), &["--agent-timeout", "2s"])?;
    let campaign = campaign_of(&mut controller)?;
    controller.await_output("n2: timer.2: started")?;
    field.set_link(2, false)?;
    let result = field.result(&mut controller, 1)?;
    ensure!(endings(&result)?["timer.2"] == "lost", "{result}");
    let findings = result["findings"].to_string();
    ensure!(findings.contains(&format!("--resume {campaign}")), "{findings}");
    field.set_link(2, true)?;
    let agent = field.agents.get_mut(&2).context("no agent")?;
    agent.await_output("reconnected")?;
    let mut resumed = field.resume(&campaign, &[])?;
    all_done(&field.result(&mut resumed, 0)?, 2)?;
    // Now it is over, and the agents are free.
    let mut again = field.resume(&campaign, &[])?;
    ensure!(again.wait()?.code() == Some(2), "{}", again.output());
    let mut next = field.run(&timers(2, 1), &[])?;
    all_done(&field.result(&mut next, 0)?, 2)
}

pub(crate) fn results_received_before_a_broker_is_lost_remain() -> Result<()> {
    let mut field = Field::new(2)?;
    let (short, long) = (timers(1, 1), timers(1, 8));
    let plan = format!(
        "{short}{}",
        long[long.find("[[role]]").context("no role")?..]
            .replace("name = \"timer\"", "name = \"late\"")
    );
    let mut controller = field.run(&plan, &["--broker-timeout", "2s"])?;
    let campaign = campaign_of(&mut controller)?;
    controller.await_output("timer.1: done with status")?;
    field.nats.crash()?;
    let result = field.result(&mut controller, 1)?;
    let how = endings(&result)?;
    ensure!(how["timer.1"] == "done" && how["late.1"] == "lost", "{how:?}");
    ensure!(
        result["findings"].to_string().contains("broker-unreachable"),
        "{}",
        result["findings"]
    );
    field.nats.restart(field.lab.client())?;
    let mut resumed = field.resume(&campaign, &[])?;
    let how = endings(&field.result(&mut resumed, 0)?)?;
    ensure!(how.values().all(|how| how == "done"), "{how:?}");
    Ok(())
}

/// It has accepted and is gone before all are ready: nothing starts, and it is told who it is.
pub(crate) fn an_agent_that_dies_before_the_start_is_named() -> Result<()> {
    let mut field = Field::new(2)?;
    field.agents.get_mut(&2).context("no agent")?.signal("STOP")?;
    let mut controller = field.run(&timers(2, 1), &[])?;
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
    let mut field = Field::new(2)?;
    let mut second = field.agents.remove(&2).context("no agent")?;
    second.signal("STOP")?;
    let mut controller = field.run(&timers(2, 1), &[])?;
    controller.await_output("n1: ready")?;
    field.nats.crash()?;
    second.signal("CONT")?;
    controller.await_output("waiting for it")?;
    field.nats.restart(field.lab.client())?;
    let result = field.result(&mut controller, 0)?;
    second.await_output("is finished here")?;
    all_done(&result, 2)
}

/// It has lost what it kept while jobs ran. Reports have their first places again, and the results
/// still come.
pub(crate) fn a_broker_may_restart_empty() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(&timers(2, 6), &[])?;
    controller.await_output("timer.2: started")?;
    field.nats.crash()?;
    std::fs::remove_dir_all(field.nats.directory().join("store"))?;
    field.nats.restart(field.lab.client())?;
    all_done(&field.result(&mut controller, 0)?, 2)
}

/// The one before has heard the agents' answers; that the clock of the one that goes on is wrong is
/// found all the same.
pub(crate) fn a_resumed_controller_has_its_clock_checked() -> Result<()> {
    let mut field = Field::new(2)?;
    for (wrong, side) in [("-60s", "behind that of"), ("+60s", "ahead of that of")] {
        // It does not answer before the first controller has gone, which so has named no instant.
        let second = field.agents.get_mut(&2).context("no agent")?;
        second.signal("STOP")?;
        let mut controller = field.run(&timers(2, 1), &[])?;
        let campaign = campaign_of(&mut controller)?;
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
        // One that is stopped before it has said that it is free is taken for busy.
        thread::sleep(RELEASE_TIME);
    }
    Ok(())
}
