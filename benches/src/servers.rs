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
    /// Sockets with two threads.
    Sockets,
    /// XDP.
    Xdp,
    /// XDP with a limit for each client, one for newcomers, and a list of a thousand prefixes.
    XdpLimited,
    /// Addresses swapped and sent back: the limit of the link.
    Reflector,
}

impl Server {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chronyd => "chronyd",
            Self::Sockets => "sockets, 2 threads",
            Self::Xdp => "XDP",
            Self::XdpLimited => "XDP with limits and 1,000 prefixes",
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
        Server::Chronyd => {
            let process = chronyd(host, directory.path())?;
            return Ok(started(Some(process), None, Duration::ZERO, directory));
        }
        Server::Reflector => {
            let port = host.port();
            let interface = Interface { index: port.index, name: port.interface.clone() };
            let reflector = host.run(|| Reflector::attach(&interface, 123))??;
            return Ok(started(None, Some(reflector), Duration::ZERO, directory));
        }
        Server::Sockets => &["--engine", "socket", "--threads", "2"],
        Server::XdpLimited => &XDP_LIMITED,
        Server::Xdp => &["--engine", "xdp", "--xdp-reply", "transmit", "--threads", "1"],
    };
    let socket = directory.path().join("status.sock");
    let mut command = host.command(binary);
    command.args(["serve", "--local", "--stratum", "1", "--listen"]);
    command.arg(format!("{}:123", host.port().ipv4)).args(arguments);
    if server == Server::XdpLimited {
        command.arg("--deny-file").arg(deny_list(directory.path())?);
    }
    command.arg("--status-socket").arg(&socket);
    let mut process = Running::start(&mut command)?;
    let ready_after = process.await_ready(PATIENCE, || status::ask(&socket).is_ok())?;
    Ok(started(Some(process), None, ready_after, directory))
}

/// Limits that no client of the benchmark reaches, so that every request is charged and answered.
const XDP_LIMITED: [&str; 10] = [
    "--engine",
    "xdp",
    "--xdp-reply",
    "transmit",
    "--threads",
    "1",
    "--limit-rate",
    "10k",
    "--limit-newcomers",
    "10M",
];

/// A file of a thousand prefixes that no client of the benchmark comes from.
fn deny_list(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("deny");
    let prefixes = (0..1_000).map(|n| format!("11.{}.{}.0/24\n", n / 250, n % 250));
    fs::write(&path, prefixes.collect::<String>())?;
    Ok(path)
}

fn chronyd(host: &Host, directory: &Path) -> Result<Running> {
    let path = |name: &str| -> PathBuf { directory.join(name) };
    let configuration = path("chrony.conf");
    let text = format!(
        "local stratum 1\nallow all\nbindaddress {}\nnoclientlog\ncmdport 0\nbindcmdaddress /\npidfile {}\n",
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
