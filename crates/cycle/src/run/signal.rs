//! Time signal as packets: a thread that sends each node a datagram for each release of each task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use horolog_record::{CycleSignalStats, Distribution};
use horolog_stats::Recorder;
use horolog_sys::affinity;
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use crate::node::datagram::{DatagramHeader, DatagramKind, HEADER_LEN};

/// Highest priority of a task, so that none of them delays the signal for long.
const PRIORITY: i32 = 99;
/// Longest sleep between two checks for the end.
const POLL_INTERVAL: Span = Span::from_ms(50);
/// Repetitions of the end packet, each after this time: a datagram may be lost.
const LAST: [Span; 3] = [Span::from_ms(1), Span::from_ms(10), Span::from_ms(100)];

/// Releases of a task, with the receivers of its packets.
#[derive(Clone, Debug)]
pub(super) struct ReleaseSchedule {
    pub(super) offset: Span,
    pub(super) period: Span,
    pub(super) cycles: u64,
    /// Address of each node for its signal.
    pub(super) to: Vec<SocketAddr>,
}

impl ReleaseSchedule {
    fn due(&self, begin: Timestamp<Monotonic>, cycle: u64) -> Timestamp<Monotonic> {
        let cycle = i64::try_from(cycle).unwrap_or(i64::MAX);
        begin + self.offset + Span::from_ns(self.period.as_ns().saturating_mul(cycle))
    }
}

/// Thread that sends until it has finished or is dropped.
#[derive(Debug)]
pub(super) struct ReleaseSignalThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<SignalStats>>,
}

#[derive(Debug)]
struct SignalStats {
    packets: u64,
    failed: u64,
    lateness: Recorder,
}

impl ReleaseSignalThread {
    /// Sends the releases of these tasks, from `begin` on. Each packet carries `token`.
    pub(super) fn start(
        trains: Vec<ReleaseSchedule>,
        begin: Timestamp<Monotonic>,
        token: u64,
    ) -> io::Result<Self> {
        let first = trains.iter().flat_map(|train| &train.to).next();
        let any = if first.is_some_and(SocketAddr::is_ipv6) { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let work = move || {
            // Without the privilege it is sent as well as possible, and its lateness is reported.
            let _ = affinity::SchedulingParameters::fifo(PRIORITY, true).apply();
            send_all(&socket, &trains, (begin, token), &is_over)
        };
        let thread = thread::Builder::new().name("signal".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread, and returns its stats.
    pub(super) fn end(&mut self) -> Option<CycleSignalStats> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.take()?.join().ok()?;
        let lateness_ns = Distribution::of_recorder(&sent.lateness);
        Some(CycleSignalStats { packets: sent.packets, failed: sent.failed, lateness_ns })
    }
}

impl Drop for ReleaseSignalThread {
    fn drop(&mut self) {
        self.end();
    }
}

fn send_all(
    socket: &UdpSocket,
    trains: &[ReleaseSchedule],
    (begin, token): (Timestamp<Monotonic>, u64),
    stop: &AtomicBool,
) -> SignalStats {
    let mut sent = SignalStats { packets: 0, failed: 0, lateness: Recorder::new() };
    let waiting = trains.iter().enumerate().filter(|(_, train)| train.cycles > 0);
    let mut next: BinaryHeap<_> =
        waiting.map(|(at, train)| Reverse((train.due(begin, 0).as_ns(), at, 0))).collect();
    while let Some(Reverse((due_ns, at, cycle))) = next.pop() {
        let (train, due) = (&trains[at], Timestamp::from_ns(due_ns));
        if !wait(due, stop) {
            return sent;
        }
        let header = header(DatagramKind::Release, cycle, token);
        for to in &train.to {
            match socket.send_to(&header, to) {
                Ok(_) => sent.packets += 1,
                Err(_) => sent.failed += 1,
            }
            sent.lateness.record((MonotonicClock.now() - due).as_ns().max(0).unsigned_abs());
        }
        if cycle + 1 < train.cycles {
            next.push(Reverse((train.due(begin, cycle + 1).as_ns(), at, cycle + 1)));
        }
    }
    for after in LAST {
        if !wait(MonotonicClock.now() + after, stop) {
            return sent;
        }
        for to in trains.iter().flat_map(|train| &train.to) {
            // It is repeated.
            let _ = socket.send_to(&header(DatagramKind::Last, 0, token), to);
        }
    }
    sent
}

fn header(kind: DatagramKind, cycle: u64, token: u64) -> [u8; HEADER_LEN] {
    DatagramHeader { kind, node: 0, cycle, step: 0, sent_ns: token.cast_signed() }.to_bytes()
}

/// Returns a number that distinguishes the packets of a run from all others and cannot be guessed
/// from outside.
pub(super) fn token() -> u64 {
    RandomState::new().hash_one(0)
}

/// Waits until an instant; returns false if it is to end.
fn wait(until: Timestamp<Monotonic>, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let now = MonotonicClock.now();
        if now >= until {
            return true;
        }
        sleep_until(until.min(now + POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_release_of_each_task_is_sent_to_each_node_in_order() {
        let nodes: Vec<UdpSocket> =
            (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let to: Vec<SocketAddr> = nodes.iter().map(|node| node.local_addr().unwrap()).collect();
        let train = |offset_ms, period_ms, cycles| ReleaseSchedule {
            offset: Span::from_ms(offset_ms),
            period: Span::from_ms(period_ms),
            cycles,
            to: to.clone(),
        };
        let begin = MonotonicClock.now() + Span::from_ms(5);
        let mut signal =
            ReleaseSignalThread::start(vec![train(0, 10, 3), train(3, 15, 2)], begin, 7).unwrap();
        let mut kinds = Vec::new();
        let mut bytes = [0; 64];
        for node in &nodes {
            node.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            loop {
                let len = node.recv(&mut bytes).unwrap();
                let header = DatagramHeader::from_bytes(&bytes[..len]).unwrap();
                kinds.push((header.kind, header.cycle));
                if header.kind == DatagramKind::Last {
                    break;
                }
            }
        }
        let of_one = [0, 0, 1, 1, 2].map(|cycle| (DatagramKind::Release, cycle));
        let of_one = [&of_one[..], &[(DatagramKind::Last, 0)]].concat();
        assert_eq!(kinds, [&of_one[..], &of_one].concat());
        let sent = signal.end().unwrap();
        assert_eq!((sent.packets, sent.failed), (10, 0));
        assert_eq!(sent.lateness_ns.unwrap().count, 10);
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let far = ReleaseSchedule {
            offset: Span::from_ms(3_600_000),
            period: Span::from_ms(1),
            cycles: 1,
            to: Vec::new(),
        };
        let begun = MonotonicClock.now();
        drop(ReleaseSignalThread::start(vec![far], begun, 7).unwrap());
        assert!(MonotonicClock.now() - begun < Span::from_ms(60_000));
    }
}
