//! Tracker of PTP requests. A delay request has one reply, and is counted as an NTP request is.
//! With NetSync Monitor the replies to a request are a `Delay_Resp` and a Sync, with a `Follow_Up`
//! if the Sync is two-step; it counts as received when all of them have arrived, so its round trip
//! ends with the last of them. Sync and `Follow_Up` carry no token: they are matched by the client
//! that received them and their sequence ID, against the state of the latest requests.

use horolog_record::InvalidReason;
use horolog_stats::MarkOutcome;
use horolog_time::{Monotonic, Span, Timestamp, Utc};
use horolog_wire::ptp::{Header, PortIdentity};

use super::sequence_numbers;
use super::{NextRequest, RequestTracker};
use crate::offset::ReceiveTimestamps;
use crate::ptp::{ExpectedPtpMessages, PtpKind, PtpReply, PtpRequestTemplate};
use crate::token::{EchoedTimestamp, RequestId, TIME_BITS};

/// Counts of PTP only.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PtpCounts {
    /// Valid first `Delay_Resp`s in time.
    pub delay: u64,
    /// Requests whose Sync arrived in time, with its `Follow_Up` if it has one.
    pub sync_follow_up: u64,
    /// Requests for unicast messages that were granted in time.
    pub grant: u64,
    /// Requests for unicast messages that were denied in time.
    pub denial: u64,
    /// Cancellations of a grant by the master.
    pub cancellation: u64,
    /// Messages received under a grant.
    pub granted_messages: u64,
}

impl PtpCounts {
    /// Adds the counts of another lane.
    pub(super) fn merge(this: &mut Option<Self>, other: Option<Self>) {
        let Some(other) = other else { return };
        let sum = this.get_or_insert_default();
        sum.delay += other.delay;
        sum.sync_follow_up += other.sync_follow_up;
        sum.grant += other.grant;
        sum.denial += other.denial;
        sum.cancellation += other.cancellation;
        sum.granted_messages += other.granted_messages;
    }
}

/// State of a lane that sends requests to a PTP master and verifies its replies.
#[derive(Debug)]
pub(super) struct PtpTracker {
    expected: ExpectedPtpMessages,
    template: PtpRequestTemplate,
    /// Port that answered first.
    master: Option<PortIdentity>,
    /// Replies to the latest requests, by their index modulo the number stored; empty if a request
    /// has only one reply.
    pending: Vec<PendingPtpExchange>,
}

/// Most requests with several replies tracked at once, of all lanes: as many as the in-kernel
/// engine tracks, in some 120 MB.
const PENDING_MAX: u64 = 1 << 21;

/// Replies so far to a request with several.
#[derive(Clone, Copy, Debug)]
struct PendingPtpExchange {
    /// Intended send time.
    intended: Timestamp<Monotonic>,
    /// Time at which the master received it, in ns since its epoch; 0 until reported.
    receive_ns: i64,
    /// Time at which the master sent the Sync; 0 until reported.
    transmit_ns: i64,
    /// Receive time of the Sync, by the timestamping clock.
    sync_at: Option<Timestamp<Utc>>,
    /// Longest time to one of the replies.
    rtt: Span,
    has_sync: bool,
}

impl PendingPtpExchange {
    /// Returns the state without any reply to the request of that instant.
    const fn new(intended: Timestamp<Monotonic>) -> Self {
        let (sync_at, rtt) = (None, Span::ZERO);
        Self { intended, receive_ns: 0, transmit_ns: 0, sync_at, rtt, has_sync: false }
    }

    /// Returns true if the Sync and all that belongs to it have arrived.
    const fn has_sync_follow_up(&self) -> bool {
        self.has_sync && self.transmit_ns != 0
    }

    const fn is_complete(&self) -> bool {
        self.receive_ns != 0 && self.has_sync_follow_up()
    }
}

/// A message as it was received.
#[derive(Clone, Copy)]
struct ArrivedMessage {
    client: Option<u32>,
    received: Timestamp<Monotonic>,
    now: Timestamp<Monotonic>,
    timestamps: ReceiveTimestamps,
}

impl PtpTracker {
    /// Creates a tracker that distinguishes `reach` requests; `master` is the port that answered in
    /// earlier trials.
    pub(super) fn new(
        expected: ExpectedPtpMessages,
        reach: u64,
        master: Option<PortIdentity>,
    ) -> Box<Self> {
        let slots = match expected.plan.kind {
            PtpKind::Delay | PtpKind::Unicast(_) => 0,
            PtpKind::Nsm => reach.min((PENDING_MAX / expected.lanes as u64).max(1)) as usize,
        };
        let template = PtpRequestTemplate::new(&expected.plan, expected.lane, expected.master);
        Box::new(Self {
            expected,
            template,
            master,
            pending: vec![PendingPtpExchange::new(Timestamp::from_ns(0)); slots],
        })
    }

    /// Returns the port that answered first.
    pub(super) const fn master(&self) -> Option<PortIdentity> {
        self.master
    }

