//! What became of the requests of one trial: counts, and no opinion about them. Each lane counts
//! for itself; the parts are added up when the trial is over.

use horolog_record::{InvalidReason, SoFar};
use horolog_stats::window::WindowTooLarge;
use horolog_stats::{Mark, SeenWindow};
use horolog_time::{Monotonic, NtpTimestamp, Span, Timestamp};
use horolog_wire::ptp::PortIdentity;

use crate::clients::LaneClients;
use crate::fairness::ClientBooks;
use crate::offset::{LastReceived, OffsetCounts, OffsetPlan, Offsets, ReceiveStamps};
use crate::request::Stamps;
use crate::silence::Listener;
use crate::tail::{Asked, Tail};
use crate::token::Question;
use crate::verify::{self, Answer, Expected, Reply};
use books::Books;

mod books;
mod counts;
mod numbers;
mod ptp;

pub use books::Closed;
pub use counts::TrialCounts;
pub use ptp::PtpCounts;

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
    offsets: Option<Box<Offsets>>,
    tail: Option<Box<Tail>>,
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
    /// What follows the header of requests, where anything does.
    pub tail: Option<Box<Tail>>,
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
    /// The lane's share of the rate, in requests per second; of the highest where it changes.
    pub rate: f64,
    /// How offsets of the server's transmit timestamps are taken, where they are.
    pub offset: Option<OffsetPlan>,
    /// Asks for PTP instead: then `expected` says no more than the token.
    pub ptp: Option<crate::ptp::Expected>,
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
        let reach = ((2.0 * in_flight) as u64).saturating_add(REACH_MIN);
        let window = SeenWindow::new(reach)?;
        let same = carried.first_client == plan.clients.first();
        let (mut origins, last_received) =
            if same { (carried.origins, carried.last_received) } else { Default::default() };
        let remembered = if plan.expected.interleaved { plan.clients.count() as usize } else { 0 };
        origins.0.resize(remembered, 0);
        let offsets = plan.offset.map(|offset| Offsets::new(offset, last_received, remembered));
        let books = |expected| ptp::Books::new(expected, reach, carried.master);
        let blank = TrialCounts {
            cookies_reused: carried.tail.as_ref().and_then(|tail| tail.cookies_reused()),
            ptp: plan.ptp.map(|_| PtpCounts::default()),
            offsets: plan.offset.map(|_| OffsetCounts::default()),
            ..TrialCounts::default()
        };
        Ok(Self {
            books: Books::new(plan.start, plan.interval, blank),
            listener: Listener::new(plan.start),
            client_books: plan.fairness.then(|| ClientBooks::new(&plan.clients)),
            ptp: plan.ptp.map(books),
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
            offsets: offsets.map(Box::new),
            tail: carried.tail,
        })
    }

    /// Moves the start of a trial in which nothing was asked yet: opening books takes its time.
    pub fn begin_at(&mut self, start: Timestamp<Monotonic>) {
        (self.start, self.last_sent) = (start, start);
        self.listener = Listener::new(start);
        self.books.begin_at(start);
    }

    /// The next request, to be sent at `intended`. Asking again gives the same until
    /// [`Account::ask`].
    #[inline]
    #[must_use]
    pub fn next(&self, intended: Timestamp<Monotonic>) -> Next {
        let sequence = self.clients.sequence(self.before + self.asked);
        let transmit = self.expected.token.encode(Question { intended, sequence });
        let client = self.clients.client(sequence);
        let stamps = if self.expected.interleaved {
            Stamps::interleaved(self.origins.of(client - self.clients.first()), transmit)
        } else {
            Stamps::basic(transmit)
        };
        let authenticated = self.tail.as_ref().is_some_and(|tail| tail.has_nts(sequence));
        Next { intended, client, stamps, authenticated }
    }

    /// The payload of a request of a run in which something follows some header, or of PTP; `None`
    /// in other runs, where a template and the timestamps are all of it.
    pub fn payload(&mut self, next: &Next) -> Option<&[u8]> {
        if let Some(books) = &mut self.ptp {
            return Some(books.request(self.asked, next));
        }
        let tail = self.tail.as_mut()?;
        let reused = &mut self.books.of(next.intended).cookies_reused;
        Some(tail.request(next.client, next.stamps, next.authenticated.then_some(reused)))
    }

    /// Counts the next request as asked, so that its reply will be known.
    #[inline]
    pub fn ask(&mut self) {
        if let Some(books) = &mut self.client_books {
            let sequence = self.clients.sequence(self.before + self.asked);
            books.asked(self.clients.client(sequence));
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
        let mut tail = self.tail.take();
        let verified = self.expected.verify(payload, now, |question| {
            is_of_earlier_trial = self.is_of_earlier_trial(question);
            if is_of_earlier_trial {
                Ok(()) // its clients may have been other ones
            } else if self.place(question).is_none() {
                Err(InvalidReason::Origin)
            } else if client != Some(self.clients.client(question.sequence)) {
                Err(InvalidReason::Client)
            } else if let (Some(tail), Some(client)) = (&mut tail, client) {
                let transmit = self.expected.token.encode(question);
                tail.judge(Asked { client, sequence: question.sequence, transmit }, payload)
            } else {
                Ok(())
            }
        });
        self.tail = tail;
        // Whatever else is wrong with it is no fault of this trial's.
        if is_of_earlier_trial {
            self.books.latest().came_of_earlier_trial();
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
            Mark::Duplicate => {
                counts.duplicate += 1;
                if let (Some(tail), Some(client)) = (&mut self.tail, client) {
                    tail.came_before(client, reply.question.sequence);
                }
            }
            Mark::Outside => counts.late += 1,
            Mark::First => {
                self.answered += 1;
                if rtt > self.timeout {
                    counts.late += 1;
                } else {
                    self.received(&reply, rtt, stamps);
                }
            }
        }
    }

    /// Counts a request that was answered in full and in time, in NTP or PTP, and returns the book
    /// in which it stands.
    #[inline]
    fn answered_in_time(
        &mut self,
        intended: Timestamp<Monotonic>,
        client: u32,
        rtt: Span,
    ) -> &mut TrialCounts {
        self.listener.heard(intended, self.sent);
        self.longest_rtt = self.longest_rtt.max(Some(rtt));
        if let Some(books) = &mut self.client_books {
            books.answered(client);
        }
        let counts = self.books.of(intended);
        counts.received += 1;
        counts.rtt.record(nonnegative(rtt));
        counts
    }

    /// Counts a valid first reply in time.
    fn received(&mut self, reply: &Reply, rtt: Span, stamps: ReceiveStamps) {
        let Question { intended, sequence } = reply.question;
        let client = self.clients.client(sequence);
        let authenticated = self.tail.as_ref().is_some_and(|tail| tail.has_nts(sequence));
        let index = client.wrapping_sub(self.clients.first());
        let referred = self.origins.of(index);
        let counts = self.answered_in_time(intended, client, rtt);
        counts.nts_received += u64::from(authenticated);
        counts.server_unsynchronised += u64::from(reply.unsynchronised);
        let response_ns = match reply.answer {
            Answer::Basic { response_ns } => Some(response_ns),
            Answer::Interleaved => {
                counts.interleaved += 1;
                let known = (referred != 0).then(|| NtpTimestamp::from_bits(referred));
                known.and_then(|receive| verify::response_ns(receive, reply.transmit))
            }
        };
        if let Some(ns) = response_ns {
            counts.response.record(ns);
        }
        if let Some(offsets) = &mut self.offsets {
            let found = self.books.of(intended).offsets.get_or_insert_default();
            let received = intended + rtt;
            offsets.record(reply, (received, stamps), (index, referred), found);
        }
        if self.expected.interleaved {
            self.origins.remember(index, reply.receive);
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

    /// Says what was counted so far.
    pub fn so_far(&self, told: &mut SoFar) {
        self.books.so_far(told);
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
        let carried = Carried {
            asked,
            first_client: self.clients.first(),
            origins: self.origins,
            last_received: self.offsets.map(|offsets| offsets.close()).unwrap_or_default(),
            tail: self.tail,
            master: self.ptp.and_then(|books| books.master()),
        };
        (self.books.close_all(), carried)
    }

    /// Whether it was asked before this trial began, and so whether it was asked at all, as far as
    /// its number tells.
    fn is_of_earlier_trial(&self, question: Question) -> bool {
        let numbers = self.before.min(self.clients.wrap().into());
        question.intended < self.start && u64::from(question.sequence) < numbers
    }

    /// Which request of this trial has this sequence number; the latest one where several have.
    fn place(&self, question: Question) -> Option<u64> {
        let wrap = u64::from(self.clients.wrap());
        let sequence = u64::from(question.sequence);
        let latest = (self.before + self.asked).checked_sub(1)?;
        let back = (latest % wrap + wrap).checked_sub(sequence)? % wrap;
        let place = (self.asked.checked_sub(1)?).checked_sub(back)?;
        (sequence < wrap && question.intended >= self.start).then_some(place)
    }
}

/// How much longer than a reply may take the book of an interval is open, for requests that left
/// late and replies that were fetched late.
pub(crate) const CLOSING: Span = Span::from_ms(200);

/// The least reach of the duplicate window, in requests: 8 KiB.
const REACH_MIN: u64 = 32_768;

fn nonnegative(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap_or(0)
}
