//! Detection of stalls in captured TCP segments: delayed pure acknowledgements, and data that was
//! held back until one arrived. Pure.
//!
//! Data sent immediately after a late acknowledgement is taken as held back by the sender: by
//! Nagle's algorithm if one segment was in flight, by the congestion window if there were several.

use std::collections::HashMap;
use std::time::Duration;

use horolog_record::{AckCounts, AckDelaySummary, StallMechanism, WatchedConnection};

use super::judge::saturating_ns;
use super::segment::TcpSegment;
use super::stalls::{
    ConnectionAddresses, StallCounts, UntrackedConnectionSet, WatchedConnectionSnapshot,
    into_sorted_records, sort_snapshots,
};

/// Maximum number of tracked connections.
const FLOWS_MAX: usize = 4_096;
/// Maximum number of acknowledgement delays stored per connection.
const DELAYS_MAX: usize = 10_000;
/// Longest time from an acknowledgement to data that was held back until it arrived.
const RELEASE_MAX: Duration = Duration::from_millis(2);

/// Tracked connections of a server port.
#[derive(Debug)]
pub(super) struct TrackedConnections {
    /// Port of the server.
    port: u16,
    /// Delay from which an acknowledgement counts as late.
    late_after: Duration,
    by_ends: HashMap<ConnectionAddresses, TrackedConnection>,
    untracked: UntrackedConnectionSet,
}

/// One connection; arrays have the client's value first.
#[derive(Debug, Default)]
struct TrackedConnection {
    sides: [UnacknowledgedDataOfEnd; 2],
    /// Index of the end that sent data last: 0 is the client.
    last_sender: Option<usize>,
    answers: u64,
    pure_acks: u64,
    delays_ns: Vec<u64>,
    stalls: StallCounts,
}

/// Unacknowledged data of one end.
#[derive(Debug, Default)]
struct UnacknowledgedDataOfEnd {
    /// Sequence number after the last byte sent, and its send time in ns.
    sent: Option<(u32, u64)>,
    /// Number of segments sent since all data was acknowledged.
    segments_in_flight: u32,
    /// Latest late acknowledgement: arrival and delay in ns, and the number of segments that were
    /// in flight.
    late_ack: Option<(u64, u64, u32)>,
}

impl TrackedConnections {
    pub(super) fn new(port: u16, late: Duration) -> Self {
        Self {
            port,
            late_after: late,
            by_ends: HashMap::new(),
            untracked: UntrackedConnectionSet::default(),
        }
    }

    /// Adds a segment captured at `at_ns`, in ns since 1970; other ports are ignored, and of
    /// connections beyond [`FLOWS_MAX`] only the ends are stored.
    pub(super) fn add_segment(&mut self, segment: &TcpSegment, at_ns: u64) {
        let is_from_client = segment.to.port() == self.port;
        if !is_from_client && segment.from.port() != self.port {
            return;
        }
        let key =
            if is_from_client { (segment.from, segment.to) } else { (segment.to, segment.from) };
        let late_after_ns = saturating_ns(self.late_after);
        if !self.by_ends.contains_key(&key) && self.by_ends.len() >= FLOWS_MAX {
            self.untracked.insert(key);
            return;
        }
        let flow = self.by_ends.entry(key).or_default();
        if segment.is_syn {
            // A reused port pair starts a new connection; its counts are added to the previous
            // ones.
            flow.sides = Default::default();
            return;
        }
        flow.add_segment(segment, usize::from(!is_from_client), at_ns, late_after_ns);
    }

    /// Returns the acknowledgement counts of all connections and removes the connections.
    pub(super) fn take_ack_counts(&mut self) -> AckCounts {
        let flows = std::mem::take(&mut self.by_ends);
        let mut delays: Vec<u64> = Vec::new();
        let (mut pure, mut released) = (0, 0);
        for flow in flows.into_values() {
            pure += flow.pure_acks;
            released += flow.stalls.total();
            delays.extend(flow.delays_ns);
        }
        ack_counts(pure, released, delays)
    }

