//! Scenarios of a GNSS receiver at a pseudo-terminal: its time is served, and what becomes of its
//! line is told.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_lab::receiver::{Receiver, miscounted, sentences};
use horolog_lab::{Lab, LabConfig, Running};
use horolog_sys::clock::Realtime;
use horolog_time::{Clock, NS_PER_S, Span};
use horolog_wire::ntp::Leap;
use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::process::{Engine, PATIENCE, Server, server_address};
use crate::scenario::{Need, in_path};
use crate::server_sandbox::is_confined;
use crate::server_sources::{is_unsynchronised, state_of, wait_until};
use crate::{ROOT, client, receivers, scenarios};

/// The receiver is ahead of the system clock by so much.
const TRUTH: Span = Span::from_ms(2_700);
/// Sentences come in the second that they name, on a busy machine not always at its beginning.
const ERROR_MAX: Span = Span::from_ms(600);

const GPSD: &[Need] = &[Need::Root, Need::Peer("gpsd"), Need::Peer("unshare")];
const GPSFAKE: &[Need] =
    &[Need::Root, Need::Peer("gpsd"), Need::Peer("gpsfake"), Need::Peer("unshare")];

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT, receivers:
        sentences_are_followed,
        a_line_that_ends_is_waited_for,
        what_is_no_line_is_named,
    ));
    all.extend(scenarios!(GPSD, receivers: gpsd_passes_the_time_on));
    all.extend(scenarios!(GPSFAKE, receivers: gpsfake_plays_a_receiver_to_gpsd));
    all
}

