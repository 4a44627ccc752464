//! A fixed rate: each request is sent at its instant, whatever became of the others, and latency
//! counts from that instant, so that a request that waits for the sender's turn counts as waiting.
//! One thread sends and another receives.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use horolog_record::{RowEnd, Telling};
use horolog_stats::{Recorder, SeenWindow};
use horolog_sys::affinity::set_timer_slack_ns;
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_sys::datagram;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::books::{Books, Instants};
use super::codec::Codec;
use super::flow::{Came, Flow};
use super::ping_pong::{Brought, SILENCE};
use super::shared::Shared;

/// How long the receiver sleeps at most before it looks whether it is to end.
const TICK: Duration = Duration::from_millis(10);
/// Looks at the socket between two such looks, where it does not sleep.
const POLLS: u32 = 256;
/// The sender sleeps no longer at a time, so that a run that is to end does.
const NAP: Span = Span::from_ms(50);

/// When requests of a flow are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) start: Timestamp<Monotonic>,
    /// From one request to the next, in ns.
    pub(super) interval_ns: f64,
    /// How many.
    pub(super) count: u32,
}

impl Schedule {
    fn due(&self, sequence: u32) -> Timestamp<Monotonic> {
        self.start + Span::from_ns((f64::from(sequence) * self.interval_ns) as i64)
    }
}

/// What sender and receiver of a flow share.
pub(super) struct Between {
    pub(super) seen: SeenWindow,
    /// When requests were handed over, by number modulo its length; monotonic, in ns.
    sent_at: Box<[AtomicI64]>,
    /// Requests that were sent or refused.
    next: AtomicU32,
    is_done: AtomicBool,
    /// The kernel's numbers are not those of requests any more.
    is_renumbered: AtomicBool,
}

impl Between {
    pub(super) fn new(seen: SeenWindow, reach: usize) -> Self {
        let sent_at = (0..reach.next_power_of_two()).map(|_| AtomicI64::new(0)).collect();
        let (next, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { seen, sent_at, next, is_done, is_renumbered: AtomicBool::new(false) }
    }

    fn sent_at(&self, sequence: u32) -> &AtomicI64 {
        &self.sent_at[sequence as usize & (self.sent_at.len() - 1)]
    }
}

/// What the sender counted.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) late: Recorder,
    pub(super) left: u64,
    pub(super) refused: u64,
    pub(super) begun: Option<Timestamp<Monotonic>>,
    pub(super) over: Timestamp<Monotonic>,
}

/// What sends the requests of a flow.
pub(super) struct Sender<'a> {
    pub(super) socket: &'a Socket,
    pub(super) codec: Codec,
    pub(super) out: Vec<u8>,
    pub(super) shared: &'a Shared<'a>,
    pub(super) between: &'a Between,
    pub(super) schedule: Schedule,
    pub(super) offset: Span,
}

impl Sender<'_> {
    /// Sends all of them.
    pub(super) fn run(mut self) -> Sent {
        // Of no use to real-time threads, and harmless where it cannot be had.
        let _ = set_timer_slack_ns(1);
        let now = MonotonicClock.now();
        let mut sent = Sent { late: Recorder::new(), left: 0, refused: 0, begun: None, over: now };
        for sequence in 0..self.schedule.count {
            let due = self.schedule.due(sequence);
            if !self.sleep(due) {
                break;
            }
            self.once(sequence, due, &mut sent);
        }
        self.between.is_done.store(true, Ordering::Release);
        sent
    }

    fn sleep(&self, due: Timestamp<Monotonic>) -> bool {
        loop {
            let now = MonotonicClock.now();
            if now >= due {
                // A sender that is behind looks as well.
                return !self.shared.is_to_end();
            }
            if self.shared.is_to_end() {
                return false;
            }
            if self.shared.busy_polling {
                std::hint::spin_loop();
            } else {
                sleep_until(due.min(now + NAP));
            }
        }
    }

    fn once(&mut self, sequence: u32, due: Timestamp<Monotonic>, sent: &mut Sent) {
        let is_warm_up = sequence < self.shared.warm_up;
        self.shared.before_request(sequence == self.shared.warm_up);
        let now = MonotonicClock.now();
        self.codec.write(
            &mut self.out,
            sequence,
            is_warm_up,
            Timestamp::from_ns((now + self.offset).as_ns()),
        );
        self.between.seen.open(u64::from(sequence));
        self.between.sent_at(sequence).store(now.as_ns(), Ordering::Relaxed);
        let left = datagram::send(self.socket.as_fd(), &self.out).is_ok();
        self.between.next.store(sequence + 1, Ordering::Release);
        if !left {
            self.between.is_renumbered.store(true, Ordering::Relaxed);
        }
        if is_warm_up {
            return;
        }
        sent.begun = sent.begun.or(Some(now));
        sent.over = now;
        sent.left += u64::from(left);
        sent.refused += u64::from(!left);
        sent.late.record(u64::try_from((now - due).as_ns()).unwrap_or(0));
    }
}

