//! Tracker of PTP requests. A delay request has one reply and is counted like an NTP request. A
//! NetSync Monitor request has several: a `Delay_Resp`, a Sync and, in two-step mode, a
//! `Follow_Up`. It counts as received when the last of them has arrived, which also ends its round
//! trip. Sync and `Follow_Up` carry no token, so they are matched by client and sequence ID.

use horolog_record::InvalidReplyReason;
use horolog_stats::SequenceMarkOutcome;
use horolog_time::{Monotonic, Span, Timestamp, Utc};
use horolog_wire::ptp::{Header, PortIdentity};

use super::{NextRequest, RequestTracker};
use crate::offset::ReceiveTimestamps;
use crate::ptp::{PtpMessageVerifier, PtpReply, PtpRequestKind, PtpRequestTemplate};
use crate::token::{EchoedTimestamp, RequestId, TIME_BITS};

/// Counts of PTP replies by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PtpReplyCounts {
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
    /// Messages received under a grant (Announce, Sync or `Follow_Up`).
    pub granted_messages: u64,
}

impl PtpReplyCounts {
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

/// PTP state of a lane: request template, master, and requests with several replies.
#[derive(Debug)]
pub(super) struct PtpRequestTracker {
    expected: PtpMessageVerifier,
    template: PtpRequestTemplate,
    /// Port identity that replied first; messages from others are refused.
    master: Option<PortIdentity>,
    /// Replies so far to the latest requests, as a ring indexed by the request index modulo its
    /// length; empty if a request has one reply.
    pending: Vec<PendingPtpExchange>,
}

/// Largest number of requests with several replies that all lanes track at the same time, in about
/// 120 MB; the XDP engine has the same limit.
const PENDING_MAX: u64 = 1 << 21;

/// Replies so far to a request with several.
#[derive(Clone, Copy, Debug)]
struct PendingPtpExchange {
    /// Intended send time.
    intended: Timestamp<Monotonic>,
    /// Master's receive time of the request, in ns of its timescale; 0 until known.
    receive_ns: i64,
    /// Master's transmit time of the Sync, in ns of its timescale; 0 until known.
    transmit_ns: i64,
    /// Receive timestamp of the Sync, by the selected source.
    sync_at: Option<Timestamp<Utc>>,
    /// Longest time from the intended send time to one of the replies.
    rtt: Span,
    has_sync: bool,
}

impl PendingPtpExchange {
    /// Creates the state of a request without replies.
    const fn new(intended: Timestamp<Monotonic>) -> Self {
        let (sync_at, rtt) = (None, Span::ZERO);
        Self { intended, receive_ns: 0, transmit_ns: 0, sync_at, rtt, has_sync: false }
    }

    /// Returns true if the Sync has arrived, with its `Follow_Up` in two-step mode.
    const fn has_sync_follow_up(&self) -> bool {
        self.has_sync && self.transmit_ns != 0
    }

    const fn is_complete(&self) -> bool {
        self.receive_ns != 0 && self.has_sync_follow_up()
    }
}

/// Client and receive times of a message.
#[derive(Clone, Copy)]
struct PtpReplyArrival {
    client: Option<u32>,
    received: Timestamp<Monotonic>,
    now: Timestamp<Monotonic>,
    timestamps: ReceiveTimestamps,
}

impl PtpRequestTracker {
    /// Creates a tracker. With several replies to a request it distinguishes the latest `reach`
    /// requests, limited by [`PENDING_MAX`]; `master` is the port that answered in earlier trials.
    pub(super) fn new(
        expected: PtpMessageVerifier,
        reach: u64,
        master: Option<PortIdentity>,
    ) -> Box<Self> {
        let slots = match expected.plan.kind {
            PtpRequestKind::Delay | PtpRequestKind::Unicast(_) => 0,
            PtpRequestKind::Nsm => reach.min((PENDING_MAX / expected.lanes as u64).max(1)) as usize,
        };
        let template = PtpRequestTemplate::new(&expected.plan, expected.lane, expected.master);
        Box::new(Self {
            expected,
            template,
            master,
            pending: vec![PendingPtpExchange::new(Timestamp::from_ns(0)); slots],
        })
    }

    /// Returns the port identity of the master; `None` before its first reply.
    pub(super) const fn master(&self) -> Option<PortIdentity> {
        self.master
    }

