//! Watch of a port's TCP traffic for stalls: by captured packets if permitted, otherwise by
//! sampling the sockets of this host (`sock_diag`). It sends nothing and changes nothing.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use horolog_record::{
    Finding, FindingCode, Host, PATH_STALL_SCHEMA, PartPlan, PathStallResult, RunObserver,
    Severity, SnapshotTimer, StallMechanism, WatchedConnection, WatchedTraffic, rfc3339_now,
};
use horolog_sys::clock::{ClockMonotonic, sleep_until};
use horolog_sys::packet;
use horolog_sys::sock_diag::{SockDiag, TcpConnection};
use horolog_time::{Clock, Span};

use super::capture::RunningStallCapture;
use super::flow::TrackedConnections;
use super::judge::saturating_ns;
use super::run::{capture_failed_finding, dropped_packets_finding, evidence_kind};
use super::stalls::{
    ConnectionAddresses, StallCounts, StallWatchValues, UntrackedConnectionSet,
    WatchedConnectionSnapshot, into_sorted_records, sort_snapshots,
};
use super::{advice, kernel};
use crate::path::tcp::{TcpPathError, finding, host_facts};

/// Sampling interval of the sockets.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(4);
/// Maximum number of connections tracked by their sockets.
const CONNECTIONS_MAX: usize = 1_024;

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct StallWatchOptions {
    /// Port of the server.
    pub port: u16,
    /// Interface; `None` watches all.
    pub interface: Option<String>,
    /// Duration of the watch.
    pub time: Duration,
    /// Duration from which held-back data counts as stalled.
    pub stall_min: Duration,
    /// True to capture packets if permitted.
    pub packets: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Watch of a TCP port for stalls, with its source of observations opened.
pub struct StallWatch {
    options: StallWatchOptions,
    source: StallEvidenceSource,
    capture_finding: Option<Finding>,
}

/// Source of the observations of a watch: captured packets, or sampled socket states.
enum StallEvidenceSource {
    Packets(RunningStallCapture),
    Sockets(SockDiag),
}

impl StallWatch {
    /// Opens the source: packet capture or, if it is not requested or not possible, socket states.
    ///
    /// # Errors
    ///
    /// If the interface does not exist, or no source is available.
    pub fn open(options: StallWatchOptions) -> Result<Self, TcpPathError> {
        let interface = match &options.interface {
            None => 0,
            Some(name) => packet::interface_index(name).map_err(|_| {
                TcpPathError::Environment(format!(
                    "interface '{name}' not found; 'ip link' lists them"
                ))
            })?,
        };
        let flows = TrackedConnections::new(options.port, options.stall_min);
        let capture = if options.packets {
            RunningStallCapture::start(interface, options.port, flows)
        } else {
            Err(io::Error::other("not requested"))
        };
        let (source, capture_finding) = match capture {
            Ok(capture) => (StallEvidenceSource::Packets(capture), None),
            Err(error) => {
                let sockets = SockDiag::open().map_err(|other| {
                    TcpPathError::Environment(format!(
                        "neither packets ({error}) nor sockets ({other}) can be observed; run as \
                         root"
                    ))
                })?;
                (
                    StallEvidenceSource::Sockets(sockets),
                    options.packets.then(|| capture_failed_finding(&error)),
                )
            }
        };
        Ok(Self { options, source, capture_finding })
    }

    /// Watches until the time is over or the observer ends it.
    #[must_use]
    pub fn run(self, observer: &mut dyn RunObserver<(), (), StallWatchValues>) -> PathStallResult {
        let started = rfc3339_now();
        let begun = Instant::now();
        let plan =
            PartPlan { duration_s: Some(self.options.time.as_secs_f64()), ..PartPlan::default() };
        let values = |connections, untracked| {
            let progress = plan.progress(begun.elapsed().as_secs_f64());
            (progress, StallWatchValues::new(connections, untracked))
        };
        let mut timer = SnapshotTimer::start();
        let has_packets = matches!(self.source, StallEvidenceSource::Packets(_));
        let (options, mut findings) = (self.options, Vec::from_iter(self.capture_finding));
        let (connections, missed, dropped) = match self.source {
            StallEvidenceSource::Packets(mut capture) => {
                while begun.elapsed() < options.time && observer.flow().is_continue() {
                    sleep_for(SAMPLE_INTERVAL);
                    timer.publish(observer, false, || {
                        capture
                            .with_flows(|flows| values(flows.snapshots(), flows.untracked_count()))
                    });
                }
                let dropped = capture.finish();
                let fresh = TrackedConnections::new(options.port, options.stall_min);
                let flows = capture.with_flows(|flows| std::mem::replace(flows, fresh));
                let missed = flows.untracked_count();
                (flows.into_connections(), missed, dropped)
            }
            StallEvidenceSource::Sockets(mut sockets) => {
                let mut sampler = HeldDataSampler::new(&options);
                while begun.elapsed() < options.time && observer.flow().is_continue() {
                    match sockets.connections(options.port) {
                        Ok(connections) => sampler.sample(&connections, begun.elapsed()),
                        Err(error) => {
                            findings.push(unreadable_sockets_finding(&error));
                            break;
                        }
                    }
                    sleep_for(SAMPLE_INTERVAL);
                    timer.publish(observer, false, || {
                        values(sampler.snapshots(), sampler.untracked.count())
                    });
                }
                let missed = sampler.untracked.count();
                (sampler.into_connections(), missed, 0)
            }
        };
        let watch = WatchedTraffic {
            port: options.port,
            duration_ns: saturating_ns(begun.elapsed()),
            connections,
            connections_untracked: missed,
            packets_dropped: dropped,
        };
        findings.extend(advice::watch_finding(&watch));
        findings.extend((dropped > 0).then(|| dropped_packets_finding(dropped)));
        findings.extend(watch.connections.is_empty().then(|| no_connections_finding(options.port)));
        findings.extend(
            (begun.elapsed() < options.time && observer.flow().is_break())
                .then(interrupted_finding),
        );
        PathStallResult {
            schema: PATH_STALL_SCHEMA.to_owned(),
            started,
            command: options.command,
            host: Host::read(),
            target: None,
            near: host_facts(),
            far: None,
            kernel: kernel::read_kernel_settings(None, None),
            evidence: evidence_kind(has_packets),
            stall_min_ns: saturating_ns(options.stall_min),
            cells: Vec::new(),
            window: Vec::new(),
            claims: Vec::new(),
            watched: Some(watch),
            limits: Vec::new(),
            findings,
        }
    }
}

fn sleep_for(time: Duration) {
    sleep_until(ClockMonotonic.now() + Span::from_ns(saturating_ns(time) as i64));
}

fn unreadable_sockets_finding(error: &io::Error) -> Finding {
    let message = format!("Sockets could no longer be observed: {error}.");
    finding(FindingCode::EngineFailed, Severity::Error, message, "")
}

fn interrupted_finding() -> Finding {
    let message = "The observation was interrupted.".to_owned();
    finding(FindingCode::Interrupted, Severity::Note, message, "")
}

fn no_connections_finding(port: u16) -> Finding {
    let message = format!("No connection with data was observed at port {port}.");
    let advice = "Check that the traffic passes through this host, and through the named \
                  interface.";
    finding(FindingCode::NoReplies, Severity::Warning, message, advice)
}

/// Sampler of the data that sockets of this host hold back.
struct HeldDataSampler {
    port: u16,
    stall_min: Duration,
    /// Sampled state by connection.
    sockets: HashMap<ConnectionAddresses, SampledConnection>,
    untracked: UntrackedConnectionSet,
}

/// State of one connection over all samples: data held back at present, and the stalls so far.
#[derive(Default)]
struct SampledConnection {
    /// Data held back by the client's and by the server's socket, if any.
    held_data: [Option<HeldData>; 2],
    stalls: StallCounts,
}

/// Data held back by a socket: since when, and by which mechanism.
#[derive(Clone, Copy)]
struct HeldData {
    since: Duration,
    mechanism: StallMechanism,
    /// Bytes acknowledged at the start of the hold; if the number grows, a new hold has begun.
    acknowledged: u64,
}

impl HeldDataSampler {
    fn new(options: &StallWatchOptions) -> Self {
        let (port, stall_min) = (options.port, options.stall_min);
        Self {
            port,
            stall_min,
            sockets: HashMap::new(),
            untracked: UntrackedConnectionSet::default(),
        }
    }

    fn sample(&mut self, connections: &[TcpConnection], now: Duration) {
        for socket in connections {
            let is_client = socket.remote.port() == self.port;
            let key = if is_client {
                (socket.local, socket.remote)
            } else {
                (socket.remote, socket.local)
            };
            if !self.sockets.contains_key(&key) && self.sockets.len() >= CONNECTIONS_MAX {
                self.untracked.insert(key);
                continue;
            }
            let side = usize::from(!is_client);
            let sampled_socket = self.sockets.entry(key).or_default();
            let info = &socket.info;
            let held = match (info.not_sent, info.unacknowledged) {
                (0, _) | (_, 0) => None,
                (_, under_way) if under_way >= info.cwnd => Some(StallMechanism::WindowDelayedAck),
                _ => Some(StallMechanism::NagleDelayedAck),
            };
            let held = held.map(|by| HeldData {
                since: now,
                mechanism: by,
                acknowledged: info.bytes_acknowledged,
            });
            sampled_socket.update_held_data(side, held, now, self.stall_min);
        }
    }

    fn snapshots(&self) -> Vec<WatchedConnectionSnapshot> {
        sort_snapshots(self.sockets.iter().map(|(ends, one)| one.stalls.snapshot(*ends, None)))
    }

    fn into_connections(self) -> Vec<WatchedConnection> {
        let found = self.sockets.into_iter();
        into_sorted_records(found.map(|(ends, one)| one.stalls.into_record(ends, None, None)))
    }
}

impl SampledConnection {
    fn update_held_data(
        &mut self,
        side: usize,
        held: Option<HeldData>,
        now: Duration,
        stall_min: Duration,
    ) {
        let before = self.held_data[side];
        if let (Some(before), Some(held)) = (before, held)
            && before.acknowledged == held.acknowledged
        {
            return;
        }
        self.held_data[side] = held;
        let Some(before) = before else { return };
        let took = now.saturating_sub(before.since);
        if took < stall_min {
            return;
        }
        self.stalls.count_stall(side, saturating_ns(took), before.mechanism);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_held_for_long_is_a_stall_and_what_is_held_shortly_is_none() {
        let mut one = SampledConnection::default();
        let (nagle, ms) = (Some(StallMechanism::NagleDelayedAck), Duration::from_millis);
        let samples =
            [(0, 7), (4, 7), (40, 0), (44, 0), (50, 9), (54, 0), (60, 10), (96, 20), (100, 0)];
        for (at_ms, acknowledged) in samples {
            let at = ms(at_ms);
            let since =
                HeldData { since: at, mechanism: StallMechanism::NagleDelayedAck, acknowledged };
            one.update_held_data(1, (acknowledged > 0).then_some(since), at, ms(10));
        }
        let client = "192.0.2.1:1".parse().unwrap();
        let ends = (client, "192.0.2.2:80".parse().unwrap());
        let record = one.stalls.into_record(ends, None, None);
        assert_eq!((record.client_stalls, record.server_stalls, record.in_band), (0, 2, 1));
        assert_eq!(record.mechanism, nagle);
        assert_eq!(record.stall_ns.unwrap().max, 40_000_000);
    }
}
