//! Scenarios of `horolog path stall`: stalls with a known cause, for which the lab hosts are set up
//! (defaults of the kernel, a congestion window that does not grow, a route that shortens delayed
//! acknowledgements, a far end that answers late), and observed traffic.

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
use serde_json::Value;

use crate::path_tcp::{far_end_address, path_result, run_path, start_far_end};
use crate::process::{TIMEOUT, binary, run_to_end, signal_to};
use crate::scenario::{Need, Queue, Scenario};
use crate::{ROOT, path_stall, scenarios};

const IP: &[Need] = &[Need::Root, Need::Peer("ip")];
/// Delay of the replies of a slow far end.
const REPLY_DELAY: Duration = Duration::from_millis(25);

pub(crate) fn all() -> Vec<Scenario> {
    // Whether replies share a segment depends on how soon both ends get a core.
    let stalls = scenarios!(ROOT, path_stall: small_writes_stall_and_options_cure_them);
    let mut all = Vec::from(stalls.map(|scenario| scenario.in_queue(Queue::Exclusive)));
    all.extend(scenarios!(ROOT, path_stall:
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

/// Returns the result of a short search for stalls.
fn search_stalls(lab: &Lab, more: &[&str]) -> Result<Value> {
    let target = far_end_address(lab).to_string();
    let settings = ["stall", &target, "-n", "4", "--pause", "10ms"];
    path_result(lab.client(), &[&settings[..], more].concat(), 0)
}

/// Returns the row of a pattern, an option and a number of writes.
fn find_row<'a>(json: &'a Value, pattern: &str, option: &str, writes: u64) -> Result<&'a Value> {
    let cells = json["cells"].as_array().context("no cells")?;
    let is_it = |cell: &&Value| {
        cell["pattern"] == pattern && cell["option"] == option && cell["writes"] == writes
    };
    cells.iter().find(is_it).with_context(|| format!("no {pattern} under {option}"))
}

fn median_ns(cell: &Value) -> Result<u64> {
    cell["exchange_ns"]["p50"].as_u64().with_context(|| format!("no median: {cell}"))
}

/// Returns true if at least two exchanges stalled; the first ones do not.
fn is_stalled(cell: &Value) -> bool {
    cell["stalled"].as_u64() >= Some(2)
}

fn small_writes_stall_and_options_cure_them() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let json = search_stalls(&lab, &["-b", "1,8"])?;
    ensure!(json["evidence"] == "packets", "{json}");
    let pair = find_row(&json, "write-write-read", "none", 2)?;
    ensure!(is_stalled(pair) && pair["mechanism"] == "nagle-delayed-ack", "{pair}");
    ensure!(pair["acks"]["released"].as_u64() >= Some(2), "too few released ACKs: {pair}");
    // Of three replies, two may still share a segment; eight never all do.
    let batch = find_row(&json, "batch", "none", 8)?;
    ensure!(is_stalled(batch) && batch["stalled_read"].as_u64() >= Some(2), "{batch}");
    ensure!(batch["mechanism"] == "nagle-delayed-ack", "{batch}");
    for option in ["no-delay", "quick-ack-each", "cork"] {
        for (pattern, writes) in [("write-write-read", 2), ("batch", 8)] {
            let cured = find_row(&json, pattern, option, writes)?;
            ensure!(median_ns(cured)? * 4 < median_ns(pair)?, "{cured}");
        }
    }
    let single = find_row(&json, "single", "none", 1)?;
    ensure!(median_ns(single)? * 4 < median_ns(pair)?, "{single}");
    ensure!(find_row(&json, "batch", "none", 1)?["stalled"] == 0, "{json}");
    let forgotten = find_row(&json, "cork-forgotten", "cork", 1)?;
    ensure!(is_stalled(forgotten) && forgotten["mechanism"] == "cork", "{forgotten}");
    let closed = find_row(&json, "header-body-close", "cork", 1)?;
    ensure!(median_ns(closed)? * 4 < median_ns(forgotten)?, "{closed}");
    let advice = json["findings"][0]["advice"].as_str().context("no advice")?;
    ensure!(advice.contains("TCP_NODELAY"), "{advice}");
    for (id, held) in [("write-write-read", true), ("no-delay", true), ("tcp-delack-min", false)] {
        let claims = json["claims"].as_array().context("no claims")?;
        let claim = claims.iter().find(|claim| claim["id"] == id).context("no such claim")?;
        // The kernel of a distribution may have the setting.
        ensure!(claim["holds"] == held || id == "tcp-delack-min", "{claim}");
    }
    Ok(())
}

fn ip(host: &LabHost, arguments: &[&str]) -> Result<()> {
    let output = run_to_end(host.command("ip").args(arguments), TIMEOUT)?;
    ensure!(output.status.success(), "ip {arguments:?}: {output:?}");
    Ok(())
}

/// Changes the attributes of the route between the hosts, on one of them.
fn change_route(host: &LabHost, attributes: &[&str]) -> Result<()> {
    let change = ["route", "change", "192.0.2.0/30", "dev", "veth0", "src"];
    let source = host.first_interface().ipv4.to_string();
    ip(host, &[&change[..], &[&source], attributes].concat())
}

