//! Scenarios of other clients: Debian's chronyd and ntpdig read the server's time and its
//! configured offset, with both engines and IP versions. chronyd does not control this machine's
//! clock (`-x`).

use std::net::{IpAddr, SocketAddr};
use std::process::Output;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_time::Span;
use horolog_wire::ntp::LeapIndicator;
use tempfile::TempDir;

use crate::client;
use crate::process::{Engine, Server, run_to_end, server_address};

/// Longer than chronyd's own time limit.
const CHRONYD_TIMEOUT: Duration = Duration::from_secs(40);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum error of a reading of this machine's own clock over a link, in seconds. Readings scatter
/// by about 10 µs; the rest is a margin for a busy machine.
const ERROR_MAX_S: f64 = 0.001;
const TEST_OFFSET_S: f64 = 0.007;
const TEST_OFFSET_ERROR_MAX_S: f64 = 0.000_5;
const DRIFT_PPB: i64 = 20_000_000;
/// Time between the two readings of a drift, which grows to 20 ms in it.
const DRIFT_TIME: Duration = Duration::from_secs(1);
const DRIFT_ERROR_MAX_NS: i64 = 1_000_000;

/// Runs chronyd on `host` until it has read the time of `server` from four samples.
pub(crate) fn chronyd(host: &LabHost, server: IpAddr) -> Result<Output> {
    let directory = TempDir::new()?;
    let pid_file = format!("pidfile {}", directory.path().join("chronyd.pid").display());
    let server = format!("server {server} iburst maxsamples 4");
    let mut command = host.command("chronyd");
    // Without a configuration file, and without files outside this directory.
    command.args(["-x", "-Q", "-u", "root", "-f", "/dev/null"]);
    command.args([server.as_str(), "cmdport 0", "bindcmdaddress /", pid_file.as_str()]);
    run_to_end(&mut command, CHRONYD_TIMEOUT)
}

/// Returns the offset of the server that `chronyd -Q` reports, in seconds.
pub(crate) fn offset_of(output: &Output) -> Result<f64> {
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "chronyd: {}: {log}", output.status);
    let (_, rest) = log
        .split_once("System clock wrong by ")
        .with_context(|| format!("chronyd reports no offset: {log}"))?;
    let number = rest.split(' ').next().unwrap_or_default();
    number.parse().with_context(|| format!("not a number: {number}"))
}

/// Starts a server with these arguments, and checks the offset that chronyd reads.
fn chronyd_reads(
    engine: Engine,
    ipv6: bool,
    arguments: &[&str],
    expected_s: f64,
    error_max_s: f64,
) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, ipv6)?;
    let server = Server::start(lab.server(), engine, &[at], arguments)?;
    let offset_s = offset_of(&chronyd(lab.client(), at.ip())?)?;
    ensure!(
        (offset_s - expected_s).abs() < error_max_s,
        "chronyd reads {offset_s} s instead of {expected_s} s"
    );
    let answered = answered_by_engine(&server, engine)?;
    ensure!(answered > 0, "{engine:?} engine answered no request: {}", server.status()?);
    Ok(())
}

/// Number of requests that this engine has answered.
fn answered_by_engine(server: &Server, engine: Engine) -> Result<u64> {
    let status = server.status()?;
    let count = match engine {
        Engine::Socket => status["counters"]["answered"].as_u64(),
        Engine::Xdp => {
            let xdp = &status["xdp_counters"];
            xdp["answered_ipv4"].as_u64().zip(xdp["answered_ipv6"].as_u64()).map(|(a, b)| a + b)
        }
    };
    count.with_context(|| format!("no such counter: {status}"))
}

/// chronyd reads this machine's time within 1 ms, and a configured offset of 7 ms. Both run in
/// parallel, in separate labs, because chronyd takes seconds for its samples.
pub(crate) fn chronyd_reads_the_time(engine: Engine, ipv6: bool) -> Result<()> {
    let offset_ns = format!("{}", (TEST_OFFSET_S * 1e9) as i64);
    let ahead = ["--test-offset", offset_ns.as_str()];
    thread::scope(|scope| {
        let right = scope.spawn(|| chronyd_reads(engine, ipv6, &[], 0.0, ERROR_MAX_S));
        let ahead = scope
            .spawn(|| chronyd_reads(engine, ipv6, &ahead, TEST_OFFSET_S, TEST_OFFSET_ERROR_MAX_S));
        [("right time", right), ("with a test offset", ahead)].into_iter().try_for_each(
            |(what, thread)| {
                thread.join().map_err(|_| anyhow!("panicked"))?.with_context(|| what.to_owned())
            },
        )
    })
}

