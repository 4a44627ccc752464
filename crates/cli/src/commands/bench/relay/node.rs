//! The relay under test: `horolog relay run` as a process in the host in the middle.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use horolog_lab::{Host, Running};
use horolog_record::RelayEngine;
use horolog_relay::control::{Request, ask};
use horolog_relay::{GroupSpec, HOP_LIMIT, Network, Spec};
use horolog_sys::affinity;
use tempfile::TempDir;

use crate::failure::Failure;

/// How long a relay may take to be ready; loading programs takes it up to a second.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
/// More than any machine sends: limits are checked as always, and never reached.
const RATE: u64 = 100_000_000;
pub(super) const COPY_RATE: u32 = 1_000_000_000;

/// Who relays what to whom.
pub(super) struct Node<'a> {
    pub(super) host: &'a Host,
    pub(super) engine: RelayEngine,
    /// Where packets come to.
    pub(super) listen: SocketAddr,
    /// All addresses that occur.
    pub(super) network: Network,
    pub(super) children: Vec<SocketAddr>,
    /// Copies per second, at most.
    pub(super) copy_rate: u32,
    /// The core that its process is kept on, which is not the source's.
    pub(super) core: Option<usize>,
}

/// A relay process; dropping it ends it.
pub(super) struct RunningRelay {
    process: Running,
    /// The command, without what only this process needs.
    pub(super) command: Vec<String>,
    /// Holds its table and its control socket.
    _directory: TempDir,
}

impl RunningRelay {
    /// Why, if it has ended by itself: what it said last, or the signal that ended it.
    pub(super) fn ended(&mut self) -> Option<String> {
        let (status, words) = self.process.ended()?;
        let words = words.trim_start_matches("horolog: ");
        Some(if status.code().is_some() { words.to_owned() } else { status.to_string() })
    }
}

impl Node<'_> {
    /// Starts the relay and waits until it is ready.
    pub(super) fn start(&self) -> Result<RunningRelay, Failure> {
        let directory = tempfile::Builder::new().prefix("horolog-relay-").tempdir();
        let directory = directory.map_err(failed)?;
        let [table, socket] =
            ["table.toml", "control.sock"].map(|name| directory.path().join(name));
        fs::write(&table, self.spec().to_toml()).map_err(failed)?;
        let mut command = self.host.command(std::env::current_exe().map_err(failed)?);
        let arguments = ["relay", "run", "--engine", self.engine.name()];
        command.args(arguments).arg("--config").arg(&table).arg("--socket").arg(&socket);
        if let Some(core) = self.core {
            affinity::keep_on_core(&mut command, core);
        }
        let mut process = Running::start(&mut command).map_err(failed)?;
        process
            .await_ready(PATIENCE, || ask(&socket, &Request::List).is_ok())
            .map_err(|error| failed(error.to_string().trim_start_matches("horolog: ")))?;
        self.await_engine(&socket)?;
        let command = ["horolog"].into_iter().chain(arguments).map(str::to_owned).collect();
        Ok(RunningRelay { process, command, _directory: directory })
    }

    /// Sees that the copies are really made by the engine: in the kernel they are a little after
    /// the relay is there, or not at all where it cannot.
    fn await_engine(&self, socket: &Path) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let listing = ask(socket, &Request::List).map_err(failed)?;
            let groups = listing.map_or_else(Vec::new, |listing| listing.groups);
            if groups.iter().all(|group| group.engine == self.engine.name()) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let why = groups.into_iter().find_map(|group| group.not_in_kernel);
                let why = why.unwrap_or_else(|| "it does not say why".to_owned());
                return Err(failed(format!(
                    "it does not make copies by {}: {why}",
                    self.engine.name()
                )));
            }
            thread::sleep(LOOK);
        }
    }

    fn spec(&self) -> Spec {
        let group = GroupSpec {
            name: "bench".to_owned(),
            listen: self.listen,
            interface: None,
            sources: vec![self.network],
            rate: RATE,
            hop_limit: HOP_LIMIT,
            children: self.children.clone(),
        };
        let copy_rate = self.copy_rate.into();
        Spec { destinations: vec![self.network], copy_rate, groups: vec![group] }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::environment(format!("cannot start a relay: {error}"))
}
