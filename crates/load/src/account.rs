//! What became of the requests of one trial: counts, and no opinion about them. Each lane counts
//! for itself; the parts are added up when the trial is over.

mod books;

use horolog_record::InvalidReason;
use horolog_stats::window::WindowTooLarge;
use horolog_stats::{Mark, Recorder, SeenWindow};
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};

use crate::clients::LaneClients;
use crate::fairness::{Asked, ClientBooks};
use crate::nts::{Fault, LaneSessions};
use crate::request::Stamps;
use crate::silence::{self, Listener, Silence};
use crate::token::Question;
use crate::verify::{Answer, Expected, PAYLOAD_LEN, Reply};
use books::Books;
pub use books::Closed;

/// What became of the requests of one trial.
#[derive(Clone, Debug, Default)]
pub struct TrialCounts {
    /// Requests that the schedule held; in the books of an interval, those of them that were left
    /// out.
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
    /// What each client asked and was answered, where that is counted.
    pub clients: Vec<Asked>,
    /// When the server was silent; `None` in books that know nothing of it.
    pub silences: Option<Vec<Silence>>,
    /// From the intended send instant to the receipt of the reply, in ns.
    pub rtt: Recorder,
    /// The server's transmit less its receive timestamp in basic replies, in ns.
    pub response: Recorder,
    /// From the intended to the real send instant, in ns.
    pub lateness: Recorder,
}

impl TrialCounts {
    /// Requests without a valid reply in time.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// What all of some books hold.
    #[must_use]
    pub fn sum(books: &[Closed]) -> Self {
        books.iter().fold(Self::default(), |mut sum, (_, counts)| {
            sum.merge(counts);
            sum
        })
    }

    /// Adds what another lane counted in the same trial, or the same one in another interval.
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
        self.duplicate += other.duplicate;
        self.late += other.late;
        for (mine, theirs) in self.invalid.iter_mut().zip(other.invalid) {
            *mine += theirs;
        }
        self.ring_dropped += other.ring_dropped;
        self.port_closed += other.port_closed;
        self.server_unsynchronised += other.server_unsynchronised;
        self.clients.extend_from_slice(&other.clients);
        self.silences = match (self.silences.take(), &other.silences) {
            (Some(mine), Some(theirs)) => Some(silence::common(&mine, theirs)),
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        self.rtt.merge(&other.rtt);
        self.response.merge(&other.response);
        self.lateness.merge(&other.lateness);
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
    books: Books,
    listener: Listener,
    client_books: Option<ClientBooks>,
    expected: Expected,
    clients: LaneClients,
    window: SeenWindow,
    start: Timestamp<Monotonic>,
    timeout: Span,
    /// Requests of this lane in earlier trials.
    before: u64,
    /// Requests of this lane in this trial.
    asked: u64,
    /// Requests of this lane that left.
    sent: u64,
    /// Valid first replies, late ones included.
    answered: u64,
    last_sent: Timestamp<Monotonic>,
    /// The longest round trip of a reply in time.
    longest_rtt: Option<Span>,
    origins: Origins,
    nts: Option<Box<LaneSessions>>,
}

/// A request that is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
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
    /// What its clients were answered; of no use to other clients.
    pub origins: Origins,
    /// What requests are authenticated with, where any are.
    pub nts: Option<Box<LaneSessions>>,
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
    /// The lane's share of the rate, in requests per second; of the highest where it changes.
    pub rate: f64,
    /// How long each interval is that has books of its own; `None` where the trial has one.
    pub interval: Option<Span>,
    /// Whether each client is counted apart.
    pub fairness: bool,
}

