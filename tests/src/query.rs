//! Scenarios of `horolog query` with a known true offset, configured at the server or sent by the
//! scenario's own server. Both ends have to count the same.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{
    FindingCode, InvalidReplyReason, NtsUseSummary, QueryEndReason, QueryResult, QueryServerResult,
    TimestampCounts,
};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator};

use crate::chronyd;
use crate::client;
use crate::load_accounting::request_counts;
use crate::load_command::{StartedProgram, parse};
use crate::process::{Engine, Server, binary, run_to_end, server_address, write_secret};
use crate::scenario::{Need, Scenario, scenario};
use crate::scenarios;
use crate::server_nts::{CHRONY, NtsTestbed, counter, write_certificate};
use crate::usage_error::check_error_line;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
const OFFSET_NS: i64 = 250_000;
/// Tolerance of the server's reading of the clock, in ns: the server extrapolates it between
/// comparisons of the clocks.
const CLOCK_ERROR_NS: u64 = 500;
pub(crate) const TARGET: &str = "192.0.2.2";

pub(crate) fn all() -> Vec<Scenario> {
    use crate::{query, query_interruption, query_nts};
    const ROOT: &[Need] = &[Need::Root];
    const ROOT_AND_IPV6: &[Need] = &[Need::Root, Need::Ipv6];
    let mut all = Vec::new();
    for engine in Engine::ALL {
        let name = |of: &str| format!("query::{of}::{}", engine.name());
        all.push(scenario(name("a_known_offset_is_found"), ROOT_AND_IPV6, move || {
            a_known_offset_is_found(engine)
        }));
        all.push(scenario(name("a_known_drift_is_found"), ROOT, move || {
            a_known_drift_is_found(engine)
        }));
    }
    all.extend(scenarios!(CHRONY, query: query_agrees_with_chronyd));
    all.extend(scenarios!(CHRONY, query_nts: new_keys_of_a_restarted_chronyd_are_requested));
    all.extend(scenarios!(ROOT, query:
        interleaved_replies_carry_their_send_time,
        authenticated_exchanges_are_verified,
        failed_nts_ke_exchanges_are_reported,
        refused_cookies_are_replaced,
        a_faulty_server_is_detected,
        a_kiss_is_honoured,
    ));
    all.extend(scenarios!(ROOT, query_nts:
        mismatched_keys_are_replaced_and_the_negotiated_server_is_named,
        sessions_of_a_load_are_renewed,
    ));
    all.extend(scenarios!(ROOT, query_interruption:
        an_interrupted_query_keeps_its_result,
        unanswered_queries_are_reported,
        a_wrong_server_fails_its_limit,
        an_unprivileged_user_can_measure,
        impossible_requests_are_refused,
    ));
    all
}

pub(crate) fn query(host: &LabHost, arguments: &[&str]) -> Result<Command> {
    let mut command = host.command(binary()?);
    command.arg("query").args(arguments);
    Ok(command)
}

pub(crate) fn output_of(host: &LabHost, arguments: &[&str]) -> Result<Output> {
    run_to_end(&mut query(host, arguments)?, TIMEOUT)
}

/// Runs a query, which must succeed, and returns its result.
pub(crate) fn result_of(host: &LabHost, arguments: &[&str]) -> Result<QueryResult> {
    let arguments = [arguments, &["--json", "-"]].concat();
    let output = output_of(host, &arguments)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "query {arguments:?}: {stderr}");
    parse(&output.stdout).with_context(|| format!("query {arguments:?}"))
}

pub(crate) fn has_finding(result: &QueryResult, code: FindingCode) -> bool {
    result.findings.iter().any(|finding| finding.code == code)
}

/// Checks that every request was answered, and timestamped by the kernel in both directions.
pub(crate) fn check_clean(server: &QueryServerResult, count: u64) -> Result<()> {
    let counts = &server.counts;
    ensure!((counts.sent, counts.received, counts.lost) == (count, count, 0), "{counts:?}");
    ensure!(counts.invalid.is_empty() && counts.kisses.is_empty(), "{counts:?}");
    ensure!(server.ended.is_none(), "{:?}", server.ended);
    let by_kernel =
        TimestampCounts { kernel: server.samples.len() as u64, ..TimestampCounts::default() };
    ensure!(server.transmit_timestamps == by_kernel, "T1: {:?}", server.transmit_timestamps);
    ensure!(server.receive_timestamps == by_kernel, "T4: {:?}", server.receive_timestamps);
    Ok(())
}

