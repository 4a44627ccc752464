//! Scenarios of a server that is killed, stopped or terminated under load: it never sends a wrong
//! reply, sends nothing after its death, and leaves nothing behind.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_time::Span;
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header};

use crate::client;
use crate::isolation::check_nothing_attached;
use crate::process::{Engine, Server, TIMEOUT, server_address};

/// Pause between two requests: some thousand requests per second.
const REQUEST_INTERVAL: Duration = Duration::from_micros(100);
const READ_TIMEOUT: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Longest time that replies are in flight after the server's death.
const IN_FLIGHT_MAX: Duration = Duration::from_millis(100);
/// Time in which a dead server must send nothing.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// Default life of a clock page.
const PAGE_LIFE: Duration = Duration::from_secs(1);
/// Longest time in which a server ends: 1 s, doubled for a busy host.
const END_MAX: Duration = Duration::from_secs(2);
/// Tolerance of timestamps: client and server read the same clock in different ways.
const CLOCK_TOLERANCE: Span = Span::from_ms(1);
const SIGKILL: i32 = 9;

/// Replies that a client received.
#[derive(Clone, Default, Debug)]
struct ReplyLog {
    replies: u64,
    last: Option<Instant>,
    fault: Option<String>,
}

/// Client that sends some thousand requests per second until it is dropped.
struct LoadingClient {
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<ReplyLog>>,
    threads: Vec<JoinHandle<()>>,
}

impl LoadingClient {
    fn start(lab: &Lab, server: SocketAddr) -> Result<Self> {
        // Not connected: a connected socket would get errors while the port is closed.
        let sending = client::socket(lab.client(), server, READ_TIMEOUT)?;
        let listening = sending.try_clone()?;
        let mut load = Self { stop: Arc::default(), log: Arc::default(), threads: Vec::new() };
        let stop = Arc::clone(&load.stop);
        load.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // A full buffer loses a request; more follow.
                let _ = sending.send_to(&client::request(4, client::now()), server);
                thread::sleep(REQUEST_INTERVAL);
            }
        }));
        let (stop, log) = (Arc::clone(&load.stop), Arc::clone(&load.log));
        load.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                receive_reply(&listening, &log);
            }
        }));
        Ok(load)
    }

    fn log(&self) -> ReplyLog {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for 100 more replies.
    fn wait_for_replies(&self) -> Result<()> {
        let before = self.log().replies;
        let started = Instant::now();
        while self.log().replies < before + 100 {
            ensure!(started.elapsed() < TIMEOUT, "too few replies: {:?}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn check_replies(&self) -> Result<()> {
        let fault = self.log().fault;
        ensure!(fault.is_none(), "invalid reply: {}", fault.unwrap_or_default());
        Ok(())
    }
}

impl Drop for LoadingClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed to stderr.
            let _ = thread.join();
        }
    }
}

/// Receives a reply, if there is one.
fn receive_reply(socket: &UdpSocket, log: &Mutex<ReplyLog>) {
    let mut buffer = [0; 256];
    let Ok((length, _)) = socket.recv_from(&mut buffer) else { return };
    let received_at = Instant::now();
    let fault = reply_fault(&buffer[..length]);
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.replies += 1;
    log.last = Some(received_at);
    log.fault = log.fault.take().or(fault);
}

/// Returns the fault of a reply that has just been received; its origin timestamp is that of the
/// request.
fn reply_fault(reply: &[u8]) -> Option<String> {
    let now = client::now();
    let Ok((header, rest)) = Header::parse(reply) else { return Some("too short".to_owned()) };
    let Header { origin, receive, transmit, .. } = header;
    let in_order = [origin, receive, transmit, now]
        .windows(2)
        .all(|pair| pair[1].since(pair[0]) >= Span::ZERO - CLOCK_TOLERANCE);
    let is_right = rest.is_empty() && header.mode == AssociationMode::Server && in_order;
    (!is_right).then(|| format!("{HEADER_LEN} + {} bytes, {header:?} at {now:?}", rest.len()))
}

/// After SIGKILL no reply is sent, no XDP program is attached, and a new server starts at once on
/// the same port.
pub(crate) fn a_killed_server_sends_nothing_and_leaves_nothing(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), engine, &[at], &[])?;
    let load = LoadingClient::start(&lab, at)?;
    load.wait_for_replies()?;
    let ended = server.end("KILL")?;
    ensure!(ended.status.signal() == Some(SIGKILL), "{}", ended.status);
    thread::sleep(IN_FLIGHT_MAX);
    let replies = load.log().replies;
    check_nothing_attached(lab.server())?;
    thread::sleep(QUIET_PERIOD);
    ensure!(load.log().replies == replies, "a dead server sent replies");
    let _again = Server::start(lab.server(), engine, &[at], &[])?;
    load.wait_for_replies()?;
    load.check_replies()
}

/// A stopped server sends replies until its last clock page expires, and no longer; once continued,
/// it sends them again, and never with a wrong time.
pub(crate) fn a_stopped_server_answers_until_its_clock_page_expires(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), engine, &[at], &[])?;
    let load = LoadingClient::start(&lab, at)?;
    load.wait_for_replies()?;
    server.signal("STOP")?;
    let stopped = Instant::now();
    if engine == Engine::Xdp {
        // The XDP program uses the page until it expires.
        load.wait_for_replies()?;
    }
    thread::sleep((3 * PAGE_LIFE).saturating_sub(stopped.elapsed()));
    let last = load.log().last.map_or(Duration::ZERO, |last| last - stopped);
    ensure!(last <= 2 * PAGE_LIFE, "replies until {last:?} after the stop");
    server.signal("CONT")?;
    load.wait_for_replies()?;
    load.check_replies()
}

/// SIGTERM ends a server under load in time; it prints its counters and leaves nothing behind.
pub(crate) fn a_terminated_server_ends(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, true)?;
    let server = Server::start(lab.server(), engine, &[at], &[])?;
    let load = LoadingClient::start(&lab, at)?;
    load.wait_for_replies()?;
    let ended = server.end("TERM")?;
    ensure!(ended.status.success(), "{}", ended.status);
    ensure!(ended.took < END_MAX, "the server ended after {:?}", ended.took);
    let last: serde_json::Value = serde_json::from_str(ended.stdout.trim())?;
    let counter = match engine {
        Engine::Socket => &last["counters"]["answered"],
        Engine::Xdp => &last["xdp_counters"]["answered_ipv6"],
    };
    ensure!(counter.as_u64() >= Some(100), "{last}");
    check_nothing_attached(lab.server())?;
    load.check_replies()
}

/// SIGUSR1 makes the server print its counters and continue.
pub(crate) fn usr1_prints_the_counters() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    client::query_from(lab.client(), at)?;
    // A reply is counted after it was sent.
    let begun = Instant::now();
    while server.status()?["counters"]["answered"] != 1 {
        ensure!(begun.elapsed() < TIMEOUT, "the reply is not counted");
        thread::sleep(Duration::from_millis(5));
    }
    server.signal("USR1")?;
    client::query_from(lab.client(), at)?;
    // Time to print: the server checks for signals at least twice per second.
    thread::sleep(Duration::from_millis(600));
    let ended = server.end("INT")?;
    ensure!(ended.status.success(), "{}", ended.status);
    let printed: Vec<u64> = ended
        .stdout
        .lines()
        .map(serde_json::from_str::<serde_json::Value>)
        .filter_map(|status| status.ok()?["counters"]["answered"].as_u64())
        .collect();
    ensure!(printed.len() == 2 && printed[0] >= 1 && printed[1] == 2, "{}", ended.stdout);
    Ok(())
}
