//! The books of PTP requests. A delay request is answered once, and is counted as an NTP request
//! is. With NetSync Monitor a request is owed a `Delay_Resp` and a Sync, with a `Follow_Up` unless
//! the Sync tells its own time; it counts as received when all of them are there, so its round trip
//! ends with the last of them. Sync and `Follow_Up` carry no token: they are matched by the client
//! that they came to and the number that they carry, against what is kept of the latest requests.

use horolog_record::InvalidReason;
use horolog_stats::Mark;
use horolog_time::{Monotonic, Span, Timestamp, Utc};
use horolog_wire::ptp::{Header, PortIdentity};

use super::numbers;
use super::{Account, Next};
use crate::offset::ReceiveStamps;
use crate::ptp::{Answer, Expected, PtpKind, Template};
use crate::token::{Echoed, Question, TIME_BITS};

/// What only PTP counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PtpCounts {
    /// Valid first `Delay_Resp`s in time.
    pub delay: u64,
    /// Requests whose Sync came in time, and its `Follow_Up` where it has one.
    pub sync_follow_up: u64,
    /// Requests for unicast messages that were granted in time.
    pub grant: u64,
    /// Those that were denied in time.
    pub denial: u64,
    /// Times that the master took back what a client had asked for.
    pub cancellation: u64,
    /// Messages that came because they had been granted.
    pub granted_messages: u64,
}

impl PtpCounts {
    /// Adds what another lane counted.
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

/// What a lane needs to ask a PTP master and to know its answers.
#[derive(Debug)]
pub(super) struct Books {
    expected: Expected,
    template: Template,
    /// The port that answered first.
    master: Option<PortIdentity>,
    /// What came of the latest requests, by their place modulo how many are kept; none where a
    /// request has but one answer.
    pending: Vec<Pending>,
}

/// Requests that are owed several answers and are kept at the same time, of all lanes: as many as
/// the in-kernel engine keeps, in some 120 MB.
const PENDING_MAX: u64 = 1 << 21;

/// What came of a request that is owed several answers.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// When it should have been sent.
    intended: Timestamp<Monotonic>,
    /// When the master received it, in ns since its epoch; 0 until it said so.
    receive_ns: i64,
    /// When the master sent the Sync; 0 until it said so.
    transmit_ns: i64,
    /// When the Sync came, by the clock that stamps packets.
    sync_at: Option<Timestamp<Utc>>,
    /// The longest time that an answer took.
    rtt: Span,
    has_sync: bool,
}

impl Pending {
    /// Nothing yet of a request for that instant.
    const fn new(intended: Timestamp<Monotonic>) -> Self {
        let (sync_at, rtt) = (None, Span::ZERO);
        Self { intended, receive_ns: 0, transmit_ns: 0, sync_at, rtt, has_sync: false }
    }

    /// The Sync is there, and all that belongs to it.
    const fn has_sync_follow_up(&self) -> bool {
        self.has_sync && self.transmit_ns != 0
    }

    const fn is_complete(&self) -> bool {
        self.receive_ns != 0 && self.has_sync_follow_up()
    }
}

/// One message, as it came.
#[derive(Clone, Copy)]
struct Arrived {
    client: Option<u32>,
    received: Timestamp<Monotonic>,
    now: Timestamp<Monotonic>,
    stamps: ReceiveStamps,
}

impl Books {
    /// `reach` requests are told apart; `master` is the port that answered in earlier trials.
    pub(super) fn new(expected: Expected, reach: u64, master: Option<PortIdentity>) -> Box<Self> {
        let kept = match expected.plan.kind {
            PtpKind::Delay | PtpKind::Unicast(_) => 0,
            PtpKind::Nsm => reach.min((PENDING_MAX / expected.lanes as u64).max(1)) as usize,
        };
        let template = Template::new(&expected.plan, expected.lane, expected.master);
        Box::new(Self {
            expected,
            template,
            master,
            pending: vec![Pending::new(Timestamp::from_ns(0)); kept],
        })
    }

    /// The port that answered first.
    pub(super) const fn master(&self) -> Option<PortIdentity> {
        self.master
    }

    /// The payload of the request at `place`.
    pub(super) fn request(&mut self, place: u64, next: &Next) -> &[u8] {
        if let Some(pending) = self.at(place) {
            *pending = Pending::new(next.intended);
        }
        let token = next.stamps.transmit;
        self.template.ask(token, self.expected.token.sequence(token))
    }

