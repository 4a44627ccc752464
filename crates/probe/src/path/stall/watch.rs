//! Watches the traffic of a port and says whether it stalls: by the packets where this process may
//! see them, otherwise by what the sockets of this host hold back (`sock_diag`). It sends nothing
//! and changes nothing.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use horolog_record::{
    Code, Finding, Host, Mechanism, PATH_STALL_SCHEMA, PathStallResult, Severity, StallWatch,
    WatchedConnection, rfc3339_now,
};
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_sys::packet;
use horolog_sys::sock_diag::{Connection, SockDiag};
use horolog_time::{Clock, Span};

use super::capture::Capture;
use super::flow::Flows;
use super::glance::{self, EVERY, WatchGlance, WatchedNow};
use super::judge::ns;
use super::run::{dropped_packets, evidence, no_packets};
use super::stalls::{Ends, Missed, Stalls, records};
use super::{advice, kernel};
use crate::path::tcp::{PathError, finding, machine};

/// How often the sockets are looked at.
const LOOK: Duration = Duration::from_millis(4);
/// Connections that are followed by their sockets.
const CONNECTIONS_MAX: usize = 1_024;

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The port of the server.
    pub port: u16,
    /// The interface; all of them where none is named.
    pub interface: Option<String>,
    /// How long.
    pub time: Duration,
    /// From when on data that waits has stalled.
    pub stall_min: Duration,
    /// Whether to look at the packets where this process may.
    pub packets: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// A port that is about to be watched.
pub struct Watch {
    options: WatchOptions,
    eyes: Eyes,
    unseen: Option<Finding>,
}

enum Eyes {
    Packets(Capture),
    Sockets(SockDiag),
}

impl Watch {
    /// Opens what it sees by.
    ///
    /// # Errors
    ///
    /// When the interface is not there, or nothing can be seen at all.
    pub fn open(options: WatchOptions) -> Result<Self, PathError> {
        let interface = match &options.interface {
            None => 0,
            Some(name) => packet::interface_index(name).map_err(|_| {
                PathError::Environment(format!("no interface '{name}'; 'ip link' lists them"))
            })?,
        };
        let flows = Flows::new(options.port, options.stall_min);
        let capture = if options.packets {
            Capture::start(interface, options.port, flows)
        } else {
            Err(io::Error::other("not wanted"))
        };
        let (eyes, unseen) = match capture {
            Ok(capture) => (Eyes::Packets(capture), None),
            Err(error) => {
                let sockets = SockDiag::open().map_err(|other| {
                    PathError::Environment(format!(
                        "neither packets ({error}) nor sockets ({other}) can be seen; run it as root"
                    ))
                })?;
                (Eyes::Sockets(sockets), options.packets.then(|| no_packets(&error)))
            }
        };
        Ok(Self { options, eyes, unseen })
    }

