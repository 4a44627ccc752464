//! Debian's chronyd as a client in scenarios, always without control of the host's clock (`-x`).

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

/// Long enough for chronyd to start and to select a source.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Debian's chronyd as a client, with a socket for chronyc and all its files in its own directory.
pub(crate) struct ChronydClient {
    _process: RunningProgram,
    directory: TempDir,
}

impl ChronydClient {
    /// Starts chronyd with these lines of configuration, in which `DIR` is replaced by the path of
    /// its directory; `prepare` may write files there before the start.
    pub(crate) fn start(
        host: &LabHost,
        lines: &[String],
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        // chronyd refuses to make its socket in a directory that other users can read.
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

    /// Returns the output of a chronyc command.
    pub(crate) fn query(&self, what: &str) -> Result<String> {
        query(&self.directory.path().join("chronyd.sock"), what)
    }

    /// Repeats a chronyc command until its output has all of `signs`: a line that begins with the
    /// first text and contains the second.
    pub(crate) fn await_lines(&self, what: &str, signs: &[(&str, &str)]) -> Result<String> {
        let started = Instant::now();
        loop {
            let text = self.query(what)?;
            let has_line = |(name, value): &(&str, &str)| {
                text.lines().any(|line| line.starts_with(name) && line.contains(value))
            };
            if signs.iter().all(has_line) {
                return Ok(text);
            }
            if started.elapsed() > TIMEOUT {
                let sources = self.query("sources")?;
                bail!("chronyc {what} lacks {signs:?}: {text}\n{sources}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the numbers of requests that chronyd has sent and of valid replies that it has
    /// received.
    pub(crate) fn packet_counts(&self) -> Result<[u64; 2]> {
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
