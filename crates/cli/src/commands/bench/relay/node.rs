//! The relay under test: `horolog relay run` as a process in the host in the middle.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use horolog_lab::{LabHost, RunningProgram};
use horolog_record::RelayEngine;
use horolog_relay::control::{ControlRequest, request};
use horolog_relay::{GroupSpec, HOP_LIMIT, Network, TableSpec};
use horolog_sys::affinity;
use tempfile::TempDir;

use crate::failure::CommandFailure;

/// Timeout of a relay's start; loading programs takes up to a second.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Rate above that of any host: limits are checked as always, and never reached.
const RATE: u64 = 100_000_000;
pub(super) const COPY_RATE: u32 = 1_000_000_000;

/// Specification of a relay: source, group and children.
pub(super) struct RelaySpec<'a> {
    pub(super) host: &'a LabHost,
    pub(super) engine: RelayEngine,
    /// Destination address of the packets.
    pub(super) listen: SocketAddr,
    /// The network of all addresses in use.
    pub(super) network: Network,
    pub(super) children: Vec<SocketAddr>,
    /// Greatest number of copies per second.
    pub(super) copy_rate: u32,
    /// The core to which its process is pinned, which is not the source's.
    pub(super) core: Option<usize>,
}

/// A relay process; dropping it ends it.
pub(super) struct RunningRelay {
    process: RunningProgram,
    /// The command, without arguments that only this process needs.
    pub(super) command: Vec<String>,
    /// Holds its table and its control socket.
    _directory: TempDir,
}

impl RunningRelay {
    /// The reason, if it has ended by itself: its last line of output, or the signal that ended it.
    pub(super) fn ended(&mut self) -> Option<String> {
        let (status, words) = self.process.exit_status()?;
        let words = words.trim_start_matches("horolog: ");
        Some(if status.code().is_some() { words.to_owned() } else { status.to_string() })
    }
}

impl RelaySpec<'_> {
    /// Starts the relay and waits until it is ready.
    pub(super) fn start(&self) -> Result<RunningRelay, CommandFailure> {
        let directory = tempfile::Builder::new().prefix("horolog-relay-").tempdir();
        let directory = directory.map_err(failed)?;
        let [table, socket] =
            ["table.toml", "control.sock"].map(|name| directory.path().join(name));
        fs::write(&table, self.spec().to_toml()).map_err(failed)?;
        let mut command = self.host.command(std::env::current_exe().map_err(failed)?);
        let arguments = ["relay", "run", "--engine", self.engine.name()];
        command.args(arguments).arg("--config").arg(&table).arg("--socket").arg(&socket);
        if let Some(core) = self.core {
            affinity::pin_command_to_core(&mut command, core);
        }
        let mut process = RunningProgram::start(&mut command).map_err(failed)?;
        process
            .await_ready(START_TIMEOUT, || request(&socket, &ControlRequest::List).is_ok())
            .map_err(|error| failed(error.to_string().trim_start_matches("horolog: ")))?;
        self.await_engine(&socket)?;
        let command = ["horolog"].into_iter().chain(arguments).map(str::to_owned).collect();
        Ok(RunningRelay { process, command, _directory: directory })
    }

    /// Verifies that the engine makes the copies: in the kernel it starts a little after the relay,
    /// or not at all if it is not available.
    fn await_engine(&self, socket: &Path) -> Result<(), CommandFailure> {
        let begun = Instant::now();
        loop {
            let listing = request(socket, &ControlRequest::List).map_err(failed)?;
            let groups = listing.map_or_else(Vec::new, |listing| listing.groups);
            if groups.iter().all(|group| group.engine == self.engine.name()) {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                let why = groups.into_iter().find_map(|group| group.xdp_unavailable);
                let why = why.unwrap_or_else(|| "no reason reported".to_owned());
                return Err(failed(format!("no copies by {}: {why}", self.engine.name())));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn spec(&self) -> TableSpec {
        let group = GroupSpec {
            name: "bench".to_owned(),
            listen: self.listen,
            interface: None,
            sources: vec![self.network],
            rate: RATE,
            hop_limit: HOP_LIMIT,
            fragment: true,
            children: self.children.clone(),
        };
        let copy_rate = self.copy_rate.into();
        TableSpec { destinations: vec![self.network], copy_rate, groups: vec![group] }
    }
}

fn failed(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::environment(format!("cannot start a relay: {error}"))
}
