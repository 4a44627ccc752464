//! Scenarios of load profiles with in-kernel requests: every mode, counted by phase, and phases
//! whose rate exceeds the capacity of any host. Send lateness is not checked.

use std::fs;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult};
use horolog_xdp::{Interface, XdpReflector};

use crate::load_command::{TIMEOUT, has_finding, parse};
use crate::load_profiles::check_points;
use crate::process::{Engine, Server, binary, run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::{scenarios, xdp_load_profiles};

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root];
    scenarios!(ROOT, xdp_load_profiles:
        ntp_is_counted_phase_by_phase,
        ptp_is_counted_phase_by_phase,
        requests_that_a_phase_could_not_send_are_omitted,
    )
    .into()
}

const PROFILE: &str = "interval = \"50ms\"\n\
                       [[phase]]\nrate = \"2k\"\nduration = \"200ms\"\n\
                       [[phase]]\nrate = \"2k\"\nto = \"6k\"\nduration = \"300ms\"\n\
                       [[phase]]\nrate = \"1k\"\nduration = \"100ms\"\n";

/// Loads the lab's server with a profile, and checks that its intervals and phases add up.
fn run_profile(lab: &Lab, profile: &str, arguments: &[&str]) -> Result<LoadResult> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile.toml");
    fs::write(&file, profile)?;
    let mut command = lab.client().command(binary()?);
    command.arg("load").args(arguments).arg(lab.server().first_interface().ipv4.to_string());
    command.args(["--engine", "xdp", "--timeout", "200ms", "--json", "-", "--profile"]).arg(&file);
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {stderr}");
    let result: LoadResult = parse(&output.stdout)?;
    check_points(&result).with_context(|| format!("{arguments:?}"))?;
    Ok(result)
}

/// Checks that each phase of [`PROFILE`] sent its requests and received replies and, with
/// `offsets`, that an offset was measured for each reply.
fn check_phases(result: &LoadResult, offsets: bool) -> Result<()> {
    let sent: Vec<_> = result.trials.iter().map(|trial| trial.sent).collect();
    let right = sent.iter().zip([400, 1200, 100]).all(|(sent, right)| sent.abs_diff(right) <= 4);
    ensure!(
        sent.len() == 3 && (right || has_finding(result, FindingCode::GeneratorBehind)),
        "{sent:?}"
    );
    for trial in &result.trials {
        ensure!(trial.received > 0, "no replies: {trial:?}");
        let taken = trial.tx_offset_ns.as_ref().map(|offsets| offsets.count);
        ensure!(!offsets || taken == Some(trial.received), "{taken:?} offsets: {trial:?}");
    }
    Ok(())
}

pub(crate) fn ntp_is_counted_phase_by_phase() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Xdp, &[at], &[])?;
    for arguments in
        [&["ntp", "--measure-offset", "0"][..], &["ntp", "--exponential", "--interleaved"]]
    {
        let result = run_profile(&lab, PROFILE, arguments)?;
        let even = arguments.contains(&"--measure-offset");
        if even {
            check_phases(&result, true)?;
        } else {
            let sent: u64 = result.trials.iter().map(|trial| trial.sent).sum();
            // 1,700 on average: five standard deviations.
            let right =
                sent.abs_diff(1700) < 206 || has_finding(&result, FindingCode::GeneratorBehind);
            ensure!(right && result.trials.len() == 3, "{sent} sent");
        }
    }
    Ok(())
}

pub(crate) fn ptp_is_counted_phase_by_phase() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let port = lab.server().first_interface();
    let interface = Interface { index: port.index, name: port.name.clone() };
    let delay = lab.server().run(|| XdpReflector::attach_ptp(&interface))??;
    check_phases(&run_profile(&lab, PROFILE, &["ptp", "delay"])?, false)?;
    drop(delay);
    let _monitor = lab.server().run(|| XdpReflector::attach_monitor(&interface))??;
    check_phases(&run_profile(&lab, PROFILE, &["ptp", "nsm", "--measure-offset", "0"])?, true)
}

/// After a phase whose rate exceeds the capacity of the host, requests of that phase are omitted:
/// the next phase sends only its own.
pub(crate) fn requests_that_a_phase_could_not_send_are_omitted() -> Result<()> {
    const FLOOD: &str = "[[phase]]\nrate = \"50M\"\nduration = \"300ms\"\n\
                         [[phase]]\nrate = \"1k\"\nduration = \"300ms\"\n";
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Xdp, &[at], &[])?;
    let arguments = ["ntp", "--threads", "1"];
    let result = run_profile(&lab, FLOOD, &arguments)?;
    let [flood, calm] = &result.trials[..] else {
        anyhow::bail!("{} phases", result.trials.len());
    };
    ensure!(flood.sent > 1000 && flood.sent < 15_000_000, "{flood:?}");
    ensure!((1..=302).contains(&calm.sent), "the second phase sent more than its own: {calm:?}");
    ensure!(has_finding(&result, FindingCode::GeneratorBehind), "{:?}", result.findings);
    Ok(())
}
