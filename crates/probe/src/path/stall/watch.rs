//! Watch of the traffic of a port for stalls: by packets if this process may capture them,
//! otherwise by the data that the sockets of this host hold (`sock_diag`). It sends nothing and
//! changes nothing.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use horolog_record::{
    Finding, FindingCode, Host, PATH_STALL_SCHEMA, PathStallResult, Severity, StallMechanism,
    WatchedConnection, WatchedTraffic, rfc3339_now,
};
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_sys::packet;
use horolog_sys::sock_diag::{SockDiag, TcpConnection};
use horolog_time::{Clock, Span};

use super::capture::StallCapture;
use super::flow::Flows;
use super::judge::ns;
use super::run::{dropped_packets, evidence, no_packets};
use super::snapshot::{self, ConnectionSnapshot, SNAPSHOT_INTERVAL, StallSnapshot};
use super::stalls::{ConnectionEnds, Stalls, UntrackedConnections, records};
use super::{advice, kernel};
use crate::path::tcp::{TcpPathError, finding, machine};

/// Sampling interval of the sockets.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(4);
/// Maximum number of connections tracked by their sockets.
const CONNECTIONS_MAX: usize = 1_024;

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Port of the server.
    pub port: u16,
    /// Interface; `None` watches all.
    pub interface: Option<String>,
    /// Duration of the watch.
    pub time: Duration,
    /// Wait from which data counts as stalled.
    pub stall_min: Duration,
    /// True to capture packets if permitted.
    pub packets: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Port ready to be watched.
pub struct PortWatch {
    options: WatchOptions,
    eyes: WatchSource,
    capture_finding: Option<Finding>,
}

enum WatchSource {
    Packets(StallCapture),
    Sockets(SockDiag),
}

impl PortWatch {
    /// Opens the source.
    ///
    /// # Errors
    ///
    /// If the interface does not exist, or no source is available.
    pub fn open(options: WatchOptions) -> Result<Self, TcpPathError> {
        let interface = match &options.interface {
            None => 0,
            Some(name) => packet::interface_index(name).map_err(|_| {
                TcpPathError::Environment(format!(
                    "interface '{name}' not found; 'ip link' lists them"
                ))
            })?,
        };
        let flows = Flows::new(options.port, options.stall_min);
        let capture = if options.packets {
            StallCapture::start(interface, options.port, flows)
        } else {
            Err(io::Error::other("not requested"))
        };
        let (eyes, unseen) = match capture {
            Ok(capture) => (WatchSource::Packets(capture), None),
            Err(error) => {
                let sockets = SockDiag::open().map_err(|other| {
                    TcpPathError::Environment(format!(
                        "neither packets ({error}) nor sockets ({other}) can be observed; run as \
                         root"
                    ))
                })?;
                (WatchSource::Sockets(sockets), options.packets.then(|| no_packets(&error)))
            }
        };
        Ok(Self { options, eyes, capture_finding: unseen })
    }

    /// Watches until the time is over or the run is to end, and passes snapshots to the observer
    /// twice a second.
    #[must_use]
    pub fn run(
        self,
        is_over: &dyn Fn() -> bool,
        observer: Option<&dyn Fn(StallSnapshot)>,
    ) -> PathStallResult {
        let started = rfc3339_now();
        let begun = Instant::now();
        let total = self.options.time;
        let mut shown = SnapshotTimer { observer, next: Duration::ZERO };
        let has_packets = matches!(self.eyes, WatchSource::Packets(_));
        let (options, mut findings) = (self.options, Vec::from_iter(self.capture_finding));
        let (connections, missed, dropped) = match self.eyes {
            WatchSource::Packets(mut capture) => {
                while begun.elapsed() < options.time && !is_over() {
                    nap(SAMPLE_INTERVAL);
                    shown.at(begun.elapsed(), total, || {
                        capture.with(|flows| (flows.now(), flows.missed()))
                    });
                }
                let dropped = capture.end();
                let fresh = Flows::new(options.port, options.stall_min);
                let flows = capture.with(|flows| std::mem::replace(flows, fresh));
                let missed = flows.missed();
                (flows.connections(), missed, dropped)
            }
            WatchSource::Sockets(mut sockets) => {
                let mut held = SocketSampler::new(&options);
                while begun.elapsed() < options.time && !is_over() {
                    match sockets.connections(options.port) {
                        Ok(connections) => held.sample(&connections, begun.elapsed()),
                        Err(error) => {
                            findings.push(unread(&error));
                            break;
                        }
                    }
                    nap(SAMPLE_INTERVAL);
                    shown.at(begun.elapsed(), total, || (held.now(), held.missed.count()));
                }
                let missed = held.missed.count();
                (held.connections(), missed, 0)
            }
        };
        let watch = WatchedTraffic {
            port: options.port,
            duration_ns: ns(begun.elapsed()),
            connections,
            connections_untracked: missed,
            packets_dropped: dropped,
        };
        findings.extend(advice::of_watch(&watch));
        findings.extend((dropped > 0).then(|| dropped_packets(dropped)));
        findings.extend(watch.connections.is_empty().then(|| no_connections(options.port)));
        findings.extend((begun.elapsed() < options.time && is_over()).then(ended_early));
        PathStallResult {
            schema: PATH_STALL_SCHEMA.to_owned(),
            started,
            command: options.command,
            host: Host::read(),
            target: None,
            near: machine(),
            far: None,
            kernel: kernel::read(None, None),
            evidence: evidence(has_packets),
            stall_min_ns: ns(options.stall_min),
            cells: Vec::new(),
            window: Vec::new(),
            claims: Vec::new(),
            watched: Some(watch),
            limits: Vec::new(),
            findings,
        }
    }
}