/// The server's time gains with the configured drift.
pub(crate) fn a_test_drift_is_served(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let drift = DRIFT_PPB.to_string();
    let _server = Server::start(lab.server(), engine, &[at], &["--test-drift", &drift])?;
    let first = client::query_from(lab.client(), at)?;
    thread::sleep(DRIFT_TIME);
    let second = client::query_from(lab.client(), at)?;
    let elapsed_ns = second.sent.since(first.sent).as_ns();
    let expected_ns = i128::from(elapsed_ns) * i128::from(DRIFT_PPB) / 1_000_000_000;
    let gained_ns = (second.offset() - first.offset()).as_ns();
    let paths = first.path_error_max() + second.path_error_max();
    ensure!(
        (gained_ns - expected_ns as i64).abs() < DRIFT_ERROR_MAX_NS + paths.as_ns(),
        "gained {gained_ns} ns in {elapsed_ns} ns instead of {expected_ns} ns"
    );
    Ok(())
}

/// An SNTP client with a single request (RFC 4330) reads the time over both IP versions.
pub(crate) fn an_sntp_client_reads_the_time(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = [server_address(&lab, false)?, server_address(&lab, true)?];
    let arguments = ["--test-offset", "7000000", "--stratum", "3"];
    let _server = Server::start(lab.server(), engine, &at, &arguments)?;
    for address in at {
        let mut command = lab.client().command("ntpdig");
        let output = run_to_end(command.arg("--json").arg(address.ip().to_string()), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ntpdig: {}: {stderr}", output.status);
        let read: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let offset_s = read["offset"].as_f64().with_context(|| format!("no offset: {read}"))?;
        // The reported precision bounds the error due to the round trip.
        let precision_s =
            read["precision"].as_f64().with_context(|| format!("no precision: {read}"))?;
        ensure!((offset_s - TEST_OFFSET_S).abs() < ERROR_MAX_S.max(precision_s), "{read}");
        ensure!(read["stratum"] == 3 && read["leap"] == "no-leap", "{read}");
    }
    Ok(())
}

/// Without `--local` and with an unsynchronised machine clock, replies are unsynchronised and
/// chronyd rejects them.
pub(crate) fn an_unsynchronised_server_is_refused(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at: SocketAddr = server_address(&lab, false)?;
    let _server = Server::start_without_local(lab.server(), engine, &[at], &[])?;
    let reply = client::query_from(lab.client(), at)?.header;
    let state = (reply.leap, reply.stratum);
    ensure!(state == (LeapIndicator::Unsynchronised, 0), "{reply:?}");
    ensure!(reply.reference_id == [0; 4] && reply.reference.to_bits() == 0, "{reply:?}");
    let output = chronyd(lab.client(), at.ip())?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "chronyd accepted the time: {log}");
    ensure!(log.contains("No suitable source for synchronisation"), "{log}");
    Ok(())
}

/// Replies contain the values of the command line.
pub(crate) fn replies_carry_the_configured_values(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, true)?;
    let arguments = [
        ["--stratum", "2"],
        ["--refid", "192.0.2.99"],
        ["--leap", "insert"],
        ["--root-delay", "3ms"],
        ["--root-dispersion", "5ms"],
    ]
    .concat();
    let _server = Server::start(lab.server(), engine, &[at], &arguments)?;
    let reply = client::query_from(lab.client(), at)?.header;
    ensure!((reply.leap, reply.stratum) == (LeapIndicator::Insert, 2), "{reply:?}");
    ensure!(reply.reference_id == [192, 0, 2, 99], "{reply:?}");
    // The short format has a resolution of 15 µs and is rounded up.
    let fits = |field: Span, ms: i64| (0..16_000).contains(&(field - Span::from_ms(ms)).as_ns());
    ensure!(fits(reply.root_delay.to_span(), 3), "{reply:?}");
    ensure!(fits(reply.root_dispersion.to_span(), 5), "{reply:?}");
    Ok(())
}
