//! Scenarios of single clients: how evenly a server answers them, and what its limits do to clients
//! that ask as they should, beside a crowd that does not.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{Code, LoadResult, WellBehaved};
use libtest_mimic::Trial;

use crate::load_command::{PATIENCE, check_sums, has, load, only_trial, parse, result_of};
use crate::load_modes::Chronyd;
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::Need;
use crate::search::Answering;
use crate::{limiters, scenarios};

/// Exit status where a limit was broken.
const BROKEN: i32 = 1;
/// The load: few clients, each of which asks hundreds of times in a second.
const CROWD: [&str; 6] = ["-c", "20", "-r", "4k", "-t", "1"];
/// Clients that ask once in a second.
const MANNERS: [&str; 4] = ["--well-behaved", "60", "--well-behaved-interval", "1s"];

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    const ROOT: &[Need] = &[Need::Root];
    const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
    let mut all = Vec::from(scenarios!(ROOT, limiters:
        clients_that_get_nothing_are_counted,
        limits_for_each_client_leave_well_behaved_ones_alone,
        a_limit_for_newcomers_hurts_them,
    ));
    all.extend(scenarios!(CHRONYD, limiters: chronyd_s_limits_leave_well_behaved_clients_alone));
    all
}

/// A server that answers every second address.
pub(crate) fn clients_that_get_nothing_are_counted() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let is_odd = |from: SocketAddr| match from.ip() {
        IpAddr::V4(address) => address.octets()[3] % 2 == 1,
        IpAddr::V6(_) => false,
    };
    let _server = Answering::start(&lab, at, is_odd)?;
    let target = at.to_string();
    for engine in ["packet", "xdp"] {
        let mut arguments = vec![&*target, "--engine", engine, "-s", "10.0.0.0/24", "-c", "10"];
        arguments.extend(["-r", "1k", "-t", "0.3", "--timeout", "200ms", "--fairness"]);
        let result = result_of(lab.client(), &arguments)?;
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        let fairness = trial.fairness.as_ref().context("single clients were not counted")?;
        ensure!((fairness.clients, fairness.unanswered) == (10, 5), "{fairness:?}");
        ensure!(fairness.share_min <= 0.0 && fairness.share_max > 0.9, "{fairness:?}");
        let jain = fairness.jain_index.context("no index")?;
        ensure!((0.49..=0.51).contains(&jain), "{fairness:?}");
        ensure!(has(&result, Code::UnevenReplies), "{:?}", result.findings);
    }
    Ok(())
}

/// A load of [`CROWD`] and [`MANNERS`], and what became of both.
fn beside(lab: &Lab, at: SocketAddr, engine: &str) -> Result<(LoadResult, WellBehaved)> {
    let target = at.to_string();
    let mut arguments = vec![&*target, "--engine", engine, "--timeout", "300ms"];
    arguments.extend(CROWD.iter().chain(&MANNERS));
    let result = result_of(lab.client(), &arguments)?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    let well = trial.well_behaved.clone().context("nobody was well-behaved")?;
    let asked = (well.clients, well.sent, well.clients_asking);
    ensure!(asked == (60, 60, 60) && well.received + well.lost == 60, "{well:?}");
    Ok((result, well))
}

fn check_alone(result: &LoadResult, well: &WellBehaved) -> Result<()> {
    let crowd = only_trial(result)?;
    ensure!(crowd.loss_ratio() > 0.5, "the crowd lost {}", crowd.loss_ratio());
    // One may fall to a machine that is busy.
    ensure!(well.lost <= 3, "{well:?} beside {crowd:?}");
    ensure!((well.lost > 0) == has(result, Code::ClientsHurt), "{:?}", result.findings);
    Ok(())
}

/// Where each client has its own limit, only those are hurt that exceed it, by either body.
pub(crate) fn limits_for_each_client_leave_well_behaved_ones_alone() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for body in Engine::ALL {
        let _server = Server::start(lab.server(), body, &[at], &["--limit-rate", "10"])?;
        for engine in ["packet", "xdp"] {
            let (result, well) = beside(&lab, at, engine)?;
            check_alone(&result, &well).with_context(|| format!("{body:?} and {engine}"))?;
        }
    }
    Ok(())
}

/// Where all newcomers share one limit, well-behaved ones are among them; a limit on that fails.
pub(crate) fn a_limit_for_newcomers_hurts_them() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let limits = ["--limit-rate", "1000", "--limit-newcomers", "5"];
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &limits)?;
    let (result, well) = beside(&lab, at, "packet")?;
    ensure!(well.loss_ratio() > 0.3 && well.clients_hurt > 10, "{well:?}");
    ensure!(has(&result, Code::ClientsHurt), "{:?}", result.findings);
    let target = at.to_string();
    let mut arguments = vec![&*target, "--engine", "packet", "--timeout", "300ms"];
    arguments.extend(CROWD.iter().chain(&MANNERS));
    arguments.extend(["--well-behaved-source", "10.200.0.0/16", "--fail-if", "hurt>5%"]);
    arguments.extend(["--json", "-"]);
    let output = run_to_end(&mut load(lab.client(), &arguments)?, PATIENCE)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(BROKEN), "{}: {stderr}", output.status);
    ensure!(stderr.contains("limit 'hurt>5%' broken"), "{stderr}");
    let result: LoadResult = parse(&output.stdout)?;
    ensure!(result.limits[0].failed, "{:?}", result.limits);
    Ok(())
}

/// chronyd's `ratelimit` is for each address as well.
pub(crate) fn chronyd_s_limits_leave_well_behaved_clients_alone() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directives = ["ratelimit interval 1 burst 8 leak 3", "clientloglimit 10000000"];
    let _server = Chronyd::start(lab.server(), &directives)?;
    let (result, well) = beside(&lab, at, "packet")?;
    check_alone(&result, &well)
}