/// What receives the replies of a flow.
pub(super) struct Receiver<'a> {
    pub(super) flow: Flow,
    pub(super) books: Books,
    pub(super) shared: &'a Shared<'a>,
    pub(super) between: &'a Between,
    pub(super) schedule: Schedule,
    pub(super) offset: Span,
    /// When requests went to the driver, by number modulo its length; empty without the kernel's.
    pub(super) left_at: Vec<i64>,
    /// Where it says what it has counted so far, where somebody looks on.
    pub(super) telling: Option<Telling<'a>>,
}

impl Receiver<'_> {
    /// Receives until all replies are there or none can be in time any more.
    pub(super) fn run(mut self) -> (Brought, Flow) {
        let timeout = Span::from_ns(self.shared.timeout.as_nanos() as i64);
        let mut ended = self.flow.sleep_at_most(TICK).err().map(|_| RowEnd::Failed);
        let mut heard = MonotonicClock.now();
        let mut polls = 0_u32;
        let mut quiet_since = None;
        while ended.is_none() {
            match self.flow.receive() {
                Ok(came) => {
                    heard = MonotonicClock.now();
                    self.take(came, heard);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => std::hint::spin_loop(),
                    ErrorKind::ConnectionRefused => ended = Some(RowEnd::Closed),
                    _ => {}
                },
            }
            polls = polls.wrapping_add(1);
            if self.shared.busy_polling && !polls.is_multiple_of(POLLS) {
                continue;
            }
            let now = MonotonicClock.now();
            self.tell(now);
            if self.between.is_done.load(Ordering::Acquire) {
                let since = *quiet_since.get_or_insert(now);
                if now - since > timeout || self.is_all_answered() {
                    break;
                }
            } else if now - heard > SILENCE.max(timeout + timeout)
                && now > self.schedule.start + SILENCE
            {
                if self.flow.is_there(self.shared.to) && self.flow.sleep_at_most(TICK).is_ok() {
                    heard = MonotonicClock.now();
                } else {
                    ended = Some(RowEnd::Vanished);
                }
            }
        }
        if ended.is_some() {
            self.shared.ended.store(true, Ordering::Relaxed);
        }
        let over = MonotonicClock.now();
        (Brought { books: self.books, begun: None, over, ended }, self.flow)
    }

    /// Requests that count and have left.
    fn left_so_far(&self) -> u64 {
        self.between.next.load(Ordering::Acquire).saturating_sub(self.shared.warm_up).into()
    }

    fn tell(&mut self, now: Timestamp<Monotonic>) {
        if let Some(mut told) = self.telling.as_mut().and_then(|telling| telling.due(now)) {
            self.books.so_far(self.left_so_far(), &mut told);
        }
    }

    fn is_all_answered(&self) -> bool {
        let counts = &self.books.counts;
        counts.received + counts.late >= self.left_so_far()
    }

    fn take(&mut self, came: Came, taken: Timestamp<Monotonic>) {
        let taken_ns = (taken + self.offset).as_ns();
        let bytes = &self.flow.input[..came.len];
        let Some(reply) = self.flow.codec.read(bytes, Timestamp::from_ns(taken_ns)) else {
            self.books.counts.invalid += 1;
            return;
        };
        let sent = self.between.sent_at(reply.sequence).load(Ordering::Relaxed);
        let sent = Timestamp::<Monotonic>::from_ns(sent);
        let at = Instants {
            latency: taken - self.schedule.due(reply.sequence),
            sent_ns: (sent + self.offset).as_ns(),
            taken_ns,
            left_ns: self.left(reply.sequence),
            came_ns: came.came_ns,
        };
        self.books.take(&reply, &at, &self.between.seen);
    }

    /// When a request went to the driver.
    fn left(&mut self, sequence: u32) -> Option<i64> {
        if self.left_at.is_empty() || self.between.is_renumbered.load(Ordering::Relaxed) {
            return None;
        }
        let mask = self.left_at.len() - 1;
        while let Some((id, at)) = self.flow.left() {
            self.left_at[id as usize & mask] = at;
        }
        Some(self.left_at[sequence as usize & mask]).filter(|at| *at != 0)
    }
}
