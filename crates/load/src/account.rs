//! What became of the requests of one trial: counts, and no opinion about them. Each lane counts
//! for itself; the parts are added up when the trial is over.

use horolog_record::InvalidReason;
use horolog_stats::window::WindowTooLarge;
use horolog_stats::{Mark, Recorder, SeenWindow};
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ptp::PortIdentity;

use crate::clients::LaneClients;
use crate::nts::{Fault, LaneSessions};
use crate::offset::{LastReceived, OffsetCounts, OffsetPlan, Offsets, ReceiveStamps};
use crate::request::Stamps;
use crate::token::Question;
use crate::verify::{self, Answer, Expected, PAYLOAD_LEN, Reply};

mod ptp;

pub use ptp::PtpCounts;

/// What became of the requests of one trial.
#[derive(Clone, Debug, Default)]
pub struct TrialCounts {
    /// Requests that the schedule held.
    pub planned: u64,
    /// Requests that left.
    pub sent: u64,
    /// Requests that the own sending path refused.
    pub refused: u64,
    /// When the first request left.
    pub first_sent: Option<Timestamp<Monotonic>>,
    /// When the last request left.
    pub last_sent: Option<Timestamp<Monotonic>>,
    /// Valid first replies in time.
    pub received: u64,
    /// Those of them that were in interleaved mode.
    pub interleaved: u64,
    /// Requests that left and were authenticated.
    pub nts_sent: u64,
    /// Valid first replies in time to these.
    pub nts_received: u64,
    /// What only PTP counts, where it was asked for.
    pub ptp: Option<PtpCounts>,
    /// Further valid replies to an answered request.
    pub duplicate: u64,
    /// Valid replies that came after the time allowed, and all to requests of an earlier trial.
    pub late: u64,
    /// Invalid replies, in the order of [`InvalidReason::ALL`].
    pub invalid: [u64; InvalidReason::ALL.len()],
    /// Replies that the own receive rings or sockets had no room for.
    pub ring_dropped: u64,
    /// ICMP messages that said that nobody listens on the target's port, as far as the engine sees
    /// them.
    pub port_closed: u64,
    /// Received replies of a server that says that it is not synchronised.
    pub server_unsynchronised: u64,
    /// From the intended send instant to the receipt of the reply, in ns.
    pub rtt: Recorder,
    /// The server's transmit less its receive timestamp, in ns: of each basic reply, and of the
    /// reply before each interleaved one.
    pub response: Recorder,
    /// From the intended to the real send instant, in ns.
    pub lateness: Recorder,
    /// Offsets of the server's transmit timestamps, where they were asked for.
    pub offsets: Option<OffsetCounts>,
}

impl TrialCounts {
    /// Requests without a valid reply in time.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Adds what another lane counted in the same trial.
    pub fn merge(&mut self, other: &Self) {
        self.planned += other.planned;
        self.sent += other.sent;
        self.refused += other.refused;
        self.first_sent = earliest(self.first_sent, other.first_sent);
        self.last_sent = self.last_sent.max(other.last_sent);
        self.received += other.received;
        self.interleaved += other.interleaved;
        self.nts_sent += other.nts_sent;
        self.nts_received += other.nts_received;
        PtpCounts::merge(&mut self.ptp, other.ptp);
        self.duplicate += other.duplicate;
        self.late += other.late;
        for (mine, theirs) in self.invalid.iter_mut().zip(other.invalid) {
            *mine += theirs;
        }
        self.ring_dropped += other.ring_dropped;
        self.port_closed += other.port_closed;
        self.server_unsynchronised += other.server_unsynchronised;
        self.rtt.merge(&other.rtt);
        self.response.merge(&other.response);
        self.lateness.merge(&other.lateness);
        if let Some(theirs) = &other.offsets {
            self.offsets.get_or_insert_default().merge(theirs);
        }
    }
}

