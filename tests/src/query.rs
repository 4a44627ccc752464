//! Scenarios of `horolog query`: the truth is known, because the server is told what to be off by
//! or is one of the scenario's own; and both ends have to count the same.

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
use libtest_mimic::Trial;

use crate::chronyd;
use crate::client;
use crate::load_accounting::counters;
use crate::load_command::{Started, parse};
use crate::process::{Engine, Server, binary, run_to_end, server_address, write_secret};
use crate::scenario::{Need, scenario};
use crate::scenarios;
use crate::server_nts::{CHRONY, WithNts, certificate, counter};
use crate::usage_error::check_line;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
const OFFSET_NS: i64 = 250_000;
/// How far the server's own reading of the clock may be off from this program's: it is carried from
/// one look at the clocks to the next.
const READING_NS: u64 = 500;
pub(crate) const TARGET: &str = "192.0.2.2";

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
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
    all.extend(scenarios!(CHRONY, query: chronyd_counts_the_same));
    all.extend(scenarios!(CHRONY, query_nts: new_keys_of_a_restarted_chronyd_are_requested));
    all.extend(scenarios!(ROOT, query:
        interleaved_replies_carry_their_send_time,
        authenticated_exchanges_are_verified,
        failed_nts_ke_exchanges_are_named,
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
        an_ordinary_user_can_measure,
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

/// The result of a query that succeeds.
pub(crate) fn result_of(host: &LabHost, arguments: &[&str]) -> Result<QueryResult> {
    let arguments = [arguments, &["--json", "-"]].concat();
    let output = output_of(host, &arguments)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "query {arguments:?}: {complaint}");
    parse(&output.stdout).with_context(|| format!("query {arguments:?}"))
}

pub(crate) fn has(result: &QueryResult, code: FindingCode) -> bool {
    result.findings.iter().any(|finding| finding.code == code)
}

/// Every request was answered, and timestamped by the kernel on both ways.
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

/// A server that is told to be ahead is ahead by so much, within the bound of every single sample,
/// over both IP versions at the same time; and it counts as many requests as were sent.
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
        let state = server.server_state.as_ref().context("it said nothing")?;
        ensure!((state.stratum, state.reference_id.as_str()) == (2, "71.80.83.0"), "{state:?}");
        for sample in &server.samples {
            let off = sample.offset_ns.abs_diff(OFFSET_NS);
            ensure!(off <= sample.error_bound_ns() + READING_NS, "{off} ns off: {sample:?}");
            ensure!(sample.delay_ns > -(READING_NS as i64), "{sample:?}");
        }
        let best = server.best.context("no best sample")?;
        ensure!(best.bound_ns < 1_000_000, "{best:?}");
    }
    let difference = result.differences.first().context("no difference")?;
    // A place of the grid may pass while the machine does something else.
    ensure!(!difference.contradiction && difference.pairs > 20, "{difference:?}");
    let counts = counters(&server.status()?).context("the server tells no counters")?;
    ensure!((counts.received, counts.answered) == (200, 200), "{counts:?}");
    Ok(())
}

/// A server that is told to gain on this clock gains as much.
fn a_known_drift_is_found(engine: Engine) -> Result<()> {
    const DRIFT_PPM: f64 = 1_000.0;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), engine, &[at], &["--test-drift", "1000000"])?;
    let result = result_of(lab.client(), &[TARGET, "--count", "100", "--interval", "10ms"])?;
    let server = &result.servers[0];
    check_clean(server, 100)?;
    let drift = server.drift.context("no drift")?;
    // Within a hundredth, that is 10 µs in the whole second; or as near as it says itself, where
    // the machine held up replies in a row.
    let tolerance_ppm = (DRIFT_PPM / 100.0).max(5.0 * drift.error_ppm);
    ensure!((drift.ppm - DRIFT_PPM).abs() < tolerance_ppm, "{drift:?}");
    ensure!(drift.error_ppm < DRIFT_PPM / 2.0, "{drift:?}");
    let octaves: Vec<_> = server.allan.iter().map(|point| point.tau_s).collect();
    // Where the machine let places of the time grid pass, the run took longer.
    ensure!(octaves.starts_with(&[0.01, 0.02, 0.04, 0.08, 0.16, 0.32]), "{octaves:?}");
    Ok(())
}

