//! Outcome of the requests of one trial: counts, without evaluation. Each lane counts for itself;
//! the parts are added up at the end of the trial.

use horolog_record::{InvalidReason, Progress};
use horolog_stats::duplicate_window::WindowTooLarge;
use horolog_stats::{DuplicateWindow, MarkOutcome};
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ptp::PortIdentity;

use crate::clients::LaneClients;
use crate::fairness::PerClientCounts;
use crate::offset::{LaneOffsets, LastReplies, OffsetCounts, OffsetPlan, ReceiveTimestamps};
use crate::outage::OutageDetector;
use crate::request::RequestTimestamps;
use crate::token::RequestId;
use crate::trailer::{RequestRef, RequestTrailer};
use crate::verify::{self, ExpectedReplies, ReplyMode, VerifiedReply};
use interval_counts::IntervalCounts;

mod counts;
mod interval_counts;
mod ptp;
mod sequence_numbers;

pub use counts::TrialCounts;
pub use interval_counts::ClosedInterval;
pub use ptp::PtpCounts;

/// Tracker of the requests of one lane during one trial.
#[derive(Debug)]
pub struct RequestTracker {
    interval_counts: IntervalCounts,
    listener: OutageDetector,
    client_counts: Option<PerClientCounts>,
    expected: ExpectedReplies,
    clients: LaneClients,
    window: DuplicateWindow,
    start: Timestamp<Monotonic>,
    timeout: Span,
    /// Requests of this lane in earlier trials.
    before: u64,
    /// Requests of this lane in this trial.
    registered: u64,
    /// Requests of this lane that were sent.
    sent: u64,
    /// Valid first replies, late ones included.
    answered: u64,
    last_sent: Timestamp<Monotonic>,
    /// Longest round trip of a reply in time.
    longest_rtt: Option<Span>,
    origins: InterleavedOrigins,
    offsets: Option<Box<LaneOffsets>>,
    tail: Option<Box<RequestTrailer>>,
    ptp: Option<Box<ptp::PtpTracker>>,
}

/// A request to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextRequest {
    /// Intended send time.
    pub intended: Timestamp<Monotonic>,
    /// Client that sends it.
    pub client: u32,
    /// Timestamps that it carries.
    pub timestamps: RequestTimestamps,
    /// True if it is authenticated.
    pub authenticated: bool,
}

/// For each client of a lane, the time at which the server received the request that it last
/// answered, as NTP's 64 bits: requests in interleaved mode refer to it. 0 if nothing was answered
/// yet. It is the only state of a client, and there is none in basic mode.
#[derive(Debug, Default)]
pub struct InterleavedOrigins(Vec<u64>);

impl InterleavedOrigins {
    /// Returns the value of the lane's `client`-th client.
    #[must_use]
    pub fn of(&self, client: u32) -> u64 {
        self.0.get(client as usize).copied().unwrap_or(0)
    }

    fn remember(&mut self, client: u32, receive: NtpTimestamp) {
        if let Some(origin) = self.0.get_mut(client as usize) {
            *origin = receive.to_bits();
        }
    }
}

/// State that a lane carries over from one trial to the next.
#[derive(Debug, Default)]
pub struct LaneCarryOver {
    /// Requests of the lane so far.
    pub registered: u64,
    /// First of the clients that the other fields describe.
    pub first_client: u32,
    /// Origins of these clients; invalid for other clients.
    pub origins: InterleavedOrigins,
    /// Receive times of their last replies, if offsets are measured in interleaved mode.
    pub last_received: LastReplies,
    /// Trailer of the requests, if they have one.
    pub tail: Option<Box<RequestTrailer>>,
    /// PTP port of the master.
    pub master: Option<PortIdentity>,
}

/// Configuration of a [`RequestTracker`].
#[derive(Clone, Copy, Debug)]
pub struct TrackerConfig {
    /// Values that replies are verified against.
    pub expected: ExpectedReplies,
    /// Clients of the lane.
    pub clients: LaneClients,
    /// Start of the trial.
    pub start: Timestamp<Monotonic>,
    /// Reply timeout, from the intended send time.
    pub timeout: Span,
    /// The lane's share of the rate, in requests per second; of the highest one if it changes.
    pub rate: f64,
    /// Parameters for the offsets of the server's transmit timestamps, if they are measured.
    pub offset: Option<OffsetPlan>,
    /// PTP requests instead: then only the token of `expected` is used.
    pub ptp: Option<crate::ptp::ExpectedPtpMessages>,
    /// Length of the intervals with separate counts; `None` if the trial has one set.
    pub interval: Option<Span>,
    /// True if each client is counted separately.
    pub fairness: bool,
}

