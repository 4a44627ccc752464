//! A hop on a path whose faults are known: it hands datagrams on between a near and a far end, and
//! delays, loses, copies and swaps those whose numbers it was told. It is a UDP relay of the test's
//! own, since the kernel of a test machine may have no way to impair a link.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use horolog_lab::LabHost;
use horolog_wire::path_probe::{Header, PathDatagramKind, short};

/// Between two looks at the sockets.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// What is done to datagrams of one direction, by their numbers: those that leave this remainder
/// when they are divided by that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) delay: Duration,
    pub(crate) lost: Option<(u32, u32)>,
    pub(crate) copied: Option<(u32, u32)>,
    pub(crate) swapped: Option<(u32, u32)>,
}

pub(crate) fn is_hit(sequence: u32, fault: Option<(u32, u32)>) -> bool {
    fault.is_some_and(|(divisor, rest)| sequence % divisor == rest)
}

/// The number of a probe or an echo.
fn sequence(bytes: &[u8]) -> Option<u32> {
    if let Ok(probe) = short::ShortProbe::parse(bytes) {
        return Some(probe.sequence);
    }
    if let Ok(echo) = short::ShortEcho::parse(bytes) {
        return Some(echo.sequence);
    }
    let (header, _) = Header::parse(bytes).ok()?;
    matches!(header.kind, PathDatagramKind::Probe | PathDatagramKind::Echo)
        .then_some(header.sequence)
}

/// One direction: what waits until it is due, and what waits to be overtaken.
struct Direction {
    faults: Faults,
    queue: VecDeque<(Instant, Vec<u8>, SocketAddr)>,
    held: Option<(Vec<u8>, SocketAddr)>,
}

impl Direction {
    fn take(&mut self, bytes: Vec<u8>, whom: SocketAddr) {
        let due = Instant::now() + self.faults.delay;
        let measured = sequence(&bytes);
        let hit = |fault| measured.is_some_and(|sequence| is_hit(sequence, fault));
        if hit(self.faults.lost) {
            return;
        }
        if hit(self.faults.swapped) {
            self.held = Some((bytes, whom));
            return;
        }
        if hit(self.faults.copied) {
            self.queue.push_back((due, bytes.clone(), whom));
        }
        self.queue.push_back((due, bytes, whom));
        if let Some((bytes, whom)) = self.held.take() {
            self.queue.push_back((due, bytes, whom));
        }
    }

    fn due(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        let is_due = self.queue.front().is_some_and(|(due, ..)| *due <= Instant::now());
        if is_due { self.queue.pop_front().map(|(_, bytes, whom)| (bytes, whom)) } else { None }
    }
}

/// The hop; it goes with its value.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Hands on between `at` and `far`, in this host.
    pub(crate) fn start(
        host: &LabHost,
        at: SocketAddr,
        far: SocketAddr,
        there: Faults,
        back: Faults,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        let thread = host.run(move || -> Result<_> {
            let near = UdpSocket::bind(at).context("cannot bind the hop")?;
            near.set_nonblocking(true)?;
            Ok(thread::spawn(move || forward(&near, far, [there, back], &ending)))
        })??;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn forward(near: &UdpSocket, far: SocketAddr, faults: [Faults; 2], stop: &AtomicBool) {
    let [mut there, mut back] =
        faults.map(|faults| Direction { faults, queue: VecDeque::new(), held: None });
    let mut upstream: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        while let Ok((len, whom)) = near.recv_from(&mut buffer) {
            there.take(buffer[..len].to_vec(), whom);
        }
        for (whom, socket) in &upstream {
            while let Ok(len) = socket.recv(&mut buffer) {
                back.take(buffer[..len].to_vec(), *whom);
            }
        }
        while let Some((bytes, whom)) = there.due() {
            let socket = upstream.entry(whom).or_insert_with(|| connected(far));
            let _ = socket.send(&bytes);
        }
        while let Some((bytes, whom)) = back.due() {
            let _ = near.send_to(&bytes, whom);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Threads that a host's thread starts are in that host.
#[expect(clippy::expect_used, reason = "a hop without sockets is a failed test")]
fn connected(far: SocketAddr) -> UdpSocket {
    let any: SocketAddr = if far.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).expect("a socket");
    socket.connect(far).expect("a way to the far end");
    socket.set_nonblocking(true).expect("a socket that does not block");
    socket
}
