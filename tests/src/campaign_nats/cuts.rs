//! Scenarios of campaigns whose frames vanish on the way without a word, as behind a switch that
//! has died: no link goes down, and nothing is refused. Both ways, one way only, so that what is
//! told arrives and its receipt does not, and between a controller and the broker.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::json;

use crate::campaign_lab::{Field, Program, timers};
use crate::campaign_nats::{all_done, cuts, endings};
use crate::scenario::Need;
use crate::scenarios;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// An Ethernet address that nobody has: whoever gets such a frame drops it.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 99];
/// Longer than a request to the broker may take, so that each end finds out.
const CUT: Duration = Duration::from_secs(7);

pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(NATS, cuts:
        frames_that_vanish_both_ways_lose_nothing,
        a_report_whose_receipt_vanishes_counts_once,
        a_controller_that_is_cut_off_goes_on,
    ))
}

/// Which way between the broker's host and another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    FromBroker,
    ToBroker,
}

const BOTH: [Way; 2] = [Way::FromBroker, Way::ToBroker];

/// Has frames vanish on these ways of host K's link, or come again.
fn vanish(field: &Field, number: usize, ways: &[Way], vanish: bool) -> Result<()> {
    let (middle, host) = (field.lab.client(), field.lab.host(number));
    let (near, far) = (&middle.ports[number - 1], host.port());
    for way in ways {
        let (at, from, to) = match way {
            Way::FromBroker => (middle, near, far),
            Way::ToBroker => (host, far, near),
        };
        let mac = if vanish { NOBODY } else { to.mac };
        at.netlink()?.add_permanent_neighbour(from.index, to.ipv4.into(), mac)?;
    }
    Ok(())
}

pub(crate) fn frames_that_vanish_both_ways_lose_nothing() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(&timers(2, 2), &[])?;
    controller.await_said("n2: timer.2: started")?;
    vanish(&field, 2, &BOTH, true)?;
    let mut agent = field.agents.remove(&2).context("no agent")?;
    agent.await_said("is over here")?;
    agent.await_said("goes on without it")?;
    vanish(&field, 2, &BOTH, false)?;
    let result = field.result(&mut controller, 0)?;
    all_done(&result, 2)?;
    ensure!(result["delivery"]["outcomes_twice"] == 0, "{}", result["delivery"]);
    Ok(())
}

/// The first agent measures for longer than the second one's link is cut, so that the controller
/// is there when the second tells once more what it does not know to have arrived.
const UNEVEN: &str = r#"
schema = "horolog.plan/1"
name = "uneven"
duration-max = "60s"
max-offset = "100ms"
[[role]]
name = "long"
kind = "host-timer"
labels = { number = "1" }
[role.options]
time = "25s"
[[role]]
name = "short"
kind = "host-timer"
labels = { number = "2" }
[role.options]
time = "2s"
"#;

pub(crate) fn a_report_whose_receipt_vanishes_counts_once() -> Result<()> {
    let mut field = Field::new(2)?;
    let mut controller = field.run(UNEVEN, &[])?;
    controller.await_said("n2: short.1: started")?;
    vanish(&field, 2, &[Way::FromBroker], true)?;
    // It has arrived, and the agent keeps it still.
    controller.await_said("short.1: done with status")?;
    let kept = fs::read_dir(field.directory.path().join("state2"))?.flatten();
    let kept = kept.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "report"));
    ensure!(kept.count() > 0, "its receipt has come");
    let mut agent = field.agents.remove(&2).context("no agent")?;
    agent.await_said("goes on without it")?;
    vanish(&field, 2, &[Way::FromBroker], false)?;
    agent.await_said("is back")?;
    let result = field.result(&mut controller, 0)?;
    let endings = endings(&result)?;
    ensure!(endings.len() == 2 && endings.values().all(|how| how == "done"), "{endings:?}");
    let delivery = json!({
        "unusable": [], "outcomes_twice": 0, "reports_strange": 0, "messages_unreadable": 0,
    });
    ensure!(result["delivery"] == delivery, "{}", result["delivery"]);
    Ok(())
}

/// It is on a host of its own, and cut off before there is an instant, and again while agents
/// measure and tell.
pub(crate) fn a_controller_that_is_cut_off_goes_on() -> Result<()> {
    let mut field = Field::without_agents(3, crate::campaign_lab::Nats::open)?;
    for number in [1, 2] {
        field.start_agent(number, &[])?;
    }
    let plan = field.directory.path().join("plan.toml");
    fs::write(&plan, timers(2, 2))?;
    let mut command = field.lab.host(3).command(crate::process::binary()?);
    command.args(["campaign", "run", "--nats", &field.broker_of(3), "--json"]);
    command.arg(field.directory.path().join("result.json")).arg(plan);
    let log = field.directory.path().join("controller.log");
    let mut controller = Program::start(&mut command, log)?;
    controller.await_said("jobs on")?;
    vanish(&field, 3, &BOTH, true)?;
    controller.await_said("waiting for it")?;
    vanish(&field, 3, &BOTH, false)?;
    controller.await_said("timer.2: started")?;
    vanish(&field, 3, &BOTH, true)?;
    for agent in field.agents.values_mut() {
        agent.await_said("is over here")?;
    }
    thread::sleep(CUT);
    vanish(&field, 3, &BOTH, false)?;
    all_done(&field.result(&mut controller, 0)?, 2)
}
