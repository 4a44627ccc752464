//! Ping-pong: a request, its reply or the end of patience, the next request.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use horolog_record::{RowEnd, Telling};
use horolog_stats::SeenWindow;
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_sys::datagram::{self, Wait};
use horolog_sys::message::is_refusal;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::books::{Books, Instants};
use super::flow::{Came, Flow};
use super::options::WARM_UP_TIME;
use super::shared::Shared;

/// Looks at the socket between two looks at the clock, where replies are not slept for.
const POLLS: u32 = 64;
/// Silence that is no chance any more.
pub(super) const SILENCE: Span = Span::from_ms(1_000);
/// Refusals of the far end's host in a row after which nobody listens there.
const REFUSALS: u32 = 3;
/// After the own sending path refused a request.
const PAUSE: Span = Span::from_ns(200_000);

/// What a flow brings home.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) books: Books,
    pub(super) begun: Option<Timestamp<Monotonic>>,
    pub(super) over: Timestamp<Monotonic>,
    pub(super) ended: Option<RowEnd>,
}

/// How the wait for a reply ended.
enum Waited {
    /// The program had the reply then.
    Answered(Timestamp<Monotonic>),
    TimedOut,
    Refused,
    Failed,
}

/// The exchange that goes on.
struct Exchange<'a> {
    flow: &'a mut Flow,
    books: &'a mut Books,
    seen: &'a SeenWindow,
    timeout: Span,
    /// UTC minus the monotonic clock.
    offset: Span,
}

/// Goes on until the row is over.
pub(super) fn ping_pong(
    flow: &mut Flow,
    shared: &Shared<'_>,
    mut books: Books,
    seen: &SeenWindow,
    (offset, mut telling): (Span, Option<Telling<'_>>),
) -> Brought {
    let timeout = Span::from_ns(shared.timeout.as_nanos() as i64);
    let length = Span::from_ns(shared.time.as_nanos() as i64);
    let (mut begun, mut over) = (None, MonotonicClock.now());
    let (mut heard, mut refusals) = (over, 0);
    let mut ended = flow.sleep_at_most(shared.timeout).err().map(|_| RowEnd::Failed);
    let warm_until = over + Span::from_ns(WARM_UP_TIME.as_nanos() as i64);
    let mut next = 0;
    while next < shared.count.unwrap_or(u32::MAX) {
        // The numbers of those that warm up no more are left out.
        let sequence = if over < warm_until { next } else { next.max(shared.warm_up) };
        next = sequence + 1;
        let is_first = sequence == shared.warm_up;
        if is_first {
            begun = Some(over);
        }
        if ended.is_some() || shared.is_to_end() || begun.is_some_and(|at| over - at >= length) {
            break;
        }
        shared.before_request(is_first);
        let mut exchange = Exchange { flow: &mut *flow, books: &mut books, seen, timeout, offset };
        let waited = exchange.once(sequence, sequence < shared.warm_up);
        over = match waited {
            Waited::Answered(taken) => taken,
            _ => MonotonicClock.now(),
        };
        if let Some(mut told) = telling.as_mut().and_then(|telling| telling.due(over)) {
            books.so_far(books.counts.sent, &mut told);
        }
        match waited {
            Waited::Answered(_) => (heard, refusals) = (over, 0),
            Waited::Failed => ended = Some(RowEnd::Failed),
            Waited::Refused => {
                refusals += 1;
                ended = (refusals >= REFUSALS).then_some(RowEnd::Closed);
            }
            Waited::TimedOut if over - heard < SILENCE.max(timeout + timeout) => {}
            Waited::TimedOut => {
                if flow.is_there(shared.to) && flow.sleep_at_most(shared.timeout).is_ok() {
                    heard = over;
                } else {
                    ended = Some(RowEnd::Vanished);
                }
            }
        }
    }
    Brought { books, begun, over, ended }
}

impl Exchange<'_> {
    /// One request and what comes of it.
    fn once(&mut self, sequence: u32, is_warm_up: bool) -> Waited {
        let flow = &mut *self.flow;
        let now = if flow.codec.tells_time() { self.utc(MonotonicClock.now()) } else { 0 };
        let flow = &mut *self.flow;
        flow.codec.write(&mut flow.out, sequence, is_warm_up, Timestamp::from_ns(now));
        self.seen.open(u64::from(sequence));
        let sent = MonotonicClock.now();
        if let Err(error) = datagram::send(flow.socket.as_fd(), &flow.out) {
            return match error.kind() {
                // Of an earlier request; this one did not leave.
                ErrorKind::ConnectionRefused => Waited::Refused,
                ErrorKind::WouldBlock => self.refused(is_warm_up),
                _ if is_refusal(&error) && error.raw_os_error() != Some(90) => {
                    self.refused(is_warm_up)
                }
                _ => Waited::Failed,
            };
        }
        flow.sent = flow.sent.wrapping_add(1);
        self.books.counts.sent += u64::from(!is_warm_up);
        self.wait(sequence, sent)
    }

    fn refused(&mut self, is_warm_up: bool) -> Waited {
        self.books.counts.refused += u64::from(!is_warm_up);
        sleep_until(MonotonicClock.now() + PAUSE);
        Waited::TimedOut
    }

    fn utc(&self, at: Timestamp<Monotonic>) -> i64 {
        (at + self.offset).as_ns()
    }

    fn wait(&mut self, sequence: u32, sent: Timestamp<Monotonic>) -> Waited {
        let mut polls = 0_u32;
        loop {
            match self.flow.receive() {
                Ok(came) => {
                    let taken = MonotonicClock.now();
                    if self.take(came, sequence, sent, taken) {
                        return Waited::Answered(taken);
                    }
                    if taken - sent > self.timeout {
                        return Waited::TimedOut;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                        polls = polls.wrapping_add(1);
                        let looks = self.flow.wait == Wait::Asleep || polls.is_multiple_of(POLLS);
                        if looks && MonotonicClock.now() - sent >= self.timeout {
                            return Waited::TimedOut;
                        }
                    }
                    ErrorKind::ConnectionRefused => return Waited::Refused,
                    _ if is_refusal(&error) => {}
                    _ => return Waited::Failed,
                },
            }
        }
    }

    /// Takes a datagram; whether it is the reply that is waited for.
    fn take(
        &mut self,
        came: Came,
        sequence: u32,
        sent: Timestamp<Monotonic>,
        taken: Timestamp<Monotonic>,
    ) -> bool {
        let (sent_ns, taken_ns) = (self.utc(sent), self.utc(taken));
        let bytes = &self.flow.input[..came.len];
        let Some(reply) = self.flow.codec.read(bytes, Timestamp::from_ns(taken_ns)) else {
            self.books.counts.invalid += 1;
            return false;
        };
        let is_awaited = reply.sequence == sequence;
        // Another one was given up, so it is late whenever it left.
        let latency = if is_awaited { taken - sent } else { Span::from_ns(i64::MAX) };
        let left_ns = if self.flow.kernel { self.left() } else { None };
        let at = Instants { latency, sent_ns, taken_ns, left_ns, came_ns: came.came_ns };
        self.books.take(&reply, &at, self.seen);
        is_awaited
    }

    /// When the last request went to the driver.
    fn left(&mut self) -> Option<i64> {
        let last = self.flow.sent.wrapping_sub(1);
        while let Some((id, at)) = self.flow.left() {
            if id == last {
                return Some(at);
            }
        }
        None
    }
}