/// A configured offset is measured within the error bound of every sample, over IPv4 and IPv6 at
/// the same time; and the server counts as many requests as were sent.
fn a_known_offset_is_found(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = [server_address(&lab, false)?, server_address(&lab, true)?];
    let arguments = ["--test-offset", &OFFSET_NS.to_string(), "--stratum", "2", "--refid", "GPS"];
    let server = Server::start(lab.server(), engine, &at, &arguments)?;
    let names = at.map(|address| address.ip().to_string());
    let arguments = [&names[0], &names[1], "--count", "100", "--interval", "5ms"];
    let result = result_of(lab.client(), &arguments)?;
    ensure!(result.servers.len() == 2, "{} servers", result.servers.len());
    for server in &result.servers {
        check_clean(server, 100)?;
        let state = server.server_state.as_ref().context("no server state")?;
        ensure!((state.stratum, state.reference_id.as_str()) == (2, "71.80.83.0"), "{state:?}");
        for sample in &server.samples {
            let off = sample.offset_ns.abs_diff(OFFSET_NS);
            ensure!(off <= sample.error_bound_ns() + CLOCK_ERROR_NS, "{off} ns off: {sample:?}");
            ensure!(sample.delay_ns > -(CLOCK_ERROR_NS as i64), "{sample:?}");
        }
        let best = server.best.context("no best sample")?;
        ensure!(best.bound_ns < 1_000_000, "{best:?}");
    }
    let difference = result.differences.first().context("no difference")?;
    // A busy machine may miss instants of the time grid.
    ensure!(!difference.contradiction && difference.pairs > 20, "{difference:?}");
    let counts = request_counts(&server.status()?).context("no counters in the status")?;
    ensure!((counts.received, counts.answered) == (200, 200), "{counts:?}");
    Ok(())
}

/// A configured drift of the server's clock is measured.
fn a_known_drift_is_found(engine: Engine) -> Result<()> {
    const DRIFT_PPM: f64 = 1_000.0;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), engine, &[at], &["--test-drift", "1000000"])?;
    let result = result_of(lab.client(), &[TARGET, "--count", "100", "--interval", "10ms"])?;
    let server = &result.servers[0];
    check_clean(server, 100)?;
    let drift = server.drift.context("no drift")?;
    // Within 1%, which is 10 µs in the second of the run; or within five times the reported error,
    // if the machine delayed several replies in a row.
    let tolerance_ppm = (DRIFT_PPM / 100.0).max(5.0 * drift.error_ppm);
    ensure!((drift.ppm - DRIFT_PPM).abs() < tolerance_ppm, "{drift:?}");
    ensure!(drift.error_ppm < DRIFT_PPM / 2.0, "{drift:?}");
    let octaves: Vec<_> = server.allan.iter().map(|point| point.tau_s).collect();
    // The run takes longer if the machine misses instants of the time grid.
    ensure!(octaves.starts_with(&[0.01, 0.02, 0.04, 0.08, 0.16, 0.32]), "{octaves:?}");
    Ok(())
}

/// chronyd, whose clock is the host's, is measured without an offset, and counts the same requests.
fn query_agrees_with_chronyd() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let lines = ["allow all", "local stratum 1"].map(str::to_owned);
    let chronyd = chronyd::ChronydClient::start(lab.server(), &lines, |_| Ok(()))?;
    let mut requests = 0;
    for (mode, more) in [("basic", 0), ("interleaved", 1)] {
        let mut arguments = vec![TARGET, "--count", "50", "--interval", "5ms"];
        arguments.extend((more == 1).then_some("--interleaved"));
        let result = result_of(lab.client(), &arguments).context(mode)?;
        let server = &result.servers[0];
        check_clean(server, 50 + more).context(mode)?;
        // chronyd stores the timestamps of a client after its first request in this mode.
        ensure!(server.counts.interleaved == 49 * more, "{mode}: {:?}", server.counts);
        for sample in &server.samples {
            let off = sample.offset_ns.unsigned_abs();
            ensure!(
                off <= sample.error_bound_ns() + CLOCK_ERROR_NS,
                "{mode}: {off} ns off: {sample:?}"
            );
        }
        requests += 50 + more;
        let expected = requests.to_string();
        chronyd.await_lines("serverstats", &[("NTP packets received", &expected)])?;
    }
    Ok(())
}