    fn at(&mut self, place: u64) -> Option<&mut Pending> {
        let kept = self.pending.len() as u64;
        (kept > 0).then(|| &mut self.pending[(place % kept) as usize])
    }

    /// Whether a message is from the port that answers; the first one that is right is.
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

impl Account {
    /// Counts a message from the master.
    pub(super) fn receive_ptp(
        &mut self,
        books: &mut Books,
        payload: &[u8],
        client: Option<u32>,
        (received, now, stamps): (Timestamp<Monotonic>, Timestamp<Monotonic>, ReceiveStamps),
    ) {
        let Some(read) = books.expected.read(payload, client, &self.clients) else { return };
        let arrived = Arrived { client, received, now, stamps };
        let result = read.and_then(|(header, answer)| match answer {
            Answer::Delay { token, .. }
            | Answer::Grant { token, .. }
            | Answer::Cancelled { token, .. } => {
                self.take_by_token(books, &header, answer, (token, arrived))
            }
            Answer::Granted => {
                self.books.latest().ptp.get_or_insert_default().granted_messages += 1;
                Ok(())
            }
            Answer::Sync { .. } | Answer::FollowUp { .. } => {
                self.take_sync(books, &header, answer, arrived)
            }
        });
        if let Err(reason) = result {
            self.books.latest().invalid[reason as usize] += 1;
        }
    }

    /// A `Delay_Resp`, a grant or its end tells by its token which request it answers.
    fn take_by_token(
        &mut self,
        books: &mut Books,
        header: &Header,
        answer: Answer,
        (token, arrived): (u64, Arrived),
    ) -> Result<(), InvalidReason> {
        let plan = books.expected.plan;
        let question = match books.expected.token.decode(token, arrived.now) {
            Some((question, Echoed::Transmit)) => question,
            // In a group it answers somebody else.
            _ if plan.multicast => return Ok(()),
            _ => return Err(InvalidReason::Origin),
        };
        let has_number = header.sequence_id == question.sequence as u16;
        // Somebody else's clock may look like a token, but hardly with the same number.
        if plan.multicast && !has_number {
            return Ok(());
        }
        if self.is_of_earlier_trial(question) {
            self.books.latest().came_of_earlier_trial();
            return Ok(());
        }
        let place = match self.place(question) {
            Some(place) => place,
            None if plan.multicast => return Ok(()),
            None => return Err(InvalidReason::Origin),
        };
        if plan.has_addresses() && arrived.client != Some(self.clients.client(question.sequence)) {
            return Err(InvalidReason::Client);
        }
        match answer {
            // Signaling messages have numbers of their own (clause 13.4.1).
            Answer::Grant { kind, .. } | Answer::Cancelled { kind, .. }
                if !plan.asked_for(question.sequence, kind) =>
            {
                return Err(InvalidReason::Contract);
            }
            Answer::Delay { .. } if !has_number => {
                return Err(InvalidReason::Sequence);
            }
            _ => {}
        }
        books.is_from_master(header)?;
        if plan.kind == PtpKind::Nsm {
            return self.take_part(books, place, answer, arrived);
        }
        if let Answer::Cancelled { .. } = answer {
            // It may come long after the grant, which is the answer.
            let counts = self.books.of(question.intended);
            counts.ptp.get_or_insert_default().cancellation += 1;
            return Ok(());
        }
        self.take_only(place, question, arrived.received - question.intended, answer);
        Ok(())
    }

