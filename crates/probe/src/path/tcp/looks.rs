//! What connections tell those who look on, and what a row is to them. Looking on is from numbers
//! that are there anyway: a connection that nobody watches does nothing for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use horolog_record::{
    LookCounts, LookEnded, Percentiles, Slots, SoFar, TcpBandwidth, TcpFigures, TcpLatency, Telling,
};
use horolog_stats::Recorder;
use horolog_time::{Monotonic, Timestamp};

use super::super::looks::{Lookout, Onlooker, Under};
use super::latency::ns;

/// One who looks on, and what is remembered for that from row to row.
pub(super) struct Looking<'a> {
    onlooker: &'a dyn Onlooker,
    lookout: Lookout,
}

impl<'a> Looking<'a> {
    pub(super) fn new(onlooker: &'a dyn Onlooker) -> Self {
        Self { onlooker, lookout: Lookout::new() }
    }

    /// Looks on while a row is measured, by a thread of its own.
    pub(super) fn during<T>(
        &self,
        under: Under<'_>,
        connections: u32,
        measure: impl FnOnce(&Slots) -> T,
    ) -> T {
        let slots = Slots::new(connections as usize);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.lookout.watch(self.onlooker, under, &slots, &is_done));
            let measured = measure(&slots);
            is_done.store(true, Ordering::Relaxed);
            measured
        })
    }

    /// Tells of a row that is over.
    pub(super) fn end(&mut self, under: Under<'_>, (counts, row): (LookCounts, LookEnded)) {
        self.lookout.end(self.onlooker, under, counts, row);
    }
}

/// Tells what one connection has counted so far, some times a second.
pub(super) struct Teller<'a> {
    begun: Instant,
    telling: Option<Telling<'a>>,
}

impl<'a> Teller<'a> {
    /// Of the connection with this number; of none where nobody looks on.
    pub(super) fn new(slots: Option<&'a Slots>, index: usize) -> Self {
        let begun = Instant::now();
        let slot = slots.and_then(|slots| slots.of(index));
        Self { begun, telling: slot.map(|slot| Telling::new(slot, Timestamp::from_ns(0))) }
    }

    /// Tells of round trips where it is time to. Whether it did: that took a moment.
    pub(super) fn round_trips(&mut self, now: Instant, times: &Recorder) -> bool {
        self.tell(now, |told| {
            told.counts = exchanges(times.count());
            told.latency.merge(times);
        })
    }

    /// Tells of bytes where it is time to.
    pub(super) fn bytes(&mut self, now: Instant, bytes: u64) {
        self.tell(now, |told| told.counts.bytes = bytes);
    }

    fn tell(&mut self, now: Instant, what: impl FnOnce(&mut SoFar)) -> bool {
        let Some(telling) = &mut self.telling else { return false };
        let since = i64::try_from(ns(now.saturating_duration_since(self.begun)));
        let now = Timestamp::<Monotonic>::from_ns(since.unwrap_or(i64::MAX));
        let Some(mut told) = telling.due(now) else { return false };
        told.clear();
        what(&mut told);
        true
    }
}

/// Each message there was answered, or the connection would be over.
fn exchanges(count: u64) -> LookCounts {
    LookCounts { sent: count, received: count, ..LookCounts::default() }
}

fn sent_again(tcp: Option<&TcpFigures>) -> Option<u64> {
    tcp.map(|tcp| tcp.retransmitted)
}

/// A row of round trips that is over. On each connection one follows the other, so what they took
/// is how long it went on, also of a row that was ended before its time.
pub(super) fn of_latency(row: &TcpLatency, connections: u32) -> (LookCounts, LookEnded) {
    let mean_s = row.rtt_ns.as_ref().map_or(0.0, |rtt| rtt.mean / 1e9);
    let achieved_rate = if mean_s > 0.0 { f64::from(connections) / mean_s } else { 0.0 };
    let ended = LookEnded {
        achieved_rate,
        duration_s: row.round_trips as f64 * mean_s / f64::from(connections.max(1)),
        sent: row.round_trips,
        received: row.round_trips,
        retransmitted: sent_again(row.tcp.as_ref()),
        latency_ns: row.rtt_ns.as_ref().map(Percentiles::of),
        ..LookEnded::default()
    };
    (exchanges(row.round_trips), ended)
}

/// A row of transfers that is over.
pub(super) fn of_bandwidth(row: &TcpBandwidth) -> (LookCounts, LookEnded) {
    let ended = LookEnded {
        achieved_rate: row.message_rate,
        duration_s: row.duration_ns as f64 / 1e9,
        byte_rate: Some(row.rate),
        retransmitted: sent_again(row.tcp.as_ref()),
        ..LookEnded::default()
    };
    (LookCounts { bytes: row.received_bytes, ..LookCounts::default() }, ended)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_connection_tells_now_and_then_and_only_who_looks() {
        let slots = Slots::new(1);
        let (mut watched, mut alone) = (Teller::new(Some(&slots), 0), Teller::new(None, 0));
        let mut times = Recorder::new();
        times.record(1_000);
        let now = watched.begun;
        assert!(watched.round_trips(now, &times) && !alone.round_trips(now, &times));
        times.record(3_000);
        assert!(!watched.round_trips(now + Duration::from_millis(1), &times), "it was just now");
        let mut sum = SoFar::default();
        slots.sum(&mut sum);
        assert_eq!((sum.counts.received, sum.latency.count()), (1, 1));
        assert!(watched.round_trips(now + Duration::from_secs(1), &times));
        slots.sum(&mut sum);
        assert_eq!((sum.counts.received, sum.latency.count()), (2, 2));
    }
}
