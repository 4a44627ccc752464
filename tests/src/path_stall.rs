//! Scenarios of `horolog path stall`: stalls whose cause is known, because the private hosts were
//! set up for it: the usual kernel, a congestion window that does not grow, a route that shortens
//! delayed acknowledgements, a far end that answers late; and traffic that is watched.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_probe::path::tcp::protocol::{
    AdmissionVerdict, ConnectionJob, FarEndReport, HELLO_LEN, TcpHello, TcpWelcome,
};
use horolog_sys::tcp;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::path_tcp::{address, far_end, path, result};
use crate::process::{TIMEOUT, binary, run_to_end, signal_to};
use crate::scenario::Need;
use crate::{ROOT, path_stall, scenarios};

const IP: &[Need] = &[Need::Root, Need::Peer("ip")];
/// How late the far end answers that is to be found out.
const LATE: Duration = Duration::from_millis(25);

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT, path_stall:
        small_writes_stall_and_options_cure_them,
        a_slow_far_end_is_distinguished_from_a_waiting_kernel,
        stalls_of_observed_traffic_are_detected,
        an_interrupted_observation_reports_its_result,
    ));
    all.extend(scenarios!(IP, path_stall:
        a_small_window_is_distinguished_from_nagle,
        the_delay_of_acknowledgements_is_measured,
    ));
    all
}

/// A search that is short.
fn stall(lab: &Lab, more: &[&str]) -> Result<Value> {
    let target = address(lab).to_string();
    let settings = ["stall", &target, "-n", "4", "--pause", "10ms"];
    result(lab.client(), &[&settings[..], more].concat(), 0)
}

/// A pattern under an option.
fn cell<'a>(json: &'a Value, pattern: &str, option: &str, writes: u64) -> Result<&'a Value> {
    let cells = json["cells"].as_array().context("no cells")?;
    let is_it = |cell: &&Value| {
        cell["pattern"] == pattern && cell["option"] == option && cell["writes"] == writes
    };
    cells.iter().find(is_it).with_context(|| format!("no {pattern} under {option}"))
}

fn median_ns(cell: &Value) -> Result<u64> {
    cell["exchange_ns"]["p50"].as_u64().with_context(|| format!("no median: {cell}"))
}

/// Two thirds of the exchanges at least: the first ones go through.
fn stalls(cell: &Value) -> bool {
    cell["stalled"].as_u64() >= Some(2)
}

fn small_writes_stall_and_options_cure_them() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = far_end(&lab, &[])?;
    let json = stall(&lab, &["-b", "1,8"])?;
    ensure!(json["evidence"] == "packets", "{json}");
    let pair = cell(&json, "write-write-read", "none", 2)?;
    ensure!(stalls(pair) && pair["mechanism"] == "nagle-delayed-ack", "{pair}");
    ensure!(pair["acks"]["released"].as_u64() >= Some(2), "the packets say so: {pair}");
    // With three, two answers may still share a segment; with eight they never do all.
    let batch = cell(&json, "batch", "none", 8)?;
    ensure!(stalls(batch) && batch["stalled_read"].as_u64() >= Some(2), "{batch}");
    ensure!(batch["mechanism"] == "nagle-delayed-ack", "{batch}");
    for option in ["no-delay", "quick-ack-each", "cork"] {
        for (pattern, writes) in [("write-write-read", 2), ("batch", 8)] {
            let cured = cell(&json, pattern, option, writes)?;
            ensure!(median_ns(cured)? * 4 < median_ns(pair)?, "{cured}");
        }
    }
    let single = cell(&json, "single", "none", 1)?;
    ensure!(median_ns(single)? * 4 < median_ns(pair)?, "{single}");
    ensure!(cell(&json, "batch", "none", 1)?["stalled"] == 0, "{json}");
    let forgotten = cell(&json, "cork-forgotten", "cork", 1)?;
    ensure!(stalls(forgotten) && forgotten["mechanism"] == "cork", "{forgotten}");
    let closed = cell(&json, "header-body-close", "cork", 1)?;
    ensure!(median_ns(closed)? * 4 < median_ns(forgotten)?, "{closed}");
    let advice = json["findings"][0]["advice"].as_str().context("no advice")?;
    ensure!(advice.contains("TCP_NODELAY"), "{advice}");
    for (id, held) in [("write-write-read", true), ("no-delay", true), ("tcp-delack-min", false)] {
        let claims = json["claims"].as_array().context("no claims")?;
        let claim = claims.iter().find(|claim| claim["id"] == id).context("no such claim")?;
        // A kernel of a distribution may have the setting.
        ensure!(claim["holds"] == held || id == "tcp-delack-min", "{claim}");
    }
    Ok(())
}