    /// Watches until the time is over or the run is to end, and shows twice a second what there is
    /// to whoever looks on.
    #[must_use]
    pub fn run(
        self,
        is_over: &dyn Fn() -> bool,
        onlooker: Option<&dyn Fn(WatchGlance)>,
    ) -> PathStallResult {
        let started = rfc3339_now();
        let begun = Instant::now();
        let total = self.options.time;
        let mut shown = Shown { onlooker, next: Duration::ZERO };
        let has_packets = matches!(self.eyes, Eyes::Packets(_));
        let (options, mut findings) = (self.options, Vec::from_iter(self.unseen));
        let (connections, missed, dropped) = match self.eyes {
            Eyes::Packets(mut capture) => {
                while begun.elapsed() < options.time && !is_over() {
                    nap(LOOK);
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
            Eyes::Sockets(mut sockets) => {
                let mut held = Held::new(&options);
                while begun.elapsed() < options.time && !is_over() {
                    match sockets.connections(options.port) {
                        Ok(seen) => held.look(&seen, begun.elapsed()),
                        Err(error) => {
                            findings.push(unread(&error));
                            break;
                        }
                    }
                    nap(LOOK);
                    shown.at(begun.elapsed(), total, || (held.now(), held.missed.count()));
                }
                let missed = held.missed.count();
                (held.connections(), missed, 0)
            }
        };
        let watch = StallWatch {
            port: options.port,
            duration_ns: ns(begun.elapsed()),
            connections,
            connections_missed: missed,
            packets_dropped: dropped,
        };
        findings.extend(advice::of_watch(&watch));
        findings.extend((dropped > 0).then(|| dropped_packets(dropped)));
        findings.extend(watch.connections.is_empty().then(|| nothing_seen(options.port)));
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

/// Whoever looks on, and when again.
struct Shown<'a> {
    onlooker: Option<&'a dyn Fn(WatchGlance)>,
    next: Duration,
}

impl Shown<'_> {
    /// Shows what `seen` finds, the connections and how many there was no room for, when it is due.
    fn at(
        &mut self,
        elapsed: Duration,
        total: Duration,
        seen: impl FnOnce() -> (Vec<WatchedNow>, u64),
    ) {
        let Some(onlooker) = self.onlooker.filter(|_| elapsed >= self.next) else { return };
        self.next = elapsed + EVERY;
        let (connections, missed) = seen();
        onlooker(WatchGlance { elapsed, total, connections, missed });
    }
}

fn nap(time: Duration) {
    sleep_until(MonotonicClock.now() + Span::from_ns(ns(time) as i64));
}

fn unread(error: &io::Error) -> Finding {
    let message = format!("The sockets could not be looked at any more: {error}.");
    finding(Code::EngineFailed, Severity::Error, message, "")
}

fn ended_early() -> Finding {
    let message = "The watch was ended before its time was over.".to_owned();
    finding(Code::Interrupted, Severity::Note, message, "")
}

fn nothing_seen(port: u16) -> Finding {
    let message = format!("No connection with data was seen at port {port}.");
    let advice = "See that the traffic goes by this host, and by the interface that was named.";
    finding(Code::NoReplies, Severity::Warning, message, advice)
}

/// What sockets hold back, look by look.
struct Held {
    port: u16,
    stall_min: Duration,
    /// Of each connection, the client's address first.
    found: HashMap<Ends, One>,
    missed: Missed,
}

#[derive(Default)]
struct One {
    /// Since when the client's and the server's socket hold data back, and by what.
    since: [Option<Since>; 2],
    stalls: Stalls,
}

/// Data that a socket holds back.
#[derive(Clone, Copy)]
struct Since {
    at: Duration,
    by: Mechanism,
    /// Bytes that were acknowledged by then; with more of them the wait is another one.
    acknowledged: u64,
}

impl Held {
    fn new(options: &WatchOptions) -> Self {
        let (port, stall_min) = (options.port, options.stall_min);
        Self { port, stall_min, found: HashMap::new(), missed: Missed::default() }
    }

    fn look(&mut self, seen: &[Connection], now: Duration) {
        for socket in seen {
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
                (_, under_way) if under_way >= info.cwnd => Some(Mechanism::WindowDelayedAck),
                _ => Some(Mechanism::NagleDelayedAck),
            };
            let held = held.map(|by| Since { at: now, by, acknowledged: info.bytes_acknowledged });
            one.see(side, held, now, self.stall_min);
        }
    }

    fn now(&self) -> Vec<WatchedNow> {
        glance::sorted(self.found.iter().map(|(ends, one)| one.stalls.now(*ends, None)))
    }

    fn connections(self) -> Vec<WatchedConnection> {
        let found = self.found.into_iter();
        records(found.map(|(ends, one)| one.stalls.into_record(ends, None, None)))
    }
}

impl One {
    fn see(&mut self, side: usize, held: Option<Since>, now: Duration, stall_min: Duration) {
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
        let mut one = One::default();
        let (nagle, ms) = (Some(Mechanism::NagleDelayedAck), Duration::from_millis);
        let looks =
            [(0, 7), (4, 7), (40, 0), (44, 0), (50, 9), (54, 0), (60, 10), (96, 20), (100, 0)];
        for (at_ms, acknowledged) in looks {
            let at = ms(at_ms);
            let since = Since { at, by: Mechanism::NagleDelayedAck, acknowledged };
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
