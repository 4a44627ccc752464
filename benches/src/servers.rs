//! Servers under comparison, each started in the lab's server host and ended when its value is
//! dropped.

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

/// Server under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// Debian's chronyd, one process, without control of the clock.
    Chronyd,
    /// chronyd with memory for its clients, which interleaved mode requires.
    ChronydInterleaved,
    /// chronyd as an NTS server, with an NTS-KE process for each core.
    ChronydNts,
    /// Horolog with two socket threads.
    Sockets,
    /// Horolog with two socket threads as an NTS server.
    SocketsNts,
    /// Horolog with XDP as an NTS server; XDP passes requests with more than a header to threads.
    XdpNts,
    /// Horolog with XDP.
    Xdp,
    /// Horolog with XDP, a limit for each client, one for new clients, a list of a thousand
    /// prefixes, and metrics.
    XdpLimited,
    /// [`Server::XdpLimited`] with a table of as many entries as there are clients: each may use
    /// one of four entries, so a fifth find none, remain new clients and are looked up in the list
    /// each time.
    XdpTableFull,
    /// Reflector that only swaps addresses: the limit of the link.
    Reflector,
    /// Reflector with the minimal answer to a PTP delay request.
    PtpReflector,
    /// Reflector with the minimal answer to a NetSync Monitor request.
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
            Self::XdpTableFull => "XDP with limits, a fifth of the clients new",
            Self::Reflector => "bare XDP reflector",
            Self::PtpReflector => "bare XDP reflector of PTP",
            Self::MonitorReflector => "bare XDP reflector of NetSync Monitor",
        }
    }
}

/// Name of the servers in their certificates.
pub(crate) const NAME: &str = "time.example";

/// Running server; ends when dropped.
pub(crate) struct RunningServer {
    process: Option<RunningProgram>,
    _reflector: Option<XdpReflector>,
    /// Time from the start of the process to the first status reply of Horolog; zero for other
    /// servers.
    pub(crate) ready_after: Duration,
    /// Address of the metrics, if the server has them.
    pub(crate) metrics: Option<SocketAddr>,
    /// Path of the self-signed certificate of an NTS server.
    pub(crate) certificate: PathBuf,
    _directory: TempDir,
}

impl RunningServer {
    /// Returns the CPU time of the process, user and system, in seconds (proc(5), /proc/pid/stat,
    /// fields 14 and 15). Time in interrupts is charged to no process.
    pub(crate) fn cpu_time_s(&self) -> Result<f64> {
        // The unit in user space (USER_HZ) is 1/100 s on every architecture.
        const TICKS_PER_S: f64 = 100.0;
        let pid = self.process.as_ref().context("the server is not a process")?.pid();
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field, the name, may contain any character and ends at the last parenthesis.
        let (_, rest) = text.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<_> = rest.split_whitespace().collect();
        let ticks = |field: usize| -> Result<f64> {
            Ok(fields.get(field - 3).context("too few fields in stat")?.parse()?)
        };
        Ok((ticks(14)? + ticks(15)?) / TICKS_PER_S)
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let pid = self.process.as_ref().context("the server is not a process")?.pid();
        Ok(memory_kib(pid, "VmRSS:")? * 1024)
    }
}

/// Returns a field of /proc/pid/status that is a number of KiB (proc(5)).
pub(crate) fn memory_kib(pid: u32, field: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.with_context(|| format!("no {field}"))?.parse()?)
}

/// Starts `server` in `host`.
pub(crate) fn start(server: Server, host: &LabHost, binary: &Path) -> Result<RunningServer> {
    let directory = tempfile::Builder::new().prefix("horolog-bench-").tempdir()?;
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let is_limited = matches!(server, Server::XdpLimited | Server::XdpTableFull);
    let metrics = is_limited.then(|| SocketAddr::new(host.first_interface().ipv4.into(), 9123));
    let started = |process, reflector, ready_after, directory| RunningServer {
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
        Server::XdpLimited | Server::XdpTableFull => &XDP_LIMITED,
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
    if server == Server::XdpTableFull {
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
        // All clients of the benchmark use one address.
        command.args(["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"]);
    }
    let mut process = RunningProgram::start(&mut command)?;
    let ready_after = process.await_ready(TIMEOUT, || status::fetch(&socket).is_ok())?;
    if let Some(address) = metrics {
        // The metrics listener starts after the status socket.
        process.await_ready(TIMEOUT, || listens(host, address.port()))?;
    }
    Ok(started(Some(process), None, ready_after, directory))
}

/// Options with limits that no client of the benchmark reaches, so that every request is counted
/// and answered.
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

/// Writes a file of a thousand prefixes without any client of the benchmark.
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

/// Writes a self-signed certificate for [`NAME`], and its key.
fn make_certificate(certificate: &Path, key: &Path) -> Result<()> {
    let signed = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    fs::write(certificate, signed.cert.pem())?;
    fs::write(key, signed.signing_key.serialize_pem())?;
    // chronyd refuses a key that other users can read.
    Ok(fs::set_permissions(key, fs::Permissions::from_mode(0o600))?)
}

/// Starts chronyd with additional directives.
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
    // -x: chronyd must not steer the host's clock.
    command.args(["-x", "-d", "-u", "root", "-f"]).arg(&configuration);
    let mut process =
        RunningProgram::start(&mut command).context("cannot run chronyd; is it installed?")?;
    let pidfile = path("chronyd.pid");
    process.await_ready(TIMEOUT, || pidfile.exists())?;
    Ok(process)
}