    /// Returns the number of untracked connections.
    pub(super) fn untracked_count(&self) -> u64 {
        self.untracked.count()
    }

    /// Returns snapshots of the connections that have carried data.
    pub(super) fn snapshots(&self) -> Vec<WatchedConnectionSnapshot> {
        let with_data = self.by_ends.iter().filter(|(_, flow)| flow.last_sender.is_some());
        sort_snapshots(
            with_data.map(|(ends, flow)| flow.stalls.snapshot(*ends, Some(flow.answers))),
        )
    }

    /// Returns the records of the connections that carried data, most stalls first.
    pub(super) fn into_connections(self) -> Vec<WatchedConnection> {
        let has_data = |flow: &TrackedConnection| flow.last_sender.is_some();
        let flows = self.by_ends.into_iter().filter(|(_, flow)| has_data(flow));
        into_sorted_records(flows.map(|(ends, flow)| flow.into_record(ends)))
    }
}

impl TrackedConnection {
    fn add_segment(&mut self, segment: &TcpSegment, from: usize, at_ns: u64, late_after_ns: u64) {
        let to = 1 - from;
        if segment.payload_len > 0 {
            self.add_data(segment, from, at_ns);
        }
        let Some(acknowledged) = segment.acknowledgement else { return };
        let is_pure = segment.payload_len == 0 && !segment.is_fin_or_rst;
        self.pure_acks += u64::from(is_pure);
        let other = &mut self.sides[to];
        let Some((end, sent_ns)) = other.sent else { return };
        if is_before(acknowledged, end) {
            return;
        }
        // All data of the other end is now acknowledged.
        let under_way = std::mem::take(&mut other.segments_in_flight);
        other.sent = None;
        let delay_ns = at_ns.saturating_sub(sent_ns);
        if is_pure && delay_ns >= late_after_ns {
            other.late_ack = Some((at_ns, delay_ns, under_way));
            if self.delays_ns.len() < DELAYS_MAX {
                self.delays_ns.push(delay_ns);
            }
        }
    }

    fn add_data(&mut self, segment: &TcpSegment, from: usize, at_ns: u64) {
        if self.last_sender.replace(from).is_some_and(|last| last != from) {
            self.answers += 1;
        }
        let side = &mut self.sides[from];
        if let Some((ack_ns, delay_ns, under_way)) = side.late_ack.take()
            && at_ns.saturating_sub(ack_ns) <= saturating_ns(RELEASE_MAX)
        {
            let by = if under_way > 1 {
                StallMechanism::WindowDelayedAck
            } else {
                StallMechanism::NagleDelayedAck
            };
            self.stalls.count_stall(from, delay_ns, by);
        }
        let end = segment.end_sequence();
        if side.sent.is_none_or(|(sent, _)| is_before(sent, end)) {
            side.sent = Some((end, at_ns));
            side.segments_in_flight += 1;
        }
    }

    fn into_record(self, ends: ConnectionAddresses) -> WatchedConnection {
        let acks = ack_counts(self.pure_acks, self.stalls.total(), self.delays_ns);
        self.stalls.into_record(ends, Some(self.answers), Some(acks))
    }
}

fn ack_counts(pure: u64, released: u64, mut delays: Vec<u64>) -> AckCounts {
    delays.sort_unstable();
    let delay_ns = delays.first().zip(delays.last()).map(|(min, max)| AckDelaySummary {
        min: *min,
        p50: delays[delays.len() / 2],
        max: *max,
    });
    AckCounts { pure, delayed: delays.len() as u64, delay_ns, released }
}

