//! What a server needs before it has done anything: memory, and time until it answers.

use std::path::Path;

use anyhow::Result;
use horolog_lab::{Lab, LabConfig};

use crate::figure::{Figure, Goal};
use crate::servers::{self, Server};

/// Starts servers `rounds` times.
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
    Ok(figures)
}