/// Observer, and the time of the next snapshot.
struct SnapshotTimer<'a> {
    observer: Option<&'a dyn Fn(StallSnapshot)>,
    next: Duration,
}

impl SnapshotTimer<'_> {
    /// Passes a snapshot of the connections and the number of untracked ones from `observe` when
    /// one is due.
    fn at(
        &mut self,
        elapsed: Duration,
        total: Duration,
        observe: impl FnOnce() -> (Vec<ConnectionSnapshot>, u64),
    ) {
        let Some(observer) = self.observer.filter(|_| elapsed >= self.next) else { return };
        self.next = elapsed + SNAPSHOT_INTERVAL;
        let (connections, missed) = observe();
        observer(StallSnapshot { elapsed, total, connections, missed });
    }
}

fn nap(time: Duration) {
    sleep_until(MonotonicClock.now() + Span::from_ns(ns(time) as i64));
}

fn unread(error: &io::Error) -> Finding {
    let message = format!("Sockets could no longer be observed: {error}.");
    finding(FindingCode::EngineFailed, Severity::Error, message, "")
}

fn ended_early() -> Finding {
    let message = "The observation was interrupted.".to_owned();
    finding(FindingCode::Interrupted, Severity::Note, message, "")
}

fn no_connections(port: u16) -> Finding {
    let message = format!("No connection with data was observed at port {port}.");
    let advice = "Check that the traffic passes through this host, and through the named \
                  interface.";
    finding(FindingCode::NoReplies, Severity::Warning, message, advice)
}

/// Sampler of the data that sockets hold.
struct SocketSampler {
    port: u16,
    stall_min: Duration,
    /// State by connection, client address first.
    found: HashMap<ConnectionEnds, SampledSocket>,
    missed: UntrackedConnections,
}

#[derive(Default)]
struct SampledSocket {
    /// Start of the hold at the client's and at the server's socket, with its mechanism.
    since: [Option<HeldSince>; 2],
    stalls: Stalls,
}

/// Data that a socket holds.
#[derive(Clone, Copy)]
struct HeldSince {
    at: Duration,
    by: StallMechanism,
    /// Bytes acknowledged at that time; a higher number means another wait.
    acknowledged: u64,
}

impl SocketSampler {
    fn new(options: &WatchOptions) -> Self {
        let (port, stall_min) = (options.port, options.stall_min);
        Self { port, stall_min, found: HashMap::new(), missed: UntrackedConnections::default() }
    }

    fn sample(&mut self, connections: &[TcpConnection], now: Duration) {
        for socket in connections {
            let is_client = socket.remote.port() == self.port;
            let key = if is_client {
                (socket.local, socket.remote)
            } else {
                (socket.remote, socket.local)
            };
            if !self.found.contains_key(&key) && self.found.len() >= CONNECTIONS_MAX {
                self.missed.take(key);
                continue;
            }
            let side = usize::from(!is_client);
            let one = self.found.entry(key).or_default();
            let info = &socket.info;
            let held = match (info.not_sent, info.unacknowledged) {
                (0, _) | (_, 0) => None,
                (_, under_way) if under_way >= info.cwnd => Some(StallMechanism::WindowDelayedAck),
                _ => Some(StallMechanism::NagleDelayedAck),
            };
            let held =
                held.map(|by| HeldSince { at: now, by, acknowledged: info.bytes_acknowledged });
            one.see(side, held, now, self.stall_min);
        }
    }

    fn now(&self) -> Vec<ConnectionSnapshot> {
        snapshot::sorted(self.found.iter().map(|(ends, one)| one.stalls.now(*ends, None)))
    }

    fn connections(self) -> Vec<WatchedConnection> {
        let found = self.found.into_iter();
        records(found.map(|(ends, one)| one.stalls.into_record(ends, None, None)))
    }
}

impl SampledSocket {
    fn see(&mut self, side: usize, held: Option<HeldSince>, now: Duration, stall_min: Duration) {
        let before = self.since[side];
        if let (Some(before), Some(held)) = (before, held)
            && before.acknowledged == held.acknowledged
        {
            return;
        }
        self.since[side] = held;
        let Some(before) = before else { return };
        let took = now.saturating_sub(before.at);
        if took < stall_min {
            return;
        }
        self.stalls.count(side, ns(took), before.by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_held_for_long_is_a_stall_and_what_is_held_shortly_is_none() {
        let mut one = SampledSocket::default();
        let (nagle, ms) = (Some(StallMechanism::NagleDelayedAck), Duration::from_millis);
        let samples =
            [(0, 7), (4, 7), (40, 0), (44, 0), (50, 9), (54, 0), (60, 10), (96, 20), (100, 0)];
        for (at_ms, acknowledged) in samples {
            let at = ms(at_ms);
            let since = HeldSince { at, by: StallMechanism::NagleDelayedAck, acknowledged };
            one.see(1, (acknowledged > 0).then_some(since), at, ms(10));
        }
        let client = "192.0.2.1:1".parse().unwrap();
        let ends = (client, "192.0.2.2:80".parse().unwrap());
        let record = one.stalls.into_record(ends, None, None);
        assert_eq!((record.client_stalls, record.server_stalls, record.in_band), (0, 2, 1));
        assert_eq!(record.mechanism, nagle);
        assert_eq!(record.stall_ns.unwrap().max, 40_000_000);
    }
}
