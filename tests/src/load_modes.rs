//! Scenarios of the generator's modes against real servers: which replies come in interleaved mode,
//! and that a server which does not know the mode is told from one that does. Nothing is timed.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Host, Lab, LabConfig, Running};
use horolog_record::{Engine, LoadResult, Mode};
use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::load_command::{ENGINES, check_sums, result_of};
use crate::process::server_address;
use crate::scenario::Need;
use crate::{load_modes, scenarios};

const PATIENCE: Duration = Duration::from_secs(10);
/// Few enough that each asks several times, and enough that no client asks before it was answered.
const CLIENTS: u64 = 200;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
    scenarios!(CHRONYD, load_modes:
        chronyd_answers_in_interleaved_mode,
        without_memory_chronyd_answers_in_basic_mode,
    )
    .into()
}

/// A chronyd that answers everybody; it leaves this machine's clock alone (`-x`).
struct Chronyd {
    _process: Running,
    _directory: TempDir,
}

impl Chronyd {
    /// Starts it with further directives, and waits until it serves.
    fn start(host: &Host, directives: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let pidfile = directory.path().join("chronyd.pid");
        let configuration = directory.path().join("chrony.conf");
        let text = format!(
            "local stratum 1\nallow all\ncmdport 0\nbindcmdaddress /\npidfile {}\n{}\n",
            pidfile.display(),
            directives.join("\n")
        );
        fs::write(&configuration, text)?;
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-u", "root", "-f"]).arg(&configuration);
        let mut process = Running::start(&mut command)?;
        process.await_ready(PATIENCE, || pidfile.exists())?;
        Ok(Self { _process: process, _directory: directory })
    }
}

/// Runs an engine in interleaved mode for two trials.
fn run(lab: &Lab, engine: Engine, ipv6: bool) -> Result<LoadResult> {
    let target = server_address(lab, ipv6)?.ip().to_string();
    let clients = CLIENTS.to_string();
    let arguments = ["-r", "4000-8000", "-x", "2", "-t", "0.25", "-c", &clients];
    let mut all = vec![&*target, "--interleaved", "--engine", engine.name()];
    all.extend(arguments);
    let result = result_of(lab.client(), &all)?;
    ensure!(result.mode == Mode::NtpInterleaved && result.trials.len() == 2, "{result:?}");
    for trial in &result.trials {
        check_sums(trial)?;
        ensure!(trial.received > 0 && trial.invalid.is_empty(), "{trial:?}");
        let responses = trial.responses;
        ensure!(responses.basic + responses.interleaved == trial.received, "{trial:?}");
        let timed = trial.response_time_ns.as_ref().map_or(0, |times| times.count);
        ensure!(timed == responses.basic, "{timed} response times of {responses:?}");
    }
    Ok(result)
}

/// Each client's first two requests are answered in basic mode, since chronyd keeps nothing of those
/// that refer to no reply; and, but for what is lost, all that follow in interleaved mode. By every
/// engine and over both IP versions.
fn chronyd_answers_in_interleaved_mode() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _chronyd = Chronyd::start(lab.server(), &[])?;
    for engine in ENGINES {
        for ipv6 in [false, true] {
            let context = || format!("{engine:?}, IPv6: {ipv6}");
            let result = run(&lab, engine, ipv6).with_context(context)?;
            for (trial, basic) in result.trials.iter().zip([2 * CLIENTS, 0]) {
                // A client that asks again before it was answered, on a busy machine, refers to an
                // older reply, which the server may have forgotten.
                let rest = trial.received.saturating_sub(basic);
                ensure!(rest > 0 && trial.responses.basic >= basic, "{}: {trial:?}", context());
                ensure!(trial.responses.interleaved * 10 >= rest * 9, "{}: {trial:?}", context());
            }
        }
    }
    Ok(())
}

/// A chronyd that keeps nothing of its clients answers all of them in basic mode.
fn without_memory_chronyd_answers_in_basic_mode() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _chronyd = Chronyd::start(lab.server(), &["noclientlog"])?;
    for engine in ENGINES {
        let result = run(&lab, engine, false).with_context(|| format!("{engine:?}"))?;
        for trial in &result.trials {
            ensure!(trial.responses.interleaved == 0, "{trial:?}");
        }
    }
    Ok(())
}
