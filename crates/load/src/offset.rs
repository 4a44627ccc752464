//! How far the server's transmit timestamps are off, against the instant at which this machine's
//! kernel or card received the reply. Pure: who takes the timestamps is for the engines.
//!
//! An offset is the local receive instant, less the server's timestamp, less a correction for the
//! way between. So a transmit timestamp that was taken 12 µs before the reply really left gives
//! +12 µs. The time at which a program got round to reading a reply is never taken for its receipt.

use horolog_record::OffsetMethod;
use horolog_stats::SignedRecorder;
use horolog_time::{Monotonic, NS_PER_S, NtpTimestamp, Span, Timestamp, Utc};

use crate::verify::{Answer, Reply};

/// How offsets are to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OffsetOptions {
    /// Taken off each of them: the delay of the way and of receiving, as far as it is known.
    pub correction: Span,
    /// Against the mean of the server's receive and transmit timestamps instead of the latter.
    pub mean_of_server: bool,
    /// By the card's timestamps instead of the kernel's.
    pub hardware: bool,
}

impl OffsetOptions {
    /// The same, for the record.
    #[must_use]
    pub const fn method(&self) -> OffsetMethod {
        OffsetMethod {
            correction_ns: self.correction.as_ns(),
            mean_of_server: self.mean_of_server,
            hardware: self.hardware,
        }
    }
}

/// The same for one trial.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OffsetPlan {
    /// How.
    pub options: OffsetOptions,
    /// What the card's clock is ahead of UTC by, in whole seconds: 37 s where it keeps TAI.
    pub card_ahead: Span,
}

/// When a datagram was received, by those clocks that stamp packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReceiveStamps {
    /// The kernel's software timestamp.
    pub kernel: Option<Timestamp<Utc>>,
    /// The card's own, in ns since its clock's zero.
    pub card_ns: Option<i64>,
}

impl OffsetPlan {
    /// The instant that counts.
    fn instant(&self, stamps: ReceiveStamps) -> Option<Timestamp<Utc>> {
        if self.options.hardware {
            stamps.card_ns.map(|ns| Timestamp::from_ns(ns.saturating_sub(self.card_ahead.as_ns())))
        } else {
            stamps.kernel
        }
    }

    /// The offset of a reply that was received at `at` here and has these timestamps.
    fn offset(&self, at: Timestamp<Utc>, receive: NtpTimestamp, transmit: NtpTimestamp) -> Span {
        let server = if self.options.mean_of_server {
            receive.wrapping_add(Span::from_ns(transmit.since(receive).as_ns() / 2))
        } else {
            transmit
        };
        NtpTimestamp::from_utc(at).since(server) - self.options.correction
    }
}

/// What was found in one trial.
#[derive(Clone, Debug, Default)]
pub struct OffsetCounts {
    /// Valid first replies in time that had a receive timestamp by the clock that counts.
    pub stamped: u64,
    /// Their offsets in ns; those of the replies before in interleaved mode.
    pub offsets: SignedRecorder,
}

impl OffsetCounts {
    /// Adds what another lane found in the same trial.
    pub fn merge(&mut self, other: &Self) {
        self.stamped += other.stamped;
        self.offsets.merge(&other.offsets);
    }
}

/// What is known of the last reply to each client of a lane; empty in basic mode.
#[derive(Clone, Debug, Default)]
pub struct LastReceived(Vec<Last>);

/// The last reply to a client.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// When it came by the clock that stamps packets, in ns.
    at_ns: i64,
    /// When it came by the clock of the schedule, in ns.
    heard_ns: i64,
}

impl Last {
    /// It had no timestamp, or there was none.
    const UNKNOWN: Self = Self { at_ns: i64::MIN, heard_ns: i64::MAX };

    /// Whether a request that was due then was made with it in mind, so that its answer tells of
    /// it.
    const fn is_meant_by(&self, intended: Timestamp<Monotonic>) -> bool {
        self.heard_ns <= intended.as_ns()
    }
}

