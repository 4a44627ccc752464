//! Scenarios of the search for the highest rate without loss, against a server with a rate limit,
//! whose capacity is therefore known.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LOAD_SCHEMA, LoadResult, SearchEndReason, Severity};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use crate::client;
use crate::load_command::{StartedProgram, check_sums, has_finding, load, parse};
use crate::process::server_address;

/// Requests per second that the server accepts.
pub(crate) const CAPACITY: f64 = 4_000.0;
/// Requests that the server accepts at once above that rate: 20 ms' worth, for a busy host.
const BURST: f64 = 80.0;
/// Duration of the decisive trials, in seconds.
const TRIAL_S: f64 = 0.25;
const READ_TIMEOUT: Duration = Duration::from_millis(20);

/// NTP server that replies to selected requests, until it is dropped.
pub(crate) struct SelectiveServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SelectiveServer {
    /// Starts a server that replies to the requests that `admits` accepts and drops the others.
    pub(crate) fn start(
        lab: &Lab,
        at: SocketAddr,
        admits: impl FnMut(SocketAddr) -> bool + Send + 'static,
    ) -> Result<Self> {
        let socket = lab.server().run(|| UdpSocket::bind(at))??;
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&socket, &stopped, admits));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Starts a server with a rate limit, a token bucket.
    pub(crate) fn start_limited(lab: &Lab, at: SocketAddr) -> Result<Self> {
        let (mut tokens, mut filled) = (BURST, Instant::now());
        Self::start(lab, at, move |_| {
            let now = Instant::now();
            tokens = (tokens + CAPACITY * (now - filled).as_secs_f64()).min(BURST);
            filled = now;
            let admitted = tokens >= 1.0;
            tokens -= if admitted { 1.0 } else { 0.0 };
            admitted
        })
    }
}

impl Drop for SelectiveServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of the thread has been printed to stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(socket: &UdpSocket, stop: &AtomicBool, mut admits: impl FnMut(SocketAddr) -> bool) {
    let mut buffer = [0; 128];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        if admits(from)
            && let Some(reply) = reply_to(&buffer[..length])
        {
            // The generator counts a reply that could not be sent as lost.
            let _ = socket.send_to(&reply, from);
        }
    }
}

fn reply_to(request: &[u8]) -> Option<[u8; HEADER_LEN]> {
    let (request, _) = Header::parse(request).ok()?;
    let now = client::now();
    let reply = Header {
        mode: AssociationMode::Server,
        stratum: 1,
        origin: request.transmit,
        receive: now,
        transmit: now,
        ..request
    };
    let mut bytes = [0; HEADER_LEN];
    reply.emit(&mut bytes);
    Some(bytes)
}

/// The search finds the capacity of the server or reports a warning; the JSON document and the HTML
/// report contain the result.
pub(crate) fn a_known_capacity_is_found() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = SelectiveServer::start_limited(&lab, at)?;
    let (target, time) = (at.to_string(), TRIAL_S.to_string());
    // One sending thread leaves a CPU to the server.
    let mut arguments = vec![&*target, "--engine", "udp", "--threads", "1", "-t", &time];
    arguments.extend(["--search", "ndr", "-r", "1k-16k", "--json", "r.json", "--html", "r.html"]);
    let mut run = StartedProgram::start(&mut load(lab.client(), &arguments)?)?;
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
    check_search(&result)?;
    for trial in &result.trials {
        check_sums(trial)?;
    }
    let rows = run.read("stdout")?.lines().filter(|line| line.contains('%')).count();
    ensure!(rows >= result.trials.len(), "{rows} rows for {} trials", result.trials.len());
    check_page(&run.read("r.html")?)
}

fn check_search(result: &LoadResult) -> Result<()> {
    ensure!(result.schema == LOAD_SCHEMA, "{}", result.schema);
    let search = result.search.as_ref().context("no result of the search")?;
    // In a trial the burst adds to the rate limit.
    let capacity = CAPACITY + BURST / TRIAL_S;
    let (low, high) = (0.97 * CAPACITY, 1.03 * capacity);
    let has_converged = search.end == SearchEndReason::Converged
        && !has_finding(result, FindingCode::TrialsInconsistent);
    if has_converged {
        ensure!((low..=high).contains(&search.rate), "{search:?} is not {low} to {high}");
        let (lower, upper) = search.lower.zip(search.upper).context("no bounds")?;
        ensure!(lower < upper && upper <= 1.03 * lower, "{search:?}");
        let is_lower = |rate: f64| (rate - lower).abs() < 1e-6 * lower;
        let at_lower = result.trials.iter().filter(|trial| is_lower(trial.intended_rate));
        ensure!(at_lower.filter(|trial| trial.lost == 0).count() > 0, "{search:?}");
    } else {
        ensure!(search.rate <= high, "{search:?} is more than {high}");
        let warnings =
            result.findings.iter().filter(|finding| finding.severity >= Severity::Warning);
        ensure!(warnings.count() > 0, "no warning of an inconclusive search: {search:?}");
    }
    Ok(())
}

fn check_page(page: &str) -> Result<()> {
    let lower = page.to_lowercase();
    ensure!(lower.starts_with("<!doctype html>"), "the page begins with {page:.40}");
    ensure!(lower.trim_end().ends_with("</html>"), "the page has no end");
    ensure!(page.contains(LOAD_SCHEMA) && page.contains("192.0.2.2"), "the page has no result");
    Ok(())
}
