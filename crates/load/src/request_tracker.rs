//! Tracker of requests: their outcomes in one trial, as counts. Each lane has its own; the counts
//! are merged at the end.

use horolog_record::{InvalidReplyReason, Progress};
use horolog_stats::duplicate_window::WindowTooLarge;
use horolog_stats::{DuplicateWindow, SequenceMarkOutcome};
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ptp::PortIdentity;

use crate::clients::LaneClients;
use crate::fairness::PerClientCounts;
use crate::offset::{
    LaneServerOffsetRecorder, LastReplies, ReceiveTimestamps, ServerOffsetCounts,
    ServerOffsetParameters,
};
use crate::outage::OutageDetector;
use crate::ptp::PtpMessageVerifier;
use crate::request::RequestTimestamps;
use crate::token::RequestId;
use crate::trailer::{RequestClaimedByReply, RequestTrailer};
use crate::verify::{self, ReplyMode, ReplyVerifier, VerifiedReply};
use interval_counts::OpenIntervalCounts;

mod counts;
mod interval_counts;
mod ptp;

pub use counts::TrialCounts;
pub use interval_counts::ClosedInterval;
pub use ptp::PtpReplyCounts;

/// Tracker of the requests of one lane during one trial.
#[derive(Debug)]
pub struct RequestTracker {
    interval_counts: OpenIntervalCounts,
    outage_detector: OutageDetector,
    client_counts: Option<PerClientCounts>,
    expected: ReplyVerifier,
    clients: LaneClients,
    window: DuplicateWindow,
    start: Timestamp<Monotonic>,
    timeout: Span,
    /// Requests of this lane in earlier trials.
    registered_before: u64,
    /// Requests of this lane in this trial.
    registered: u64,
    /// Requests of this lane that were sent.
    sent: u64,
    /// Requests with a valid first reply, late ones included.
    answered: u64,
    last_sent: Timestamp<Monotonic>,
    /// Longest round trip of a reply in time.
    longest_rtt: Option<Span>,
    origins: InterleavedOrigins,
    offsets: Option<Box<LaneServerOffsetRecorder>>,
    trailer: Option<Box<RequestTrailer>>,
    ptp: Option<Box<ptp::PtpRequestTracker>>,
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

/// Origin timestamps of a lane's clients for interleaved mode: the server's receive timestamp in
/// each client's last reply, as the 64 bits of an NTP timestamp; 0 before the first reply. Empty in
/// basic mode.
#[derive(Debug, Default)]
pub struct InterleavedOrigins(Vec<u64>);

impl InterleavedOrigins {
    /// Returns the origin timestamp of the lane's client number `client`, counted from 0; 0 if
    /// unknown.
    #[must_use]
    pub fn origin_of(&self, client: u32) -> u64 {
        self.0.get(client as usize).copied().unwrap_or(0)
    }

