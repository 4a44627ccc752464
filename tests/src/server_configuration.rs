//! Scenarios of the configuration file, its check and its reload: errors name file, line and key,
//! and a reload loses no request at an address that stays.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::ethtool::set_gro;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{self, SteadyClient};
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address};
use crate::scenario::{Scenario, scenario};
use crate::{ROOT, scenarios, server_configuration};

/// Short enough that some requests arrive during each reload.
pub(crate) const REQUEST_INTERVAL: Duration = Duration::from_millis(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const RELOADS: u64 = 10;
/// Longer than the interval between page updates, so that a wrong change would take effect.
const PAGE_UPDATE_MAX: Duration = Duration::from_millis(150);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], server_configuration: a_file_is_checked));
    all.extend(scenarios!(ROOT, server_configuration:
        local_interfaces_are_checked,
        a_link_that_drops_xdp_frames_gets_sockets,
        an_invalid_reload_changes_nothing,
        settings_that_need_a_restart_are_named,
    ));
    for engine in Engine::ALL {
        let name = format!("server_configuration::reloads_lose_no_request::{}", engine.name());
        all.push(scenario(name, ROOT, move || reloads_lose_no_request(engine)));
    }
    all
}

/// On a virtual link whose other end drops frames from XDP, as a container's does, sockets send the
/// replies and the status contains the reason; otherwise XDP sends them.
pub(crate) fn a_link_that_drops_xdp_frames_gets_sockets() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (address, client) = (server_address(&lab, false)?, lab.client());
    for takes in [false, true] {
        let end = client.first_interface().name.clone();
        client.run(|| set_gro(&end, takes))??;
        let server = Server::start_auto(lab.server(), &[address])?;
        client::query_from(client, address).with_context(|| format!("GRO at far end: {takes}"))?;
        let status = server.status()?;
        let (interfaces, why) = (&status["xdp_interfaces"], status["xdp_unavailable"].as_str());
        ensure!(interfaces.as_array().map(Vec::len) == Some(usize::from(takes)), "{interfaces}");
        let is_reported = why.is_some_and(|why| why.contains("GRO"));
        ensure!(is_reported != takes, "GRO at far end: {takes}; reason: {why:?}");
    }
    Ok(())
}

/// A valid file is printed in full; an invalid one is refused with line and key.
pub(crate) fn a_file_is_checked() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    let check = |text: &str, flags: &[&str]| {
        fs::write(&path, text)?;
        let mut command = std::process::Command::new(binary()?);
        command.args(["serve", "--check", "-c"]).arg(&path).args(flags);
        run_to_end(&mut command, TIMEOUT)
    };
    let valid = check("stratum = 3\nlisten = ['127.0.0.1:4123']\n", &["--refid", "GPS"])?;
    let printed = String::from_utf8(valid.stdout)?;
    ensure!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
    for line in ["stratum = 3", "listen = [\"127.0.0.1:4123\"]", "refid = \"GPS\""] {
        ensure!(printed.lines().any(|printed| printed == line), "{line} is not in {printed}");
    }
    let again = check(&printed, &[])?;
    ensure!(again.stdout == printed.as_bytes(), "the printed file yields another one");
    let invalid = [
        ("local = true\nstratun = 3\n", ":2:", "'stratum'"),
        ("stratum = 16\n", ":1:", "--stratum"),
        ("\n\nthreads = true\n", ":3:", "'threads'"),
        ("listen = ['127.0.0.1']\n", ":1:", "--listen"),
        ("stratum = \n", ":1:", "horolog.toml"),
        ("local = true\npps = '/dev/pps0'\n", ":2:", "--gnss"),
    ];
    // Interfaces and lists may appear later: this status lets a unit retry.
    let missing = [
        ("interface = ['nosuch0']\n", ":1:", "'nosuch0'"),
        ("allow-file = '/nosuch/list'\n", "/nosuch/list", "cannot read"),
    ];
    let invalid = invalid.map(|case| (2, case)).into_iter();
    for (status, (text, line, named)) in invalid.chain(missing.map(|case| (3, case))) {
        let refused = check(text, &[])?;
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(refused.status.code() == Some(status), "{text}: {} with {stderr}", refused.status);
        ensure!(stderr.lines().count() == 1, "not one line: {stderr}");
        ensure!(stderr.contains(line) && stderr.contains(named), "{text}: {stderr}");
    }
    Ok(())
}

/// Interfaces are those of the lab host, although /sys shows those of the namespace it was mounted
/// in.
pub(crate) fn local_interfaces_are_checked() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let own = lab.server().first_interface().name.as_str();
    for (interface, code) in [(own, 0), ("nosuch0", 3)] {
        let mut command = lab.server().command(binary()?);
        command.args(["serve", "--check", "--local", "--interface", interface]);
        let checked = run_to_end(&mut command, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&checked.stderr);
        ensure!(checked.status.code() == Some(code), "{interface}: {stderr}");
    }
    Ok(())
}

/// Writes the configuration of a server that trusts its clock, with `rest` as its last lines.
pub(crate) fn write_configuration(path: &Path, listen: &[SocketAddr], rest: &str) -> Result<()> {
    let listen: Vec<String> = listen.iter().map(|address| format!("'{address}'")).collect();
    let text = format!("local = true\nlisten = [{}]\n{rest}", listen.join(", "));
    fs::write(path, text).context("cannot write the configuration")
}

