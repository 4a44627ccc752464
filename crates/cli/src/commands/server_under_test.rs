//! Shared parts of commands that load servers of their own: a server as a child process, its
//! counters and CPU time, and the progress of a search against it.

use std::fs;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use horolog_lab::RunningProgram;
use horolog_load::Observer;
use horolog_load::counter_watch::ServerCounterSource;
use horolog_load::loss_attribution::ServerCounters;
use horolog_load::target::TargetName;
use horolog_record::Trial;
use horolog_server::status;

use crate::failure::CommandFailure;
use crate::output::{self, ProgressLine};

/// Timeout of a server's start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn target(address: SocketAddr) -> Result<TargetName, CommandFailure> {
    address.to_string().parse().map_err(CommandFailure::usage)
}

/// Shows the trials of a search as they end.
pub(crate) struct SearchProgress {
    progress: ProgressLine,
}

impl SearchProgress {
    pub(crate) fn named(prefix: String) -> Self {
        Self { progress: ProgressLine::named(prefix) }
    }

    pub(crate) fn finish(self) {
        self.progress.finish();
    }
}

impl Observer for SearchProgress {
    fn trial_started(&mut self, rate: f64, duration: Duration) {
        self.progress.trial(rate, duration);
    }

    fn trial_ended(&mut self, _: usize, _: &Trial) -> ControlFlow<()> {
        output::flow()
    }
}

/// A server process; dropping it ends it.
pub(crate) struct ServerUnderTest {
    process: RunningProgram,
    /// The command, without arguments that only this process needs.
    pub(crate) command: Vec<String>,
    socket: PathBuf,
    /// Holds the status socket and is removed with it.
    _directory: tempfile::TempDir,
}

impl ServerUnderTest {
    /// The path of this program, which is also the server's.
    pub(crate) fn program() -> Result<PathBuf, CommandFailure> {
        std::env::current_exe().map_err(failed)
    }

    /// Starts `command`, which runs the program in some host, as a server with these arguments, and
    /// waits until it is ready.
    pub(crate) fn start(
        mut command: Command,
        arguments: &[String],
    ) -> Result<Self, CommandFailure> {
        let directory =
            tempfile::Builder::new().prefix("horolog-server-").tempdir().map_err(failed)?;
        let socket = directory.path().join("status.sock");
        command.arg("serve").args(arguments).arg("--status-socket").arg(&socket);
        let mut process =
            RunningProgram::start(&mut command).map_err(CommandFailure::environment)?;
        process
            .await_ready(START_TIMEOUT, || status::fetch(&socket).is_ok())
            .map_err(|error| CommandFailure::environment(without_name(&error.to_string())))?;
        let own = ["horolog", "serve"].map(str::to_owned);
        let command = own.into_iter().chain(arguments.iter().cloned()).collect();
        Ok(Self { process, command, socket, _directory: directory })
    }

    /// Source of its counters, as long as it runs.
    pub(crate) fn counter_source(&self) -> ServerCounterSource {
        let socket = self.socket.clone();
        Box::new(move || counters(&socket))
    }

    /// CPU time used by its threads so far, in ns (the first number of
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

fn failed(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::environment(format!("cannot start a server: {error}"))
}

/// Counts of requests and replies of the server, in both of its engines.
fn counters(socket: &Path) -> Option<ServerCounters> {
    let status: serde_json::Value = serde_json::from_str(&status::fetch(socket).ok()?).ok()?;
    let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let in_kernel = count("/xdp_counters/answered_ipv4").unwrap_or(0)
        + count("/xdp_counters/answered_ipv6").unwrap_or(0);
    Some(ServerCounters {
        received: count("/counters/received")? + in_kernel,
        answered: count("/counters/answered")? + in_kernel,
    })
}

/// A server's error without its name at the front, which also precedes errors of this program.
fn without_name(words: &str) -> &str {
    words.strip_prefix("horolog: ").unwrap_or(words)
}