/// T3 of an interleaved reply is the time at which it was sent and not made, so that the delay is
/// no longer.
fn interleaved_replies_carry_their_send_time() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let offset = OFFSET_NS.to_string();
    let server = Server::start(lab.server(), Engine::Socket, &[at], &["--test-offset", &offset])?;
    let arguments = [TARGET, "--count", "100", "--interval", "5ms"];
    let basic = result_of(lab.client(), &arguments)?;
    let arguments = [arguments.as_slice(), &["--interleaved"]].concat();
    let result = result_of(lab.client(), &arguments)?;
    let one = &result.servers[0];
    check_clean(one, 101)?;
    // The server stores the timestamps of a client after its first request in this mode.
    ensure!((one.samples.len(), one.counts.interleaved) == (100, 99), "{:?}", one.counts);
    ensure!(counter(&server, "interleaved")? == 99, "{}", server.status()?);
    ensure!(one.samples[1..].iter().all(|sample| sample.interleaved), "a basic reply");
    ensure!(!has_finding(&result, FindingCode::InterleavedNotUsed), "{:?}", result.findings);
    for sample in &one.samples {
        let off = sample.offset_ns.abs_diff(OFFSET_NS);
        ensure!(off <= sample.error_bound_ns() + CLOCK_ERROR_NS, "{off} ns off: {sample:?}");
    }
    let median = |result: &QueryResult| result.servers[0].delay_ns.map(|figures| figures.p50);
    ensure!(median(&result) < median(&basic), "{:?}, {:?}", median(&result), median(&basic));
    Ok(())
}

/// One NTS-KE exchange yields the keys, every request has a fresh cookie, and every reply is
/// verified, in basic and interleaved mode.
fn authenticated_exchanges_are_verified() -> Result<()> {
    let nts = NtsTestbed::start_on(Engine::Socket, &["--test-offset", &OFFSET_NS.to_string()])?;
    let trust = nts.certificate_path().display().to_string();
    let mut sent = 0;
    for (mode, more) in [("basic", 0), ("interleaved", 1)] {
        let mut arguments = vec![TARGET, "--nts", "--ca", &trust, "-n", "50", "--interval", "5ms"];
        arguments.extend((more == 1).then_some("--interleaved"));
        let result = result_of(nts.lab.client(), &arguments).context(mode)?;
        let server = &result.servers[0];
        check_clean(server, 50 + more).context(mode)?;
        sent += 50 + more;
        let used = server.nts.as_ref().context("no summary of NTS")?;
        ensure!(used.ke_exchanges == 1, "{used:?}");
        ensure!(used.ke_server == format!("{TARGET}:4460"), "{used:?}");
        ensure!(counter(&nts.server, "nts")? == sent, "{}", nts.server.status()?);
        let best = server.best.context("no best sample")?;
        let off = best.offset_ns.abs_diff(OFFSET_NS);
        ensure!(off <= best.bound_ns + CLOCK_ERROR_NS, "{mode}: {off} ns off: {best:?}");
    }
    ensure!(counter(&nts.server, "nts_kisses")? == 0, "{}", nts.server.status()?);
    Ok(())
}