    /// Returns the payload of the request with this index in the trial.
    pub(super) fn build_request(&mut self, index: u64, next: &NextRequest) -> &[u8] {
        if let Some(pending) = self.pending_at(index) {
            *pending = PendingPtpExchange::new(next.intended);
        }
        let token = next.timestamps.transmit;
        self.template.build_request(token, self.expected.token.sequence(token))
    }

    fn pending_at(&mut self, index: u64) -> Option<&mut PendingPtpExchange> {
        let slots = self.pending.len() as u64;
        (slots > 0).then(|| &mut self.pending[(index % slots) as usize])
    }

    /// Refuses a message from another port than the master's. The first port with a valid message
    /// becomes the master.
    fn check_source(&mut self, header: &Header) -> Result<(), InvalidReplyReason> {
        match self.master {
            Some(master) if master != header.source => Err(InvalidReplyReason::Source),
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
        tracker: &mut PtpRequestTracker,
        payload: &[u8],
        client: Option<u32>,
        (received, now, timestamps): (
            Timestamp<Monotonic>,
            Timestamp<Monotonic>,
            ReceiveTimestamps,
        ),
    ) {
        let Some(validated) = tracker.expected.validate(payload, client, &self.clients) else {
            return;
        };
        let arrived = PtpReplyArrival { client, received, now, timestamps };
        let result = validated.and_then(|(header, reply)| match reply {
            PtpReply::Delay { token, .. }
            | PtpReply::Grant { token, .. }
            | PtpReply::Cancelled { token, .. } => {
                self.receive_by_token(tracker, &header, reply, (token, arrived))
            }
            PtpReply::Granted => {
                self.interval_counts
                    .latest_counts()
                    .ptp
                    .get_or_insert_default()
                    .granted_messages += 1;
                Ok(())
            }
            PtpReply::Sync { .. } | PtpReply::FollowUp { .. } => {
                self.receive_sync(tracker, &header, reply, arrived)
            }
        });
        if let Err(reason) = result {
            self.count_invalid(reason, received);
        }
    }

    /// Takes a `Delay_Resp`, a grant or its cancellation, whose token identifies its request.
    fn receive_by_token(
        &mut self,
        tracker: &mut PtpRequestTracker,
        header: &Header,
        reply: PtpReply,
        (token, arrived): (u64, PtpReplyArrival),
    ) -> Result<(), InvalidReplyReason> {
        let plan = tracker.expected.plan;
        let request = match tracker.expected.token.decode(token, arrived.now) {
            Some((question, EchoedTimestamp::Transmit)) => question,
            // With multicast, the message belongs to another client.
            _ if plan.multicast => return Ok(()),
            _ => return Err(InvalidReplyReason::Origin),
        };
        let has_number = header.sequence_id == request.sequence as u16;
        // The clock identity of another client may decode as a token, but its sequence ID rarely
        // matches too.
        if plan.multicast && !has_number {
            return Ok(());
        }
        if self.is_of_earlier_trial(request) {
            self.interval_counts.latest_counts().count_stale_reply();
            return Ok(());
        }
        let index = match self.index_of(request) {
            Some(index) => index,
            None if plan.multicast => return Ok(()),
            None => return Err(InvalidReplyReason::Origin),
        };
        if plan.replies_to_client_address()
            && arrived.client != Some(self.clients.client(request.sequence))
        {
            return Err(InvalidReplyReason::Client);
        }
        match reply {
            // The sequence ID of a grant is the master's own (clause 13.4.1).
            PtpReply::Grant { kind, .. } | PtpReply::Cancelled { kind, .. }
                if !plan.is_request_for(request.sequence, kind) =>
            {
                return Err(InvalidReplyReason::UnicastTerms);
            }
            PtpReply::Delay { .. } if !has_number => {
                return Err(InvalidReplyReason::Sequence);
            }
            _ => {}
        }
        tracker.check_source(header)?;
        if plan.kind == PtpRequestKind::Nsm {
            return self.receive_partial_reply(tracker, index, reply, arrived);
        }
        if let PtpReply::Cancelled { .. } = reply {
            // A cancellation may arrive long after the grant, which is the reply.
            let counts = self.interval_counts.counts_at(request.intended);
            counts.ptp.get_or_insert_default().cancellation += 1;
            return Ok(());
        }
        self.receive_single_reply(index, request, arrived.received - request.intended, reply);
        Ok(())
    }

    /// Takes the only reply to a request.
    fn receive_single_reply(&mut self, index: u64, request: RequestId, rtt: Span, reply: PtpReply) {
        let mark = self.window.mark(index);
        let counts = self.interval_counts.counts_at(request.intended);
        match mark {
            SequenceMarkOutcome::Duplicate => counts.duplicate += 1,
            SequenceMarkOutcome::Outside => counts.late += 1,
            SequenceMarkOutcome::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                    self.outage_detector.answered(request.intended + rtt, self.sent);
                } else {
                    let client = self.clients.client(request.sequence);
                    let counts = self.answered_in_time(request.intended, client, rtt);
                    let ptp = counts.ptp.get_or_insert_default();
                    match reply {
                        PtpReply::Grant { duration_s: 0, .. } => ptp.denial += 1,
                        PtpReply::Grant { .. } => ptp.grant += 1,
                        _ => ptp.delay += 1,
                    }
                }
            }
        }
    }

