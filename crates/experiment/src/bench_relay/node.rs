//! Relay under test: a `horolog relay run` process in the lab host between source and receivers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use horolog_lab::{LabHost, RunningProgram};
use horolog_record::RelayEngineKind;
use horolog_relay::control::{ControlRequest, request};
use horolog_relay::{GroupSpec, HOP_LIMIT, IpNetwork, RoutingTableSpec};
use horolog_sys::affinity;
use tempfile::TempDir;

use crate::ExperimentError;

/// Timeout of a relay's start; the BPF programs take up to a second to load.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Rate limit of the relay's group, above the rate of any host: the relay applies its rate limit as
/// in normal operation, but never reaches it.
const GROUP_RATE_LIMIT: u64 = 100_000_000;
/// Limit on copies per second of the relay, above the rate of any host.
pub const COPY_RATE_LIMIT: u32 = 1_000_000_000;

/// Specification of the relay to start: lab host, engine, group address, children and limits.
pub(super) struct RelaySpec<'a> {
    pub(super) host: &'a LabHost,
    pub(super) engine: RelayEngineKind,
    /// Destination address of the packets.
    pub(super) listen: SocketAddr,
    /// Network that contains the addresses of source and children; the only one that the relay
    /// accepts.
    pub(super) network: IpNetwork,
    pub(super) children: Vec<SocketAddr>,
    /// Limit of the relay on copies per second.
    pub(super) copy_rate: u32,
    /// Core to which the relay process is pinned, other than the source's; `None`: not pinned.
    pub(super) core: Option<usize>,
}

/// Running relay process, which is terminated on drop.
pub(super) struct RunningRelay {
    process: RunningProgram,
    /// Command line as shown in results, without the paths of table and control socket.
    pub(super) command: Vec<String>,
    /// Temporary directory of the relay's table and control socket, removed on drop.
    _directory: TempDir,
}

impl RunningRelay {
    /// Returns the reason if the relay has exited by itself: its last line of output, or the signal
    /// that ended it. `None` while it runs.
    pub(super) fn exit_reason(&mut self) -> Option<String> {
        let (status, words) = self.process.exit_status()?;
        let words = words.trim_start_matches("horolog: ");
        Some(if status.code().is_some() { words.to_owned() } else { status.to_string() })
    }
}

impl RelaySpec<'_> {
    /// Starts the relay and waits until it is ready.
    pub(super) fn start(&self) -> Result<RunningRelay, ExperimentError> {
        let directory = tempfile::Builder::new().prefix("horolog-relay-").tempdir();
        let directory = directory.map_err(relay_start_failure)?;
        let [table, socket] =
            ["table.toml", "control.sock"].map(|name| directory.path().join(name));
        fs::write(&table, self.table_spec().to_toml()).map_err(relay_start_failure)?;
        let mut command = self.host.command(std::env::current_exe().map_err(relay_start_failure)?);
        let arguments = ["relay", "run", "--engine", self.engine.name()];
        command.args(arguments).arg("--config").arg(&table).arg("--socket").arg(&socket);
        if let Some(core) = self.core {
            affinity::pin_command_to_core(&mut command, core);
        }
        let mut process = RunningProgram::start(&mut command).map_err(relay_start_failure)?;
        process
            .await_ready(START_TIMEOUT, || request(&socket, &ControlRequest::List).is_ok())
            .map_err(|error| {
                relay_start_failure(error.to_string().trim_start_matches("horolog: "))
            })?;
        self.await_engine(&socket)?;
        let command = ["horolog"].into_iter().chain(arguments).map(str::to_owned).collect();
        Ok(RunningRelay { process, command, _directory: directory })
    }

    /// Waits until the requested engine makes the copies: the XDP engine starts shortly after the
    /// relay. It is an error if the engine does not start within [`START_TIMEOUT`].
    fn await_engine(&self, socket: &Path) -> Result<(), ExperimentError> {
        let begun = Instant::now();
        loop {
            let listing = request(socket, &ControlRequest::List).map_err(relay_start_failure)?;
            let groups = listing.map_or_else(Vec::new, |listing| listing.groups);
            if groups.iter().all(|group| group.engine == self.engine.name()) {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                let why = groups.into_iter().find_map(|group| group.xdp_unavailable);
                let why = why.unwrap_or_else(|| "no reason reported".to_owned());
                return Err(relay_start_failure(format!(
                    "no copies by {}: {why}",
                    self.engine.name()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn table_spec(&self) -> RoutingTableSpec {
        let group = GroupSpec {
            name: "bench".to_owned(),
            listen: self.listen,
            interface: None,
            sources: vec![self.network],
            rate: GROUP_RATE_LIMIT,
            hop_limit: HOP_LIMIT,
            fragment: true,
            children: self.children.clone(),
        };
        let copy_rate = self.copy_rate.into();
        RoutingTableSpec { destinations: vec![self.network], copy_rate, groups: vec![group] }
    }
}

fn relay_start_failure(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::host(format!("cannot start a relay: {error}"))
}