/// A server with a changed secret refuses earlier cookies: the kisses are counted, the next poll
/// requests new keys, and the rest is measured.
fn refused_cookies_are_replaced() -> Result<()> {
    let files = tempfile::TempDir::new()?;
    let secret = files.path().join("secret");
    write_secret(&secret, &"01".repeat(32))?;
    let option = secret.display().to_string();
    let nts = NtsTestbed::start_on(Engine::Socket, &["--nts-master-secret", &option])?;
    let trust = nts.certificate_path().display().to_string();
    let arguments = [TARGET, "--nts", "--ca", &trust, "-n", "60", "--interval", "20ms"];
    let arguments = [arguments.as_slice(), &["--json", "r.json"]].concat();
    let mut run = StartedProgram::start(&mut query(nts.lab.client(), &arguments)?)?;
    while counter(&nts.server, "nts")? < 10 {
        run.wait_until(|_, _| true)?;
    }
    write_secret(&secret, &"02".repeat(32))?;
    nts.server.signal("HUP")?;
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: QueryResult = parse(run.read("r.json")?.as_bytes())?;
    let one = &result.servers[0];
    let kisses = one.counts.kisses.get("NTSN").copied().unwrap_or(0);
    ensure!((1..=2).contains(&kisses) && one.counts.lost == kisses, "{:?}", one.counts);
    ensure!(one.counts.received == 60 - kisses, "{:?}", one.counts);
    let renewed = |used: &NtsUseSummary| (used.ke_exchanges, used.renewals) == (2, 1);
    ensure!(one.nts.as_ref().is_some_and(renewed), "{:?}", one.nts);
    ensure!(has_finding(&result, FindingCode::KeysRenewed), "{:?}", result.findings);
    ensure!(has_finding(&result, FindingCode::KissOfDeath), "{:?}", result.findings);
    Ok(())
}

/// An untrusted certificate, a server without NTS-KE and a wrong server name are reported.
fn failed_nts_ke_exchanges_are_reported() -> Result<()> {
    let nts = NtsTestbed::start_on(Engine::Socket, &[])?;
    let files = tempfile::TempDir::new()?;
    let [other, _] = write_certificate(TARGET.parse()?, files.path())?;
    let other = other.display().to_string();
    let trust = nts.certificate_path().display().to_string();
    let run = |arguments: &[&str]| {
        let arguments = [&[TARGET, "--nts"], arguments].concat();
        output_of(nts.lab.client(), &arguments)
    };
    for (arguments, named) in [
        (["--ca", &other, "--nts-ke", TARGET], ["TLS", "--ca"]),
        (["--ca", &trust, "--nts-ke", "192.0.2.2:4461"], ["4461", "refused"]),
        (["--ca", &trust, "--nts-name", "other.example"], ["other.example", "--nts-name"]),
    ] {
        let output = run(&arguments)?;
        let (stdout, stderr) =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).into();
        ensure!(output.status.code() == Some(1), "{arguments:?}: {}: {stderr}", output.status);
        check_error_line(&stderr, &["No NTS keys", TARGET])?;
        ensure!(stdout.contains("No NTS keys") && !stdout.contains("os error"), "{stdout}");
        ensure!(named.iter().all(|named| stdout.contains(named)), "{arguments:?}: {stdout}");
    }
    ensure!(counter(&nts.server, "received")? == 0, "{}", nts.server.status()?);
    Ok(())
}

/// Function that returns the replies to the n-th request.
type ScriptedReplies = fn(u64, Header) -> Vec<Vec<u8>>;

/// Server with scripted replies.
struct ScriptedServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl ScriptedServer {
    fn start(host: &LabHost, at: SocketAddr, answers: ScriptedReplies) -> Result<Self> {
        let socket = host.run(|| UdpSocket::bind(at))??;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut buffer, mut requests) = ([0; 1024], 0);
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let now = client::now();
                let (request, _) = Header::parse(&buffer[..length])?;
                let reply = Header {
                    mode: AssociationMode::Server,
                    stratum: 1,
                    precision: -25,
                    origin: request.transmit,
                    receive: now,
                    transmit: client::now(),
                    ..request
                };
                for answer in answers(requests, reply) {
                    socket.send_to(&answer, from)?;
                }
                requests += 1;
            }
            Ok(requests)
        });
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the server and returns the number of its requests.
    fn end(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the server has ended already")?;
        thread.join().map_err(|_| anyhow::anyhow!("the server panicked"))?
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn bytes(header: &Header) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    header.emit(&mut bytes);
    bytes
}

