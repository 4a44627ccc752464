//! Forwarder with known faults: it relays datagrams between a near and a far end, and delays,
//! drops, duplicates and swaps those with certain sequence numbers. It is a program of the tests,
//! since the kernel of a test machine may be unable to impair a link.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use horolog_lab::LabHost;
use horolog_wire::path_probe::{Header, PathDatagramKind, short};

/// Interval between polls of the sockets.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Faults of the datagrams of one direction: each applies to sequence numbers with this remainder
/// (second value) of a division by a divisor (first value).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) delay: Duration,
    pub(crate) lost: Option<(u32, u32)>,
    pub(crate) duplicated: Option<(u32, u32)>,
    pub(crate) swapped: Option<(u32, u32)>,
}

pub(crate) fn is_affected(sequence: u32, fault: Option<(u32, u32)>) -> bool {
    fault.is_some_and(|(divisor, rest)| sequence % divisor == rest)
}

/// Returns the sequence number of a probe or an echo.
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

/// One direction, with datagrams that are not due yet and one that is to be overtaken.
struct Direction {
    faults: Faults,
    queue: VecDeque<(Instant, Vec<u8>, SocketAddr)>,
    held: Option<(Vec<u8>, SocketAddr)>,
}

impl Direction {
    fn receive(&mut self, bytes: Vec<u8>, whom: SocketAddr) {
        let due = Instant::now() + self.faults.delay;
        let measured = sequence(&bytes);
        let hit = |fault| measured.is_some_and(|sequence| is_affected(sequence, fault));
        if hit(self.faults.lost) {
            return;
        }
        if hit(self.faults.swapped) {
            self.held = Some((bytes, whom));
            return;
        }
        if hit(self.faults.duplicated) {
            self.queue.push_back((due, bytes.clone(), whom));
        }
        self.queue.push_back((due, bytes, whom));
        if let Some((bytes, whom)) = self.held.take() {
            self.queue.push_back((due, bytes, whom));
        }
    }

    fn next_due(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        let is_due = self.queue.front().is_some_and(|(due, ..)| *due <= Instant::now());
        if is_due { self.queue.pop_front().map(|(_, bytes, whom)| (bytes, whom)) } else { None }
    }
}

/// Running forwarder, which stops when dropped.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts to forward between `at` and `far`, on this host.
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
            let near = UdpSocket::bind(at).context("cannot bind the forwarder")?;
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
            there.receive(buffer[..len].to_vec(), whom);
        }
        for (whom, socket) in &upstream {
            while let Ok(len) = socket.recv(&mut buffer) {
                back.receive(buffer[..len].to_vec(), *whom);
            }
        }
        while let Some((bytes, whom)) = there.next_due() {
            let socket = upstream.entry(whom).or_insert_with(|| connect(far));
            let _ = socket.send(&bytes);
        }
        while let Some((bytes, whom)) = back.next_due() {
            let _ = near.send_to(&bytes, whom);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns a socket connected to the far end, on the host of the thread that started this one.
#[expect(clippy::expect_used, reason = "a forwarder without sockets is a failed test")]
fn connect(far: SocketAddr) -> UdpSocket {
    let any: SocketAddr = if far.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).expect("a socket");
    socket.connect(far).expect("a route to the far end");
    socket.set_nonblocking(true).expect("a non-blocking socket");
    socket
}
