//! Scenarios of the configuration file, checking and reloading: what is wrong is named by file,
//! line and key, and a reload loses no request at an address that stays.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::ethtool::set_gro;
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{self, SteadyClient};
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address};
use crate::scenario::scenario;
use crate::{ROOT, scenarios, server_configuration};

/// Often enough that some requests come while each reload happens.
pub(crate) const REQUEST_PAUSE: Duration = Duration::from_millis(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const RELOADS: u64 = 10;
/// Longer than the time between two clock pages, in which a wrong change would show.
const CLOCK_RENEWAL: Duration = Duration::from_millis(150);

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
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

/// On a virtual link whose other end takes no frames from XDP, as a container's does, sockets
/// answer and the reason is told; where it takes them, XDP answers.
pub(crate) fn a_link_that_drops_xdp_frames_gets_sockets() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (address, client) = (server_address(&lab, false)?, lab.client());
    for takes in [false, true] {
        let end = client.first_interface().name.clone();
        client.run(|| set_gro(&end, takes))??;
        let server = Server::start_choosing(lab.server(), &[address])?;
        client::query_from(client, address).with_context(|| format!("GRO at its end: {takes}"))?;
        let status = server.status()?;
        let (interfaces, why) = (&status["xdp_interfaces"], status["xdp_unavailable"].as_str());
        ensure!(interfaces.as_array().map(Vec::len) == Some(usize::from(takes)), "{interfaces}");
        let is_reported = why.is_some_and(|why| why.contains("GRO"));
        ensure!(is_reported != takes, "GRO at its end: {takes}; told: {why:?}");
    }
    Ok(())
}

/// A file that is right is printed in full; one that is not is refused by line and key.
pub(crate) fn a_file_is_checked() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    let check = |text: &str, flags: &[&str]| {
        fs::write(&path, text)?;
        let mut command = std::process::Command::new(binary()?);
        command.args(["serve", "--check", "-c"]).arg(&path).args(flags);
        run_to_end(&mut command, TIMEOUT)
    };
    let right = check("stratum = 3\nlisten = ['127.0.0.1:4123']\n", &["--refid", "GPS"])?;
    let printed = String::from_utf8(right.stdout)?;
    ensure!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    for line in ["stratum = 3", "listen = [\"127.0.0.1:4123\"]", "refid = \"GPS\""] {
        ensure!(printed.lines().any(|printed| printed == line), "{line} is not in {printed}");
    }
    let again = check(&printed, &[])?;
    ensure!(again.stdout == printed.as_bytes(), "it does not read what it prints");
    let wrong = [
        ("local = true\nstratun = 3\n", ":2:", "'stratum'"),
        ("stratum = 16\n", ":1:", "--stratum"),
        ("\n\nthreads = true\n", ":3:", "'threads'"),
        ("listen = ['127.0.0.1']\n", ":1:", "--listen"),
        ("stratum = \n", ":1:", "horolog.toml"),
        ("local = true\npps = '/dev/pps0'\n", ":2:", "--gnss"),
    ];
    // An interface or a list may come later, so that a unit tries again.
    let missing = [
        ("interface = ['nosuch0']\n", ":1:", "'nosuch0'"),
        ("allow-file = '/nosuch/list'\n", "/nosuch/list", "cannot read"),
    ];
    let wrong = wrong.map(|case| (2, case)).into_iter();
    for (status, (text, line, named)) in wrong.chain(missing.map(|case| (3, case))) {
        let refused = check(text, &[])?;
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(refused.status.code() == Some(status), "{text}: {} with {stderr}", refused.status);
        ensure!(stderr.lines().count() == 1, "not one line: {stderr}");
        ensure!(stderr.contains(line) && stderr.contains(named), "{text}: {stderr}");
    }
    Ok(())
}

/// A private host's interfaces are its own, though /sys shows those of whoever mounted it.
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

/// Writes the configuration of a server that trusts its clock, with these lines at its end.
pub(crate) fn write(path: &Path, listen: &[SocketAddr], rest: &str) -> Result<()> {
    let listen: Vec<String> = listen.iter().map(|address| format!("'{address}'")).collect();
    let text = format!("local = true\nlisten = [{}]\n{rest}", listen.join(", "));
    fs::write(path, text).context("cannot write the configuration")
}

