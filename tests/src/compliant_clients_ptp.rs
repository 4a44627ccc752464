//! Scenarios of compliant clients of a PTP master during a load: all send from the same two ports,
//! but each response counts once, for its own client.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CompliantClientsResult, FindingCode, LoadResult};

use crate::load_command::{TIMEOUT, check_sums, has_finding, only_trial};
use crate::load_ptp::load;
use crate::process::{binary, run_to_end, server_address};
use crate::ptp_master::Master;
use crate::ptp4l::{Ptp4l, Transport};
use crate::scenario::{Need, Scenario};
use crate::usage_error::{ENVIRONMENT, USAGE, check_refusal};
use crate::{ROOT, compliant_clients_ptp, scenarios};

/// Exit status of a failed limit.
const LIMIT_FAILED: i32 = 1;
/// Load: few clients that send many requests.
const CROWD: [&str; 4] = ["-c", "20", "-t", "1"];
const COMPLIANT_CLIENTS: [&str; 4] = ["--compliant-clients", "60", "--compliant-interval", "1s"];
const COMPLIANT_COUNT: u64 = 60;

pub(crate) fn all() -> Vec<Scenario> {
    const PTP4L: &[Need] =
        &[Need::Root, Need::Ipv6, Need::Peer("ptp4l"), Need::Peer("pmc"), Need::Peer("setpriv")];
    let mut all = Vec::from(scenarios!(PTP4L, compliant_clients_ptp:
        ptp4l_answers_both_and_each_response_counts_once,
    ));
    all.extend(scenarios!(ROOT, compliant_clients_ptp:
        a_per_client_limit_does_not_affect_compliant_ones,
        a_limit_for_new_clients_affects_compliant_ones,
        indistinguishable_clients_are_refused,
    ));
    all
}

/// Runs a load of [`CROWD`] with [`COMPLIANT_CLIENTS`], and returns the results of both. No
/// response may count twice or for the wrong client.
fn load_with_compliant(
    lab: &Lab,
    target: &str,
    mode: &[&str],
    rate: &str,
) -> Result<(LoadResult, CompliantClientsResult)> {
    let run = [mode[0], target, "-r", rate, "--timeout", "300ms"];
    let (status, result, stderr) =
        load(lab.client(), &[&run[..], &mode[1..], &CROWD, &COMPLIANT_CLIENTS].concat())?;
    ensure!(status == Some(0), "status {status:?}: {stderr}");
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
    let compliant = trial.compliant_clients.clone().context("no compliant clients")?;
    let accounted = compliant.received + compliant.lost;
    let counts = (compliant.clients, compliant.sent, compliant.clients_active, accounted);
    ensure!(
        counts == (COMPLIANT_COUNT, COMPLIANT_COUNT, COMPLIANT_COUNT, COMPLIANT_COUNT),
        "{compliant:?}"
    );
    ensure!(compliant.invalid == 0, "{compliant:?}");
    Ok((result, compliant))
}

/// Transport, mode, and options of each engine.
type LoadVariant<'a> = (Transport, &'a [&'a str], &'a [&'a [&'a str]]);

/// Checks every mode with addresses or a group, with both engines that simulate clients.
pub(crate) fn ptp4l_answers_both_and_each_response_counts_once() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    // Two threads, so that a port number other than that of the first lane occurs.
    let packet = ["--engine", "packet", "--threads", "2"];
    let xdp = ["--engine", "xdp"];
    let by_both = [&packet[..], &xdp];
    // In the second of the run, no more than ptp4l's socket holds: what a generator that was paused
    // sends at once is not lost.
    let modes: [LoadVariant<'_>; 5] = [
        (Transport::Ipv4, &["delay"], &by_both),
        (Transport::Ipv4, &["delay", "--multicast"], &by_both),
        (Transport::Ipv4, &["nsm"], &by_both),
        (Transport::Ipv4, &["unicast", "--grant-duration", "1"], &[&packet]),
        (Transport::Ipv6, &["delay"], &by_both),
    ];
    for (transport, mode, engines) in modes {
        let _ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        let target = server_address(&lab, transport == Transport::Ipv6)?.ip().to_string();
        for engine in engines {
            let run = [mode, engine].concat();
            let (result, compliant) = load_with_compliant(&lab, &target, &run, "200")
                .with_context(|| format!("{run:?}"))?;
            let trial = only_trial(&result)?;
            // Single requests may be lost on a busy host.
            ensure!(trial.received * 10 >= trial.sent * 9, "{run:?}: {trial:?}");
            ensure!(compliant.lost <= 3, "{run:?}: {compliant:?}");
        }
    }
    Ok(())
}