    fn set_origin(&mut self, client: u32, receive: NtpTimestamp) {
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
    /// Number of the first client that `origins` and `last_received` describe.
    pub first_client: u32,
    /// Origin timestamps of these clients.
    pub origins: InterleavedOrigins,
    /// Receive times of their last replies, if offsets are measured in interleaved mode.
    pub last_received: LastReplies,
    /// Trailer of the requests, if they have one.
    pub trailer: Option<Box<RequestTrailer>>,
    /// Port identity of the PTP master, once it has replied.
    pub master: Option<PortIdentity>,
}

/// Replies that a lane expects, with the values that they are verified against.
#[derive(Clone, Copy, Debug)]
pub enum ExpectedReplies {
    /// Replies of an NTP server, or of a reflector.
    Ntp(ReplyVerifier),
    /// Messages of a PTP master.
    Ptp(PtpMessageVerifier),
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
    /// Intended rate of the lane in requests per second; the highest one of a load profile.
    pub rate: f64,
    /// Parameters for the offsets of the server's transmit timestamps, if they are measured.
    pub offset: Option<ServerOffsetParameters>,
    /// Length of an interval; `None` if the trial has one set of counts.
    pub interval: Option<Span>,
    /// True if each client is counted separately.
    pub fairness: bool,
}

impl RequestTracker {
    /// Creates a tracker. Fails if the duplicate window for the rate and the timeout would be too
    /// large.
    pub fn open(plan: &TrackerConfig, carried: LaneCarryOver) -> Result<Self, WindowTooLarge> {
        // Twice the most in flight, since a delayed sender sends in bursts.
        let in_flight = plan.rate * plan.timeout.as_seconds();
        let window_len = ((2.0 * in_flight) as u64).saturating_add(WINDOW_MIN);
        let window = DuplicateWindow::new(window_len)?;
        let has_same_clients = carried.first_client == plan.clients.first_client();
        let (mut origins, last_received) = if has_same_clients {
            (carried.origins, carried.last_received)
        } else {
            Default::default()
        };
        let (expected, ptp) = match plan.expected {
            ExpectedReplies::Ntp(expected) => (expected, None),
            ExpectedReplies::Ptp(ptp) => (ReplyVerifier::plain(ptp.token), Some(ptp)),
        };
        let client_states =
            if expected.interleaved { plan.clients.client_count() as usize } else { 0 };
        origins.0.resize(client_states, 0);
        let offsets = plan
            .offset
            .map(|offset| LaneServerOffsetRecorder::new(offset, last_received, client_states));
        let new_tracker =
            |expected| ptp::PtpRequestTracker::new(expected, window_len, carried.master);
        let initial_counts = TrialCounts {
            cookies_reused: carried.trailer.as_ref().and_then(|tail| tail.cookies_reused()),
            ptp: ptp.map(|_| PtpReplyCounts::default()),
            offsets: plan.offset.map(|_| ServerOffsetCounts::default()),
            ..TrialCounts::default()
        };
        Ok(Self {
            interval_counts: OpenIntervalCounts::new(plan.start, plan.interval, initial_counts),
            outage_detector: OutageDetector::new(plan.start),
            client_counts: plan.fairness.then(|| PerClientCounts::new(&plan.clients)),
            ptp: ptp.map(new_tracker),
            expected,
            clients: plan.clients,
            window,
            start: plan.start,
            timeout: plan.timeout,
            registered_before: carried.registered,
            registered: 0,
            sent: 0,
            answered: 0,
            last_sent: plan.start,
            longest_rtt: None,
            origins,
            offsets: offsets.map(Box::new),
            trailer: carried.trailer,
        })
    }

    /// Sets the start of the trial, before its first request: allocation in
    /// [`RequestTracker::open`] takes time.
    pub fn set_start(&mut self, start: Timestamp<Monotonic>) {
        (self.start, self.last_sent) = (start, start);
        self.outage_detector = OutageDetector::new(start);
        self.interval_counts.set_start(start);
    }

    /// Returns the next request with the intended send time `intended`. Repeated calls return the
    /// same request until [`RequestTracker::register`].
    #[inline]
    #[must_use]
    pub fn next(&self, intended: Timestamp<Monotonic>) -> NextRequest {
        let sequence = self.clients.sequence(self.registered_before + self.registered);
        let transmit = self.expected.token.encode(RequestId { intended, sequence });
        let client = self.clients.client(sequence);
        let timestamps = if self.expected.interleaved {
            RequestTimestamps::interleaved(
                self.origins.origin_of(client - self.clients.first_client()),
                transmit,
            )
        } else {
            RequestTimestamps::basic(transmit)
        };
        let authenticated = self.trailer.as_ref().is_some_and(|tail| tail.has_nts(sequence));
        NextRequest { intended, client, timestamps, authenticated }
    }

    /// Returns the payload of a request with a trailer or of PTP. `None` for other requests, which
    /// are made from the template and the timestamps.
    pub fn payload(&mut self, next: &NextRequest) -> Option<&[u8]> {
        if let Some(tracker) = &mut self.ptp {
            return Some(tracker.build_request(self.registered, next));
        }
        let trailer = self.trailer.as_mut()?;
        let reused = &mut self.interval_counts.counts_at(next.intended).cookies_reused;
        Some(trailer.build_request(
            next.client,
            next.timestamps,
            next.authenticated.then_some(reused),
        ))
    }

    /// Registers the next request, so that its reply will be recognised.
    #[inline]
    pub fn register(&mut self) {
        if let Some(client_counts) = &mut self.client_counts {
            let sequence = self.clients.sequence(self.registered_before + self.registered);
            client_counts.count_request(self.clients.client(sequence));
        }
        self.window.open(self.registered);
        self.registered += 1;
    }