/// Returns true if `one` precedes `other` in sequence space, modulo 2^32 (RFC 9293, section 3.4).
const fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "192.0.2.1:40000";
    const SERVER: &str = "192.0.2.2:80";
    const MS: u64 = 1_000_000;

    fn segment(from_client: bool, sequence: u32, acknowledged: u32, payload: u32) -> TcpSegment {
        let (client, server) = (CLIENT.parse().unwrap(), SERVER.parse().unwrap());
        let (from, to) = if from_client { (client, server) } else { (server, client) };
        TcpSegment {
            from,
            to,
            sequence,
            acknowledgement: Some(acknowledged),
            payload_len: payload,
            is_syn: false,
            is_fin_or_rst: false,
        }
    }

    fn flows(segments: &[(u64, TcpSegment)]) -> TrackedConnections {
        let mut flows = TrackedConnections::new(80, Duration::from_millis(10));
        for (at_ms, segment) in segments {
            flows.add_segment(segment, at_ms * MS);
        }
        flows
    }

    /// As in the capture of document 001: the eighth packet is the late one.
    #[test]
    fn a_small_segment_that_waits_for_a_late_acknowledgement_is_nagles() {
        let start = u32::MAX - 100;
        let tracked = flows(&[
            (0, segment(true, 1, start, 132)),
            (1, segment(false, start, 133, 132)),
            (2, segment(true, 133, start.wrapping_add(132), 1_188)),
            (3, segment(false, start.wrapping_add(132), 1_321, 1_023)),
            (43, segment(true, 1_321, start.wrapping_add(1_155), 0)),
            (43, segment(false, start.wrapping_add(1_155), 1_321, 165)),
            (44, segment(true, 1_321, start.wrapping_add(1_320), 0)),
        ]);
        let connections = tracked.into_connections();
        let one = &connections[0];
        assert_eq!((one.client_stalls, one.server_stalls, one.in_band), (0, 1, 1));
        assert_eq!(one.mechanism, Some(StallMechanism::NagleDelayedAck));
        assert_eq!((one.stall_ns.as_ref().unwrap().max, one.answers), (40 * MS, Some(3)));
        let acks = one.acks.as_ref().unwrap();
        assert_eq!((acks.pure, acks.delayed, acks.released), (2, 1, 1));
    }

    #[test]
    fn several_small_segments_under_way_are_the_windows() {
        let tracked = flows(&[
            (0, segment(true, 1, 1, 1_188)),
            (1, segment(false, 1, 1_189, 132)),
            (1, segment(false, 133, 1_189, 132)),
            (1, segment(false, 265, 1_189, 132)),
            (41, segment(true, 1_189, 397, 0)),
            (41, segment(false, 397, 1_189, 792)),
        ]);
        assert_eq!(tracked.into_connections()[0].mechanism, Some(StallMechanism::WindowDelayedAck));
    }

    #[test]
    fn a_late_acknowledgement_that_delayed_no_data_is_no_stall() {
        let mut tracked = flows(&[
            (0, segment(true, 1, 1, 20)),
            (1, segment(false, 1, 21, 20)),
            (41, segment(true, 21, 21, 0)),
            (900, segment(true, 21, 21, 20)),
            (901, segment(false, 21, 41, 20)),
        ]);
        let acks = tracked.take_ack_counts();
        assert_eq!((acks.delayed, acks.released), (1, 0));
        assert_eq!(acks.delay_ns.unwrap().p50, 40 * MS);
        assert_eq!(tracked.take_ack_counts().pure, 0, "it is forgotten");
    }

    #[test]
    fn other_ports_are_not_followed_and_there_is_an_end_to_the_number() {
        let mut flows = TrackedConnections::new(81, Duration::from_millis(10));
        flows.add_segment(&segment(true, 1, 1, 20), 0);
        assert!(flows.into_connections().is_empty());
        let mut flows = TrackedConnections::new(80, Duration::from_millis(10));
        // Each occurs twice, and is one connection all the same.
        for port in (1..=FLOWS_MAX as u16 + 3).chain(1..=FLOWS_MAX as u16 + 3) {
            let mut one = segment(true, 1, 1, 20);
            one.from.set_port(port.wrapping_add(1_000));
            flows.add_segment(&one, 0);
        }
        assert_eq!((flows.untracked_count(), flows.into_connections().len()), (3, FLOWS_MAX));
    }
}