/// Without a pulse the time of the sentences is served, as uncertain as that is; a receiver that
/// lost its fix, or count of the weeks, is not believed any more.
fn sentences_are_followed() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let receiver = Receiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{},baud=115200,refid=GPS", name.display());
    let server = Server::start_as(lab.server(), Engine::Socket, &[at], &["--source", &source])?;
    wait_until("its time is served", || {
        let reply = client::ask_from(lab.client(), at)?;
        let off = reply.offset() - TRUTH;
        let is_right = (-ERROR_MAX..ERROR_MAX).contains(&off);
        ensure!(is_unsynchronised(&reply.header) || is_right, "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    let header = client::ask_from(lab.client(), at)?.header;
    ensure!((header.leap, header.stratum) == (Leap::None, 1), "{header:?}");
    ensure!(&header.reference_id == b"GPS\0", "{header:?}");
    ensure!(header.root_dispersion.to_span() > Span::from_ms(499), "{header:?}");
    receiver.set_fix(false);
    wait_until("a receiver without a fix is not used", || {
        Ok(is_unsynchronised(&client::ask_from(lab.client(), at)?.header))
    })?;
    receiver.set_fix(true);
    wait_until("its time is served again", || {
        Ok(!is_unsynchronised(&client::ask_from(lab.client(), at)?.header))
    })?;
    receiver.say(miscounted(TRUTH, -1));
    wait_until("miscounted weeks are not served", || {
        let reply = client::ask_from(lab.client(), at)?;
        let is_near = reply.offset() > Span::ZERO;
        ensure!(is_near || is_unsynchronised(&reply.header), "a wrong time: {reply:?}");
        Ok(is_unsynchronised(&reply.header))
    })?;
    let ended = server.end("TERM")?;
    for said in ["the receiver has no fix", "it is -1 times 1024 weeks off"] {
        ensure!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    Ok(())
}

/// A line that ends is told, and read again when it is there again under its name, which the
/// sandbox lets it.
fn a_line_that_ends_is_waited_for() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let receiver = Receiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let source = format!("gnss:{}", name.display());
    let arguments = ["--source", &source, "--sandbox", "required"];
    let server = Server::start_as(lab.server(), Engine::Socket, &[at], &arguments)?;
    wait_until("its time is served", || Ok(state_of(&server, "gnss")? == "selected"))?;
    is_confined(&server.status()?)?;
    receiver.pull_out();
    wait_until("a line that ended is no source", || Ok(state_of(&server, "gnss")? == "silent"))?;
    wait_until("its time is not served", || {
        Ok(is_unsynchronised(&client::ask_from(lab.client(), at)?.header))
    })?;
    receiver.plug_in(&name)?;
    wait_until("its time is served again", || Ok(state_of(&server, "gnss")? == "selected"))?;
    let ended = server.end("TERM")?;
    ensure!(ended.stderr.contains("its line has ended"), "{}", ended.stderr);
    Ok(())
}

/// A line that is not there, or none, is named in one line.
fn what_is_no_line_is_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for (source, expected) in [
        ("gnss:/dev/there-is-none", "/dev/there-is-none: there is no such line"),
        ("gnss:/dev/null", "/dev/null: it is no serial line of this speed"),
        ("gnss:/dev/null,baud=1200", "baud takes one of 4800, 9600"),
    ] {
        let arguments = ["--source", source];
        let Err(error) = Server::start_as(lab.server(), Engine::Socket, &[at], &arguments) else {
            anyhow::bail!("{source} is taken");
        };
        ensure!(error.to_string().contains(expected), "{source}: {error}");
    }
    Ok(())
}

/// gpsd reads the receiver at its line; its reports are one source, and the sentences that it
/// passes on are another.
fn gpsd_passes_the_time_on() -> Result<()> {
    let directory = TempDir::new()?;
    let name = directory.path().join("gnss");
    let _receiver = Receiver::start(&name, TRUTH)?;
    let lab = Lab::new(&LabConfig::default())?;
    // Its shared memory is to go with it; it runs in the foreground, without waiting for a client,
    // at the path that the name stands for.
    let mut command = lab.server().command("unshare");
    command.args(["--ipc", "gpsd", "-N", "-n"]).arg(name.canonicalize()?);
    let mut gpsd = Running::start(&mut command)?;
    let at_gpsd = SocketAddr::from(([127, 0, 0, 1], 2947));
    gpsd.await_ready(PATIENCE, || {
        lab.server().run(|| TcpStream::connect(at_gpsd)).is_ok_and(|connected| connected.is_ok())
    })?;
    let at = server_address(&lab, false)?;
    for arguments in [["--source", "gpsd"].as_slice(), &["--gnss", "gpsd", "--no-clock-control"]] {
        let server = Server::start_as(lab.server(), Engine::Socket, &[at], arguments)?;
        wait_until("its time is served", || {
            let reply = client::ask_from(lab.client(), at)?;
            let off = reply.offset() - TRUTH;
            let is_right = (-ERROR_MAX..ERROR_MAX).contains(&off);
            ensure!(is_unsynchronised(&reply.header) || is_right, "{arguments:?}: {reply:?}");
            Ok(!is_unsynchronised(&reply.header))
        })?;
        server.end("TERM")?;
    }
    Ok(())
}

/// gpsfake plays a log to gpsd, a second of it in about a second; its time is served, as far as it
/// can be known from sentences that come when they come.
fn gpsfake_plays_a_receiver_to_gpsd() -> Result<()> {
    const LINES_A_SECOND: i64 = 2;
    const SECONDS: i64 = 120;
    let directory = TempDir::new()?;
    let log = directory.path().join("log.nmea");
    let start = (Realtime.now() + TRUTH).to_timespec().0;
    let lines = (0..SECONDS).map(|second| sentences(start + second, true));
    fs::write(&log, lines.collect::<String>())?;
    let lab = Lab::new(&LabConfig::default())?;
    let mut command = lab.server().command("unshare");
    // In a process namespace of its own, which ends with it: it would leave its gpsd behind.
    command.args(["--ipc", "--pid", "--fork", "--kill-child", "gpsfake", "-1"]);
    command.args(["-P", "2947", "-c"]);
    command.arg(format!("{}", 1.0 / LINES_A_SECOND as f64)).arg(&log);
    // Where it lies in the cache, what it needs lies beside it.
    let peers = in_path("gpsfake").and_then(|path| path.parent()?.parent().map(Path::to_owned));
    let peers = peers.context("gpsfake has no directory")?;
    command.env("PYTHONPATH", peers.join("lib/python3/dist-packages"));
    command.env("LD_LIBRARY_PATH", peers.join("lib/x86_64-linux-gnu"));
    command.env("TMPDIR", directory.path());
    let _gpsfake = Running::start(&mut command)?;
    let at = server_address(&lab, false)?;
    let server = Server::start_as(lab.server(), Engine::Socket, &[at], &["--source", "gpsd"])?;
    wait_until("its time is served", || {
        let reply = client::ask_from(lab.client(), at)?;
        let off = reply.offset() - TRUTH;
        // The player is late by its start, and by a little for each line.
        let is_right = (Span::from_ns(-60 * NS_PER_S)..Span::from_ns(NS_PER_S)).contains(&off);
        ensure!(is_unsynchronised(&reply.header) || is_right, "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    server.end("TERM").map(drop)
}