    /// Counts a request with this intended send time that was sent at `sent`.
    #[inline]
    pub fn count_sent(
        &mut self,
        intended: Timestamp<Monotonic>,
        sent: Timestamp<Monotonic>,
        authenticated: bool,
    ) {
        self.sent += 1;
        self.last_sent = sent;
        let counts = self.interval_counts.counts_at(intended);
        counts.nts_sent += u64::from(authenticated);
        counts.sent += 1;
        counts.first_sent = counts.first_sent.or(Some(sent));
        counts.last_sent = Some(sent);
        counts.lateness.record(nonnegative_ns(sent - intended));
    }

    /// Counts requests whose sending failed.
    pub fn count_refused(&mut self, requests: u64) {
        self.interval_counts.latest_counts().refused += requests;
    }

    /// Counts omitted requests in the interval of `intended`.
    pub fn count_omitted(&mut self, intended: Timestamp<Monotonic>, requests: u64) {
        self.interval_counts.counts_at(intended).planned += requests;
    }

    /// Counts replies dropped by the receive rings or sockets, and ICMP port-unreachable messages,
    /// since the last call.
    pub fn count_dropped(&mut self, replies: u64, port_closed: u64) {
        let counts = self.interval_counts.latest_counts();
        counts.ring_dropped += replies;
        counts.port_closed += port_closed;
    }

