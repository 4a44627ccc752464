//! Scenarios of interleaved mode, NTS and symmetric keys over the server's sockets, with Debian's
//! chronyd as the client. It is always told to leave this machine's clock alone (`-x`).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Host, Lab, LabConfig, Running};
use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::Need;
use crate::scenarios;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    const CHRONY: &[Need] = &[Need::Root, Need::Peer("chronyd"), Need::Peer("chronyc")];
    use crate::server_nts;
    Vec::from(scenarios!(CHRONY, server_nts: chronyd_is_answered_interleaved))
}

/// Long enough for chronyd to start and to make up its mind.
const PATIENCE: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Debian's chronyd as a client, with a socket for chronyc and nothing outside its directory.
struct Client {
    _process: Running,
    directory: TempDir,
}

impl Client {
    /// Starts it with these lines of configuration, in which `DIR` stands for its directory, which
    /// `prepare` may put files into.
    fn start(
        host: &Host,
        lines: &[String],
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        // chronyd makes no socket where others may look in.
        let private = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir()?;
        prepare(directory.path())?;
        let own = directory.path().display().to_string();
        let common = "cmdport 0\nbindcmdaddress DIR/chronyd.sock\npidfile DIR/chronyd.pid\n";
        let text = format!("{common}{}\n", lines.join("\n")).replace("DIR", &own);
        let path = directory.path().join("chrony.conf");
        fs::write(&path, text)?;
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-u", "root", "-f"]).arg(path);
        let mut process = Running::start(&mut command)?;
        let socket = directory.path().join("chronyd.sock");
        process.await_ready(PATIENCE, || ask(&socket, "tracking").is_ok())?;
        Ok(Self { _process: process, directory })
    }

    /// What chronyc prints.
    fn ask(&self, what: &str) -> Result<String> {
        ask(&self.directory.path().join("chronyd.sock"), what)
    }

    /// Asks until the answer has all of `signs`, each on a line that begins with one text and
    /// holds another.
    fn await_signs(&self, what: &str, signs: &[(&str, &str)]) -> Result<String> {
        let started = Instant::now();
        loop {
            let text = self.ask(what)?;
            let shows = |(name, value): &(&str, &str)| {
                text.lines().any(|line| line.starts_with(name) && line.contains(value))
            };
            if signs.iter().all(shows) {
                return Ok(text);
            }
            if started.elapsed() > PATIENCE {
                let sources = self.ask("sources")?;
                bail!("chronyc {what} does not show {signs:?}: {text}\n{sources}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn ask(socket: &PathBuf, what: &str) -> Result<String> {
    let mut command = Command::new("chronyc");
    command.arg("-h").arg(socket).args(what.split(' '));
    let output = run_to_end(&mut command, Duration::from_secs(10))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "chronyc {what}: {text}");
    Ok(text)
}

fn counter(server: &Server, name: &str) -> Result<u64> {
    let status = server.status()?;
    status["counters"][name].as_u64().with_context(|| format!("no counter {name}: {status}"))
}

/// chronyd that asks for interleaved mode gets it, with transmit timestamps of the kernel.
fn chronyd_is_answered_interleaved() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let line = format!("server {} iburst xleave minpoll -2 maxpoll -2", at.ip());
    let client = Client::start(lab.client(), &[line], |_| Ok(()))?;
    client.await_signs("ntpdata", &[("Interleaved", "Yes")])?;
    client.await_signs("sources", &[("^*", "")])?;
    let interleaved = counter(&server, "interleaved")?;
    ensure!(interleaved > 0, "{}", server.status()?);
    let wanted = counter(&server, "transmit_stamps_wanted")?;
    let came = counter(&server, "transmit_kernel_stamps")?;
    ensure!(came + 1 >= wanted && came > 0, "{came} timestamps of {wanted} came");
    ensure!(counter(&server, "receive_kernel_stamps")? > 0, "{}", server.status()?);
    Ok(())
}
