//! Server under test: a `horolog serve` process, its counters and its CPU time.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use horolog_lab::RunningProgram;
use horolog_load::loss_attribution::ServerRequestCounts;
use horolog_load::loss_attribution_counters::ServerRequestCountsFn;
use horolog_load::target::TargetName;
use horolog_server::status;

use crate::ExperimentError;

/// Timeout of a server's start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn target_name(address: SocketAddr) -> Result<TargetName, ExperimentError> {
    address.to_string().parse().map_err(ExperimentError::options)
}

/// Running `horolog serve` process, which is terminated on drop.
pub(crate) struct ServerUnderTest {
    process: RunningProgram,
    /// Command line as shown in results, without the path of the status socket.
    pub(crate) command: Vec<String>,
    socket: PathBuf,
    /// Temporary directory of the status socket, removed on drop.
    _directory: tempfile::TempDir,
}

impl ServerUnderTest {
    /// Returns the path of this executable, which also runs as the server.
    pub(crate) fn program_path() -> Result<PathBuf, ExperimentError> {
        std::env::current_exe().map_err(server_start_failure)
    }

    /// Starts a server and waits until its status socket answers. `command` executes this program,
    /// possibly in a lab host; `serve` and `arguments` are appended to it.
    pub(crate) fn start(
        mut command: Command,
        arguments: &[String],
    ) -> Result<Self, ExperimentError> {
        let directory = tempfile::Builder::new()
            .prefix("horolog-server-")
            .tempdir()
            .map_err(server_start_failure)?;
        let socket = directory.path().join("status.sock");
        command.arg("serve").args(arguments).arg("--status-socket").arg(&socket);
        let mut process = RunningProgram::start(&mut command).map_err(ExperimentError::host)?;
        process
            .await_ready(START_TIMEOUT, || status::fetch(&socket).is_ok())
            .map_err(|error| ExperimentError::host(without_program_name(&error.to_string())))?;
        let own = ["horolog", "serve"].map(str::to_owned);
        let command = own.into_iter().chain(arguments.iter().cloned()).collect();
        Ok(Self { process, command, socket, _directory: directory })
    }

    /// Returns a function that reads the server's counters; it yields `None` once the server has
    /// ended.
    pub(crate) fn counter_source(&self) -> ServerRequestCountsFn {
        let socket = self.socket.clone();
        Box::new(move || read_counters(&socket))
    }

    /// Returns the CPU time that the server's threads have used so far, in ns (the first number of
    /// /proc/PID/task/TID/schedstat); `None` if the kernel does not report it.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.pid())).ok()?;
        let of_thread = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        threads.map(|thread| thread.ok().and_then(of_thread)).sum()
    }
}

fn server_start_failure(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::host(format!("cannot start a server: {error}"))
}

/// Reads the sums of requests and replies over the socket and the XDP engine from the status
/// socket; `None` if it cannot be read.
fn read_counters(socket: &Path) -> Option<ServerRequestCounts> {
    let status = status::fetch_status(socket).ok()?;
    let (received, answered) = (status.requests_received(), status.requests_answered());
    Some(ServerRequestCounts { received, answered })
}

/// Removes the prefix "horolog: " from an error of a server, since this program prints it again.
fn without_program_name(words: &str) -> &str {
    words.strip_prefix("horolog: ").unwrap_or(words)
}