    /// Counts a datagram from the target. `client` received it (`None`: no client of this lane), at
    /// `received`; `now` is not earlier. `timestamps` are its receive timestamps.
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
        let mut trailer = self.trailer.take();
        let verified = self.expected.verify(payload, now, |request| {
            is_of_earlier_trial = self.is_of_earlier_trial(request);
            if is_of_earlier_trial {
                Ok(()) // the earlier trial may have had other clients
            } else if self.index_of(request).is_none() {
                Err(InvalidReplyReason::Origin)
            } else if client != Some(self.clients.client(request.sequence)) {
                Err(InvalidReplyReason::Client)
            } else if let (Some(tail), Some(client)) = (&mut trailer, client) {
                let transmit = self.expected.token.encode(request);
                tail.verify(
                    RequestClaimedByReply { client, sequence: request.sequence, transmit },
                    payload,
                )
            } else {
                Ok(())
            }
        });
        self.trailer = trailer;
        // Defects of such a reply are not counted, since this trial did not cause them.
        if is_of_earlier_trial {
            self.interval_counts.latest_counts().count_stale_reply();
            return;
        }
        let reply = match verified {
            Ok(reply) => reply,
            Err(reason) => {
                self.count_invalid(reason, received);
                return;
            }
        };
        let rtt = received - reply.request.intended;
        let Some(index) = self.index_of(reply.request) else { return };
        let mark = self.window.mark(index);
        let counts = self.interval_counts.counts_at(reply.request.intended);
        match mark {
            SequenceMarkOutcome::Duplicate => {
                counts.duplicate += 1;
                if let (Some(tail), Some(client)) = (&mut self.trailer, client) {
                    tail.count_duplicate(client, reply.request.sequence);
                }
            }
            SequenceMarkOutcome::Outside => counts.late += 1,
            SequenceMarkOutcome::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                    self.outage_detector.answered(received, self.sent);
                } else {
                    self.count_received(&reply, rtt, timestamps);
                }
            }
        }
    }

    /// Counts a datagram that is not a valid reply; it still ends an outage.
    fn count_invalid(&mut self, reason: InvalidReplyReason, received: Timestamp<Monotonic>) {
        self.interval_counts.latest_counts().invalid[reason as usize] += 1;
        self.outage_detector.record_invalid(received, self.timeout, self.sent);
    }

    /// Counts a request with complete replies in time (NTP or PTP), and returns the counts of its
    /// interval.
    #[inline]
    fn answered_in_time(
        &mut self,
        intended: Timestamp<Monotonic>,
        client: u32,
        rtt: Span,
    ) -> &mut TrialCounts {
        self.outage_detector.answered(intended, self.sent);
        self.longest_rtt = self.longest_rtt.max(Some(rtt));
        if let Some(client_counts) = &mut self.client_counts {
            client_counts.count_reply(client);
        }
        let counts = self.interval_counts.counts_at(intended);
        counts.received += 1;
        counts.rtt.record(nonnegative_ns(rtt));
        counts
    }

    /// Counts a valid first reply in time.
    fn count_received(&mut self, reply: &VerifiedReply, rtt: Span, timestamps: ReceiveTimestamps) {
        let RequestId { intended, sequence } = reply.request;
        let client = self.clients.client(sequence);
        let authenticated = self.trailer.as_ref().is_some_and(|tail| tail.has_nts(sequence));
        let index = client.wrapping_sub(self.clients.first_client());
        let origin = self.origins.origin_of(index);
        let counts = self.answered_in_time(intended, client, rtt);
        counts.nts_received += u64::from(authenticated);
        counts.server_unsynchronised += u64::from(reply.unsynchronised);
        let response_ns = match reply.mode {
            ReplyMode::Basic { response_ns } => response_ns,
            ReplyMode::Interleaved => {
                counts.interleaved += 1;
                let known = (origin != 0).then(|| NtpTimestamp::from_bits(origin));
                known.and_then(|receive| verify::response_ns(receive, reply.transmit))
            }
        };
        if let Some(ns) = response_ns {
            counts.response.record(ns);
        }
        if let Some(offsets) = &mut self.offsets {
            let offset_counts =
                self.interval_counts.counts_at(intended).offsets.get_or_insert_default();
            let received = intended + rtt;
            offsets.record(reply, (received, timestamps), (index, origin), offset_counts);
        }
        if self.expected.interleaved {
            self.origins.set_origin(index, reply.receive);
        }
    }

    /// Returns the number of requests sent that have no complete valid reply so far, not even a
    /// late one.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.answered)
    }

    /// Returns the number of valid first replies so far, late ones included.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the longest round trip of replies in time so far.
    #[must_use]
    pub const fn longest_rtt(&self) -> Option<Span> {
        self.longest_rtt
    }

    /// Returns the send time of the last request, or the start of the trial.
    #[must_use]
    pub const fn last_sent(&self) -> Timestamp<Monotonic> {
        self.last_sent
    }

    /// Publishes the counts so far to `progress`.
    pub fn publish_progress(&self, progress: &mut Progress) {
        self.interval_counts.publish_progress(progress);
    }

    /// Closes the oldest open interval if no reply to its requests can be in time any more.
    pub fn close_interval(&mut self, now: Timestamp<Monotonic>) -> Option<ClosedInterval> {
        self.interval_counts.close_first(now, self.timeout + INTERVAL_CLOSE_DELAY)
    }

    /// Closes all intervals and adds `planned` requests to the last one. Returns the counts, and
    /// the state that the lane carries over to its next trial.
    #[must_use]
    pub fn close(mut self, planned: u64) -> (Vec<ClosedInterval>, LaneCarryOver) {
        let counts = self.interval_counts.latest_counts();
        counts.planned += planned;
        counts.clients = self.client_counts.map(PerClientCounts::close).unwrap_or_default();
        counts.outages = Some(self.outage_detector.close(self.last_sent, self.sent));
        let registered = self.registered_before + self.registered;
        let carried = LaneCarryOver {
            registered,
            first_client: self.clients.first_client(),
            origins: self.origins,
            last_received: self.offsets.map(|offsets| offsets.close()).unwrap_or_default(),
            trailer: self.trailer,
            master: self.ptp.and_then(|tracker| tracker.master()),
        };
        (self.interval_counts.close_all(), carried)
    }

    /// Returns true if the request was sent before this trial began: its time is earlier, and its
    /// sequence number was in use.
    fn is_of_earlier_trial(&self, request: RequestId) -> bool {
        let numbers = self.registered_before.min(self.clients.sequence_end().into());
        request.intended < self.start && u64::from(request.sequence) < numbers
    }

    /// Returns the index in this trial of the latest request with this sequence number; `None` if
    /// no such request was registered.
    fn index_of(&self, request: RequestId) -> Option<u64> {
        let sequence_end = u64::from(self.clients.sequence_end());
        let sequence = u64::from(request.sequence);
        let latest = (self.registered_before + self.registered).checked_sub(1)?;
        let age = (latest % sequence_end + sequence_end).checked_sub(sequence)? % sequence_end;
        let index = (self.registered.checked_sub(1)?).checked_sub(age)?;
        (sequence < sequence_end && request.intended >= self.start).then_some(index)
    }
}

/// Time beyond the reply timeout for which an interval stays open, because requests may be sent and
/// replies be read late.
pub(crate) const INTERVAL_CLOSE_DELAY: Span = Span::from_ms(200);

/// Smallest duplicate window, in requests.
const WINDOW_MIN: u64 = 32_768;

fn nonnegative_ns(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap_or(0)
}