/// Checks that a limit of a few requests per client does not affect clients that send one.
pub(crate) fn a_per_client_limit_does_not_affect_compliant_ones() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.ip();
    for mode in ["delay", "nsm"] {
        for engine in ["packet", "xdp"] {
            let _master = Master::start(&lab, at, |_, requests| requests <= 10)?;
            let run = [mode, "--engine", engine];
            let (result, compliant) = load_with_compliant(&lab, &at.to_string(), &run, "2k")?;
            let crowd = only_trial(&result)?;
            ensure!(crowd.received <= 20 * 10 && crowd.received > 0, "{run:?}: {crowd:?}");
            ensure!(compliant.lost <= 3, "{run:?}: {compliant:?} crowd {crowd:?}");
            ensure!(
                (compliant.lost > 0) == has_finding(&result, FindingCode::CompliantClientLoss),
                "{:?}",
                result.findings
            );
        }
    }
    Ok(())
}

/// Checks that a master that answers only the first addresses affects compliant clients, and that a
/// limit on their loss fails.
pub(crate) fn a_limit_for_new_clients_affects_compliant_ones() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.ip();
    let _master = Master::start(&lab, at, |clients, _| clients < 40)?;
    let target = at.to_string();
    let run = ["delay", &target, "--engine", "packet", "-r", "2k", "--timeout", "300ms"];
    let more = ["--compliant-source", "10.200.0.0/16", "--fail-if", "compliant-loss>5%"];
    let (status, result, stderr) =
        load(lab.client(), &[&run[..], &CROWD, &COMPLIANT_CLIENTS, &more].concat())?;
    ensure!(
        status == Some(LIMIT_FAILED) && stderr.contains("limit 'compliant-loss>5%' failed"),
        "{stderr}"
    );
    let trial = only_trial(&result)?;
    ensure!(trial.invalid.is_empty(), "{trial:?}");
    let compliant = trial.compliant_clients.as_ref().context("no compliant clients")?;
    // The addresses of the load are 20 of the 40 that are answered.
    ensure!((30..=60).contains(&compliant.clients_affected), "{compliant:?}");
    ensure!(compliant.clients_affected == compliant.lost, "{compliant:?}");
    ensure!(has_finding(&result, FindingCode::CompliantClientLoss), "{:?}", result.findings);
    Ok(())
}

/// Checks that each refusal has one line of advice.
pub(crate) fn indistinguishable_clients_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?.ip().to_string();
    let cases: [(&[&str], i32, &[&str]); 4] = [
        (&["delay", "--transport", "l2"], USAGE, &["over Ethernet", "one address"]),
        (&["nsm", "--compliant-burst", "2"], USAGE, &["NetSync Monitor", "burst"]),
        (&["delay", "--engine", "udp"], ENVIRONMENT, &["'udp'", "--engine packet"]),
        (
            &[
                "delay",
                "--engine",
                "packet",
                "-s",
                "10.5.0.0/24",
                "-c",
                "9",
                "--compliant-source",
                "10.0.0.0/8",
            ],
            USAGE,
            &["name another one"],
        ),
    ];
    for (arguments, status, named) in cases {
        let mut command = lab.client().command(binary()?);
        command
            .args(["load", "ptp", arguments[0], &target])
            .args(&arguments[1..])
            .args(COMPLIANT_CLIENTS);
        check_refusal(&run_to_end(&mut command, TIMEOUT)?, status, named)
            .with_context(|| format!("{arguments:?}"))?;
    }
    Ok(())
}
