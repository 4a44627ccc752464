//! Programs that scenarios run on lab hosts: the server under test, and functions to start,
//! observe, signal and end it. Each ends with the thread that started it.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use horolog_lab::{Lab, LabHost};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

/// Timeout of the start, a reply or the end of a program on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const NTP_PORT: u16 = 123;

/// Engine of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    /// Sockets only.
    Socket,
    /// XDP, and sockets for packets that it passes.
    Xdp,
}

impl Engine {
    pub(crate) const ALL: [Self; 2] = [Self::Socket, Self::Xdp];

    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Xdp => "xdp",
        }
    }
}

/// Returns the path of `horolog`: `HOROLOG_BIN`, or the binary built beside this program.
pub(crate) fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("HOROLOG_BIN") {
        return Ok(path.into());
    }
    let path = env::current_exe()?.with_file_name("horolog");
    ensure!(
        path.is_file(),
        "{} not found; build it with cargo build --release -p horolog-cli",
        path.display()
    );
    Ok(path)
}

/// Returns the address on which the lab's server listens.
pub(crate) fn server_address(lab: &Lab, ipv6: bool) -> Result<SocketAddr> {
    let port = lab.server().first_interface();
    Ok(if ipv6 {
        (port.ipv6.context("no IPv6 address")?, NTP_PORT).into()
    } else {
        (port.ipv4, NTP_PORT).into()
    })
}

/// Sends a signal, by its name without SIG, to a child process that has not been reaped.
pub(crate) fn signal(child: &Child, name: &str) -> Result<()> {
    signal_to(child.id(), name)
}

/// Sends a signal, by its name without SIG, to a child process, by identifier, that has not been
/// reaped.
pub(crate) fn signal_to(pid: u32, name: &str) -> Result<()> {
    // `kill` is a builtin of the shell, so that no package has to provide it.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status()?;
    ensure!(status.success(), "kill -{name} failed");
    Ok(())
}

/// Waits until a condition holds; `what` names it. It is given more time than a source remains
/// selected without samples, and than a busy machine needs.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < WAIT_MAX, "not within {WAIT_MAX:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Runs a program to its end and returns its output; at the timeout, the program is killed and an
/// error returned.
pub(crate) fn run_to_end(command: &mut Command, timeout: Duration) -> Result<Output> {
    let mut child = KilledOnDrop::spawn(command)?;
    let ended = child.wait(timeout)?;
    let [stdout, stderr] = child.outputs()?;
    let status = ended.with_context(|| {
        format!("did not end within {timeout:?}; stderr: {}", String::from_utf8_lossy(&stderr))
    })?;
    Ok(Output { status, stdout, stderr })
}

/// Output longer than the buffer of a pipe is read to the end.
pub(crate) fn a_long_output_is_read() -> Result<()> {
    const BYTES: usize = 1 << 20;
    let mut command = Command::new("head");
    command.args(["-c", &BYTES.to_string(), "/dev/zero"]);
    let outputs = run_to_end(&mut command, TIMEOUT)?.stdout.len();
    ensure!(outputs == BYTES, "{outputs} bytes");
    Ok(())
}

/// Child process that is killed and reaped when dropped. Threads read its output, so that it never
/// blocks on a full pipe.
struct KilledOnDrop {
    child: Child,
    pipes: [Option<JoinHandle<io::Result<Vec<u8>>>>; 2],
}

fn spawn_reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut outputs = Vec::new();
        pipe.read_to_end(&mut outputs)?;
        Ok(outputs)
    })
}

impl KilledOnDrop {
    fn spawn(command: &mut Command) -> Result<Self> {
        let pipes = die_with_parent(command).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = pipes.stderr(Stdio::piped()).spawn()?;
        let pipes = [child.stdout.take().map(spawn_reader), child.stderr.take().map(spawn_reader)];
        Ok(Self { child, pipes })
    }

