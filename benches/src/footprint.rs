//! Memory and time before a measurement begins: an idle server, and a load by the maximum number of
//! simulated clients.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, RunningProgram, RunningProgramError};
use horolog_load::clients::CLIENTS_MAX;
use horolog_record::{LoadEngineKind, LoadResult};

use crate::figure::{Figure, Goal};
use crate::servers::{self, Server};

/// Longer than the duration of a load.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Loads that keep state for each client: name, engine, and arguments besides the target.
const LOADS: [(&str, LoadEngineKind, &[&str]); 4] = [
    ("packet engine, interleaved", LoadEngineKind::Packet, &["ntp", "--interleaved"]),
    ("packet engine, PTP NetSync Monitor", LoadEngineKind::Packet, &["ptp", "nsm"]),
    ("xdp engine, interleaved", LoadEngineKind::Xdp, &["ntp", "--interleaved"]),
    ("xdp engine, PTP NetSync Monitor", LoadEngineKind::Xdp, &["ptp", "nsm"]),
];

/// Starts each server and each load `rounds` times.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for server in [Server::Sockets, Server::Xdp] {
        let (mut memory, mut ready) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
            let started = servers::start(server, lab.server(), binary)?;
            memory.push(started.resident_bytes()? as f64 / 1e6);
            ready.push(started.ready_after.as_secs_f64() * 1e3);
        }
        let name = server.name();
        figures.push(
            Figure::new(format!("{name}: resident memory"), "MB", memory).with(Goal::Below(30.0)),
        );
        figures.push(
            Figure::new(format!("{name}: ready after"), "ms", ready).with(Goal::Below(200.0)),
        );
    }
    for (name, engine, arguments) in LOADS {
        let memory = (0..rounds).map(|_| memory_of_load(binary, engine, arguments));
        let memory = memory.collect::<Result<_>>()?;
        figures.push(
            Figure::new(format!("{CLIENTS_MAX} clients: {name}"), "MB", memory)
                .with(Goal::Below(200.0)),
        );
    }
    Ok(figures)
}

/// Returns the peak memory of a load by [`CLIENTS_MAX`] clients, of the process and of its BPF maps
/// in the kernel, in MB. Maps that the process maps into its own memory count twice.
fn memory_of_load(binary: &Path, engine: LoadEngineKind, arguments: &[&str]) -> Result<f64> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let _server = servers::start(Server::Xdp, lab.server(), binary)?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("result.json");
    let mut command = lab.client().command(binary);
    command.arg("load").args(arguments).arg(lab.server().first_interface().ipv4.to_string());
    command.args(["-r", "500k", "-t", "3", "--engine", engine.name(), "--clients"]);
    command.arg(CLIENTS_MAX.to_string()).arg("--json").arg(&file);
    let mut load = RunningProgram::start(&mut command)?;
    let pid = load.pid();
    let (mut resident, mut in_maps) = (0, 0);
    let ended = load.await_ready(TIMEOUT, || {
        // An exiting process has neither value.
        resident = resident.max(servers::memory_kib(pid, "VmHWM:").unwrap_or(0));
        in_maps = in_maps.max(map_bytes(pid).unwrap_or(0));
        false
    });
    if let Err(
        error @ (RunningProgramError::NotReady { .. } | RunningProgramError::System { .. }),
    ) = ended
    {
        return Err(error.into());
    }
    let json = fs::read(&file).context("the load wrote no result")?;
    let result: LoadResult = serde_json::from_slice(&json)?;
    let clients = result.trials.first().map(|trial| trial.clients.min(trial.sent));
    ensure!(clients == Some(CLIENTS_MAX.into()), "only {clients:?} clients sent");
    Ok((resident * 1024 + in_maps) as f64 / 1e6)
}

/// Returns the kernel memory of a process's BPF maps, in bytes (kernel documentation,
/// filesystems/proc, "fdinfo").
fn map_bytes(pid: u32) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = fs::read_to_string(entry?.path())?;
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
        if field("map_id:").is_some() {
            bytes += field("memlock:").context("no memlock")?.trim().parse::<u64>()?;
        }
    }
    Ok(bytes)
}