/// Has the file read again, and returns the state afterwards.
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
        ensure!(started.elapsed() < TIMEOUT, "it was not reloaded");
        thread::sleep(POLL_INTERVAL);
    }
}

/// A client asks all the time while addresses come and go: each request is answered, and the new
/// address as well.
fn reloads_lose_no_request(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let second = SocketAddr::new(at.ip(), 4123);
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    write(&path, &[at], "")?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_as(lab.server(), engine, &[], &["-c", &config])?;
    let socket = client::socket(lab.client(), at, TIMEOUT)?;
    let steady = SteadyClient::start(socket, at, REQUEST_PAUSE);
    change_to_and_fro(&lab, &server, &path, at, second)?;
    let answered = steady.end()?.all_answered()?;
    ensure!(answered >= RELOADS, "only {answered} requests were made");
    let status = server.status()?;
    let sum = status["counters"]["answered"].as_u64().unwrap_or(0)
        + status["xdp_counters"]["answered_ipv4"].as_u64().unwrap_or(0);
    ensure!(sum == answered + RELOADS / 2, "{answered} + {} asked, {sum} counted", RELOADS / 2);
    Ok(())
}

fn change_to_and_fro(
    lab: &Lab,
    server: &Server,
    path: &Path,
    at: SocketAddr,
    second: SocketAddr,
) -> Result<()> {
    for turn in 0..RELOADS {
        let both = turn % 2 == 0;
        let listen: &[SocketAddr] = if both { &[at, second] } else { &[at] };
        write(path, listen, &format!("stratum = {}\n", 2 + turn % 5))?;
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

/// A port that is taken, or a file that is not right, leaves everything as it was, and says so.
pub(crate) fn an_invalid_reload_changes_nothing() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let (free, taken) = (SocketAddr::new(at.ip(), 4123), SocketAddr::new(at.ip(), 4124));
    let _holder = lab.server().run(|| std::net::UdpSocket::bind(taken))??;
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    write(&path, &[at], "stratum = 2\n")?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_as(lab.server(), Engine::Socket, &[], &["-c", &config])?;
    let refused = |named: &str| -> Result<()> {
        let status = reload(&server)?;
        let error = status["reload"]["last_reload_error"].as_str().unwrap_or_default();
        ensure!(error.contains(named), "{named} is not named: {error}");
        thread::sleep(CLOCK_RENEWAL);
        ensure!(
            server.status()?["stratum"] == 2
                && status["listen"].as_array().map(Vec::len) == Some(1)
        );
        client::query_from(lab.client(), at)?;
        Ok(())
    };
    // The free one would be opened, but not without the other.
    write(&path, &[at, free, taken], "stratum = 3\n")?;
    refused("in use")?;
    write(&path, &[SocketAddr::from(([0, 0, 0, 0], at.port()))], "stratum = 3\n")?;
    refused("overlaps")?;
    fs::write(&path, "stratum = 3\nno-such-key = 1\n")?;
    refused(":2: unknown key 'no-such-key'")?;
    fs::remove_file(&path)?;
    refused("cannot read")?;
    write(&path, &[at, free], "stratum = 3\n")?;
    let status = reload(&server)?;
    ensure!(status["reload"]["last_reload_error"].is_null(), "{status}");
    client::query_from(lab.client(), free)?;
    Ok(())
}

/// What a running server cannot change stays as it is, and is named until it is put back.
pub(crate) fn settings_that_need_a_restart_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let path = directory.path().join("horolog.toml");
    write(&path, &[at], "threads = 2\n")?;
    let config = path.to_string_lossy().into_owned();
    let server = Server::start_as(lab.server(), Engine::Socket, &[], &["-c", &config])?;
    write(&path, &[at], "threads = 1\nstratum = 4\n")?;
    for _ in 0..2 {
        let status = reload(&server)?;
        ensure!(status["reload"]["restart_needed"][0] == "threads", "{status}");
        ensure!(status["threads"] == 2, "{status}");
    }
    // The clock thread takes it over with its next page.
    let started = Instant::now();
    while client::query_from(lab.client(), at)?.header.stratum != 4 {
        ensure!(started.elapsed() < TIMEOUT, "the stratum is not in force");
    }
    write(&path, &[at], "threads = 2\nstratum = 4\n")?;
    let status = reload(&server)?;
    ensure!(status["reload"]["restart_needed"].as_array().is_some_and(Vec::is_empty), "{status}");
    Ok(())
}