/// chronyd, whose clock is this machine's, is found to be right, and it counts the same requests.
fn chronyd_counts_the_same() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let lines = ["allow all", "local stratum 1"].map(str::to_owned);
    let chronyd = chronyd::Client::start(lab.server(), &lines, |_| Ok(()))?;
    let mut requests = 0;
    for (mode, more) in [("basic", 0), ("interleaved", 1)] {
        let mut arguments = vec![TARGET, "--count", "50", "--interval", "5ms"];
        arguments.extend((more == 1).then_some("--interleaved"));
        let result = result_of(lab.client(), &arguments).context(mode)?;
        let server = &result.servers[0];
        check_clean(server, 50 + more).context(mode)?;
        // chronyd remembers a client once it has asked in this mode.
        ensure!(server.counts.interleaved == 49 * more, "{mode}: {:?}", server.counts);
        for sample in &server.samples {
            let off = sample.offset_ns.unsigned_abs();
            ensure!(
                off <= sample.error_bound_ns() + READING_NS,
                "{mode}: {off} ns off: {sample:?}"
            );
        }
        requests += 50 + more;
        let expected = requests.to_string();
        chronyd.await_signs("serverstats", &[("NTP packets received", &expected)])?;
    }
    Ok(())
}

/// In interleaved mode T3 is when a reply left and not when it was made, so the delay is no longer.
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
    // The server remembers a client once it has asked in this mode.
    ensure!((one.samples.len(), one.counts.interleaved) == (100, 99), "{:?}", one.counts);
    ensure!(counter(&server, "interleaved")? == 99, "{}", server.status()?);
    ensure!(one.samples[1..].iter().all(|sample| sample.interleaved), "a basic one");
    ensure!(!has(&result, FindingCode::InterleavedNotUsed), "{:?}", result.findings);
    for sample in &one.samples {
        let off = sample.offset_ns.abs_diff(OFFSET_NS);
        ensure!(off <= sample.error_bound_ns() + READING_NS, "{off} ns off: {sample:?}");
    }
    let median = |result: &QueryResult| result.servers[0].delay_ns.map(|figures| figures.p50);
    ensure!(median(&result) < median(&basic), "{:?}, {:?}", median(&result), median(&basic));
    Ok(())
}

/// Keys are established once, every request has a fresh cookie, and every reply is opened; in
/// interleaved mode as well.
fn authenticated_exchanges_are_verified() -> Result<()> {
    let nts = WithNts::start_on(Engine::Socket, &["--test-offset", &OFFSET_NS.to_string()])?;
    let trust = nts.trust().display().to_string();
    let mut sent = 0;
    for (mode, more) in [("basic", 0), ("interleaved", 1)] {
        let mut arguments = vec![TARGET, "--nts", "--ca", &trust, "-n", "50", "--interval", "5ms"];
        arguments.extend((more == 1).then_some("--interleaved"));
        let result = result_of(nts.lab.client(), &arguments).context(mode)?;
        let server = &result.servers[0];
        check_clean(server, 50 + more).context(mode)?;
        sent += 50 + more;
        let used = server.nts.as_ref().context("no word of NTS")?;
        ensure!(used.ke_exchanges == 1, "{used:?}");
        ensure!(used.ke_server == format!("{TARGET}:4460"), "{used:?}");
        ensure!(counter(&nts.server, "nts")? == sent, "{}", nts.server.status()?);
        let best = server.best.context("no best sample")?;
        let off = best.offset_ns.abs_diff(OFFSET_NS);
        ensure!(off <= best.bound_ns + READING_NS, "{mode}: {off} ns off: {best:?}");
    }
    ensure!(counter(&nts.server, "nts_kisses")? == 0, "{}", nts.server.status()?);
    Ok(())
}

/// A server that gets another secret in the middle opens none of the cookies of before: the kisses
/// are counted, new keys are asked for by the next poll, and the rest is measured.
fn refused_cookies_are_replaced() -> Result<()> {
    let files = tempfile::TempDir::new()?;
    let secret = files.path().join("secret");
    write_secret(&secret, &"01".repeat(32))?;
    let option = secret.display().to_string();
    let nts = WithNts::start_on(Engine::Socket, &["--nts-master-secret", &option])?;
    let trust = nts.trust().display().to_string();
    let arguments = [TARGET, "--nts", "--ca", &trust, "-n", "60", "--interval", "20ms"];
    let arguments = [arguments.as_slice(), &["--json", "r.json"]].concat();
    let mut run = Started::start(&mut query(nts.lab.client(), &arguments)?)?;
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
    ensure!(has(&result, FindingCode::KeysRenewed), "{:?}", result.findings);
    ensure!(has(&result, FindingCode::KissOfDeath), "{:?}", result.findings);
    Ok(())
}

