//! Scenarios of campaigns whose frames are dropped silently, as by a faulty switch: no link goes
//! down, and no connection is refused. Frames are dropped both ways, one way only, so that reports
//! arrive but their acknowledgements do not, and between a controller and the broker.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::campaign_lab::{CampaignTestbed, Program, timer_plan};
use crate::campaign_nats::{check_all_done, job_outcomes, partitions};
use crate::scenario::{Need, Scenario};
use crate::scenarios;

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// MAC address of no host: a receiver drops frames to it.
const UNUSED_MAC: [u8; 6] = [2, 0, 0, 0, 0, 99];
/// Duration of a partition, longer than the timeout of a request to the broker, so that both ends
/// detect it.
const PARTITION: Duration = Duration::from_secs(7);

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(NATS, partitions:
        frames_dropped_both_ways_lose_nothing,
        a_report_whose_acknowledgement_is_dropped_counts_once,
        a_partitioned_controller_resumes,
    ))
}

/// Direction of frames between the broker's host and another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    FromBroker,
    ToBroker,
}

const BOTH_DIRECTIONS: [Direction; 2] = [Direction::FromBroker, Direction::ToBroker];

/// Begins or ends the dropping of frames in these directions of host K's link.
fn drop_frames(
    field: &CampaignTestbed,
    number: usize,
    directions: &[Direction],
    drop_frames: bool,
) -> Result<()> {
    let (middle, host) = (field.lab.client(), field.lab.host(number));
    let (near, far) = (&middle.interfaces[number - 1], host.first_interface());
    for direction in directions {
        let (at, from, to) = match direction {
            Direction::FromBroker => (middle, near, far),
            Direction::ToBroker => (host, far, near),
        };
        let mac = if drop_frames { UNUSED_MAC } else { to.mac };
        at.netlink()?.add_permanent_neighbour(from.index, to.ipv4.into(), mac)?;
    }
    Ok(())
}

pub(crate) fn frames_dropped_both_ways_lose_nothing() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(&timer_plan(2, 2), &[])?;
    controller.await_output("n2: timer.2: started")?;
    drop_frames(&field, 2, &BOTH_DIRECTIONS, true)?;
    let mut agent = field.agents.remove(&2).context("no agent")?;
    agent.await_output("is finished here")?;
    agent.await_output("continues without it")?;
    drop_frames(&field, 2, &BOTH_DIRECTIONS, false)?;
    let result = field.result(&mut controller, 0)?;
    check_all_done(&result, 2)?;
    ensure!(result["delivery"]["duplicate_outcomes"] == 0, "{}", result["delivery"]);
    Ok(())
}

/// Plan in which the first agent measures for longer than the link of the second is cut, so that
/// the controller still runs when the second repeats its unacknowledged report.
const UNEVEN_PLAN: &str = r#"
schema = "horolog.plan/2"
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
time = "3s"
"#;

pub(crate) fn a_report_whose_acknowledgement_is_dropped_counts_once() -> Result<()> {
    let mut field = CampaignTestbed::new(2)?;
    let mut controller = field.run(UNEVEN_PLAN, &[])?;
    controller.await_output("n2: short.1: started")?;
    // Without the acknowledgement of this message the agent would send no report. It says nothing
    // when it has it, and the job takes three seconds. The report comes soon after the link is cut:
    // TCP holds it back once a timeout for earlier data has closed its window.
    thread::sleep(Duration::from_millis(2_700));
    drop_frames(&field, 2, &[Direction::FromBroker], true)?;
    // The report has arrived, but the agent still stores it.
    controller.await_output("short.1: done with status")?;
    let spooled = fs::read_dir(field.directory.path().join("state2"))?.flatten();
    let spooled =
        spooled.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "report"));
    ensure!(spooled.count() > 0, "no report in the spool");
    let mut agent = field.agents.remove(&2).context("no agent")?;
    agent.await_output("continues without it")?;
    drop_frames(&field, 2, &[Direction::FromBroker], false)?;
    agent.await_output("reconnected")?;
    let result = field.result(&mut controller, 0)?;
    let endings = job_outcomes(&result)?;
    ensure!(endings.len() == 2 && endings.values().all(|how| how == "done"), "{endings:?}");
    let delivery = json!({
        "unusable": [], "duplicate_outcomes": 0, "unexpected_reports": 0, "unreadable_messages": 0,
    });
    ensure!(result["delivery"] == delivery, "{}", result["delivery"]);
    Ok(())
}

/// Checks a controller on its own host that is cut off before a start time is set, and again while
/// agents measure and report.
pub(crate) fn a_partitioned_controller_resumes() -> Result<()> {
    let mut field =
        CampaignTestbed::without_agents(3, crate::campaign_lab::NatsServer::start_open)?;
    for number in [1, 2] {
        field.start_agent(number, &[])?;
    }
    let plan = field.directory.path().join("plan.toml");
    fs::write(&plan, timer_plan(2, 2))?;
    let mut command = field.lab.host(3).command(crate::process::binary()?);
    command.args(["campaign", "run", "--nats", &field.broker_url(3), "--json"]);
    command.arg(field.directory.path().join("result.json")).arg(plan);
    let log = field.directory.path().join("controller.log");
    let mut controller = Program::start(&mut command, log)?;
    controller.await_output("jobs on")?;
    drop_frames(&field, 3, &BOTH_DIRECTIONS, true)?;
    controller.await_output("waiting for it")?;
    drop_frames(&field, 3, &BOTH_DIRECTIONS, false)?;
    controller.await_output("timer.2: started")?;
    drop_frames(&field, 3, &BOTH_DIRECTIONS, true)?;
    for agent in field.agents.values_mut() {
        agent.await_output("is finished here")?;
    }
    thread::sleep(PARTITION);
    drop_frames(&field, 3, &BOTH_DIRECTIONS, false)?;
    check_all_done(&field.result(&mut controller, 0)?, 2)
}
