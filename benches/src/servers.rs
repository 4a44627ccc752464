//! The servers that are compared, each started in the lab's server host and ended with its value.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::{LabHost, RunningProgram};
use horolog_server::status;
use horolog_xdp::{Interface, XdpReflector};
use tempfile::TempDir;

use crate::capacity::CLIENTS;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A server under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// Debian's chronyd, one process; it never touches the clock.
    Chronyd,
    /// The same with memory for its clients, without which it knows no interleaved mode.
    ChronydInterleaved,
    /// The same as a server of NTS, with a process for each core to establish keys.
    ChronydNts,
    /// Sockets with two threads.
    Sockets,
    /// The same as a server of NTS.
    SocketsNts,
    /// XDP, which hands requests with more than a header over to threads, as a server of NTS.
    XdpNts,
    /// XDP.
    Xdp,
    /// XDP with a limit for each client, one for newcomers, a list of a thousand prefixes, and
    /// metrics.
    XdpLimited,
    /// The same with room for as many clients as there are: with four places for each to choose
    /// from a fifth find none, so that they stay newcomers and are looked up in the list each time.
    XdpCrowded,
    /// Addresses swapped and sent back: the limit of the link.
    Reflector,
    /// The same with the least that answers a request for PTP's delay.
    PtpReflector,
    /// The same with what answers a request of NetSync Monitor.
    MonitorReflector,
}

impl Server {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chronyd | Self::ChronydInterleaved | Self::ChronydNts => "chronyd",
            Self::Sockets | Self::SocketsNts => "sockets, 2 threads",
            Self::Xdp => "XDP",
            Self::XdpNts => "XDP and threads",
            Self::XdpLimited => "XDP with limits, 1,000 prefixes and metrics",
            Self::XdpCrowded => "the same, a fifth of the clients newcomers",
            Self::Reflector => "bare XDP reflector",
            Self::PtpReflector => "bare XDP reflector of PTP",
            Self::MonitorReflector => "bare XDP reflector of NetSync Monitor",
        }
    }
}

/// What servers are called in their certificates.
pub(crate) const NAME: &str = "time.example";

/// A server that runs; dropping it ends it.
pub(crate) struct Started {
    process: Option<RunningProgram>,
    _reflector: Option<XdpReflector>,
    /// From the start of the process to the first answer to 'status', where it is ours.
    pub(crate) ready_after: Duration,
    /// Where metrics are to be had, if they are.
    pub(crate) metrics: Option<SocketAddr>,
    /// The certificate of a server of NTS, which vouches for itself.
    pub(crate) certificate: PathBuf,
    _directory: TempDir,
}

impl Started {
    /// Time that the process has spent on processors, of user and system, in seconds (proc(5),
    /// /proc/pid/stat, fields 14 and 15). Time in interrupts is charged to no process.
    pub(crate) fn processor_s(&self) -> Result<f64> {
        // The kernel counts for user space in hundredths of a second, on every architecture.
        const TICKS: f64 = 100.0;
        let pid = self.process.as_ref().context("it is no process")?.pid();
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field, the name, may hold anything but ends at the last parenthesis.
        let (_, rest) = text.rsplit_once(')').context("no name in it")?;
        let fields: Vec<_> = rest.split_whitespace().collect();
        let ticks = |field: usize| -> Result<f64> {
            Ok(fields.get(field - 3).context("too short")?.parse()?)
        };
        Ok((ticks(14)? + ticks(15)?) / TICKS)
    }

    /// Memory that the process has resident, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let pid = self.process.as_ref().context("it is no process")?.pid();
        Ok(memory_kib(pid, "VmRSS:")? * 1024)
    }
}

/// A field of /proc/pid/status that is a number of KiB (proc(5)).
pub(crate) fn memory_kib(pid: u32, field: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.with_context(|| format!("no {field}"))?.parse()?)
}