impl Account {
    /// Opens the books. Fails where telling duplicates apart until the timeout takes more memory
    /// than there should be.
    pub fn open(plan: &AccountPlan, carried: Carried) -> Result<Self, WindowTooLarge> {
        // Twice what is in flight at most, since a sender that was held up sends in bursts.
        let in_flight = plan.rate * plan.timeout.as_seconds();
        let window = SeenWindow::new(((2.0 * in_flight) as u64).saturating_add(REACH_MIN))?;
        let mut origins = carried.origins;
        if plan.expected.interleaved {
            origins.0.resize(plan.clients.count() as usize, 0);
        }
        Ok(Self {
            books: Books::new(plan.start, plan.interval),
            listener: Listener::new(plan.start),
            client_books: plan.fairness.then(|| ClientBooks::new(&plan.clients)),
            expected: plan.expected,
            clients: plan.clients,
            window,
            start: plan.start,
            timeout: plan.timeout,
            before: carried.asked,
            asked: 0,
            sent: 0,
            answered: 0,
            last_sent: plan.start,
            longest_rtt: None,
            origins,
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
        Next { client, stamps, authenticated }
    }

    /// The payload of a request of a run in which some are authenticated; `None` in other runs,
    /// where a template and the timestamps are all of it.
    pub fn payload(&mut self, next: &Next) -> Option<&[u8]> {
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
        if let Some(books) = &mut self.client_books {
            let total = self.before + self.asked;
            books.asked(self.clients.client((total % u64::from(self.clients.wrap())) as u32));
        }
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
        self.sent += 1;
        self.last_sent = sent;
        let counts = self.books.of(intended);
        counts.nts_sent += u64::from(authenticated);
        counts.sent += 1;
        counts.first_sent = counts.first_sent.or(Some(sent));
        counts.last_sent = Some(sent);
        counts.lateness.record(nonnegative(sent - intended));
    }

    /// Counts requests that were refused on their way out.
    pub fn refused(&mut self, requests: u64) {
        self.books.latest().refused += requests;
    }

    /// Counts requests of the interval of `intended` that were left out.
    pub fn left_out(&mut self, intended: Timestamp<Monotonic>, requests: u64) {
        self.books.of(intended).planned += requests;
    }

    /// Counts what the lane's port had no room for and what told that the target's port is closed,
    /// since it was last counted.
    pub fn dropped(&mut self, replies: u64, port_closed: u64) {
        let counts = self.books.latest();
        counts.ring_dropped += replies;
        counts.port_closed += port_closed;
    }

    /// Counts a datagram from the target. `client` is to which it came (`None`: to none of ours),
    /// `received` when it came, and `now` is not before that.
    #[inline]
    pub fn receive(
        &mut self,
        payload: &[u8],
        client: Option<u32>,
        received: Timestamp<Monotonic>,
        now: Timestamp<Monotonic>,
    ) {
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
            self.books.latest().late += 1;
            return;
        }
        let reply = match verified {
            Ok(reply) => reply,
            Err(reason) => {
                self.books.latest().invalid[reason as usize] += 1;
                return;
            }
        };
        let rtt = received - reply.question.intended;
        let Some(place) = self.place(reply.question) else { return };
        let mark = self.window.mark(place);
        let counts = self.books.of(reply.question.intended);
        match mark {
            Mark::Duplicate => counts.duplicate += 1,
            Mark::Outside => counts.late += 1,
            Mark::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                } else {
                    counts.rtt.record(nonnegative(rtt));
                    self.longest_rtt = self.longest_rtt.max(Some(rtt));
                    self.received(&reply);
                }
            }
        }
    }

    /// Counts a valid first reply in time.
    fn received(&mut self, reply: &Reply) {
        let Question { intended, sequence } = reply.question;
        self.listener.heard(intended, self.sent);
        let counts = self.books.of(intended);
        counts.received += 1;
        counts.server_unsynchronised += u64::from(reply.unsynchronised);
        match reply.answer {
            Answer::Basic { response_ns } => counts.response.record(response_ns),
            Answer::Interleaved => counts.interleaved += 1,
        }
        counts.nts_received += u64::from(self.nts.as_ref().is_some_and(|n| n.has(sequence)));
        let client = self.clients.client(sequence);
        if let Some(books) = &mut self.client_books {
            books.answered(client);
        }
        if self.expected.interleaved {
            self.origins.remember(client - self.clients.first(), reply.receive);
        }
    }

    /// Requests that left and have no valid reply yet.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.answered)
    }

    /// Valid first replies so far.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// The longest round trip so far.
    #[must_use]
    pub const fn longest_rtt(&self) -> Option<Span> {
        self.longest_rtt
    }

    /// When the last request left, or the start of the trial.
    #[must_use]
    pub const fn last_sent(&self) -> Timestamp<Monotonic> {
        self.last_sent
    }

    /// Closes the book of the first interval where no reply can be in time for it any more.
    pub fn close_interval(&mut self, now: Timestamp<Monotonic>) -> Option<Closed> {
        self.books.close_first(now, self.timeout + CLOSING)
    }

    /// Closes the books on a schedule of `planned` requests; also gives what the lane takes to its
    /// next trial.
    #[must_use]
    pub fn close(mut self, planned: u64) -> (Vec<Closed>, Carried) {
        let counts = self.books.latest();
        counts.planned += planned;
        counts.clients = self.client_books.map(ClientBooks::close).unwrap_or_default();
        counts.silences = Some(self.listener.close(self.last_sent, self.sent));
        let asked = self.before + self.asked;
        let carried = Carried { asked, origins: self.origins, nts: self.nts };
        (self.books.close_all(), carried)
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

/// How much longer than a reply may take the book of an interval is open, for requests that left
/// late and replies that were fetched late.
const CLOSING: Span = Span::from_ms(200);

/// The least reach of the duplicate window, in requests: 8 KiB.
const REACH_MIN: u64 = 32_768;

fn nonnegative(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap_or(0)
}