fn ip(host: &LabHost, arguments: &[&str]) -> Result<()> {
    let output = run_to_end(host.command("ip").args(arguments), TIMEOUT)?;
    ensure!(output.status.success(), "ip {arguments:?}: {output:?}");
    Ok(())
}

/// The route between the hosts, at one of them, with attributes.
fn change_route(host: &LabHost, attributes: &[&str]) -> Result<()> {
    let change = ["route", "change", "192.0.2.0/30", "dev", "veth0", "src"];
    let source = host.first_interface().ipv4.to_string();
    ip(host, &[&change[..], &[&source], attributes].concat())
}

/// With a window that stays at one segment at the end that answers, batches stall there even
/// without Nagle's algorithm.
fn a_small_window_is_distinguished_from_nagle() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for host in [lab.client(), lab.server()] {
        // Every kernel has it, and its window grows by acknowledgements alone.
        let set = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
        host.run(set)??;
    }
    change_route(lab.server(), &["cwnd", "lock", "1"])?;
    let _far = far_end(&lab, &[])?;
    let json = stall(&lab, &["-b", "8"])?;
    // Two small segments that were read are acknowledged at once; one is not.
    for (pattern, writes) in [("batch", 8), ("header-and-body", 1)] {
        let held = cell(&json, pattern, "no-delay", writes)?;
        ensure!(stalls(held) && held["mechanism"] == "window-delayed-ack", "{held}");
    }
    let pair = cell(&json, "write-write-read", "none", 2)?;
    ensure!(pair["mechanism"] == "nagle-delayed-ack", "{pair}");
    Ok(())
}

/// A route that lets segments be sent again sooner lets acknowledgements wait for less.
fn the_delay_of_acknowledgements_is_measured() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = far_end(&lab, &[])?;
    let plain = stall(&lab, &["-b", "1"])?;
    change_route(lab.server(), &["rto_min", "20ms"])?;
    change_route(lab.client(), &["rto_min", "20ms"])?;
    let short = stall(&lab, &["-b", "1", "--stall-threshold", "6ms"])?;
    ensure!(short["kernel"]["route_rto_min_ns"] == 20_000_000, "{}", short["kernel"]);
    let pair =
        |json: &Value| Ok::<_, anyhow::Error>(cell(json, "write-write-read", "none", 2)?.clone());
    let (usual, shorter) = (pair(&plain)?, pair(&short)?);
    ensure!(stalls(&usual) && stalls(&shorter), "{usual} {shorter}");
    let ack_ns = |cell: &Value| cell["acks"]["delay_ns"]["min"].as_u64().context("no delay");
    ensure!(ack_ns(&shorter)? * 4 < ack_ns(&usual)? * 3, "{usual} {shorter}");
    Ok(())
}

/// A far end that acknowledges at once and, from the second pattern on, answers late.
fn late_far_end(listener: &TcpListener, connections: usize) -> Result<()> {
    for index in 0..connections {
        let (mut stream, _) = listener.accept()?;
        let mut bytes = [0; HELLO_LEN];
        stream.read_exact(&mut bytes)?;
        let hello = TcpHello::parse(&bytes).context("no greeting")?;
        let welcome = TcpWelcome { verdict: AdmissionVerdict::Accepted, facts_bytes: 0, limit: 0 };
        stream.write_all(&welcome.emit())?;
        // The facts, the window and the single write come first.
        let is_late = index > 2 && hello.job == ConnectionJob::Exchange;
        let late = if is_late { LATE } else { Duration::ZERO };
        answer(&mut stream, hello, late)?;
    }
    Ok(())
}

