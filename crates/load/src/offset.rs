//! Offset of the server's transmit timestamps from the instant at which this host's kernel or NIC
//! received the reply. The engines provide the timestamps; nothing here reads a clock.
//!
//! An offset is the local receive time, less the server's timestamp, less a correction for the
//! delay between. So a transmit timestamp that was taken 12 µs before the reply really left gives
//! +12 µs. The time at which a program read a reply is never used as its receive time.

use horolog_record::TimestampOffsetMethod;
use horolog_stats::SignedHistogram;
use horolog_time::{Monotonic, NS_PER_S, NtpTimestamp, Span, Timestamp, Utc};

use crate::verify::{ReplyMode, VerifiedReply};

/// Options for measuring offsets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerOffsetOptions {
    /// Correction that is subtracted from each offset: the known delay of the path and of
    /// reception.
    pub correction: Span,
    /// Use the mean of the server's receive and transmit timestamps instead of the latter.
    pub mean_of_server: bool,
    /// Use hardware instead of kernel timestamps.
    pub hardware: bool,
}

impl ServerOffsetOptions {
    /// Returns the method, for the record.
    #[must_use]
    pub const fn method(&self) -> TimestampOffsetMethod {
        TimestampOffsetMethod {
            correction_ns: self.correction.as_ns(),
            mean_of_server: self.mean_of_server,
            hardware: self.hardware,
        }
    }
}

/// Parameters for the offsets of one trial.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerOffsetParameters {
    /// Options.
    pub options: ServerOffsetOptions,
    /// PHC time minus UTC, in whole seconds: 37 s for a PHC that keeps TAI.
    pub phc_ahead: Span,
}

/// Receive timestamps of a datagram by the kernel and the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiveTimestamps {
    /// The kernel's software timestamp.
    pub kernel: Option<Timestamp<Utc>>,
    /// Hardware timestamp, in ns since the PHC's zero.
    pub phc_ns: Option<i64>,
}

impl ServerOffsetParameters {
    /// Returns the receive timestamp of the selected source, in UTC; `None` if it is missing.
    fn selected_timestamp(&self, timestamps: ReceiveTimestamps) -> Option<Timestamp<Utc>> {
        if self.options.hardware {
            timestamps
                .phc_ns
                .map(|ns| Timestamp::from_ns(ns.saturating_sub(self.phc_ahead.as_ns())))
        } else {
            timestamps.kernel
        }
    }

    /// Returns the offset of a reply that this host received at `at`, with these timestamps of the
    /// server.
    fn offset_of(&self, at: Timestamp<Utc>, receive: NtpTimestamp, transmit: NtpTimestamp) -> Span {
        let server = if self.options.mean_of_server {
            receive.wrapping_add(Span::from_ns(transmit.since(receive).as_ns() / 2))
        } else {
            transmit
        };
        NtpTimestamp::from_utc(at).since(server) - self.options.correction
    }
}

/// Offsets of one trial.
#[derive(Clone, Debug, Default)]
pub struct ServerOffsetCounts {
    /// Valid first replies in time that had a receive timestamp of the selected clock.
    pub timestamped: u64,
    /// Offsets in ns. In interleaved mode an offset belongs to the reply before the one that
    /// reports it.
    pub offsets: SignedHistogram,
}

impl ServerOffsetCounts {
    /// Adds the counts of another lane in the same trial.
    pub fn merge(&mut self, other: &Self) {
        self.timestamped += other.timestamped;
        self.offsets.merge(&other.offsets);
    }
}

/// State of the last reply to each client of a lane; empty in basic mode.
#[derive(Clone, Debug, Default)]
pub struct LastReplies(Vec<LastReply>);

/// Last reply to a client.
#[derive(Clone, Copy, Debug)]
struct LastReply {
    /// Receive timestamp of the selected source, in ns.
    timestamp_ns: i64,
    /// Receive time by `CLOCK_MONOTONIC`, in ns.
    received_ns: i64,
}

impl LastReply {
    /// State without a timestamped reply.
    const UNKNOWN: Self = Self { timestamp_ns: i64::MIN, received_ns: i64::MAX };

    /// Returns true if this reply had been received when a request due at `intended` was built, so
    /// that the next reply refers to it.
    const fn precedes_request(&self, intended: Timestamp<Monotonic>) -> bool {
        self.received_ns <= intended.as_ns()
    }
}