/// The offsets of one lane during one trial.
#[derive(Debug)]
pub(crate) struct Offsets {
    plan: OffsetPlan,
    last: LastReceived,
    /// What a PTP master's timescale is ahead of UTC by, in whole seconds, once it was heard.
    master_ahead: Option<i64>,
}

impl Offsets {
    /// Begins with what is known of the replies to `clients` clients; none need be remembered in
    /// basic mode.
    pub(crate) fn new(plan: OffsetPlan, mut last: LastReceived, clients: usize) -> Self {
        last.0.resize(clients, Last::UNKNOWN);
        Self { plan, last, master_ahead: None }
    }

    /// Counts a valid first reply to the lane's `client`-th client in `found`, the books of its
    /// request; in interleaved mode they so hold the offset of the reply before, whose own request
    /// may have been of an earlier interval. `referred` is when the server received the request
    /// that the client's last reply answered, 0 where there was none.
    pub(crate) fn record(
        &mut self,
        reply: &Reply,
        (received, stamps): (Timestamp<Monotonic>, ReceiveStamps),
        (client, referred): (u32, u64),
        found: &mut OffsetCounts,
    ) {
        let at = self.plan.instant(stamps);
        found.stamped += u64::from(at.is_some());
        let last = self.last.0.get_mut(client as usize);
        let exchange = match reply.answer {
            Answer::Basic { .. } => at.map(|at| (at, reply.receive)),
            Answer::Interleaved => last.as_deref().copied().and_then(|last| {
                let referred = NtpTimestamp::from_bits(referred);
                // One that left before that request came is of a reply still longer ago.
                let fits = reply.transmit.since(referred) >= Span::ZERO
                    && last.is_meant_by(reply.question.intended);
                fits.then(|| (Timestamp::from_ns(last.at_ns), referred))
            }),
        };
        if let Some((at, receive)) = exchange {
            let offset = self.plan.offset(at, receive, reply.transmit);
            found.offsets.record(offset.as_ns());
        }
        if let Some(last) = last {
            let heard_ns = received.as_ns();
            *last = at.map_or(Last::UNKNOWN, |at| Last { at_ns: at.as_ns(), heard_ns });
        }
    }

    /// The instant that counts for what was received so.
    pub(crate) fn instant(&self, stamps: ReceiveStamps) -> Option<Timestamp<Utc>> {
        self.plan.instant(stamps)
    }

    /// Counts in `found` a PTP Sync that was received at `at` here, where that is known. By the
    /// master's clock it left at `transmit_ns` and its request came at `receive_ns`; the whole
    /// seconds between that clock's timescale, which is its own affair, and UTC are taken off.
    pub(crate) fn record_sync(
        &mut self,
        at: Option<Timestamp<Utc>>,
        (receive_ns, transmit_ns): (i64, i64),
        found: &mut OffsetCounts,
    ) {
        let Some(at) = at else { return };
        found.stamped += 1;
        let earlier =
            if self.plan.options.mean_of_server { (transmit_ns - receive_ns) / 2 } else { 0 };
        let raw = at.as_ns() - (transmit_ns - earlier);
        let ahead = self.master_ahead.get_or_insert_with(|| whole_seconds(-raw));
        // A master may jump by centuries.
        let offset = raw.saturating_add(*ahead);
        found.offsets.record(offset.saturating_sub(self.plan.options.correction.as_ns()));
    }

    /// What the lane takes to its next trial.
    pub(crate) fn close(self) -> LastReceived {
        self.last
    }
}