fn earliest(
    a: Option<Timestamp<Monotonic>>,
    b: Option<Timestamp<Monotonic>>,
) -> Option<Timestamp<Monotonic>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The books of one lane during one trial.
#[derive(Debug)]
pub struct Account {
    counts: TrialCounts,
    expected: Expected,
    clients: LaneClients,
    window: SeenWindow,
    start: Timestamp<Monotonic>,
    timeout: Span,
    /// Requests of this lane in earlier trials.
    before: u64,
    /// Requests of this lane in this trial.
    asked: u64,
    /// Valid first replies, late ones included.
    answered: u64,
    origins: Origins,
    offsets: Option<Box<Offsets>>,
    nts: Option<Box<LaneSessions>>,
    ptp: Option<Box<ptp::Books>>,
}

/// A request that is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// When.
    pub intended: Timestamp<Monotonic>,
    /// Who asks.
    pub client: u32,
    /// The timestamps that it carries.
    pub stamps: Stamps,
    /// Whether it is authenticated.
    pub authenticated: bool,
}

/// When the server received what it last answered to each client of a lane, as NTP's 64 bits: what
/// a request in interleaved mode refers to. 0 where nothing was answered yet. It is all that is
/// kept of a client, and nothing is kept in basic mode.
#[derive(Debug, Default)]
pub struct Origins(Vec<u64>);

impl Origins {
    /// What the lane's `client`-th client was answered.
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

/// What a lane takes from one trial to the next.
#[derive(Debug, Default)]
pub struct Carried {
    /// Requests that it has asked so far.
    pub asked: u64,
    /// The first of the clients that the rest is about.
    pub first_client: u32,
    /// What its clients were answered; of no use to other clients.
    pub origins: Origins,
    /// When they were, where offsets are taken in interleaved mode.
    pub last_received: LastReceived,
    /// What requests are authenticated with, where any are.
    pub nts: Option<Box<LaneSessions>>,
    /// The PTP port that answers it.
    pub master: Option<PortIdentity>,
}

/// What an [`Account`] is opened for.
#[derive(Clone, Copy, Debug)]
pub struct AccountPlan {
    /// What replies are held against.
    pub expected: Expected,
    /// The lane's clients.
    pub clients: LaneClients,
    /// The start of the trial.
    pub start: Timestamp<Monotonic>,
    /// How long a reply may take, from the intended instant.
    pub timeout: Span,
    /// The lane's share of the rate, in requests per second.
    pub rate: f64,
    /// How offsets of the server's transmit timestamps are taken, where they are.
    pub offset: Option<OffsetPlan>,
    /// Asks for PTP instead: then `expected` says no more than the token.
    pub ptp: Option<crate::ptp::Expected>,
}

impl Account {
    /// Opens the books. Fails where telling duplicates apart until the timeout takes more memory
    /// than there should be.
    pub fn open(plan: &AccountPlan, carried: Carried) -> Result<Self, WindowTooLarge> {
        // Twice what is in flight at most, since a sender that was held up sends in bursts.
        let in_flight = plan.rate * plan.timeout.as_seconds();
        let reach = ((2.0 * in_flight) as u64).saturating_add(REACH_MIN);
        let window = SeenWindow::new(reach)?;
        let same = carried.first_client == plan.clients.first();
        let (mut origins, last_received) =
            if same { (carried.origins, carried.last_received) } else { Default::default() };
        let remembered = if plan.expected.interleaved { plan.clients.count() as usize } else { 0 };
        origins.0.resize(remembered, 0);
        let offsets = plan.offset.map(|offset| Offsets::new(offset, last_received, remembered));
        let books = |expected| ptp::Books::new(expected, reach, carried.master);
        Ok(Self {
            ptp: plan.ptp.map(books),
            counts: TrialCounts {
                ptp: plan.ptp.map(|_| PtpCounts::default()),
                ..TrialCounts::default()
            },
            expected: plan.expected,
            clients: plan.clients,
            window,
            start: plan.start,
            timeout: plan.timeout,
            before: carried.asked,
            asked: 0,
            answered: 0,
            origins,
            offsets: offsets.map(Box::new),
            nts: carried.nts,
        })
    }