/// If the congestion window of the far end stays at one segment, batches stall there even without
/// Nagle's algorithm.
fn a_small_window_is_distinguished_from_nagle() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for host in [lab.client(), lab.server()] {
        // Every kernel has Reno, whose window grows by acknowledgements alone.
        let set = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
        host.run(set)??;
    }
    change_route(lab.server(), &["cwnd", "lock", "1"])?;
    let _far = start_far_end(&lab, &[])?;
    let json = search_stalls(&lab, &["-b", "8"])?;
    // Two small segments that were read are acknowledged at once, a single one is not.
    for (pattern, writes) in [("batch", 8), ("header-and-body", 1)] {
        let held = find_row(&json, pattern, "no-delay", writes)?;
        ensure!(is_stalled(held) && held["mechanism"] == "window-delayed-ack", "{held}");
    }
    let pair = find_row(&json, "write-write-read", "none", 2)?;
    ensure!(pair["mechanism"] == "nagle-delayed-ack", "{pair}");
    Ok(())
}

/// A shorter minimum retransmission timeout of the route shortens the delay of acknowledgements.
fn the_delay_of_acknowledgements_is_measured() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let plain = search_stalls(&lab, &["-b", "1"])?;
    change_route(lab.server(), &["rto_min", "20ms"])?;
    change_route(lab.client(), &["rto_min", "20ms"])?;
    let short = search_stalls(&lab, &["-b", "1", "--stall-threshold", "6ms"])?;
    ensure!(short["kernel"]["route_rto_min_ns"] == 20_000_000, "{}", short["kernel"]);
    let pair = |json: &Value| {
        Ok::<_, anyhow::Error>(find_row(json, "write-write-read", "none", 2)?.clone())
    };
    let (usual, shorter) = (pair(&plain)?, pair(&short)?);
    ensure!(is_stalled(&usual) && is_stalled(&shorter), "{usual} {shorter}");
    let ack_ns = |cell: &Value| cell["acks"]["delay_ns"]["min"].as_u64().context("no delay");
    ensure!(ack_ns(&shorter)? * 4 < ack_ns(&usual)? * 3, "{usual} {shorter}");
    Ok(())
}

/// Runs a far end that acknowledges at once and, from the second pattern on, answers late.
fn late_far_end(listener: &TcpListener, connections: usize) -> Result<()> {
    for index in 0..connections {
        let (mut stream, _) = listener.accept()?;
        let mut bytes = [0; HELLO_LEN];
        stream.read_exact(&mut bytes)?;
        let hello = TcpHello::parse(&bytes).context("no greeting")?;
        let welcome = TcpWelcome { verdict: AdmissionVerdict::Accepted, facts_bytes: 0, limit: 0 };
        stream.write_all(&welcome.emit())?;
        // Facts, window and single write come first.
        let is_late = index > 2 && hello.job == ConnectionJob::Exchange;
        let late = if is_late { REPLY_DELAY } else { Duration::ZERO };
        serve_connection(&mut stream, hello, late)?;
    }
    Ok(())
}

fn serve_connection(
    stream: &mut std::net::TcpStream,
    hello: TcpHello,
    late: Duration,
) -> Result<()> {
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
    // A near end that has closed the connection needs no report.
    let _ = stream.write_all(&FarEndReport { service_max_ns, ..FarEndReport::default() }.emit());
    Ok(())
}

fn a_slow_far_end_is_distinguished_from_a_waiting_kernel() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = far_end_address(&lab);
    let listener = lab.server().run(|| TcpListener::bind(at))??;
    // Facts, window, single write, and two small writes with the five options.
    thread::spawn(move || late_far_end(&listener, 8));
    let target = at.to_string();
    // The far end is gone after these connections, which ends the search.
    let json = path_result(lab.client(), &["stall", &target, "-n", "4", "--pause", "0s"], 1)?;
    let pair = find_row(&json, "write-write-read", "none", 2)?;
    ensure!(pair["stalled"] == 4 && pair["mechanism"] == "late-answer", "{pair}");
    ensure!(median_ns(pair)? >= REPLY_DELAY.as_nanos() as u64, "{pair}");
    ensure!(pair["acks"]["delayed"] == 0, "an acknowledgement was delayed: {pair}");
    Ok(())
}

fn stalls_of_observed_traffic_are_detected() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let (target, port) =
        (far_end_address(&lab).to_string(), far_end_address(&lab).port().to_string());
    let watch = ["stall", "--watch", &port, "-t", "1100ms"];
    let busy = ["stall", &target, "-n", "6", "-b", "1", "--pause", "0s", "--no-capture"];
    let (packets, sockets) = thread::scope(|scope| {
        let packets = scope.spawn(|| path_result(lab.client(), &watch, 0));
        let sockets =
            scope.spawn(|| path_result(lab.client(), &[&watch[..], &["--no-capture"]].concat(), 0));
        thread::sleep(Duration::from_millis(150));
        let traffic = run_path(lab.client(), &busy);
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
        let watched = scope.spawn(|| path_result(lab.client(), &quiet, 0));
        let healthy = ["tcp", &target, "--latency", "-s", "10", "-t", "600ms"];
        let traffic = run_path(lab.client(), &healthy);
        let json = watched.join().map_err(|_| anyhow::anyhow!("the watch panicked"))??;
        traffic.map(|_| json)
    })?;
    let connections = json["watched"]["connections"].as_array().context("no connections")?;
    ensure!(connections.iter().any(|one| one["answers"].as_u64() > Some(100)), "{json}");
    Ok(())
}

/// A signal ends an observation by either evidence; a separate thread observes packets.
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
