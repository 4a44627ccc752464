//! Scenario of a static binary, built without optimisation for this host: it serves on one lab
//! host, by sockets and in XDP, and queries from the other.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use serde_json::Value;

use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::{Need, Scenario, cached_file};
use crate::{scenarios, static_binary};

const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn all() -> Vec<Scenario> {
    const NEEDS: &[Need] = &[Need::Root, Need::StaticBinary, Need::Peer("readelf")];
    Vec::from(scenarios!(NEEDS, static_binary: the_binary_serves_and_queries))
}

/// Returns the path of the binary that `scripts/static.sh --try` built, if it exists.
pub(crate) fn try_program() -> Option<PathBuf> {
    cached_file(&format!("static/try-{}/horolog", std::env::consts::ARCH))
}

fn the_binary_serves_and_queries() -> Result<()> {
    let program = try_program().context("no static binary")?;
    let output = run_to_end(Command::new("readelf").args(["-lW"]).arg(&program), TIMEOUT)?;
    let stdout = String::from_utf8(output.stdout)?;
    ensure!(stdout.contains("LOAD") && !stdout.contains("INTERP"), "{stdout}");
    for engine in [Engine::Socket, Engine::Xdp] {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        let server = Server::start_build(lab.server(), &program, engine, &[at])?;
        let mut query = lab.client().command(&program);
        query.args(["query", &at.to_string(), "-n", "4", "--interval", "10ms", "--json", "-"]);
        let output = run_to_end(query.env("HOROLOG_STORE", "none"), TIMEOUT)?;
        ensure!(output.status.success(), "{output:?}");
        let result: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(result["servers"][0]["counts"]["received"] == 4, "{result}");
        let ended = server.end("TERM")?;
        ensure!(ended.status.success(), "{}", ended.stderr);
    }
    Ok(())
}