impl RequestTracker {
    /// Opens a tracker. Fails if detecting duplicates until the timeout takes too much memory.
    pub fn open(plan: &TrackerConfig, carried: LaneCarryOver) -> Result<Self, WindowTooLarge> {
        // Twice the most in flight, since a delayed sender sends in bursts.
        let in_flight = plan.rate * plan.timeout.as_seconds();
        let reach = ((2.0 * in_flight) as u64).saturating_add(REACH_MIN);
        let window = DuplicateWindow::new(reach)?;
        let same = carried.first_client == plan.clients.first();
        let (mut origins, last_received) =
            if same { (carried.origins, carried.last_received) } else { Default::default() };
        let remembered = if plan.expected.interleaved { plan.clients.count() as usize } else { 0 };
        origins.0.resize(remembered, 0);
        let offsets = plan.offset.map(|offset| LaneOffsets::new(offset, last_received, remembered));
        let new_tracker = |expected| ptp::PtpTracker::new(expected, reach, carried.master);
        let blank = TrialCounts {
            cookies_reused: carried.tail.as_ref().and_then(|tail| tail.cookies_reused()),
            ptp: plan.ptp.map(|_| PtpCounts::default()),
            offsets: plan.offset.map(|_| OffsetCounts::default()),
            ..TrialCounts::default()
        };
        Ok(Self {
            interval_counts: IntervalCounts::new(plan.start, plan.interval, blank),
            listener: OutageDetector::new(plan.start),
            client_counts: plan.fairness.then(|| PerClientCounts::new(&plan.clients)),
            ptp: plan.ptp.map(new_tracker),
            expected: plan.expected,
            clients: plan.clients,
            window,
            start: plan.start,
            timeout: plan.timeout,
            before: carried.registered,
            registered: 0,
            sent: 0,
            answered: 0,
            last_sent: plan.start,
            longest_rtt: None,
            origins,
            offsets: offsets.map(Box::new),
            tail: carried.tail,
        })
    }

    /// Moves the start of a trial before its first request: allocating the counts takes time.
    pub fn begin_at(&mut self, start: Timestamp<Monotonic>) {
        (self.start, self.last_sent) = (start, start);
        self.listener = OutageDetector::new(start);
        self.interval_counts.begin_at(start);
    }

    /// Returns the next request, to be sent at `intended`. Repeated calls return the same until
    /// [`RequestTracker::register`].
    #[inline]
    #[must_use]
    pub fn next(&self, intended: Timestamp<Monotonic>) -> NextRequest {
        let sequence = self.clients.sequence(self.before + self.registered);
        let transmit = self.expected.token.encode(RequestId { intended, sequence });
        let client = self.clients.client(sequence);
        let timestamps = if self.expected.interleaved {
            RequestTimestamps::interleaved(self.origins.of(client - self.clients.first()), transmit)
        } else {
            RequestTimestamps::basic(transmit)
        };
        let authenticated = self.tail.as_ref().is_some_and(|tail| tail.has_nts(sequence));
        NextRequest { intended, client, timestamps, authenticated }
    }

    /// Returns the payload of a request of a run with trailers, or of PTP; `None` in other runs, in
    /// which a template and the timestamps are sufficient.
    pub fn payload(&mut self, next: &NextRequest) -> Option<&[u8]> {
        if let Some(tracker) = &mut self.ptp {
            return Some(tracker.request(self.registered, next));
        }
        let tail = self.tail.as_mut()?;
        let reused = &mut self.interval_counts.of(next.intended).cookies_reused;
        Some(tail.request(next.client, next.timestamps, next.authenticated.then_some(reused)))
    }

    /// Registers the next request, so that its reply will be recognised.
    #[inline]
    pub fn register(&mut self) {
        if let Some(client_counts) = &mut self.client_counts {
            let sequence = self.clients.sequence(self.before + self.registered);
            client_counts.count_request(self.clients.client(sequence));
        }
        self.window.open(self.registered);
        self.registered += 1;
    }