    /// The next request, to be sent at `intended`. Asking again gives the same until
    /// [`Account::ask`].
    #[inline]
    #[must_use]
    pub fn next(&self, intended: Timestamp<Monotonic>) -> Next {
        let total = self.before + self.asked;
        let sequence = (total % u64::from(self.clients.wrap())) as u32;
        let transmit = self.expected.token.encode(Question { intended, sequence });
        let client = self.clients.client(sequence);
        let stamps = if self.expected.interleaved {
            Stamps::interleaved(self.origins.of(client - self.clients.first()), transmit)
        } else {
            Stamps::basic(transmit)
        };
        let authenticated = self.nts.as_ref().is_some_and(|nts| nts.has(sequence));
        Next { intended, client, stamps, authenticated }
    }

    /// The payload of a request of a run in which some are authenticated, or of PTP; `None` in
    /// other runs, where a template and the timestamps are all of it.
    pub fn payload(&mut self, next: &Next) -> Option<&[u8]> {
        if let Some(books) = &mut self.ptp {
            return Some(books.request(self.asked, next));
        }
        let nts = self.nts.as_mut()?;
        Some(if next.authenticated {
            nts.seal(next.client, next.stamps)
        } else {
            nts.plain(next.stamps)
        })
    }

    /// Counts the next request as asked, so that its reply will be known.
    #[inline]
    pub fn ask(&mut self) {
        self.window.open(self.asked);
        self.asked += 1;
    }

    /// Counts a request that left at `sent`, and whether it was authenticated.
    #[inline]
    pub fn sent(
        &mut self,
        intended: Timestamp<Monotonic>,
        sent: Timestamp<Monotonic>,
        authenticated: bool,
    ) {
        self.counts.nts_sent += u64::from(authenticated);
        self.counts.sent += 1;
        self.counts.first_sent = self.counts.first_sent.or(Some(sent));
        self.counts.last_sent = Some(sent);
        self.counts.lateness.record(nonnegative(sent - intended));
    }

    /// Counts requests that were refused on their way out.
    pub const fn refused(&mut self, requests: u64) {
        self.counts.refused += requests;
    }

