//! Scenarios of compliant clients of a PTP master, beside a load: all send from the same two ports,
//! and still each response counts once, for the client that it is for.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CompliantClientsResult, FindingCode, LoadResult};
use libtest_mimic::Trial;

use crate::load_command::{TIMEOUT, check_sums, has, only_trial};
use crate::load_ptp::load;
use crate::process::{binary, run_to_end, server_address};
use crate::ptp_master::Master;
use crate::ptp4l::{Ptp4l, Transport};
use crate::scenario::Need;
use crate::usage_error::{ENVIRONMENT, USAGE, check};
use crate::{ROOT, compliant_clients_ptp, scenarios};

/// Exit status where a limit was broken.
const BROKEN: i32 = 1;
/// Few clients that ask often, and more that ask once.
const CROWD: [&str; 4] = ["-c", "20", "-t", "1"];
const COMPLIANT_CLIENTS: [&str; 4] = ["--compliant-clients", "60", "--compliant-interval", "1s"];
const COMPLIANT_COUNT: u64 = 60;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
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

/// A load beside which others behave, and what became of both. Nothing may count twice, or with the
/// wrong ones.
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
    let well = trial.compliant_clients.clone().context("nobody was well-behaved")?;
    let counts = (well.clients, well.sent, well.clients_active, well.received + well.lost);
    ensure!(
        counts == (COMPLIANT_COUNT, COMPLIANT_COUNT, COMPLIANT_COUNT, COMPLIANT_COUNT),
        "{well:?}"
    );
    ensure!(well.invalid == 0, "{well:?}");
    Ok((result, well))
}

/// Over what, in which mode, at which rate and by which engines.
type LoadVariant<'a> = (Transport, &'a [&'a str], &'a str, &'a [&'a [&'a str]]);

/// In every mode that has addresses or a group, by both engines that simulate clients.
pub(crate) fn ptp4l_answers_both_and_each_response_counts_once() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    // Two threads, so that there is another number of a port than the first lane's.
    let packet = ["--engine", "packet", "--threads", "2"];
    let xdp = ["--engine", "xdp"];
    let by_both = [&packet[..], &xdp];
    let modes: [LoadVariant<'_>; 5] = [
        (Transport::Ipv4, &["delay"], "1000", &by_both),
        (Transport::Ipv4, &["delay", "--multicast"], "1000", &by_both),
        (Transport::Ipv4, &["nsm"], "1000", &by_both),
        (Transport::Ipv4, &["unicast", "--grant-duration", "1"], "200", &[&packet]),
        (Transport::Ipv6, &["delay"], "1000", &by_both),
    ];
    for (transport, mode, rate, engines) in modes {
        let _ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        let target = server_address(&lab, transport == Transport::Ipv6)?.ip().to_string();
        for engine in engines {
            let run = [mode, engine].concat();
            let (result, well) = load_with_compliant(&lab, &target, &run, rate)
                .with_context(|| format!("{run:?}"))?;
            let trial = only_trial(&result)?;
            // Some may fall to a machine that is busy.
            ensure!(trial.received * 10 >= trial.sent * 9, "{run:?}: {trial:?}");
            ensure!(well.lost <= 3, "{run:?}: {well:?}");
        }
    }
    Ok(())
}

/// A few requests of each client are answered, so those that ask once are not hurt.
pub(crate) fn a_per_client_limit_does_not_affect_compliant_ones() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.ip();
    for mode in ["delay", "nsm"] {
        for engine in ["packet", "xdp"] {
            let _master = Master::start(&lab, at, |_, requests| requests <= 10)?;
            let run = [mode, "--engine", engine];
            let (result, well) = load_with_compliant(&lab, &at.to_string(), &run, "2k")?;
            let crowd = only_trial(&result)?;
            ensure!(crowd.received <= 20 * 10 && crowd.received > 0, "{run:?}: {crowd:?}");
            ensure!(well.lost <= 3, "{run:?}: {well:?} beside {crowd:?}");
            ensure!(
                (well.lost > 0) == has(&result, FindingCode::CompliantClientLoss),
                "{:?}",
                result.findings
            );
        }
    }
    Ok(())
}

/// Only the first addresses are answered; a limit on what that does to the others fails.
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
        status == Some(BROKEN) && stderr.contains("limit 'compliant-loss>5%' failed"),
        "{stderr}"
    );
    let trial = only_trial(&result)?;
    ensure!(trial.invalid.is_empty(), "{trial:?}");
    let well = trial.compliant_clients.as_ref().context("nobody was well-behaved")?;
    // The crowd's addresses are 20 of the 40.
    ensure!((30..=60).contains(&well.clients_affected), "{well:?}");
    ensure!(
        well.clients_affected == well.lost && has(&result, FindingCode::CompliantClientLoss),
        "{well:?}"
    );
    Ok(())
}

/// Each with one line that says what to do.
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
        check(&run_to_end(&mut command, TIMEOUT)?, status, named)
            .with_context(|| format!("{arguments:?}"))?;
    }
    Ok(())
}