fn answer(stream: &mut std::net::TcpStream, hello: TcpHello, late: Duration) -> Result<()> {
    let mut request = vec![0; hello.request_bytes as usize];
    let reply = vec![0; (hello.head_bytes + hello.body_bytes) as usize];
    let mut received = 0;
    loop {
        tcp::set_quick_ack(stream, true)?;
        match stream.read(&mut request[received..])? {
            0 => break,
            read => received += read,
        }
        if received == request.len() {
            received = 0;
            thread::sleep(late);
            stream.write_all(&reply)?;
        }
    }
    let service_max_ns = late.as_nanos() as u64;
    // Who has hung up wants no report.
    let _ = stream.write_all(&FarEndReport { service_max_ns, ..FarEndReport::default() }.emit());
    Ok(())
}

fn a_slow_far_end_is_distinguished_from_a_waiting_kernel() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = address(&lab);
    let listener = lab.server().run(|| TcpListener::bind(at))??;
    // Facts, window, single write, and two small writes under the five options.
    thread::spawn(move || late_far_end(&listener, 8));
    let target = at.to_string();
    // Then it is gone, which ends the search.
    let json = result(lab.client(), &["stall", &target, "-n", "4", "--pause", "0s"], 1)?;
    let pair = cell(&json, "write-write-read", "none", 2)?;
    ensure!(pair["stalled"] == 4 && pair["mechanism"] == "late-answer", "{pair}");
    ensure!(median_ns(pair)? >= LATE.as_nanos() as u64, "{pair}");
    ensure!(pair["acks"]["delayed"] == 0, "no acknowledgement was late: {pair}");
    Ok(())
}

fn stalls_of_observed_traffic_are_detected() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = far_end(&lab, &[])?;
    let (target, port) = (address(&lab).to_string(), address(&lab).port().to_string());
    let watch = ["stall", "--watch", &port, "-t", "1100ms"];
    let busy = ["stall", &target, "-n", "6", "-b", "1", "--pause", "0s", "--no-capture"];
    let (packets, sockets) = thread::scope(|scope| {
        let packets = scope.spawn(|| result(lab.client(), &watch, 0));
        let sockets =
            scope.spawn(|| result(lab.client(), &[&watch[..], &["--no-capture"]].concat(), 0));
        thread::sleep(Duration::from_millis(150));
        let traffic = path(lab.client(), &busy);
        let gone = |_| anyhow::anyhow!("a watch panicked");
        let watched = (packets.join().map_err(gone)??, sockets.join().map_err(gone)??);
        traffic.map(|_| watched)
    })?;
    for (json, evidence) in [(&packets, "packets"), (&sockets, "tcp-info")] {
        ensure!(json["evidence"] == evidence, "{json}");
        let worst = &json["watched"]["connections"][0];
        ensure!(worst["client_stalls"].as_u64() >= Some(2), "{json}");
        ensure!(worst["mechanism"] == "nagle-delayed-ack", "{worst}");
        let findings = json["findings"].as_array().context("no findings")?;
        ensure!(findings.iter().any(|one| one["code"] == "stalled"), "{findings:?}");
    }
    let quiet = ["stall", "--watch", &port, "-t", "300ms", "--fail-if", "stalled>20%"];
    let json = thread::scope(|scope| {
        let watched = scope.spawn(|| result(lab.client(), &quiet, 0));
        let healthy = ["tcp", &target, "--latency", "-s", "10", "-t", "600ms"];
        let traffic = path(lab.client(), &healthy);
        let json = watched.join().map_err(|_| anyhow::anyhow!("the watch panicked"))??;
        traffic.map(|_| json)
    })?;
    let connections = json["watched"]["connections"].as_array().context("no connections")?;
    ensure!(connections.iter().any(|one| one["answers"].as_u64() > Some(100)), "{json}");
    Ok(())
}

/// By either evidence: packets are watched by a thread of their own, which a signal reached.
fn an_interrupted_observation_reports_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for (evidence, more) in [("packets", &[][..]), ("tcp-info", &["--no-capture"])] {
        let mut command = lab.client().command(binary()?);
        command.args(["path", "stall", "--watch", "443", "-t", "1m", "--json", "-"]).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let watch = command.spawn()?;
        thread::sleep(Duration::from_secs(1));
        signal_to(watch.id(), "TERM")?;
        let output = watch.wait_with_output()?;
        ensure!(output.status.success(), "{evidence}: {:?}", output.status);
        let json: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(json["evidence"] == evidence, "{json}");
        let findings = json["findings"].as_array().context("no findings")?;
        ensure!(findings.iter().any(|one| one["code"] == "interrupted"), "{findings:?}");
    }
    Ok(())
}
