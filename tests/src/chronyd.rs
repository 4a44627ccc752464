//! Debian's chronyd as a client of scenarios, which is always told to leave this machine's clock
//! alone (`-x`).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{LabHost, RunningProgram};
use tempfile::TempDir;

use crate::process::run_to_end;

/// Long enough for chronyd to start and to make up its mind.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Debian's chronyd as a client, with a socket for chronyc and nothing outside its directory.
pub(crate) struct Client {
    _process: RunningProgram,
    directory: TempDir,
}

impl Client {
    /// Starts it with these lines of configuration, in which `DIR` stands for its directory, which
    /// `prepare` may put files into.
    pub(crate) fn start(
        host: &LabHost,
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
        let mut process = RunningProgram::start(&mut command)?;
        let socket = directory.path().join("chronyd.sock");
        process.await_ready(TIMEOUT, || query(&socket, "tracking").is_ok())?;
        Ok(Self { _process: process, directory })
    }

    /// What chronyc prints.
    pub(crate) fn query(&self, what: &str) -> Result<String> {
        query(&self.directory.path().join("chronyd.sock"), what)
    }

    /// Asks until the answer has all of `signs`, each on a line that begins with one text and
    /// holds another.
    pub(crate) fn await_signs(&self, what: &str, signs: &[(&str, &str)]) -> Result<String> {
        let started = Instant::now();
        loop {
            let text = self.query(what)?;
            let shows = |(name, value): &(&str, &str)| {
                text.lines().any(|line| line.starts_with(name) && line.contains(value))
            };
            if signs.iter().all(shows) {
                return Ok(text);
            }
            if started.elapsed() > TIMEOUT {
                let sources = self.query("sources")?;
                bail!("chronyc {what} does not show {signs:?}: {text}\n{sources}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// How many requests chronyd has sent and how many valid replies it has received.
    pub(crate) fn packets(&self) -> Result<[u64; 2]> {
        let text = self.query("ntpdata")?;
        let number = |name: &str| -> Result<u64> {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split(": ").nth(1));
            Ok(value.with_context(|| format!("no '{name}': {text}"))?.trim().parse()?)
        };
        Ok([number("Total TX")?, number("Total valid RX")?])
    }
}

fn query(socket: &PathBuf, what: &str) -> Result<String> {
    let mut command = Command::new("chronyc");
    command.arg("-h").arg(socket).args(what.split(' '));
    let output = run_to_end(&mut command, Duration::from_secs(10))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "chronyc {what}: {text}");
    Ok(text)
}