    /// Takes Sync and `Follow_Up`, whose request is identified by the client and their sequence ID.
    fn receive_sync(
        &mut self,
        tracker: &mut PtpRequestTracker,
        header: &Header,
        reply: PtpReply,
        arrived: PtpReplyArrival,
    ) -> Result<(), InvalidReplyReason> {
        let client = arrived.client.filter(|&client| self.clients.includes(client));
        let client = client.ok_or(InvalidReplyReason::Client)?;
        let total = self
            .latest_request_of(client, header.sequence_id)
            .ok_or(InvalidReplyReason::Sequence)?;
        tracker.check_source(header)?;
        match total.checked_sub(self.registered_before) {
            None => {
                self.interval_counts.latest_counts().count_stale_reply();
                Ok(())
            }
            Some(index) => self.receive_partial_reply(tracker, index, reply, arrived),
        }
    }

    /// Returns the latest request of a client with this sequence ID, as its number over all trials
    /// of the lane.
    fn latest_request_of(&self, client: u32, sequence_id: u16) -> Option<u64> {
        let (count, sequence_end) =
            (u64::from(self.clients.client_count()), u64::from(self.clients.sequence_end()));
        let position = u64::from(client - self.clients.first_client());
        let latest = (self.registered_before + self.registered).checked_sub(1)?;
        let latest = latest.checked_sub((latest + count - position) % count)?;
        let age = requests_since(latest % sequence_end, sequence_id, (count, sequence_end))?;
        latest.checked_sub(age)
    }

    /// Takes one of several replies to a request.
    fn receive_partial_reply(
        &mut self,
        tracker: &mut PtpRequestTracker,
        index: u64,
        reply: PtpReply,
        arrived: PtpReplyArrival,
    ) -> Result<(), InvalidReplyReason> {
        let slots = tracker.pending.len() as u64;
        // A slot belongs to the next request from the time at which that is built.
        let Some(pending) = tracker.pending_at(index).filter(|_| index + slots > self.registered)
        else {
            self.interval_counts.latest_counts().late += 1;
            return Ok(());
        };
        let before = *pending;
        let mut after = before;
        match reply {
            PtpReply::Delay { receive_ns, .. } => after.receive_ns = receive_ns,
            // Not replies to such a request.
            PtpReply::Grant { .. } | PtpReply::Cancelled { .. } | PtpReply::Granted => {
                return Ok(());
            }
            PtpReply::FollowUp { transmit_ns } => after.transmit_ns = transmit_ns,
            PtpReply::Sync { transmit_ns } => {
                after.has_sync = true;
                after.sync_at =
                    self.offsets.as_ref().and_then(|it| it.selected_timestamp(arrived.timestamps));
                after.transmit_ns = transmit_ns.unwrap_or(before.transmit_ns);
            }
        }
        let is_known = match reply {
            PtpReply::Delay { .. } => before.receive_ns != 0,
            PtpReply::FollowUp { .. } => before.transmit_ns != 0,
            PtpReply::Sync { .. } => before.has_sync,
            PtpReply::Grant { .. } | PtpReply::Cancelled { .. } | PtpReply::Granted => false,
        };
        let counts = self.interval_counts.counts_at(before.intended);
        if is_known {
            counts.duplicate += 1;
            return Ok(());
        }
        let response = response_ns(&after)?;
        let rtt = arrived.received - before.intended;
        after.rtt = after.rtt.max(rtt);
        *pending = after;
        let is_late = rtt > self.timeout;
        counts.late += u64::from(is_late);
        // A partial reply proves that the master is up.
        let responsive_at = if is_late { arrived.received } else { before.intended };
        self.outage_detector.answered(responsive_at, self.sent);
        self.answered += u64::from(after.is_complete());
        if after.rtt > self.timeout {
            return Ok(());
        }
        if let PtpReply::Delay { untraceable, .. } = reply {
            counts.server_unsynchronised += u64::from(untraceable);
        }
        let ptp = counts.ptp.get_or_insert_default();
        ptp.delay += u64::from(matches!(reply, PtpReply::Delay { .. }));
        ptp.sync_follow_up += u64::from(after.has_sync_follow_up() && !before.has_sync_follow_up());
        if after.is_complete() {
            let client = self.clients.client(self.clients.sequence(self.registered_before + index));
            let counts = self.answered_in_time(before.intended, client, after.rtt);
            if let Some(ns) = response {
                counts.response.record(ns);
            }
            if let Some(offsets) = &mut self.offsets {
                let offset_counts =
                    self.interval_counts.counts_at(before.intended).offsets.get_or_insert_default();
                offsets.record_sync(
                    after.sync_at,
                    (after.receive_ns, after.transmit_ns),
                    offset_counts,
                );
            }
        }
        Ok(())
    }
}