/// Recorder of the offsets of one lane during one trial: parameters, the last replies, and a PTP
/// master's timescale.
#[derive(Debug)]
pub(crate) struct LaneServerOffsetRecorder {
    plan: ServerOffsetParameters,
    last: LastReplies,
    /// Lead of a PTP master's timescale over UTC, in ns but whole seconds; `None` before the first
    /// Sync.
    master_ahead: Option<i64>,
}

impl LaneServerOffsetRecorder {
    /// Starts with the carried-over state of `clients` clients; 0 in basic mode.
    pub(crate) fn new(plan: ServerOffsetParameters, mut last: LastReplies, clients: usize) -> Self {
        last.0.resize(clients, LastReply::UNKNOWN);
        Self { plan, last, master_ahead: None }
    }

    /// Records the offset of a valid first reply to the lane's client number `client` in `counts`,
    /// the counts of its request's interval. In interleaved mode the reply reports the transmit
    /// time of the client's previous reply, so it gives the offset of that one. `origin` is the
    /// server's receive timestamp of the request that the previous reply answered; 0 if there was
    /// none.
    pub(crate) fn record(
        &mut self,
        reply: &VerifiedReply,
        (received, timestamps): (Timestamp<Monotonic>, ReceiveTimestamps),
        (client, origin): (u32, u64),
        counts: &mut ServerOffsetCounts,
    ) {
        let at = self.plan.selected_timestamp(timestamps);
        counts.timestamped += u64::from(at.is_some());
        let last = self.last.0.get_mut(client as usize);
        let exchange = match reply.mode {
            // A server that is not synchronised may have no time to compare with.
            ReplyMode::Basic { response_ns: None } => None,
            ReplyMode::Basic { .. } => at.map(|at| (at, reply.receive)),
            ReplyMode::Interleaved if reply.transmit == NtpTimestamp::UNKNOWN => None,
            ReplyMode::Interleaved => last.as_deref().copied().and_then(|last| {
                let origin = NtpTimestamp::from_bits(origin);
                // A transmit time before the receipt of that request belongs to a still earlier
                // reply.
                let fits = reply.transmit.since(origin) >= Span::ZERO
                    && last.precedes_request(reply.request.intended);
                fits.then(|| (Timestamp::from_ns(last.timestamp_ns), origin))
            }),
        };
        if let Some((at, receive)) = exchange {
            let offset = self.plan.offset_of(at, receive, reply.transmit);
            counts.offsets.record(offset.as_ns());
        }
        if let Some(last) = last {
            let received_ns = received.as_ns();
            *last = at.map_or(LastReply::UNKNOWN, |at| LastReply {
                timestamp_ns: at.as_ns(),
                received_ns,
            });
        }
    }

    /// Returns the receive timestamp of the selected source, in UTC.
    pub(crate) fn selected_timestamp(
        &self,
        timestamps: ReceiveTimestamps,
    ) -> Option<Timestamp<Utc>> {
        self.plan.selected_timestamp(timestamps)
    }

    /// Records in `counts` the offset of a PTP Sync received at `at`, if that is known.
    /// `transmit_ns` and `receive_ns` are the master's times of the Sync's departure and the
    /// request's arrival. The whole seconds between UTC and the master's timescale, which the
    /// master chooses, are removed.
    pub(crate) fn record_sync(
        &mut self,
        at: Option<Timestamp<Utc>>,
        (receive_ns, transmit_ns): (i64, i64),
        counts: &mut ServerOffsetCounts,
    ) {
        let Some(at) = at else { return };
        counts.timestamped += 1;
        let earlier =
            if self.plan.options.mean_of_server { (transmit_ns - receive_ns) / 2 } else { 0 };
        let raw = at.as_ns() - (transmit_ns - earlier);
        let ahead = self.master_ahead.get_or_insert_with(|| whole_seconds(-raw));
        // Saturates, because a master's time may jump by centuries.
        let offset = raw.saturating_add(*ahead);
        counts.offsets.record(offset.saturating_sub(self.plan.options.correction.as_ns()));
    }

    /// Returns the state that the lane carries over to its next trial.
    pub(crate) fn close(self) -> LastReplies {
        self.last
    }
}