    /// Returns the payload of the request at `index`.
    pub(super) fn request(&mut self, index: u64, next: &NextRequest) -> &[u8] {
        if let Some(pending) = self.at(index) {
            *pending = PendingPtpExchange::new(next.intended);
        }
        let token = next.timestamps.transmit;
        self.template.build_request(token, self.expected.token.sequence(token))
    }

    fn at(&mut self, index: u64) -> Option<&mut PendingPtpExchange> {
        let slots = self.pending.len() as u64;
        (slots > 0).then(|| &mut self.pending[(index % slots) as usize])
    }

    /// Checks that a message comes from the master; the first port with a valid one becomes the
    /// master.
    fn is_from_master(&mut self, header: &Header) -> Result<(), InvalidReason> {
        match self.master {
            Some(master) if master != header.source => Err(InvalidReason::Source),
            _ => {
                self.master = Some(header.source);
                Ok(())
            }
        }
    }
}

impl RequestTracker {
    /// Counts a message from the master.
    pub(super) fn receive_ptp(
        &mut self,
        tracker: &mut PtpTracker,
        payload: &[u8],
        client: Option<u32>,
        (received, now, timestamps): (
            Timestamp<Monotonic>,
            Timestamp<Monotonic>,
            ReceiveTimestamps,
        ),
    ) {
        let Some(read) = tracker.expected.read(payload, client, &self.clients) else { return };
        let arrived = ArrivedMessage { client, received, now, timestamps };
        let result = read.and_then(|(header, answer)| match answer {
            PtpReply::Delay { token, .. }
            | PtpReply::Grant { token, .. }
            | PtpReply::Cancelled { token, .. } => {
                self.take_by_token(tracker, &header, answer, (token, arrived))
            }
            PtpReply::Granted => {
                self.interval_counts.latest().ptp.get_or_insert_default().granted_messages += 1;
                Ok(())
            }
            PtpReply::Sync { .. } | PtpReply::FollowUp { .. } => {
                self.take_sync(tracker, &header, answer, arrived)
            }
        });
        if let Err(reason) = result {
            self.invalid(reason, received);
        }
    }

    /// Takes a `Delay_Resp`, a grant or its cancellation, whose token identifies its request.
    fn take_by_token(
        &mut self,
        tracker: &mut PtpTracker,
        header: &Header,
        answer: PtpReply,
        (token, arrived): (u64, ArrivedMessage),
    ) -> Result<(), InvalidReason> {
        let plan = tracker.expected.plan;
        let question = match tracker.expected.token.decode(token, arrived.now) {
            Some((question, EchoedTimestamp::Transmit)) => question,
            // In a group it belongs to another client.
            _ if plan.multicast => return Ok(()),
            _ => return Err(InvalidReason::Origin),
        };
        let has_number = header.sequence_id == question.sequence as u16;
        // Another client's clock identity may resemble a token, but rarely with the same sequence
        // ID.
        if plan.multicast && !has_number {
            return Ok(());
        }
        if self.is_of_earlier_trial(question) {
            self.interval_counts.latest().count_stale_reply();
            return Ok(());
        }
        let index = match self.index_of(question) {
            Some(index) => index,
            None if plan.multicast => return Ok(()),
            None => return Err(InvalidReason::Origin),
        };
        if plan.has_addresses() && arrived.client != Some(self.clients.client(question.sequence)) {
            return Err(InvalidReason::Client);
        }
        match answer {
            // Signaling messages have sequence IDs of their own (clause 13.4.1).
            PtpReply::Grant { kind, .. } | PtpReply::Cancelled { kind, .. }
                if !plan.is_request_for(question.sequence, kind) =>
            {
                return Err(InvalidReason::UnicastTerms);
            }
            PtpReply::Delay { .. } if !has_number => {
                return Err(InvalidReason::Sequence);
            }
            _ => {}
        }
        tracker.is_from_master(header)?;
        if plan.kind == PtpKind::Nsm {
            return self.take_part(tracker, index, answer, arrived);
        }
        if let PtpReply::Cancelled { .. } = answer {
            // It may arrive long after the grant, which is the reply.
            let counts = self.interval_counts.of(question.intended);
            counts.ptp.get_or_insert_default().cancellation += 1;
            return Ok(());
        }
        self.take_only(index, question, arrived.received - question.intended, answer);
        Ok(())
    }

