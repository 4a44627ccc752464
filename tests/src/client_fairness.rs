//! Scenarios of single clients: fairness of a server's replies, and the effect of its limits on
//! compliant clients during a load that exceeds them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CompliantClientsResult, FindingCode, LoadResult};

use crate::load_command::{TIMEOUT, check_sums, has_finding, load, only_trial, parse, result_of};
use crate::load_modes::Chronyd;
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::search::SelectiveServer;
use crate::{client_fairness, scenarios};

/// Exit status of a failed limit.
const LIMIT_FAILED: i32 = 1;
/// Load: few clients, each of which sends 200 requests per second.
const CROWD: [&str; 6] = ["-c", "20", "-r", "4k", "-t", "1"];
/// Clients that send one request per second.
const COMPLIANT_CLIENTS: [&str; 4] = ["--compliant-clients", "60", "--compliant-interval", "1s"];

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root];
    const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
    let mut all = Vec::from(scenarios!(ROOT, client_fairness:
        starved_clients_are_counted,
        per_client_limits_do_not_affect_compliant_clients,
        a_limit_for_new_clients_affects_compliant_ones,
    ));
    all.extend(
        scenarios!(CHRONYD, client_fairness: chronyd_s_limits_do_not_affect_compliant_clients),
    );
    all
}

/// Checks that unanswered clients are counted with a server that answers every second address.
pub(crate) fn starved_clients_are_counted() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let is_odd = |from: SocketAddr| match from.ip() {
        IpAddr::V4(address) => address.octets()[3] % 2 == 1,
        IpAddr::V6(_) => false,
    };
    let _server = SelectiveServer::start(&lab, at, is_odd)?;
    let target = at.to_string();
    for engine in ["packet", "xdp"] {
        let mut arguments = vec![&*target, "--engine", engine, "-s", "10.0.0.0/24", "-c", "10"];
        arguments.extend(["-r", "1k", "-t", "0.3", "--timeout", "200ms", "--fairness"]);
        let result = result_of(lab.client(), &arguments)?;
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        let fairness = trial.fairness.as_ref().context("no fairness in the result")?;
        ensure!((fairness.clients, fairness.unanswered) == (10, 5), "{fairness:?}");
        ensure!(fairness.share_min <= 0.0 && fairness.share_max > 0.9, "{fairness:?}");
        let jain = fairness.jain_index.context("no index")?;
        ensure!((0.49..=0.51).contains(&jain), "{fairness:?}");
        ensure!(has_finding(&result, FindingCode::UnfairReplies), "{:?}", result.findings);
    }
    Ok(())
}

/// Runs a load of [`CROWD`] with [`COMPLIANT_CLIENTS`], and returns the results of both.
fn load_with_compliant(
    lab: &Lab,
    at: SocketAddr,
    engine: &str,
) -> Result<(LoadResult, CompliantClientsResult)> {
    let target = at.to_string();
    let mut arguments = vec![&*target, "--engine", engine, "--timeout", "300ms"];
    arguments.extend(CROWD.iter().chain(&COMPLIANT_CLIENTS));
    let result = result_of(lab.client(), &arguments)?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    let compliant = trial.compliant_clients.clone().context("no compliant clients")?;
    let counts = (compliant.clients, compliant.sent, compliant.clients_active);
    ensure!(counts == (60, 60, 60) && compliant.received + compliant.lost == 60, "{compliant:?}");
    Ok((result, compliant))
}

fn check_only_crowd_limited(result: &LoadResult, compliant: &CompliantClientsResult) -> Result<()> {
    let crowd = only_trial(result)?;
    ensure!(crowd.loss_ratio() > 0.5, "the crowd lost {}", crowd.loss_ratio());
    // Single requests may be lost on a busy host.
    ensure!(compliant.lost <= 3, "{compliant:?} crowd {crowd:?}");
    ensure!(
        (compliant.lost > 0) == has_finding(result, FindingCode::CompliantClientLoss),
        "{:?}",
        result.findings
    );
    Ok(())
}

/// Checks that a limit per client affects only clients that exceed it, with either engine of the
/// server.
pub(crate) fn per_client_limits_do_not_affect_compliant_clients() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for server_engine in Engine::ALL {
        let _server = Server::start(lab.server(), server_engine, &[at], &["--limit-rate", "10"])?;
        for engine in ["packet", "xdp"] {
            let (result, compliant) = load_with_compliant(&lab, at, engine)?;
            check_only_crowd_limited(&result, &compliant)
                .with_context(|| format!("{server_engine:?} and {engine}"))?;
        }
    }
    Ok(())
}

/// Checks that a common limit for new clients affects compliant ones among them, and that a limit
/// on that loss fails.
pub(crate) fn a_limit_for_new_clients_affects_compliant_ones() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let limits = ["--limit-rate", "1000", "--limit-new-clients", "5"];
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &limits)?;
    let (result, compliant) = load_with_compliant(&lab, at, "packet")?;
    ensure!(compliant.loss_ratio() > 0.3 && compliant.clients_affected > 10, "{compliant:?}");
    ensure!(has_finding(&result, FindingCode::CompliantClientLoss), "{:?}", result.findings);
    let target = at.to_string();
    let mut arguments = vec![&*target, "--engine", "packet", "--timeout", "300ms"];
    arguments.extend(CROWD.iter().chain(&COMPLIANT_CLIENTS));
    arguments.extend(["--compliant-source", "10.200.0.0/16", "--fail-if", "compliant-loss>5%"]);
    arguments.extend(["--json", "-"]);
    let output = run_to_end(&mut load(lab.client(), &arguments)?, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(LIMIT_FAILED), "{}: {stderr}", output.status);
    ensure!(stderr.contains("limit 'compliant-loss>5%' failed"), "{stderr}");
    let result: LoadResult = parse(&output.stdout)?;
    ensure!(result.limits[0].failed, "{:?}", result.limits);
    Ok(())
}

/// Checks that chronyd's `ratelimit`, which is per address, does not affect compliant clients.
pub(crate) fn chronyd_s_limits_do_not_affect_compliant_clients() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directives = ["ratelimit interval 1 burst 8 leak 3", "clientloglimit 10000000"];
    let _server = Chronyd::start(lab.server(), &directives)?;
    let (result, compliant) = load_with_compliant(&lab, at, "packet")?;
    check_only_crowd_limited(&result, &compliant)
}
