//! Scenarios of controllers: one that loses an answer of its broker and one that another has
//! taken over from.

use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::campaign_lab::{Field, campaign_of, timers};
use crate::campaign_nats::{all_done, endings};
use crate::campaign_proxy::{self, Loss, PROXY_PORT};
use crate::scenario::Need;
use crate::{campaign_control, scenarios};

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];

pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(NATS, campaign_control:
        an_answer_that_is_lost_makes_no_second_instant,
        a_controller_that_was_taken_over_from_has_no_last_word,
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