/// Returns the response time from the request's receipt to the Sync's transmission, in ns; `None`
/// until both are known. Refuses negative times and those of 2^36 ns (68.7 s) or more, the range of
/// the send time in a token.
fn response_ns(pending: &PendingPtpExchange) -> Result<Option<u64>, InvalidReplyReason> {
    if pending.receive_ns == 0 || pending.transmit_ns == 0 {
        return Ok(None);
    }
    u64::try_from(pending.transmit_ns - pending.receive_ns)
        .ok()
        .filter(|&ns| ns < 1 << TIME_BITS)
        .map(Some)
        .ok_or(InvalidReplyReason::Timestamp)
}

#[cfg(test)]
mod tests;

/// Returns the distance, in requests of the lane, from the request with number `sequence` back to
/// the latest request of the same client whose number ends in the 16 bits of `sequence_id`; 0 if it
/// is that request itself. The `count` clients send in turn, so the distance is a multiple of
/// `count`. Numbers restart at `sequence_end`, a multiple of `count` above 2^17. `None` if the
/// client sent no such request among the last 2^16.
pub(super) fn requests_since(
    sequence: u64,
    sequence_id: u16,
    (count, sequence_end): (u64, u64),
) -> Option<u64> {
    const NUMBERS: u64 = 1 << 16;
    let id = u64::from(sequence_id);
    let age = (sequence + NUMBERS - id) % NUMBERS;
    if age <= sequence && age.is_multiple_of(count) {
        return Some(age);
    }
    // Before the start the numbers continue from the end.
    let wrapped_age = (sequence + sequence_end + NUMBERS - id) % NUMBERS;
    [wrapped_age, wrapped_age + NUMBERS]
        .into_iter()
        .find(|back| *back > sequence && *back <= NUMBERS && back.is_multiple_of(count))
}

#[cfg(test)]
mod sequence_number_tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation of [`requests_since`] that steps through the requests.
    fn stepping(sequence: u64, sequence_id: u16, (count, wrap): (u64, u64)) -> Option<u64> {
        let mut number = sequence;
        (0..=(1 << 16) / count).find_map(|step| {
            let found = number as u16 == sequence_id;
            number = if number < count { number + wrap - count } else { number - count };
            found.then_some(step * count)
        })
    }

    proptest! {
        #[test]
        fn a_number_is_found_where_stepping_finds_it(
            count in prop_oneof![1_u64..4, 1_u64..70_000],
            room in (1_u64 << 18)..1 << 27,
            place in 0_u64..200_000,
            ago in 0_u64..200_000,
            other: u16,
        ) {
            // Numbers of a lane go further than those of messages.
            let wrap = room / count * count;
            let sequence = place;
            let earlier = (sequence + wrap - ago * count % wrap) % wrap;
            for id in [earlier as u16, other] {
                let stepped = stepping(sequence, id, (count, wrap));
                prop_assert_eq!(requests_since(sequence, id, (count, wrap)), stepped);
            }
        }
    }
}
