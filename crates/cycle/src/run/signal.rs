//! Release signal as packets: a thread that sends each node a datagram for each release of each
//! task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use horolog_record::{Distribution, ReleaseSignalCounts};
use horolog_stats::Histogram;
use horolog_sys::affinity;
use horolog_sys::clock::{ClockMonotonic, sleep_until_unless};
use horolog_time::{Clock, Monotonic, Span, TimeGrid, Timestamp};

use crate::node::datagram::{DatagramHeader, DatagramKind, HEADER_LEN};

/// Real-time priority of the thread: the highest, so that no task delays the signal for long.
const SIGNAL_PRIORITY: i32 = 99;
/// Pause before each of the end-of-releases packets, of which there are several because a datagram
/// may be lost.
const END_PACKET_PAUSES: [Span; 3] = [Span::from_ms(1), Span::from_ms(10), Span::from_ms(100)];

/// Releases of a task, and the receivers of its packets.
#[derive(Clone, Debug)]
pub(super) struct ReleaseSchedule {
    pub(super) releases: TimeGrid<Monotonic>,
    pub(super) period_count: u64,
    /// Address of each node for the release packets of the task.
    pub(super) receivers: Vec<SocketAddr>,
}

/// Thread that sends the release signal until it has finished or is dropped.
#[derive(Debug)]
pub(super) struct ReleaseSignalThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ReleaseSignalStats>>,
}

#[derive(Debug)]
struct ReleaseSignalStats {
    packets: u64,
    failed: u64,
    lateness: Histogram,
}

impl ReleaseSignalThread {
    /// Sends the releases of these tasks. Each packet carries `token`.
    pub(super) fn start(schedules: Vec<ReleaseSchedule>, token: u64) -> io::Result<Self> {
        let first = schedules.iter().flat_map(|train| &train.receivers).next();
        let local_address =
            if first.is_some_and(SocketAddr::is_ipv6) { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(local_address)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_requested = Arc::clone(&stop);
        let work = move || {
            // If the priority is refused, the recorded lateness shows it.
            let _ = affinity::SchedulingParameters::fifo(SIGNAL_PRIORITY, true).apply();
            send_all(&socket, &schedules, token, &stop_requested)
        };
        let thread = thread::Builder::new().name("signal".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops the thread and returns its stats; `None` if it was stopped before.
    pub(super) fn finish(&mut self) -> Option<ReleaseSignalCounts> {
        self.stop.store(true, Ordering::Relaxed);
        let stats = self.thread.take()?.join().ok()?;
        let lateness_ns = Distribution::from_histogram(&stats.lateness);
        Some(ReleaseSignalCounts { packets: stats.packets, failed: stats.failed, lateness_ns })
    }
}

impl Drop for ReleaseSignalThread {
    fn drop(&mut self) {
        self.finish();
    }
}

fn send_all(
    socket: &UdpSocket,
    schedules: &[ReleaseSchedule],
    token: u64,
    stop: &AtomicBool,
) -> ReleaseSignalStats {
    let is_over = || stop.load(Ordering::Relaxed);
    let mut stats = ReleaseSignalStats { packets: 0, failed: 0, lateness: Histogram::new() };
    let waiting = schedules.iter().enumerate().filter(|(_, train)| train.period_count > 0);
    let mut next: BinaryHeap<_> =
        waiting.map(|(at, train)| Reverse((train.releases.start.as_ns(), at, 0))).collect();
    while let Some(Reverse((due_ns, at, cycle))) = next.pop() {
        let (schedule, released_at) = (&schedules[at], Timestamp::from_ns(due_ns));
        if !sleep_until_unless(released_at, is_over) {
            return stats;
        }
        let header = header(DatagramKind::Release, cycle, token);
        for to in &schedule.receivers {
            match socket.send_to(&header, to) {
                Ok(_) => stats.packets += 1,
                Err(_) => stats.failed += 1,
            }
            stats
                .lateness
                .record((ClockMonotonic.now() - released_at).as_ns().max(0).unsigned_abs());
        }
        if cycle + 1 < schedule.period_count {
            next.push(Reverse((schedule.releases.instant(cycle + 1).as_ns(), at, cycle + 1)));
        }
    }
    for after in END_PACKET_PAUSES {
        if !sleep_until_unless(ClockMonotonic.now() + after, is_over) {
            return stats;
        }
        for to in schedules.iter().flat_map(|train| &train.receivers) {
            // The packet is repeated, so an error is harmless.
            let _ = socket.send_to(&header(DatagramKind::EndOfReleases, 0, token), to);
        }
    }
    stats
}

fn header(kind: DatagramKind, period: u64, token: u64) -> [u8; HEADER_LEN] {
    DatagramHeader { kind, node: 0, period, superstep: 0, sent_ns: token.cast_signed() }.to_bytes()
}

/// Returns a random number that distinguishes the packets of a run from all others and cannot be
/// guessed by another host.
pub(super) fn random_token() -> u64 {
    RandomState::new().hash_one(0)
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
        let begin = ClockMonotonic.now() + Span::from_ms(5);
        let train = |offset_ms, period_ms, cycles| ReleaseSchedule {
            releases: TimeGrid {
                start: begin + Span::from_ms(offset_ms),
                interval: Span::from_ms(period_ms),
            },
            period_count: cycles,
            receivers: to.clone(),
        };
        let mut signal =
            ReleaseSignalThread::start(vec![train(0, 10, 3), train(3, 15, 2)], 7).unwrap();
        let mut kinds = Vec::new();
        let mut bytes = [0; 64];
        for node in &nodes {
            node.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            loop {
                let len = node.recv(&mut bytes).unwrap();
                let header = DatagramHeader::from_bytes(&bytes[..len]).unwrap();
                kinds.push((header.kind, header.period));
                if header.kind == DatagramKind::EndOfReleases {
                    break;
                }
            }
        }
        let of_one = [0, 0, 1, 1, 2].map(|cycle| (DatagramKind::Release, cycle));
        let of_one = [&of_one[..], &[(DatagramKind::EndOfReleases, 0)]].concat();
        assert_eq!(kinds, [&of_one[..], &of_one].concat());
        let sent = signal.finish().unwrap();
        assert_eq!((sent.packets, sent.failed), (10, 0));
        assert_eq!(sent.lateness_ns.unwrap().count, 10);
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let begun = ClockMonotonic.now();
        let start = begun + Span::from_ms(3_600_000);
        let far = ReleaseSchedule {
            releases: TimeGrid { start, interval: Span::from_ms(1) },
            period_count: 1,
            receivers: Vec::new(),
        };
        drop(ReleaseSignalThread::start(vec![far], 7).unwrap());
        assert!(ClockMonotonic.now() - begun < Span::from_ms(60_000));
    }
}