    /// Counts a datagram from the target. `client` is to which it came (`None`: to none of ours),
    /// `received` when it came, and `now` is not before that; `stamps` is what stamped it.
    #[inline]
    pub fn receive(
        &mut self,
        payload: &[u8],
        client: Option<u32>,
        received: Timestamp<Monotonic>,
        now: Timestamp<Monotonic>,
        stamps: ReceiveStamps,
    ) {
        if let Some(mut books) = self.ptp.take() {
            self.receive_ptp(&mut books, payload, client, (received, now, stamps));
            self.ptp = Some(books);
            return;
        }
        let mut is_of_earlier_trial = false;
        let mut nts = self.nts.take();
        let verified = self.expected.verify(payload, now, |question| {
            is_of_earlier_trial = question.intended < self.start;
            if is_of_earlier_trial {
                Ok(()) // its clients may have been other ones
            } else if self.place(question).is_none() {
                Err(InvalidReason::Origin)
            } else if client != Some(self.clients.client(question.sequence)) {
                Err(InvalidReason::Client)
            } else if let Some(nts) = &mut nts {
                authenticate(nts, &self.expected, question, (client, payload))
            } else {
                Ok(())
            }
        });
        self.nts = nts;
        // Whatever else is wrong with it is no fault of this trial's.
        if is_of_earlier_trial {
            self.counts.late += 1;
            return;
        }
        let reply = match verified {
            Ok(reply) => reply,
            Err(reason) => {
                self.counts.invalid[reason as usize] += 1;
                return;
            }
        };
        let rtt = received - reply.question.intended;
        let Some(place) = self.place(reply.question) else { return };
        match self.window.mark(place) {
            Mark::Duplicate => self.counts.duplicate += 1,
            Mark::Outside => self.counts.late += 1,
            Mark::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    self.counts.late += 1;
                } else {
                    self.counts.rtt.record(nonnegative(rtt));
                    self.received(&reply, stamps);
                }
            }
        }
    }

    /// Counts a valid first reply in time.
    fn received(&mut self, reply: &Reply, stamps: ReceiveStamps) {
        self.counts.received += 1;
        self.counts.server_unsynchronised += u64::from(reply.unsynchronised);
        let sequence = reply.question.sequence;
        let client = self.clients.client(sequence).wrapping_sub(self.clients.first());
        let referred = self.origins.of(client);
        let response_ns = match reply.answer {
            Answer::Basic { response_ns } => Some(response_ns),
            Answer::Interleaved => {
                self.counts.interleaved += 1;
                let known = (referred != 0).then(|| NtpTimestamp::from_bits(referred));
                known.and_then(|receive| verify::response_ns(receive, reply.transmit))
            }
        };
        if let Some(ns) = response_ns {
            self.counts.response.record(ns);
        }
        self.counts.nts_received += u64::from(self.nts.as_ref().is_some_and(|n| n.has(sequence)));
        if let Some(offsets) = &mut self.offsets {
            offsets.record(reply, stamps, (client, referred));
        }
        if self.expected.interleaved {
            self.origins.remember(client, reply.receive);
        }
    }

    /// Requests that left and have no valid reply yet.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.counts.sent.saturating_sub(self.answered)
    }

    /// Valid first replies so far.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// The longest round trip so far.
    #[must_use]
    pub fn longest_rtt(&self) -> Option<Span> {
        self.counts.rtt.max().map(|ns| Span::from_ns(ns.cast_signed()))
    }

    /// When the last request left, or the start of the trial.
    #[must_use]
    pub fn last_sent(&self) -> Timestamp<Monotonic> {
        self.counts.last_sent.unwrap_or(self.start)
    }

    /// Closes the books on a schedule of `planned` requests; also gives what the lane takes to its
    /// next trial.
    #[must_use]
    pub fn close(mut self, planned: u64) -> (TrialCounts, Carried) {
        self.counts.planned = planned;
        let asked = self.before + self.asked;
        let mut carried = Carried {
            asked,
            first_client: self.clients.first(),
            origins: self.origins,
            last_received: LastReceived::default(),
            nts: self.nts,
            master: self.ptp.and_then(|books| books.master()),
        };
        if let Some(offsets) = self.offsets {
            let (counts, last_received) = offsets.close();
            (self.counts.offsets, carried.last_received) = (Some(counts), last_received);
        }
        (self.counts, carried)
    }

    /// Which request of this trial has this sequence number; the latest one where several have.
    fn place(&self, question: Question) -> Option<u64> {
        let wrap = u64::from(self.clients.wrap());
        let sequence = u64::from(question.sequence);
        let latest = (self.before + self.asked).checked_sub(1)?;
        let back = (latest % wrap + wrap).checked_sub(sequence)? % wrap;
        (sequence < wrap).then(|| (self.asked.checked_sub(1)?).checked_sub(back)).flatten()
    }
}

/// What follows a reply's header: nothing, or proof that it is authentic where the request was.
fn authenticate(
    nts: &mut LaneSessions,
    expected: &Expected,
    question: Question,
    (client, payload): (Option<u32>, &[u8]),
) -> Result<(), InvalidReason> {
    if !nts.has(question.sequence) {
        return if payload.len() == PAYLOAD_LEN { Ok(()) } else { Err(InvalidReason::Length) };
    }
    let client = client.ok_or(InvalidReason::Client)?;
    let transmit = expected.token.encode(question);
    nts.open(client, transmit, payload).map_err(|fault| match fault {
        Fault::Longer => InvalidReason::Length,
        Fault::Reply(_) => InvalidReason::Nts,
    })
}

/// The least reach of the duplicate window, in requests: 8 KiB.
const REACH_MIN: u64 = 32_768;

fn nonnegative(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap_or(0)
}