/// A certificate that is not trusted, a server without key establishment, and a file that is none.
fn failed_nts_ke_exchanges_are_named() -> Result<()> {
    let nts = WithNts::start_on(Engine::Socket, &[])?;
    let files = tempfile::TempDir::new()?;
    let [other, _] = certificate(TARGET.parse()?, files.path())?;
    let other = other.display().to_string();
    let trust = nts.trust().display().to_string();
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
        check_line(&stderr, &["No NTS keys", TARGET])?;
        ensure!(stdout.contains("No NTS keys") && !stdout.contains("os error"), "{stdout}");
        ensure!(named.iter().all(|named| stdout.contains(named)), "{arguments:?}: {stdout}");
    }
    ensure!(counter(&nts.server, "received")? == 0, "{}", nts.server.status()?);
    Ok(())
}

/// What a server of the scenario's own sends for its n-th request: as many replies as it likes.
type Answers = fn(u64, Header) -> Vec<Vec<u8>>;

/// A server with a will of its own.
struct ScriptedServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl ScriptedServer {
    fn start(host: &LabHost, at: SocketAddr, answers: Answers) -> Result<Self> {
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

    /// How many requests it had.
    fn end(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was ended before")?;
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

/// Each kind of fault in turn, then good replies: the faults are counted by name, and cost the good
/// ones nothing.
fn a_faulty_server_is_detected() -> Result<()> {
    use InvalidReplyReason::{Length, Mode as BadMode, Origin, Stratum, Timestamp};
    let answers: Answers = |number, reply| match number {
        0 => vec![],
        1 => vec![bytes(&Header { mode: AssociationMode::Client, ..reply })],
        2 => vec![bytes(&Header { version: 3, ..reply })],
        3 => vec![bytes(&Header { origin: reply.receive, ..reply })],
        4 => vec![bytes(&Header { stratum: 17, ..reply })],
        5 => vec![bytes(&Header { leap: LeapIndicator::Unsynchronised, ..reply })],
        6 => vec![bytes(&Header { transmit: reply.reference, ..reply })],
        7 => vec![bytes(&reply)[..40].to_vec(), vec![0xff; 1000]],
        // Somebody else's first, then the right one, and then that once more.
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
    ensure!((counts.sent, requests) == (40, 40), "{requests} came: {counts:?}");
    ensure!((counts.received, counts.lost, counts.duplicate) == (33, 7, 1), "{counts:?}");
    ensure!(
        counts.unsynchronised == 1 && has(&result, FindingCode::ServerUnsynchronised),
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
        has(&result, FindingCode::InvalidReplies) && has(&result, FindingCode::DuplicateReplies)
    );
    Ok(())
}

/// RATE halves the rate, DENY ends it; both are named.
fn a_kiss_is_honoured() -> Result<()> {
    fn kiss(code: [u8; 4], reply: Header) -> Vec<Vec<u8>> {
        let leap = LeapIndicator::Unsynchronised;
        vec![bytes(&Header { stratum: 0, leap, reference_id: code, ..reply })]
    }
    let answers: Answers = |number, reply| match number {
        2 => kiss(*b"RATE", reply),
        6 => kiss(*b"DENY", reply),
        _ => vec![bytes(&reply)],
    };
    let lab = Lab::new(&LabConfig::default())?;
    let own = ScriptedServer::start(lab.server(), server_address(&lab, false)?, answers)?;
    let arguments = [TARGET, "-n", "100", "--interval", "20ms"];
    let result = result_of(lab.client(), &arguments)?;
    ensure!(own.end()? == 7, "it was asked on");
    let server = &result.servers[0];
    let kisses: Vec<_> = server.counts.kisses.iter().map(|(code, n)| (code.as_str(), *n)).collect();
    ensure!(kisses == [("DENY", 1), ("RATE", 1)], "{kisses:?}");
    let reason = server.ended.as_ref().map(|end| end.reason);
    ensure!(reason == Some(QueryEndReason::Kiss), "{:?}", server.ended);
    let sequence: Vec<_> = server.samples.iter().map(|sample| sample.sequence).collect();
    let doubled = sequence[2..].windows(2).all(|pair| pair[1] - pair[0] >= 2);
    ensure!(sequence.len() == 5 && doubled, "{sequence:?}");
    ensure!(has(&result, FindingCode::KissOfDeath), "{:?}", result.findings);
    Ok(())
}
