//! Scenarios of load profiles whose requests the kernel makes: every mode that it has, counted
//! phase by phase, and phases whose rate no machine reaches. Lateness does not matter.

use std::fs;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult};
use horolog_xdp::{Interface, XdpReflector};
use libtest_mimic::Trial;

use crate::load_command::{TIMEOUT, has, parse};
use crate::load_profiles::check_points;
use crate::process::{Engine, Server, binary, run_to_end, server_address};
use crate::scenario::Need;
use crate::{scenarios, xdp_load_profiles};

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
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

/// Loads the lab's server along a profile and checks that its intervals and phases add up.
fn follow(lab: &Lab, profile: &str, arguments: &[&str]) -> Result<LoadResult> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile.toml");
    fs::write(&file, profile)?;
    let mut command = lab.client().command(binary()?);
    command.arg("load").args(arguments).arg(lab.server().first_interface().ipv4.to_string());
    command.args(["--engine", "xdp", "--timeout", "200ms", "--json", "-", "--profile"]).arg(&file);
    let output = run_to_end(&mut command, TIMEOUT)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {complaint}");
    let result: LoadResult = parse(&output.stdout)?;
    check_points(&result).with_context(|| format!("{arguments:?}"))?;
    Ok(result)
}

/// Each phase of [`PROFILE`] sent what it was to send, was answered, and with an offset taken of
/// each answer where they were.
fn check_phases(result: &LoadResult, offsets: bool) -> Result<()> {
    let sent: Vec<_> = result.trials.iter().map(|trial| trial.sent).collect();
    let right = sent.iter().zip([400, 1200, 100]).all(|(sent, right)| sent.abs_diff(right) <= 4);
    ensure!(sent.len() == 3 && (right || has(result, FindingCode::GeneratorBehind)), "{sent:?}");
    for trial in &result.trials {
        ensure!(trial.received > 0, "nothing was answered: {trial:?}");
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
        let result = follow(&lab, PROFILE, arguments)?;
        let even = arguments.contains(&"--measure-offset");
        if even {
            check_phases(&result, true)?;
        } else {
            let sent: u64 = result.trials.iter().map(|trial| trial.sent).sum();
            // 1,700 by chance: five standard deviations.
            let right = sent.abs_diff(1700) < 206 || has(&result, FindingCode::GeneratorBehind);
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
    check_phases(&follow(&lab, PROFILE, &["ptp", "delay"])?, false)?;
    drop(delay);
    let _monitor = lab.server().run(|| XdpReflector::attach_monitor(&interface))??;
    check_phases(&follow(&lab, PROFILE, &["ptp", "nsm", "--measure-offset", "0"])?, true)
}

/// More than two processors can send, then little: nothing of the first phase comes in the second.
pub(crate) fn requests_that_a_phase_could_not_send_are_omitted() -> Result<()> {
    const FLOOD: &str = "[[phase]]\nrate = \"50M\"\nduration = \"300ms\"\n\
                         [[phase]]\nrate = \"1k\"\nduration = \"300ms\"\n";
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Xdp, &[at], &[])?;
    let arguments = ["ntp", "--threads", "1"];
    let result = follow(&lab, FLOOD, &arguments)?;
    let [flood, calm] = &result.trials[..] else {
        anyhow::bail!("{} phases", result.trials.len());
    };
    ensure!(flood.sent > 1000 && flood.sent < 15_000_000, "{flood:?}");
    ensure!((1..=302).contains(&calm.sent), "the flood went on in the calm: {calm:?}");
    ensure!(has(&result, FindingCode::GeneratorBehind), "{:?}", result.findings);
    Ok(())
}