    /// Counts a request that was sent at `sent`, and whether it was authenticated.
    #[inline]
    pub fn sent(
        &mut self,
        intended: Timestamp<Monotonic>,
        sent: Timestamp<Monotonic>,
        authenticated: bool,
    ) {
        self.sent += 1;
        self.last_sent = sent;
        let counts = self.interval_counts.of(intended);
        counts.nts_sent += u64::from(authenticated);
        counts.sent += 1;
        counts.first_sent = counts.first_sent.or(Some(sent));
        counts.last_sent = Some(sent);
        counts.lateness.record(nonnegative(sent - intended));
    }

    /// Counts requests that the sending path refused.
    pub fn refused(&mut self, requests: u64) {
        self.interval_counts.latest().refused += requests;
    }

    /// Counts requests of the interval of `intended` that were omitted.
    pub fn left_out(&mut self, intended: Timestamp<Monotonic>, requests: u64) {
        self.interval_counts.of(intended).planned += requests;
    }

    /// Counts the replies that the lane's port had no room for and the port-unreachable messages
    /// since the last call.
    pub fn dropped(&mut self, replies: u64, port_closed: u64) {
        let counts = self.interval_counts.latest();
        counts.ring_dropped += replies;
        counts.port_closed += port_closed;
    }

    /// Counts a datagram from the target. `client` is the client that received it (`None`: none of
    /// this run), `received` its receive time, and `now` is not before that; `timestamps` are its
    /// receive timestamps.
    #[inline]
    pub fn receive(
        &mut self,
        payload: &[u8],
        client: Option<u32>,
        received: Timestamp<Monotonic>,
        now: Timestamp<Monotonic>,
        timestamps: ReceiveTimestamps,
    ) {
        if let Some(mut tracker) = self.ptp.take() {
            self.receive_ptp(&mut tracker, payload, client, (received, now, timestamps));
            self.ptp = Some(tracker);
            return;
        }
        let mut is_of_earlier_trial = false;
        let mut tail = self.tail.take();
        let verified = self.expected.verify(payload, now, |question| {
            is_of_earlier_trial = self.is_of_earlier_trial(question);
            if is_of_earlier_trial {
                Ok(()) // the earlier trial may have had other clients
            } else if self.index_of(question).is_none() {
                Err(InvalidReason::Origin)
            } else if client != Some(self.clients.client(question.sequence)) {
                Err(InvalidReason::Client)
            } else if let (Some(tail), Some(client)) = (&mut tail, client) {
                let transmit = self.expected.token.encode(question);
                tail.judge(RequestRef { client, sequence: question.sequence, transmit }, payload)
            } else {
                Ok(())
            }
        });
        self.tail = tail;
        // Any other defect is not attributed to this trial.
        if is_of_earlier_trial {
            self.interval_counts.latest().count_stale_reply();
            return;
        }
        let reply = match verified {
            Ok(reply) => reply,
            Err(reason) => {
                self.invalid(reason, received);
                return;
            }
        };
        let rtt = received - reply.question.intended;
        let Some(index) = self.index_of(reply.question) else { return };
        let mark = self.window.mark(index);
        let counts = self.interval_counts.of(reply.question.intended);
        match mark {
            MarkOutcome::Duplicate => {
                counts.duplicate += 1;
                if let (Some(tail), Some(client)) = (&mut self.tail, client) {
                    tail.count_duplicate(client, reply.question.sequence);
                }
            }
            MarkOutcome::Outside => counts.late += 1,
            MarkOutcome::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                    self.listener.answered(received, self.sent);
                } else {
                    self.received(&reply, rtt, timestamps);
                }
            }
        }
    }

    /// Counts a datagram that is not a valid reply. It still proves that its sender is up.
    fn invalid(&mut self, reason: InvalidReason, received: Timestamp<Monotonic>) {
        self.interval_counts.latest().invalid[reason as usize] += 1;
        self.listener.record_invalid(received, self.timeout, self.sent);
    }

    /// Counts a request that was answered in full and in time, in NTP or PTP, and returns the
    /// counts of its interval.
    #[inline]
    fn answered_in_time(
        &mut self,
        intended: Timestamp<Monotonic>,
        client: u32,
        rtt: Span,
    ) -> &mut TrialCounts {
        self.listener.answered(intended, self.sent);
        self.longest_rtt = self.longest_rtt.max(Some(rtt));
        if let Some(client_counts) = &mut self.client_counts {
            client_counts.answered(client);
        }
        let counts = self.interval_counts.of(intended);
        counts.received += 1;
        counts.rtt.record(nonnegative(rtt));
        counts
    }

    /// Counts a valid first reply in time.
    fn received(&mut self, reply: &VerifiedReply, rtt: Span, timestamps: ReceiveTimestamps) {
        let RequestId { intended, sequence } = reply.question;
        let client = self.clients.client(sequence);
        let authenticated = self.tail.as_ref().is_some_and(|tail| tail.has_nts(sequence));
        let index = client.wrapping_sub(self.clients.first());
        let referred = self.origins.of(index);
        let counts = self.answered_in_time(intended, client, rtt);
        counts.nts_received += u64::from(authenticated);
        counts.server_unsynchronised += u64::from(reply.unsynchronised);
        let response_ns = match reply.answer {
            ReplyMode::Basic { response_ns } => response_ns,
            ReplyMode::Interleaved => {
                counts.interleaved += 1;
                let known = (referred != 0).then(|| NtpTimestamp::from_bits(referred));
                known.and_then(|receive| verify::response_ns(receive, reply.transmit))
            }
        };
        if let Some(ns) = response_ns {
            counts.response.record(ns);
        }
        if let Some(offsets) = &mut self.offsets {
            let found = self.interval_counts.of(intended).offsets.get_or_insert_default();
            let received = intended + rtt;
            offsets.record(reply, (received, timestamps), (index, referred), found);
        }
        if self.expected.interleaved {
            self.origins.remember(index, reply.receive);
        }
    }

    /// Returns the requests that were sent and have no valid reply yet.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.answered)
    }

    /// Returns the valid first replies so far.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the longest round trip so far.
    #[must_use]
    pub const fn longest_rtt(&self) -> Option<Span> {
        self.longest_rtt
    }

    /// Returns the send time of the last request, or the start of the trial.
    #[must_use]
    pub const fn last_sent(&self) -> Timestamp<Monotonic> {
        self.last_sent
    }

    /// Publishes the counts so far.
    pub fn publish_progress(&self, progress: &mut Progress) {
        self.interval_counts.publish_progress(progress);
    }

    /// Closes the first interval if no reply can be in time for it any more.
    pub fn close_interval(&mut self, now: Timestamp<Monotonic>) -> Option<ClosedInterval> {
        self.interval_counts.close_first(now, self.timeout + INTERVAL_CLOSE_DELAY)
    }

    /// Closes the tracker of a schedule of `planned` requests; also returns the state that the lane
    /// carries over to its next trial.
    #[must_use]
    pub fn close(mut self, planned: u64) -> (Vec<ClosedInterval>, LaneCarryOver) {
        let counts = self.interval_counts.latest();
        counts.planned += planned;
        counts.clients = self.client_counts.map(PerClientCounts::close).unwrap_or_default();
        counts.outages = Some(self.listener.close(self.last_sent, self.sent));
        let registered = self.before + self.registered;
        let carried = LaneCarryOver {
            registered,
            first_client: self.clients.first(),
            origins: self.origins,
            last_received: self.offsets.map(|offsets| offsets.close()).unwrap_or_default(),
            tail: self.tail,
            master: self.ptp.and_then(|tracker| tracker.master()),
        };
        (self.interval_counts.close_all(), carried)
    }

    /// Returns true if the request was sent before this trial began, and so was sent at all,
    /// judging by its sequence number.
    fn is_of_earlier_trial(&self, question: RequestId) -> bool {
        let numbers = self.before.min(self.clients.wrap().into());
        question.intended < self.start && u64::from(question.sequence) < numbers
    }

    /// Returns the index of the request of this trial with this sequence number; the latest one if
    /// several have it.
    fn index_of(&self, question: RequestId) -> Option<u64> {
        let wrap = u64::from(self.clients.wrap());
        let sequence = u64::from(question.sequence);
        let latest = (self.before + self.registered).checked_sub(1)?;
        let back = (latest % wrap + wrap).checked_sub(sequence)? % wrap;
        let index = (self.registered.checked_sub(1)?).checked_sub(back)?;
        (sequence < wrap && question.intended >= self.start).then_some(index)
    }
}

/// Time beyond the reply timeout for which an interval stays open, for requests that left late and
/// replies that were fetched late.
pub(crate) const INTERVAL_CLOSE_DELAY: Span = Span::from_ms(200);

/// Least reach of the duplicate window, in requests: 8 KiB.
const REACH_MIN: u64 = 32_768;

fn nonnegative(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap_or(0)
}