/// The nearest number of whole seconds, in ns.
pub(crate) const fn whole_seconds(ns: i64) -> i64 {
    ns.saturating_add(NS_PER_S / 2).div_euclid(NS_PER_S).saturating_mul(NS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Question;

    const SERVER_RECEIVE: i64 = 1_700_000_000_000_000_000;

    fn ntp(ns: i64) -> NtpTimestamp {
        NtpTimestamp::from_utc(Timestamp::from_ns(ns))
    }

    fn reply(receive: i64, transmit: i64, answer: Answer) -> Reply {
        let question = Question { intended: Timestamp::from_ns(0), sequence: 0 };
        let (receive, transmit) = (ntp(receive), ntp(transmit));
        Reply { question, answer, receive, transmit, unsynchronised: false }
    }

    fn basic(receive: i64, transmit: i64) -> Reply {
        reply(receive, transmit, Answer::Basic { response_ns: (transmit - receive) as u64 })
    }

    fn kernel(ns: i64) -> ReceiveStamps {
        ReceiveStamps { kernel: Some(Timestamp::from_ns(ns)), card_ns: None }
    }

    /// The offsets of a lane, and what is found.
    struct Scene {
        offsets: Offsets,
        found: OffsetCounts,
    }

    impl Scene {
        fn new(plan: OffsetPlan, clients: usize) -> Self {
            let offsets = Offsets::new(plan, LastReceived::default(), clients);
            Self { offsets, found: OffsetCounts::default() }
        }

        fn record(&mut self, reply: &Reply, stamps: ReceiveStamps, client: (u32, u64)) {
            // Each is asked for when the one before has come.
            let received = reply.question.intended;
            self.offsets.record(reply, (received, stamps), client, &mut self.found);
        }

        fn record_sync(&mut self, at: Option<Timestamp<Utc>>, times: (i64, i64)) {
            self.offsets.record_sync(at, times, &mut self.found);
        }
    }

    fn offsets(options: OffsetOptions, clients: usize) -> Scene {
        Scene::new(OffsetPlan { options, card_ahead: Span::ZERO }, clients)
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
        let stamps = kernel(transmit + 12_000 + 1_450);
        let mut plain = offsets(OffsetOptions::default(), 0);
        plain.record(&basic(SERVER_RECEIVE, transmit), stamps, (0, 0));
        assert!(about(only(&plain), 13_450.0));
        let correction = Span::from_ns(1_450);
        let mut corrected = offsets(OffsetOptions { correction, ..Default::default() }, 0);
        corrected.record(&basic(SERVER_RECEIVE, transmit), stamps, (0, 0));
        assert!(about(only(&corrected), 12_000.0));
        let options = OffsetOptions { correction, mean_of_server: true, hardware: false };
        let mut mean = offsets(options, 0);
        mean.record(&basic(SERVER_RECEIVE, transmit), stamps, (0, 0));
        assert!(about(only(&mean), 27_000.0));
    }

    #[test]
    fn an_interleaved_reply_tells_of_the_one_before_to_the_same_client() {
        let mut offsets = offsets(OffsetOptions::default(), 2);
        let first = SERVER_RECEIVE;
        offsets.record(&basic(first, first + 500), kernel(first + 20_000), (1, 0));
        assert!(about(only(&offsets), 19_500.0));
        // The next exchange tells that the first reply really left after 19 µs.
        let second = first + 5_000_000;
        let interleaved = reply(second, first + 19_000, Answer::Interleaved);
        let referred = ntp(first).to_bits();
        offsets.record(&interleaved, kernel(second + 90_000), (1, referred));
        let summary = offsets.found.offsets.summary().unwrap();
        assert_eq!((summary.count, offsets.found.stamped), (2, 2));
        assert!((999..=1001).contains(&summary.min), "{summary:?}");
        // Another client has no reply before.
        offsets.record(&interleaved, kernel(second + 90_000), (0, referred));
        assert_eq!(offsets.found.offsets.count(), 2);
    }

    #[test]
    fn a_transmit_timestamp_of_a_still_older_reply_is_not_held_against_the_last() {
        let mut offsets = offsets(OffsetOptions::default(), 1);
        let last = SERVER_RECEIVE;
        offsets.record(&basic(last, last + 500), kernel(last + 20_000), (0, 0));
        let older = reply(last + 9_000_000, last - 3_000_000, Answer::Interleaved);
        offsets.record(&older, kernel(last + 9_020_000), (0, ntp(last).to_bits()));
        assert_eq!((offsets.found.offsets.count(), offsets.found.stamped), (1, 2));
    }

    #[test]
    fn an_answer_to_what_was_asked_before_the_last_reply_came_tells_nothing() {
        for (asked_ns, counted) in [(40_000, 1), (50_000, 2)] {
            let mut scene = offsets(OffsetOptions::default(), 1);
            let came = Timestamp::from_ns(50_000);
            let first = basic(SERVER_RECEIVE, SERVER_RECEIVE + 500);
            let stamps = kernel(SERVER_RECEIVE + 20_000);
            scene.offsets.record(&first, (came, stamps), (0, 0), &mut scene.found);
            let told = reply(SERVER_RECEIVE + 90_000, SERVER_RECEIVE + 900, Answer::Interleaved);
            let question = Question { intended: Timestamp::from_ns(asked_ns), sequence: 1 };
            let (told, referred) = (Reply { question, ..told }, ntp(SERVER_RECEIVE).to_bits());
            let later = (Timestamp::from_ns(150_000), kernel(SERVER_RECEIVE + 120_000));
            scene.offsets.record(&told, later, (0, referred), &mut scene.found);
            assert_eq!(scene.found.offsets.count(), counted, "asked at {asked_ns} ns");
        }
    }

    #[test]
    fn a_reply_without_a_timestamp_lowers_the_share_alone() {
        let mut offsets = offsets(OffsetOptions::default(), 1);
        let unstamped = ReceiveStamps { kernel: None, card_ns: Some(5) };
        offsets.record(&basic(SERVER_RECEIVE, SERVER_RECEIVE), unstamped, (0, 0));
        let next = reply(SERVER_RECEIVE + 1_000, SERVER_RECEIVE, Answer::Interleaved);
        let referred = ntp(SERVER_RECEIVE).to_bits();
        offsets.record(&next, kernel(SERVER_RECEIVE + 2_000), (0, referred));
        assert_eq!((offsets.found.offsets.count(), offsets.found.stamped), (0, 1));
    }

    #[test]
    fn a_master_on_tai_is_read_in_utc() {
        let correction = Span::from_ns(100);
        for (mean_of_server, expected) in [(false, 12_300), (true, 42_300)] {
            let options = OffsetOptions { correction, mean_of_server, hardware: false };
            let mut offsets = offsets(options, 0);
            let transmit = SERVER_RECEIVE + 37 * NS_PER_S;
            let at = Timestamp::from_ns(SERVER_RECEIVE + 12_400);
            offsets.record_sync(Some(at), (transmit - 60_000, transmit));
            offsets.record_sync(None, (transmit, transmit));
            assert_eq!(only(&offsets) as i64, expected);
            assert_eq!(offsets.found.stamped, 1);
        }
    }

    #[test]
    fn a_card_on_tai_is_read_in_utc() {
        let options = OffsetOptions { hardware: true, ..OffsetOptions::default() };
        let card_ahead = Span::from_ms(37_000);
        let mut offsets = Scene::new(OffsetPlan { options, card_ahead }, 0);
        let card_ns = Some(SERVER_RECEIVE + 700 + card_ahead.as_ns());
        let kernel = Some(Timestamp::from_ns(SERVER_RECEIVE + 90_000));
        let stamps = ReceiveStamps { kernel, card_ns };
        offsets.record(&basic(SERVER_RECEIVE, SERVER_RECEIVE), stamps, (0, 0));
        assert!(about(only(&offsets), 700.0));
        let unstamped = ReceiveStamps { kernel, card_ns: None };
        offsets.record(&basic(SERVER_RECEIVE, SERVER_RECEIVE), unstamped, (0, 0));
        assert_eq!((offsets.found.offsets.count(), offsets.found.stamped), (1, 1));
    }
}
