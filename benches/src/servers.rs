//! The servers that are compared, each started in the lab's server host and ended with its value.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::{Host, Running};
use horolog_server::status;
use horolog_xdp::{Interface, Reflector};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(10);

/// A server under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// Debian's chronyd, one process; it never touches the clock.
    Chronyd,
    /// The same with memory for its clients, without which it knows no interleaved mode.
    ChronydInterleaved,
    /// Sockets with two threads.
    Sockets,
    /// XDP.
    Xdp,
    /// Addresses swapped and sent back: the limit of the link.
    Reflector,
}

impl Server {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chronyd | Self::ChronydInterleaved => "chronyd",
            Self::Sockets => "sockets, 2 threads",
            Self::Xdp => "XDP",
            Self::Reflector => "bare XDP reflector",
        }
    }
}

/// A server that runs; dropping it ends it.
pub(crate) struct Started {
    process: Option<Running>,
    _reflector: Option<Reflector>,
    /// From the start of the process to the first answer to 'status', where it is ours.
    pub(crate) ready_after: Duration,
    _directory: TempDir,
}

impl Started {
    /// Memory that the process has resident, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let pid = self.process.as_ref().context("it is no process")?.pid();
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
        Ok(kib.parse::<u64>()? * 1024)
    }
}

/// Starts `server` in `host`.
pub(crate) fn start(server: Server, host: &Host, binary: &Path) -> Result<Started> {
    let directory = tempfile::Builder::new().prefix("horolog-bench-").tempdir()?;
    let started = |process, reflector, ready_after, directory| Started {
        process,
        _reflector: reflector,
        ready_after,
        _directory: directory,
    };
    let arguments: &[&str] = match server {
        Server::Chronyd | Server::ChronydInterleaved => {
            let memory = match server {
                Server::Chronyd => "noclientlog",
                _ => "clientloglimit 100000000",
            };
            let process = chronyd(host, directory.path(), memory)?;
            return Ok(started(Some(process), None, Duration::ZERO, directory));
        }
        Server::Reflector => {
            let port = host.port();
            let interface = Interface { index: port.index, name: port.interface.clone() };
            let reflector = host.run(|| Reflector::attach(&interface, 123))??;
            return Ok(started(None, Some(reflector), Duration::ZERO, directory));
        }
        Server::Sockets => &["--engine", "socket", "--threads", "2"],
        Server::Xdp => &["--engine", "xdp", "--xdp-reply", "transmit", "--threads", "1"],
    };
    let socket = directory.path().join("status.sock");
    let mut command = host.command(binary);
    command.args(["serve", "--local", "--stratum", "1", "--listen"]);
    command.arg(format!("{}:123", host.port().ipv4)).args(arguments);
    command.arg("--status-socket").arg(&socket);
    let mut process = Running::start(&mut command)?;
    let ready_after = process.await_ready(PATIENCE, || status::ask(&socket).is_ok())?;
    Ok(started(Some(process), None, ready_after, directory))
}

/// Starts chronyd with a directive that says what it keeps of its clients.
fn chronyd(host: &Host, directory: &Path, memory: &str) -> Result<Running> {
    let path = |name: &str| -> PathBuf { directory.join(name) };
    let configuration = path("chrony.conf");
    let text = format!(
        "local stratum 1\nallow all\nbindaddress {}\n{memory}\ncmdport 0\nbindcmdaddress /\npidfile {}\n",
        host.port().ipv4,
        path("chronyd.pid").display()
    );
    fs::write(&configuration, text)?;
    let mut command = host.command("chronyd");
    // -x: it must never touch this machine's clock.
    command.args(["-x", "-d", "-u", "root", "-f"]).arg(&configuration);
    let mut process = Running::start(&mut command).context("is chronyd installed?")?;
    let pidfile = path("chronyd.pid");
    process.await_ready(PATIENCE, || pidfile.exists())?;
    Ok(process)
}