    /// Waits for the end; returns `None` at the timeout.
    fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if started.elapsed() > timeout {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends the program and returns its standard output and standard error.
    fn outputs(&mut self) -> Result<[Vec<u8>; 2]> {
        // The program may have ended already.
        let _ = self.child.kill();
        self.child.wait()?;
        let mut outputs = [Vec::new(), Vec::new()];
        for (outputs, pipe) in outputs.iter_mut().zip(&mut self.pipes) {
            if let Some(pipe) = pipe.take() {
                *outputs = pipe.join().map_err(|_| anyhow!("reading panicked"))??;
            }
        }
        Ok(outputs)
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Outcome of a server that has ended.
pub(crate) struct EndedServer {
    /// Exit status.
    pub(crate) status: ExitStatus,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
    /// Time from the signal to the end.
    pub(crate) took: Duration,
}

/// Running `horolog serve`.
pub(crate) struct Server {
    child: KilledOnDrop,
    socket: PathBuf,
    /// Directory of the status socket, unless that is elsewhere.
    _directory: TempDir,
}

impl Server {
    /// Starts a server with `--local` on these addresses, and waits until it is ready.
    pub(crate) fn start(
        host: &LabHost,
        engine: Engine,
        listen: &[SocketAddr],
        arguments: &[&str],
    ) -> Result<Self> {
        let local = ["--local"].iter().chain(arguments).copied().collect::<Vec<_>>();
        Self::start_without_local(host, engine, listen, &local)
    }

    /// Starts a server with these arguments only.
    pub(crate) fn start_without_local(
        host: &LabHost,
        engine: Engine,
        listen: &[SocketAddr],
        arguments: &[&str],
    ) -> Result<Self> {
        let directory = TempDir::new()?;
        let socket = directory.path().join("status.sock");
        Self::start_with(
            host.command(binary()?),
            engine.name(),
            listen,
            (directory, socket),
            arguments,
        )
    }

    /// Starts a server with `--local` and this status socket.
    pub(crate) fn start_at(
        host: &LabHost,
        engine: Engine,
        listen: &[SocketAddr],
        socket: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let local = ["--local"].iter().chain(arguments).copied().collect::<Vec<_>>();
        let status_socket = (TempDir::new()?, socket.into());
        Self::start_with(host.command(binary()?), engine.name(), listen, status_socket, &local)
    }

    /// Starts a server with `--local` and the faster of the engines that work.
    pub(crate) fn start_auto(host: &LabHost, listen: &[SocketAddr]) -> Result<Self> {
        let directory = TempDir::new()?;
        let socket = directory.path().join("status.sock");
        let status_socket = (directory, socket);
        Self::start_with(host.command(binary()?), "auto", listen, status_socket, &["--local"])
    }

    /// Starts a server with `--local` from another build of the program.
    pub(crate) fn start_build(
        host: &LabHost,
        program: &Path,
        engine: Engine,
        listen: &[SocketAddr],
    ) -> Result<Self> {
        let directory = TempDir::new()?;
        let socket = directory.path().join("status.sock");
        let status_socket = (directory, socket);
        Self::start_with(host.command(program), engine.name(), listen, status_socket, &["--local"])
    }

    /// Starts a server by a command that runs its arguments as a program.
    pub(crate) fn start_through(
        mut command: Command,
        engine: Engine,
        listen: &[SocketAddr],
        arguments: &[&str],
    ) -> Result<Self> {
        let directory = TempDir::new()?;
        let socket = directory.path().join("status.sock");
        command.arg(binary()?);
        Self::start_with(command, engine.name(), listen, (directory, socket), arguments)
    }

    fn start_with(
        mut command: Command,
        engine: &str,
        listen: &[SocketAddr],
        (directory, socket): (TempDir, PathBuf),
        arguments: &[&str],
    ) -> Result<Self> {
        command.args(["serve", "--engine", engine, "--status-socket"]);
        command.arg(&socket).args(arguments);
        for address in listen {
            command.args(["--listen", &address.to_string()]);
        }
        let child = KilledOnDrop::spawn(&mut command)?;
        let mut server = Self { child, socket, _directory: directory };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        // No program is started to ask a server that cannot answer yet.
        while !self.socket.exists() || self.status().is_err() {
            if let Some(status) = self.child.child.try_wait()? {
                let [_, stderr] = self.child.outputs()?;
                bail!("the server did not start: {status}; {}", String::from_utf8_lossy(&stderr));
            }
            ensure!(started.elapsed() < WAIT_MAX, "the server is not ready after {WAIT_MAX:?}");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns the output of `horolog status`.
    pub(crate) fn status(&self) -> Result<Value> {
        let mut command = Command::new(binary()?);
        command.args(["status", "--status-socket"]).arg(&self.socket);
        let output = run_to_end(&mut command, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "horolog status: {}", stderr.trim());
        serde_json::from_slice(&output.stdout).context("horolog status prints no JSON")
    }

    /// Returns the resident memory of the server, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.child.child.id())
    }

    /// Returns the path of the status socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends the server a signal, by its name without SIG.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        signal(&self.child.child, name)
    }

    /// Sends the server a signal that ends it, and waits for the end.
    pub(crate) fn end(mut self, name: &str) -> Result<EndedServer> {
        let started = Instant::now();
        self.signal(name)?;
        let status = self.child.wait(TIMEOUT)?;
        let took = started.elapsed();
        let [stdout, stderr] = self.child.outputs()?;
        let (stdout, stderr) = (String::from_utf8(stdout)?, String::from_utf8(stderr)?);
        let status =
            status.with_context(|| format!("SIG{name} did not end the server: {stderr}"))?;
        Ok(EndedServer { status, stdout, stderr, took })
    }
}

/// Returns true if a process has not ended. One that has ended but is not reaped is a zombie
/// (`proc_pid_stat(5)`), but so is the first thread of a process that others keep running.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') || threads > 1)
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// Writes a file that other users cannot read, as required of secrets.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}
