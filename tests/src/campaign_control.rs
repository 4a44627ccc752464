//! Scenarios of controllers: one that loses an answer of its broker, one that another has taken
//! over from, one that cannot have an agent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_campaign::instruction::Instruction;
use horolog_campaign::nats::{Broker, Store};
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
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(NATS, campaign_control:
        an_answer_that_is_lost_makes_no_second_instant,
        a_controller_that_was_taken_over_from_has_no_last_word,
        an_agent_that_is_taken_leaves_the_others_free,
    ))
}

/// The broker has the instant for the first agent, nobody hears so, and the others cannot be told
/// before it is over.
pub(crate) fn an_answer_that_is_lost_makes_no_second_instant() -> Result<()> {
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
    ensure!(!result["findings"].to_string().contains("instants-differ"), "{}", result["findings"]);
    ensure!(controller.said().contains("waiting for it"), "{}", controller.said());
    Ok(())
}

pub(crate) fn a_controller_that_was_taken_over_from_has_no_last_word() -> Result<()> {
    let field = Field::new(2)?;
    let mut first = field.run(&timers(2, 6), &[])?;
    let campaign = campaign_of(&mut first)?;
    first.await_said("timer.2: started")?;
    first.signal("STOP")?;
    let mut second = field.resume(&campaign, &["--grace", "5s"])?;
    second.await_said("timer.2: started")?;
    first.signal("CONT")?;
    ensure!(first.wait()?.code() == Some(3), "{}", first.said());
    ensure!(first.said().contains("another controller goes on"), "{}", first.said());
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

fn give(order: Order) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let broker = Broker::plain(vec!["nats://127.0.0.1:4222".to_owned()]);
        let store = Store::open(broker.connect("another").await?, &broker.shown(), 1).await?;
        let agent = order.agent.clone();
        store.give(&agent, Instruction { order, word: None }.pack(), 0).await?;
        Ok(())
    })
}

pub(crate) fn an_agent_that_is_taken_leaves_the_others_free() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut second = field.agents.remove(&2).context("no agent")?;
    // It is known as free, and has an order that it does not see before this campaign's is given.
    second.signal("STOP")?;
    let order = order_of_another()?;
    field.lab.client().run(|| give(order))??;
    let mut controller = field.run(&timers(2, 1), &[])?;
    let first = field.agents.get_mut(&1).context("no agent")?;
    first.await_said("works for timers")?;
    second.signal("CONT")?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.said());
    let said = controller.said();
    ensure!(said.contains("agent n2 works for campaign another-1"), "{said}");
    let began = Instant::now();
    first.await_said("is over here")?;
    ensure!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    Ok(())
}
