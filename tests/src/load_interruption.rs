//! Scenarios of loads that end early: the result contains the measurements so far and the cause.

use std::time::Duration;

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult};

use crate::load_command::{
    StartedProgram, check_sums, has_finding, load, only_trial, parse, unsent_requests_finding,
};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::{load_interruption, scenarios};

const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root, Need::Peer("ip")];
    scenarios!(ROOT, load_interruption:
        an_interrupt_ends_a_trial_in_its_middle,
        an_interface_that_goes_down_keeps_the_results_so_far,
    )
    .into()
}

/// A trial of an hour ends within seconds after an interrupt, with the counts so far.
fn an_interrupt_ends_a_trial_in_its_middle() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let target = at.to_string();
    for engine in ["udp", "packet", "xdp"] {
        let arguments =
            [&*target, "--engine", engine, "-r", "1k", "-t", "3600", "--json", "r.json"];
        let before = server.status()?["counters"]["received"].as_u64().unwrap_or(0);
        let mut run = StartedProgram::start(&mut load(lab.client(), &arguments)?)?;
        run.wait_until(|_, stderr| stderr.contains("loading"))?;
        // Until the server has received 200 requests.
        while server.status()?["counters"]["received"].as_u64().unwrap_or(0) < before + 200 {
            std::thread::sleep(Duration::from_millis(10));
        }
        run.signal("INT")?;
        let (status, _) = run.end()?;
        ensure!(status.success(), "{engine}: {status}: {}", run.read("stderr")?);
        let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
        ensure!(has_finding(&result, FindingCode::Interrupted), "{engine}: {:?}", result.findings);
        let unsent = unsent_requests_finding(&result);
        ensure!(unsent.is_none(), "{engine}: {unsent:?}");
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        ensure!(trial.sent >= 100 && trial.duration_s < 60.0, "{engine}: {trial:?}");
    }
    Ok(())
}

/// The soak ends with an error, and keeps its intervals.
fn an_interface_that_goes_down_keeps_the_results_so_far() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let target = at.to_string();
    let mut arguments = vec![&*target, "--engine", "packet", "-r", "1k", "--soak", "1h"];
    arguments.extend(["--interval", "1s", "--json", "r.json"]);
    let mut run = StartedProgram::start(&mut load(lab.client(), &arguments)?)?;
    run.wait_until(|rows, _| rows.contains("0.00 s"))?;
    let interface = &lab.client().first_interface().name;
    let mut down = lab.client().command("ip");
    let output = run_to_end(down.args(["link", "set", interface, "down"]), TIMEOUT)?;
    ensure!(output.status.success(), "{output:?}");
    let (status, _) = run.end()?;
    let stderr = run.read("stderr")?;
    ensure!(status.code() == Some(1), "{status}: {stderr}");
    ensure!(stderr.lines().last().is_some_and(|line| line.contains("ended early")), "{stderr}");
    let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
    ensure!(has_finding(&result, FindingCode::EngineFailed), "{:?}", result.findings);
    let trial = only_trial(&result)?;
    ensure!(trial.sent > 0 && trial.received > 0, "{trial:?}");
    ensure!(result.series.is_some_and(|series| !series.points.is_empty()), "no series");
    Ok(())
}
