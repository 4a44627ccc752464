//! Scenarios of a server that dies, stops or is terminated while clients query it: it never sends a
//! wrong reply, never answers after its death, and leaves the machine as it was.

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
use crate::process::{Engine, Server, TIMEOUT, server_address};
use crate::resource_leaks::nothing_is_attached;

/// Between two requests: some thousand in a second.
const REQUEST_INTERVAL: Duration = Duration::from_micros(100);
const READ_TIMEOUT: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Replies that are on their way when the server dies are there after this.
const ON_THE_WAY: Duration = Duration::from_millis(100);
/// How long a dead server is listened to.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// How long a clock page may be served from unless told otherwise.
const PAGE_LIFE: Duration = Duration::from_secs(1);
/// A server ends within a second; twice that on a busy machine.
const END_MAX: Duration = Duration::from_secs(2);
/// Timestamps of client and server come from the same clock, by different ways.
const CLOCK_TOLERANCE: Span = Span::from_ms(1);
const SIGKILL: i32 = 9;

/// What the client saw so far.
#[derive(Clone, Default, Debug)]
struct ReplyLog {
    replies: u64,
    last: Option<Instant>,
    wrong: Option<String>,
}

/// A client that asks, some thousand times in a second, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<ReplyLog>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(lab: &Lab, server: SocketAddr) -> Result<Self> {
        // Not connected, so that nothing is told of a port that is closed for a while.
        let sending = client::socket(lab.client(), server, READ_TIMEOUT)?;
        let listening = sending.try_clone()?;
        let mut load = Self { stop: Arc::default(), log: Arc::default(), threads: Vec::new() };
        let stop = Arc::clone(&load.stop);
        load.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // A full buffer loses a request; another follows.
                let _ = sending.send_to(&client::request(4, client::now()), server);
                thread::sleep(REQUEST_INTERVAL);
            }
        }));
        let (stop, log) = (Arc::clone(&load.stop), Arc::clone(&load.log));
        load.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                listen(&listening, &log);
            }
        }));
        Ok(load)
    }

    fn log(&self) -> ReplyLog {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until replies come, some more of them than now.
    fn wait_for_replies(&self) -> Result<()> {
        let before = self.log().replies;
        let started = Instant::now();
        while self.log().replies < before + 100 {
            ensure!(started.elapsed() < TIMEOUT, "no replies come: {:?}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn check_replies(&self) -> Result<()> {
        let wrong = self.log().wrong;
        ensure!(wrong.is_none(), "a wrong reply: {}", wrong.unwrap_or_default());
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

/// Takes in a reply, if there is one.
fn listen(socket: &UdpSocket, log: &Mutex<ReplyLog>) {
    let mut buffer = [0; 256];
    let Ok((length, _)) = socket.recv_from(&mut buffer) else { return };
    let received_at = Instant::now();
    let objection = objection(&buffer[..length]);
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.replies += 1;
    log.last = Some(received_at);
    log.wrong = log.wrong.take().or(objection);
}

/// What is wrong with a reply that has just come. Its origin timestamp is when it was asked for.
fn objection(reply: &[u8]) -> Option<String> {
    let now = client::now();
    let Ok((header, rest)) = Header::parse(reply) else { return Some("too short".to_owned()) };
    let Header { origin, receive, transmit, .. } = header;
    let in_order = [origin, receive, transmit, now]
        .windows(2)
        .all(|pair| pair[1].since(pair[0]) >= Span::ZERO - CLOCK_TOLERANCE);
    let is_right = rest.is_empty() && header.mode == AssociationMode::Server && in_order;
    (!is_right).then(|| format!("{HEADER_LEN} + {} bytes, {header:?} at {now:?}", rest.len()))
}

/// After kill -9 nothing answers, nothing is attached, and a new server starts at once on the same
/// port.
pub(crate) fn a_killed_server_sends_nothing_and_leaves_nothing(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), engine, &[at], &[])?;
    let load = Load::start(&lab, at)?;
    load.wait_for_replies()?;
    let ended = server.end("KILL")?;
    ensure!(ended.status.signal() == Some(SIGKILL), "{}", ended.status);
    thread::sleep(ON_THE_WAY);
    let replies = load.log().replies;
    nothing_is_attached(lab.server())?;
    thread::sleep(QUIET_PERIOD);
    ensure!(load.log().replies == replies, "a dead server answered");
    let _again = Server::start(lab.server(), engine, &[at], &[])?;
    load.wait_for_replies()?;
    load.check_replies()
}

/// A server that is stopped answers from its last clock page until that expires, and not longer;
/// one that goes on answers again, and never with a time that is not right.
pub(crate) fn a_stopped_server_answers_until_its_clock_page_expires(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), engine, &[at], &[])?;
    let load = Load::start(&lab, at)?;
    load.wait_for_replies()?;
    server.signal("STOP")?;
    let stopped = Instant::now();
    if engine == Engine::Xdp {
        // In the kernel the page is still good.
        load.wait_for_replies()?;
    }
    thread::sleep((3 * PAGE_LIFE).saturating_sub(stopped.elapsed()));
    let last = load.log().last.map_or(Duration::ZERO, |last| last - stopped);
    ensure!(last <= 2 * PAGE_LIFE, "replies came for {last:?} after the stop");
    server.signal("CONT")?;
    load.wait_for_replies()?;
    load.check_replies()
}

/// SIGTERM ends a server under load within a second; it says what it counted, and nothing is left.
pub(crate) fn a_terminated_server_ends(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, true)?;
    let server = Server::start(lab.server(), engine, &[at], &[])?;
    let load = Load::start(&lab, at)?;
    load.wait_for_replies()?;
    let ended = server.end("TERM")?;
    ensure!(ended.status.success(), "{}", ended.status);
    ensure!(ended.took < END_MAX, "it took {:?}", ended.took);
    let last: serde_json::Value = serde_json::from_str(ended.stdout.trim())?;
    let counter = match engine {
        Engine::Socket => &last["counters"]["answered"],
        Engine::Xdp => &last["xdp_counters"]["answered_ipv6"],
    };
    ensure!(counter.as_u64() >= Some(100), "{last}");
    nothing_is_attached(lab.server())?;
    load.check_replies()
}

/// SIGUSR1 makes it print its counters and go on.
pub(crate) fn usr1_prints_the_counters() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    client::query_from(lab.client(), at)?;
    // A reply is counted when it has left.
    let begun = Instant::now();
    while server.status()?["counters"]["answered"] != 1 {
        ensure!(begun.elapsed() < TIMEOUT, "the reply is not counted");
        thread::sleep(Duration::from_millis(5));
    }
    server.signal("USR1")?;
    client::query_from(lab.client(), at)?;
    // Until it has been printed: the server looks for signals twice in a second at the latest.
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
