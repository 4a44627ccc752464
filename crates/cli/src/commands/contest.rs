//! What the commands share that load servers of their own: a server as a child process, what it
//! counts and spends, and the progress of a search against it.

use std::fs;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use horolog_lab::Running;
use horolog_load::Observer;
use horolog_load::places::ServerCounters;
use horolog_load::target::TargetName;
use horolog_load::watch::AskServer;
use horolog_record::Trial;
use horolog_server::status;

use crate::failure::Failure;
use crate::output::{self, Progress};

/// How long a server may take to be ready.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn target(address: SocketAddr) -> Result<TargetName, Failure> {
    address.to_string().parse().map_err(Failure::usage)
}

/// Shows the trials as they come.
pub(crate) struct Follower {
    progress: Progress,
}

impl Follower {
    pub(crate) fn named(prefix: String) -> Self {
        Self { progress: Progress::named(prefix) }
    }

    pub(crate) fn finish(self) {
        self.progress.finish();
    }
}

impl Observer for Follower {
    fn begins(&mut self, rate: f64, duration: Duration) {
        self.progress.trial(rate, duration);
    }

    fn ended(&mut self, _: usize, _: &Trial) -> ControlFlow<()> {
        output::flow()
    }
}

/// A server process; dropping it ends it.
pub(crate) struct RunningServer {
    process: Running,
    /// The command, without what only this process needs.
    pub(crate) command: Vec<String>,
    socket: PathBuf,
    /// Holds the status socket and goes with it.
    _directory: tempfile::TempDir,
}

impl RunningServer {
    /// This program, which is the server's as well.
    pub(crate) fn program() -> Result<PathBuf, Failure> {
        std::env::current_exe().map_err(failed)
    }

    /// Starts `command`, which is to be the program in some host, as a server with these arguments,
    /// and waits until it is ready.
    pub(crate) fn start(mut command: Command, arguments: &[String]) -> Result<Self, Failure> {
        let directory =
            tempfile::Builder::new().prefix("horolog-server-").tempdir().map_err(failed)?;
        let socket = directory.path().join("status.sock");
        command.arg("serve").args(arguments).arg("--status-socket").arg(&socket);
        let mut process = Running::start(&mut command).map_err(Failure::environment)?;
        process
            .await_ready(PATIENCE, || status::ask(&socket).is_ok())
            .map_err(|error| Failure::environment(without_name(&error.to_string())))?;
        let own = ["horolog", "serve"].map(str::to_owned);
        let command = own.into_iter().chain(arguments.iter().cloned()).collect();
        Ok(Self { process, command, socket, _directory: directory })
    }

    /// Asks it for its counters, for as long as it runs.
    pub(crate) fn asker(&self) -> AskServer {
        let socket = self.socket.clone();
        Box::new(move || counters(&socket))
    }

    /// Processor time that its threads have taken so far, in ns (the first figure of
    /// /proc/PID/task/TID/schedstat); `None` where the kernel does not tell.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.pid())).ok()?;
        let of_thread = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        threads.map(|thread| thread.ok().and_then(of_thread)).sum()
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::environment(format!("cannot start a server: {error}"))
}

/// What the server says that it received and answered, in both of its bodies.
fn counters(socket: &Path) -> Option<ServerCounters> {
    let status: serde_json::Value = serde_json::from_str(&status::ask(socket).ok()?).ok()?;
    let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let in_kernel = count("/xdp_counters/answered_ipv4").unwrap_or(0)
        + count("/xdp_counters/answered_ipv6").unwrap_or(0);
    Some(ServerCounters {
        received: count("/counters/received")? + in_kernel,
        answered: count("/counters/answered")? + in_kernel,
    })
}

/// A server's complaint without the name that it begins with, which stands in front of ours too.
fn without_name(words: &str) -> &str {
    words.strip_prefix("horolog: ").unwrap_or(words)
}