    /// Takes the only reply to a request.
    fn take_only(&mut self, index: u64, question: RequestId, rtt: Span, answer: PtpReply) {
        let mark = self.window.mark(index);
        let counts = self.interval_counts.of(question.intended);
        match mark {
            MarkOutcome::Duplicate => counts.duplicate += 1,
            MarkOutcome::Outside => counts.late += 1,
            MarkOutcome::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                    self.listener.answered(question.intended + rtt, self.sent);
                } else {
                    let client = self.clients.client(question.sequence);
                    let counts = self.answered_in_time(question.intended, client, rtt);
                    let ptp = counts.ptp.get_or_insert_default();
                    match answer {
                        PtpReply::Grant { duration_s: 0, .. } => ptp.denial += 1,
                        PtpReply::Grant { .. } => ptp.grant += 1,
                        _ => ptp.delay += 1,
                    }
                }
            }
        }
    }

    /// Takes Sync and `Follow_Up`, whose request is identified by the client and their sequence ID.
    fn take_sync(
        &mut self,
        tracker: &mut PtpTracker,
        header: &Header,
        answer: PtpReply,
        arrived: ArrivedMessage,
    ) -> Result<(), InvalidReason> {
        let client = arrived.client.filter(|&client| self.clients.has(client));
        let client = client.ok_or(InvalidReason::Client)?;
        let total = self.latest_of(client, header.sequence_id).ok_or(InvalidReason::Sequence)?;
        tracker.is_from_master(header)?;
        match total.checked_sub(self.before) {
            None => {
                self.interval_counts.latest().count_stale_reply();
                Ok(())
            }
            Some(index) => self.take_part(tracker, index, answer, arrived),
        }
    }

    /// Returns the latest request of a client with this sequence ID, counted from the lane's very
    /// first one.
    fn latest_of(&self, client: u32, sequence_id: u16) -> Option<u64> {
        let (count, wrap) = (u64::from(self.clients.count()), u64::from(self.clients.wrap()));
        let turn = u64::from(client - self.clients.first());
        let latest = (self.before + self.registered).checked_sub(1)?;
        let latest = latest.checked_sub((latest + count - turn) % count)?;
        let back = sequence_numbers::requests_since(latest % wrap, sequence_id, (count, wrap))?;
        latest.checked_sub(back)
    }

    /// Takes one of several replies to a request.
    fn take_part(
        &mut self,
        tracker: &mut PtpTracker,
        index: u64,
        answer: PtpReply,
        arrived: ArrivedMessage,
    ) -> Result<(), InvalidReason> {
        let slots = tracker.pending.len() as u64;
        // A slot belongs to the next request as soon as that is being built.
        let Some(pending) = tracker.at(index).filter(|_| index + slots > self.registered) else {
            self.interval_counts.latest().late += 1;
            return Ok(());
        };
        let had = *pending;
        let mut has = had;
        match answer {
            PtpReply::Delay { receive_ns, .. } => has.receive_ns = receive_ns,
            // Not replies to such a request.
            PtpReply::Grant { .. } | PtpReply::Cancelled { .. } | PtpReply::Granted => {
                return Ok(());
            }
            PtpReply::FollowUp { transmit_ns } => has.transmit_ns = transmit_ns,
            PtpReply::Sync { transmit_ns } => {
                has.has_sync = true;
                has.sync_at = self.offsets.as_ref().and_then(|it| it.instant(arrived.timestamps));
                has.transmit_ns = transmit_ns.unwrap_or(had.transmit_ns);
            }
        }
        let is_known = match answer {
            PtpReply::Delay { .. } => had.receive_ns != 0,
            PtpReply::FollowUp { .. } => had.transmit_ns != 0,
            PtpReply::Sync { .. } => had.has_sync,
            PtpReply::Grant { .. } | PtpReply::Cancelled { .. } | PtpReply::Granted => false,
        };
        let counts = self.interval_counts.of(had.intended);
        if is_known {
            counts.duplicate += 1;
            return Ok(());
        }
        let response = response_ns(&has)?;
        let rtt = arrived.received - had.intended;
        has.rtt = has.rtt.max(rtt);
        *pending = has;
        let is_late = rtt > self.timeout;
        counts.late += u64::from(is_late);
        // A partial reply proves that the master is up, whatever becomes of the rest.
        let responsive_at = if is_late { arrived.received } else { had.intended };
        self.listener.answered(responsive_at, self.sent);
        self.answered += u64::from(has.is_complete());
        if has.rtt > self.timeout {
            return Ok(());
        }
        if let PtpReply::Delay { untraceable, .. } = answer {
            counts.server_unsynchronised += u64::from(untraceable);
        }
        let ptp = counts.ptp.get_or_insert_default();
        ptp.delay += u64::from(matches!(answer, PtpReply::Delay { .. }));
        ptp.sync_follow_up += u64::from(has.has_sync_follow_up() && !had.has_sync_follow_up());
        if has.is_complete() {
            let client = self.clients.client(self.clients.sequence(self.before + index));
            let counts = self.answered_in_time(had.intended, client, has.rtt);
            if let Some(ns) = response {
                counts.response.record(ns);
            }
            if let Some(offsets) = &mut self.offsets {
                let found = self.interval_counts.of(had.intended).offsets.get_or_insert_default();
                offsets.record_sync(has.sync_at, (has.receive_ns, has.transmit_ns), found);
            }
        }
        Ok(())
    }
}

/// Returns the time from the receipt of the request until the Sync left, if both are known; refuses
/// an implausible one.
fn response_ns(pending: &PendingPtpExchange) -> Result<Option<u64>, InvalidReason> {
    if pending.receive_ns == 0 || pending.transmit_ns == 0 {
        return Ok(None);
    }
    u64::try_from(pending.transmit_ns - pending.receive_ns)
        .ok()
        .filter(|&ns| ns < 1 << TIME_BITS)
        .map(Some)
        .ok_or(InvalidReason::Timestamp)
}

#[cfg(test)]
mod tests;