/// Rounds to whole seconds, in ns.
pub(crate) const fn whole_seconds(ns: i64) -> i64 {
    ns.saturating_add(NS_PER_S / 2).div_euclid(NS_PER_S).saturating_mul(NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::RequestId;

    const SERVER_RECEIVE: i64 = 1_700_000_000_000_000_000;

    fn ntp(ns: i64) -> NtpTimestamp {
        NtpTimestamp::from_utc(Timestamp::from_ns(ns))
    }

    fn reply(receive: i64, transmit: i64, answer: ReplyMode) -> VerifiedReply {
        let question = RequestId { intended: Timestamp::from_ns(0), sequence: 0 };
        let (receive, transmit) = (ntp(receive), ntp(transmit));
        VerifiedReply { request: question, mode: answer, receive, transmit, unsynchronised: false }
    }

    fn basic(receive: i64, transmit: i64) -> VerifiedReply {
        reply(
            receive,
            transmit,
            ReplyMode::Basic { response_ns: u64::try_from(transmit - receive).ok() },
        )
    }

    fn kernel(ns: i64) -> ReceiveTimestamps {
        ReceiveTimestamps { kernel: Some(Timestamp::from_ns(ns)), phc_ns: None }
    }

    /// Offsets of a lane, and their counts.
    struct Scene {
        offsets: LaneServerOffsetRecorder,
        found: ServerOffsetCounts,
    }

    impl Scene {
        fn new(plan: ServerOffsetParameters, clients: usize) -> Self {
            let offsets = LaneServerOffsetRecorder::new(plan, LastReplies::default(), clients);
            Self { offsets, found: ServerOffsetCounts::default() }
        }

        fn record(
            &mut self,
            reply: &VerifiedReply,
            timestamps: ReceiveTimestamps,
            client: (u32, u64),
        ) {
            // Each request is sent when the previous reply has arrived.
            let received = reply.request.intended;
            self.offsets.record(reply, (received, timestamps), client, &mut self.found);
        }

        fn record_sync(&mut self, at: Option<Timestamp<Utc>>, times: (i64, i64)) {
            self.offsets.record_sync(at, times, &mut self.found);
        }
    }

    fn offsets(options: ServerOffsetOptions, clients: usize) -> Scene {
        Scene::new(ServerOffsetParameters { options, phc_ahead: Span::ZERO }, clients)
    }

    fn only(scene: &Scene) -> f64 {
        let summary = scene.found.offsets.summary().unwrap();
        assert_eq!(summary.count, 1);
        summary.mean
    }

    fn about(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1.0
    }

    #[test]
    fn a_timestamp_taken_before_the_reply_left_gives_a_positive_offset() {
        // It leaves 12 µs after its timestamp and is on its way for 1450 ns.
        let transmit = SERVER_RECEIVE + 30_000;
        let timestamps = kernel(transmit + 12_000 + 1_450);
        let mut plain = offsets(ServerOffsetOptions::default(), 0);
        plain.record(&basic(SERVER_RECEIVE, transmit), timestamps, (0, 0));
        assert!(about(only(&plain), 13_450.0));
        let correction = Span::from_ns(1_450);
        let mut corrected = offsets(ServerOffsetOptions { correction, ..Default::default() }, 0);
        corrected.record(&basic(SERVER_RECEIVE, transmit), timestamps, (0, 0));
        assert!(about(only(&corrected), 12_000.0));
        let options = ServerOffsetOptions { correction, mean_of_server: true, hardware: false };
        let mut mean = offsets(options, 0);
        mean.record(&basic(SERVER_RECEIVE, transmit), timestamps, (0, 0));
        assert!(about(only(&mean), 27_000.0));
    }

    #[test]
    fn an_interleaved_reply_times_the_previous_one_to_the_same_client() {
        let mut offsets = offsets(ServerOffsetOptions::default(), 2);
        let first = SERVER_RECEIVE;
        offsets.record(&basic(first, first + 500), kernel(first + 20_000), (1, 0));
        assert!(about(only(&offsets), 19_500.0));
        // The next exchange shows that the first reply was sent after 19 µs.
        let second = first + 5_000_000;
        let interleaved = reply(second, first + 19_000, ReplyMode::Interleaved);
        let referred = ntp(first).to_bits();
        offsets.record(&interleaved, kernel(second + 90_000), (1, referred));
        let summary = offsets.found.offsets.summary().unwrap();
        assert_eq!((summary.count, offsets.found.timestamped), (2, 2));
        assert!((999..=1001).contains(&summary.min), "{summary:?}");
        // Another client has no reply before.
        offsets.record(&interleaved, kernel(second + 90_000), (0, referred));
        assert_eq!(offsets.found.offsets.count(), 2);
    }

    #[test]
    fn a_transmit_timestamp_of_a_still_older_reply_is_not_held_against_the_last() {
        let mut offsets = offsets(ServerOffsetOptions::default(), 1);
        let last = SERVER_RECEIVE;
        offsets.record(&basic(last, last + 500), kernel(last + 20_000), (0, 0));
        let older = reply(last + 9_000_000, last - 3_000_000, ReplyMode::Interleaved);
        offsets.record(&older, kernel(last + 9_020_000), (0, ntp(last).to_bits()));
        assert_eq!((offsets.found.offsets.count(), offsets.found.timestamped), (1, 2));
    }

    #[test]
    fn a_reply_to_a_request_sent_before_the_last_reply_arrived_is_not_counted() {
        for (intended_ns, counted) in [(40_000, 1), (50_000, 2)] {
            let mut scene = offsets(ServerOffsetOptions::default(), 1);
            let received = Timestamp::from_ns(50_000);
            let first = basic(SERVER_RECEIVE, SERVER_RECEIVE + 500);
            let timestamps = kernel(SERVER_RECEIVE + 20_000);
            scene.offsets.record(&first, (received, timestamps), (0, 0), &mut scene.found);
            let interleaved =
                reply(SERVER_RECEIVE + 90_000, SERVER_RECEIVE + 900, ReplyMode::Interleaved);
            let question = RequestId { intended: Timestamp::from_ns(intended_ns), sequence: 1 };
            let (interleaved, referred) =
                (VerifiedReply { request: question, ..interleaved }, ntp(SERVER_RECEIVE).to_bits());
            let later = (Timestamp::from_ns(150_000), kernel(SERVER_RECEIVE + 120_000));
            scene.offsets.record(&interleaved, later, (0, referred), &mut scene.found);
            assert_eq!(scene.found.offsets.count(), counted, "asked at {intended_ns} ns");
        }
    }

    #[test]
    fn a_reply_without_a_timestamp_lowers_the_share_alone() {
        let mut offsets = offsets(ServerOffsetOptions::default(), 1);
        let unstamped = ReceiveTimestamps { kernel: None, phc_ns: Some(5) };
        offsets.record(&basic(SERVER_RECEIVE, SERVER_RECEIVE), unstamped, (0, 0));
        let next = reply(SERVER_RECEIVE + 1_000, SERVER_RECEIVE, ReplyMode::Interleaved);
        let referred = ntp(SERVER_RECEIVE).to_bits();
        offsets.record(&next, kernel(SERVER_RECEIVE + 2_000), (0, referred));
        assert_eq!((offsets.found.offsets.count(), offsets.found.timestamped), (0, 1));
    }

    #[test]
    fn a_master_on_tai_is_read_in_utc() {
        let correction = Span::from_ns(100);
        for (mean_of_server, expected) in [(false, 12_300), (true, 42_300)] {
            let options = ServerOffsetOptions { correction, mean_of_server, hardware: false };
            let mut offsets = offsets(options, 0);
            let transmit = SERVER_RECEIVE + 37 * NS_PER_S;
            let at = Timestamp::from_ns(SERVER_RECEIVE + 12_400);
            offsets.record_sync(Some(at), (transmit - 60_000, transmit));
            offsets.record_sync(None, (transmit, transmit));
            assert_eq!(only(&offsets) as i64, expected);
            assert_eq!(offsets.found.timestamped, 1);
        }
    }

    #[test]
    fn a_phc_on_tai_is_read_in_utc() {
        let options = ServerOffsetOptions { hardware: true, ..ServerOffsetOptions::default() };
        let phc_ahead = Span::from_ms(37_000);
        let mut offsets = Scene::new(ServerOffsetParameters { options, phc_ahead }, 0);
        let phc_ns = Some(SERVER_RECEIVE + 700 + phc_ahead.as_ns());
        let kernel = Some(Timestamp::from_ns(SERVER_RECEIVE + 90_000));
        let timestamps = ReceiveTimestamps { kernel, phc_ns };
        offsets.record(&basic(SERVER_RECEIVE, SERVER_RECEIVE), timestamps, (0, 0));
        assert!(about(only(&offsets), 700.0));
        let unstamped = ReceiveTimestamps { kernel, phc_ns: None };
        offsets.record(&basic(SERVER_RECEIVE, SERVER_RECEIVE), unstamped, (0, 0));
        assert_eq!((offsets.found.offsets.count(), offsets.found.timestamped), (1, 1));
    }
}