    /// The only answer to a request.
    fn take_only(&mut self, place: u64, question: Question, rtt: Span, answer: Answer) {
        let mark = self.window.mark(place);
        let counts = self.books.of(question.intended);
        match mark {
            Mark::Duplicate => counts.duplicate += 1,
            Mark::Outside => counts.late += 1,
            Mark::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                } else {
                    let client = self.clients.client(question.sequence);
                    let counts = self.answered_in_time(question.intended, client, rtt);
                    let ptp = counts.ptp.get_or_insert_default();
                    match answer {
                        Answer::Grant { duration_s: 0, .. } => ptp.denial += 1,
                        Answer::Grant { .. } => ptp.grant += 1,
                        _ => ptp.delay += 1,
                    }
                }
            }
        }
    }

    /// Sync and `Follow_Up` tell by the client and their number which request they answer.
    fn take_sync(
        &mut self,
        books: &mut Books,
        header: &Header,
        answer: Answer,
        arrived: Arrived,
    ) -> Result<(), InvalidReason> {
        let client = arrived.client.filter(|&client| self.clients.has(client));
        let client = client.ok_or(InvalidReason::Client)?;
        let total = self.latest_of(client, header.sequence_id).ok_or(InvalidReason::Sequence)?;
        books.is_from_master(header)?;
        match total.checked_sub(self.before) {
            None => {
                self.books.latest().came_of_earlier_trial();
                Ok(())
            }
            Some(place) => self.take_part(books, place, answer, arrived),
        }
    }

    /// The latest request of a client with this number, counted from the lane's very first one.
    fn latest_of(&self, client: u32, sequence_id: u16) -> Option<u64> {
        let (count, wrap) = (u64::from(self.clients.count()), u64::from(self.clients.wrap()));
        let turn = u64::from(client - self.clients.first());
        let latest = (self.before + self.asked).checked_sub(1)?;
        let latest = latest.checked_sub((latest + count - turn) % count)?;
        let back = numbers::back_to(latest % wrap, sequence_id, (count, wrap))?;
        latest.checked_sub(back)
    }

    /// One of several answers to a request.
    fn take_part(
        &mut self,
        books: &mut Books,
        place: u64,
        answer: Answer,
        arrived: Arrived,
    ) -> Result<(), InvalidReason> {
        let kept = books.pending.len() as u64;
        // A place belongs to the next request as soon as that is being made.
        let Some(pending) = books.at(place).filter(|_| place + kept > self.asked) else {
            self.books.latest().late += 1;
            return Ok(());
        };
        let had = *pending;
        let mut has = had;
        match answer {
            Answer::Delay { receive_ns, .. } => has.receive_ns = receive_ns,
            // No parts of such a request.
            Answer::Grant { .. } | Answer::Cancelled { .. } | Answer::Granted => return Ok(()),
            Answer::FollowUp { transmit_ns } => has.transmit_ns = transmit_ns,
            Answer::Sync { transmit_ns } => {
                has.has_sync = true;
                has.sync_at = self.offsets.as_ref().and_then(|it| it.instant(arrived.stamps));
                has.transmit_ns = transmit_ns.unwrap_or(had.transmit_ns);
            }
        }
        let is_known = match answer {
            Answer::Delay { .. } => had.receive_ns != 0,
            Answer::FollowUp { .. } => had.transmit_ns != 0,
            Answer::Sync { .. } => had.has_sync,
            Answer::Grant { .. } | Answer::Cancelled { .. } | Answer::Granted => false,
        };
        let counts = self.books.of(had.intended);
        if is_known {
            counts.duplicate += 1;
            return Ok(());
        }
        let response = response_ns(&has)?;
        let rtt = arrived.received - had.intended;
        has.rtt = has.rtt.max(rtt);
        *pending = has;
        if rtt > self.timeout {
            counts.late += 1;
        }
        self.answered += u64::from(has.is_complete());
        if has.rtt > self.timeout {
            return Ok(());
        }
        if let Answer::Delay { untraceable, .. } = answer {
            counts.server_unsynchronised += u64::from(untraceable);
        }
        let ptp = counts.ptp.get_or_insert_default();
        ptp.delay += u64::from(matches!(answer, Answer::Delay { .. }));
        ptp.sync_follow_up += u64::from(has.has_sync_follow_up() && !had.has_sync_follow_up());
        if has.is_complete() {
            let client = self.clients.client(self.clients.sequence(self.before + place));
            let counts = self.answered_in_time(had.intended, client, has.rtt);
            if let Some(ns) = response {
                counts.response.record(ns);
            }
            if let Some(offsets) = &mut self.offsets {
                let found = self.books.of(had.intended).offsets.get_or_insert_default();
                offsets.record_sync(has.sync_at, (has.receive_ns, has.transmit_ns), found);
            }
        }
        Ok(())
    }
}

/// From the receipt of the request until the Sync left, where both are known; refuses a time that
/// no master takes.
fn response_ns(pending: &Pending) -> Result<Option<u64>, InvalidReason> {
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