/// Faults, one of each kind, precede correct replies: they are counted by reason, and do not affect
/// the correct ones.
fn a_faulty_server_is_detected() -> Result<()> {
    use InvalidReplyReason::{Length, Mode as BadMode, Origin, Stratum, Timestamp};
    let answers: ScriptedReplies = |number, reply| match number {
        0 => vec![],
        1 => vec![bytes(&Header { mode: AssociationMode::Client, ..reply })],
        2 => vec![bytes(&Header { version: 3, ..reply })],
        3 => vec![bytes(&Header { origin: reply.receive, ..reply })],
        4 => vec![bytes(&Header { stratum: 17, ..reply })],
        5 => vec![bytes(&Header { leap: LeapIndicator::Unsynchronised, ..reply })],
        6 => vec![bytes(&Header { transmit: reply.reference, ..reply })],
        7 => vec![bytes(&reply)[..40].to_vec(), vec![0xff; 1000]],
        // A reply to another request, the correct one, and a duplicate of that.
        8 => vec![bytes(&Header { origin: reply.receive, ..reply }), bytes(&reply), bytes(&reply)],
        _ => vec![bytes(&reply)],
    };
    let lab = Lab::new(&LabConfig::default())?;
    let own = ScriptedServer::start(lab.server(), server_address(&lab, false)?, answers)?;
    let arguments = [TARGET, "-n", "40", "--interval", "5ms", "--timeout", "50ms"];
    let result = result_of(lab.client(), &arguments)?;
    let requests = own.end()?;
    let server = &result.servers[0];
    let counts = &server.counts;
    ensure!((counts.sent, requests) == (40, 40), "{requests} received: {counts:?}");
    ensure!((counts.received, counts.lost, counts.duplicate) == (33, 7, 1), "{counts:?}");
    ensure!(
        counts.unsynchronised == 1 && has_finding(&result, FindingCode::ServerUnsynchronised),
        "{counts:?}"
    );
    let wanted =
        [(Length, 2), (BadMode, 1), (InvalidReplyReason::Version, 1), (Origin, 2), (Stratum, 1)];
    let wanted = wanted.into_iter().chain([(Timestamp, 1)]).collect();
    ensure!(counts.invalid == wanted, "{:?}", counts.invalid);
    ensure!(server.samples.len() == 33, "{} samples", server.samples.len());
    for sample in &server.samples {
        let off = sample.offset_ns.unsigned_abs();
        ensure!(off <= sample.error_bound_ns(), "{off} ns off: {sample:?}");
    }
    ensure!(
        has_finding(&result, FindingCode::InvalidReplies)
            && has_finding(&result, FindingCode::DuplicateReplies)
    );
    Ok(())
}

/// RATE halves the rate, DENY ends the requests, and both are reported.
fn a_kiss_is_honoured() -> Result<()> {
    fn kiss(code: [u8; 4], reply: Header) -> Vec<Vec<u8>> {
        let leap = LeapIndicator::Unsynchronised;
        vec![bytes(&Header { stratum: 0, leap, reference_id: code, ..reply })]
    }
    let answers: ScriptedReplies = |number, reply| match number {
        2 => kiss(*b"RATE", reply),
        6 => kiss(*b"DENY", reply),
        _ => vec![bytes(&reply)],
    };
    let lab = Lab::new(&LabConfig::default())?;
    let own = ScriptedServer::start(lab.server(), server_address(&lab, false)?, answers)?;
    let arguments = [TARGET, "-n", "100", "--interval", "20ms"];
    let result = result_of(lab.client(), &arguments)?;
    ensure!(own.end()? == 7, "requests after DENY");
    let server = &result.servers[0];
    let kisses: Vec<_> = server.counts.kisses.iter().map(|(code, n)| (code.as_str(), *n)).collect();
    ensure!(kisses == [("DENY", 1), ("RATE", 1)], "{kisses:?}");
    let reason = server.ended.as_ref().map(|end| end.reason);
    ensure!(reason == Some(QueryEndReason::Kiss), "{:?}", server.ended);
    let sequence: Vec<_> = server.samples.iter().map(|sample| sample.sequence).collect();
    let doubled = sequence[2..].windows(2).all(|pair| pair[1] - pair[0] >= 2);
    ensure!(sequence.len() == 5 && doubled, "{sequence:?}");
    ensure!(has_finding(&result, FindingCode::KissOfDeath), "{:?}", result.findings);
    Ok(())
}