/// Reloads the configuration and returns the status afterwards.
pub(crate) fn reload(server: &Server) -> Result<Value> {
    let count = |status: &Value| {
        let of = |key: &str| status["reload"][key].as_u64().unwrap_or(0);
        of("done") + of("failed")
    };
    let before = count(&server.status()?);
    server.signal("HUP")?;
    let started = Instant::now();
    loop {
        let status = server.status()?;
        if count(&status) > before {
            return Ok(status);
        }
        ensure!(started.elapsed() < TIMEOUT, "the reload does not end");
        thread::sleep(POLL_INTERVAL);
    }
}

/// An address is added and removed while a client sends requests all the time: each of them gets a
/// reply, and so do requests to the second address.
fn reloads_lose_no_request(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let second = SocketAddr::new(at.ip(), 4123);
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    write_configuration(&path, &[at], "")?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_without_local(lab.server(), engine, &[], &["-c", &config])?;
    let socket = client::socket(lab.client(), at, TIMEOUT)?;
    let steady = SteadyClient::start(socket, at, REQUEST_INTERVAL);
    toggle_address(&lab, &server, &path, at, second)?;
    let answered = steady.end()?.all_answered()?;
    ensure!(answered >= RELOADS, "only {answered} requests were sent");
    let status = server.status()?;
    let sum = status["counters"]["answered"].as_u64().unwrap_or(0)
        + status["xdp_counters"]["answered_ipv4"].as_u64().unwrap_or(0);
    let queries = RELOADS / 2;
    ensure!(sum == answered + queries, "{answered} + {queries} requests, {sum} counted");
    Ok(())
}

fn toggle_address(
    lab: &Lab,
    server: &Server,
    path: &Path,
    at: SocketAddr,
    second: SocketAddr,
) -> Result<()> {
    for turn in 0..RELOADS {
        let both = turn % 2 == 0;
        let listen: &[SocketAddr] = if both { &[at, second] } else { &[at] };
        write_configuration(path, listen, &format!("stratum = {}\n", 2 + turn % 5))?;
        let status = reload(server)?;
        ensure!(status["reload"]["done"] == turn + 1, "refused: {status}");
        let listens = status["listen"].as_array().map_or(0, Vec::len);
        ensure!(listens == listen.len(), "listens on {}", status["listen"]);
        if both {
            client::query_from(lab.client(), second)?;
        }
    }
    Ok(())
}

/// A port in use and an invalid file change nothing and are reported.
pub(crate) fn an_invalid_reload_changes_nothing() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let (free, taken) = (SocketAddr::new(at.ip(), 4123), SocketAddr::new(at.ip(), 4124));
    let _holder = lab.server().run(|| std::net::UdpSocket::bind(taken))??;
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    write_configuration(&path, &[at], "stratum = 2\n")?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[], &["-c", &config])?;
    let check_refused = |named: &str| -> Result<()> {
        let status = reload(&server)?;
        let error = status["reload"]["last_reload_error"].as_str().unwrap_or_default();
        ensure!(error.contains(named), "{named} is missing: {error}");
        thread::sleep(PAGE_UPDATE_MAX);
        ensure!(
            server.status()?["stratum"] == 2
                && status["listen"].as_array().map(Vec::len) == Some(1)
        );
        client::query_from(lab.client(), at)?;
        Ok(())
    };
    // The free port could be opened, but a reload is applied completely or not at all.
    write_configuration(&path, &[at, free, taken], "stratum = 3\n")?;
    check_refused("in use")?;
    write_configuration(&path, &[SocketAddr::from(([0, 0, 0, 0], at.port()))], "stratum = 3\n")?;
    check_refused("overlaps")?;
    fs::write(&path, "stratum = 3\nno-such-key = 1\n")?;
    check_refused(":2: unknown key 'no-such-key'")?;
    fs::remove_file(&path)?;
    check_refused("cannot read")?;
    write_configuration(&path, &[at, free], "stratum = 3\n")?;
    let status = reload(&server)?;
    ensure!(status["reload"]["last_reload_error"].is_null(), "{status}");
    client::query_from(lab.client(), free)?;
    Ok(())
}

/// Settings that need a restart keep their values, and are reported until the file has these again.
pub(crate) fn settings_that_need_a_restart_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    write_configuration(&path, &[at], "threads = 2\n")?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[], &["-c", &config])?;
    write_configuration(&path, &[at], "threads = 1\nstratum = 4\n")?;
    for _ in 0..2 {
        let status = reload(&server)?;
        ensure!(status["reload"]["restart_needed"][0] == "threads", "{status}");
        ensure!(status["threads"] == 2, "{status}");
    }
    // The clock thread applies the stratum with its next page.
    let started = Instant::now();
    while client::query_from(lab.client(), at)?.header.stratum != 4 {
        ensure!(started.elapsed() < TIMEOUT, "the stratum is not in force");
    }
    write_configuration(&path, &[at], "threads = 2\nstratum = 4\n")?;
    let status = reload(&server)?;
    ensure!(status["reload"]["restart_needed"].as_array().is_some_and(Vec::is_empty), "{status}");
    Ok(())
}