/// Starts `server` in `host`.
pub(crate) fn start(server: Server, host: &LabHost, binary: &Path) -> Result<Started> {
    let directory = tempfile::Builder::new().prefix("horolog-bench-").tempdir()?;
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let is_limited = matches!(server, Server::XdpLimited | Server::XdpCrowded);
    let metrics = is_limited.then(|| SocketAddr::new(host.first_interface().ipv4.into(), 9123));
    let started = |process, reflector, ready_after, directory| Started {
        process,
        _reflector: reflector,
        ready_after,
        metrics,
        certificate: certificate.clone(),
        _directory: directory,
    };
    let arguments: &[&str] = match server {
        Server::Chronyd | Server::ChronydInterleaved | Server::ChronydNts => {
            let directives = match server {
                Server::Chronyd => "noclientlog".to_owned(),
                Server::ChronydInterleaved => "clientloglimit 100000000".to_owned(),
                _ => {
                    make_certificate(&certificate, &key)?;
                    let (certificate, key) = (certificate.display(), key.display());
                    format!(
                        "noclientlog\nntsservercert {certificate}\nntsserverkey {key}\n\
                         ntsprocesses 2\nmaxntsconnections 1000"
                    )
                }
            };
            let mut process = chronyd(host, directory.path(), &directives)?;
            if server == Server::ChronydNts {
                process.await_ready(TIMEOUT, || listens(host, 4460))?;
            }
            return Ok(started(Some(process), None, Duration::ZERO, directory));
        }
        Server::Reflector | Server::PtpReflector | Server::MonitorReflector => {
            let port = host.first_interface();
            let interface = Interface { index: port.index, name: port.name.clone() };
            let reflector = host.run(|| match server {
                Server::PtpReflector => XdpReflector::attach_ptp(&interface),
                Server::MonitorReflector => XdpReflector::attach_monitor(&interface),
                _ => XdpReflector::attach(&interface, 123),
            })??;
            return Ok(started(None, Some(reflector), Duration::ZERO, directory));
        }
        Server::Sockets | Server::SocketsNts => &["--engine", "socket", "--threads", "2"],
        Server::XdpLimited | Server::XdpCrowded => &XDP_LIMITED,
        Server::XdpNts => &["--engine", "xdp", "--threads", "1"],
        Server::Xdp => &["--engine", "xdp", "--xdp-reply", "transmit", "--threads", "1"],
    };
    let socket = directory.path().join("status.sock");
    let mut command = host.command(binary);
    command.args(["serve", "--local", "--stratum", "1", "--listen"]);
    command.arg(format!("{}:123", host.first_interface().ipv4)).args(arguments);
    if is_limited {
        command.arg("--deny-file").arg(deny_list(directory.path())?);
    }
    if server == Server::XdpCrowded {
        command.arg("--limit-clients").arg(CLIENTS.to_string());
    }
    if let Some(address) = metrics {
        command.arg("--metrics").arg(address.to_string());
    }
    command.arg("--status-socket").arg(&socket);
    if matches!(server, Server::SocketsNts | Server::XdpNts) {
        make_certificate(&certificate, &key)?;
        command.arg("--nts-cert").arg(&certificate).arg("--nts-key").arg(&key);
        command.arg("--nts-ke-listen").arg(format!("{}:4460", host.first_interface().ipv4));
        // All clients of the benchmark come from one address.
        command.args(["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"]);
    }
    let mut process = RunningProgram::start(&mut command)?;
    let ready_after = process.await_ready(TIMEOUT, || status::fetch(&socket).is_ok())?;
    if let Some(address) = metrics {
        // They are there a moment later.
        process.await_ready(TIMEOUT, || listens(host, address.port()))?;
    }
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
    "--limit-new-clients",
    "10M",
];

/// A file of a thousand prefixes that no client of the benchmark comes from.
fn deny_list(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("deny");
    let prefixes = (0..1_000).map(|n| format!("11.{}.{}.0/24\n", n / 250, n % 250));
    fs::write(&path, prefixes.collect::<String>())?;
    Ok(path)
}

/// Returns true if a program listens on this TCP port.
fn listens(host: &LabHost, port: u16) -> bool {
    let address = (host.first_interface().ipv4, port);
    host.run(|| TcpStream::connect(address).is_ok()).unwrap_or(false)
}

/// Writes a certificate for [`NAME`] that vouches for itself, and its key.
fn make_certificate(certificate: &Path, key: &Path) -> Result<()> {
    let signed = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    fs::write(certificate, signed.cert.pem())?;
    fs::write(key, signed.signing_key.serialize_pem())?;
    // chronyd takes no key that others may read.
    Ok(fs::set_permissions(key, fs::Permissions::from_mode(0o600))?)
}

/// Starts chronyd with further directives.
fn chronyd(host: &LabHost, directory: &Path, directives: &str) -> Result<RunningProgram> {
    let path = |name: &str| -> PathBuf { directory.join(name) };
    let configuration = path("chrony.conf");
    let text = format!(
        "local stratum 1\nallow all\nbindaddress {}\n{directives}\ncmdport 0\nbindcmdaddress /\npidfile {}\n",
        host.first_interface().ipv4,
        path("chronyd.pid").display()
    );
    fs::write(&configuration, text)?;
    let mut command = host.command("chronyd");
    // -x: it must never touch this machine's clock.
    command.args(["-x", "-d", "-u", "root", "-f"]).arg(&configuration);
    let mut process = RunningProgram::start(&mut command).context("is chronyd installed?")?;
    let pidfile = path("chronyd.pid");
    process.await_ready(TIMEOUT, || pidfile.exists())?;
    Ok(process)
}
