//! One sending thread's work in a trial: to send each request as its instant comes, to take in
//! replies whenever there is time, and to wait for the last ones. What a request passes through is
//! behind the [`Port`] trait, so that this loop is the same for every kind of device.
//!
//! One thread does both, because a second one for receiving would not have a core of its own: on
//! two cores beside a server over loopback, one thread lost nothing at 200,000 requests/s, where a
//! sender and a receiver lost a fifth and more, with the same lateness.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_record::Telling;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

use super::drain::{Drain, GRACE};
use crate::account::{Account, Carried, Closed};
use crate::offset::ReceiveStamps;
use crate::request::Stamps;
use crate::schedule::Schedule;

/// The most requests that one system call sends.
pub(crate) const BATCH: usize = 32;

/// Time before an intended instant from which on the thread no longer sleeps: what a sleep takes to
/// end, from the timer's interrupt until the thread is back on the processor.
const SPIN: Span = Span::from_ns(60_000);

/// Time before an intended instant from which on it no longer receives: longer than one call that
/// finds a full batch takes in most cases.
const HOLD: Span = Span::from_ns(5_000);

/// How long after the end of a phase a sender that fell behind may go on with it.
pub(crate) const PHASE_GRACE: Span = Span::from_ms(10);

/// The longest sleep, so that a trial of few requests can be ended in its middle.
const SLEEP_MAX: Span = Span::from_ms(100);

/// The pause between looks for replies when nothing is left to send.
const DRAIN_PAUSE: Span = Span::from_ns(50_000);

/// The clock that a lane goes by, and how time passes on it.
pub(crate) trait LaneClock: Clock<Monotonic> + Sync {
    /// Waits until `instant` without using the processor.
    fn sleep_until(&self, instant: Timestamp<Monotonic>);

    /// Lets a moment pass.
    fn spin(&self);

    /// What `CLOCK_REALTIME` is ahead of it.
    fn realtime_ahead(&self) -> Span;
}

impl LaneClock for MonotonicClock {
    fn sleep_until(&self, instant: Timestamp<Monotonic>) {
        sleep_until(instant);
    }

    fn spin(&self) {
        std::hint::spin_loop();
    }

    fn realtime_ahead(&self) -> Span {
        realtime_minus_monotonic().offset
    }
}

/// A datagram from the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// Its UDP payload, or what there is of it.
    pub(crate) payload: &'a [u8],
    /// The client to which it came; `None` when to none of this lane's.
    pub(crate) client: Option<u32>,
    /// When the kernel received it, where the device says so.
    pub(crate) received_at: Option<Timestamp<Utc>>,
    /// The same by the card's own clock, in ns.
    pub(crate) card_ns: Option<i64>,
}

/// What a lane sends and receives through.
pub(crate) trait Port: Send {
    /// Whether a request of this client can be readied before those that are ready are sent.
    fn has_room(&self, client: u32) -> bool;

    /// Readies one more request; `false` when those that are ready have to be sent first.
    fn push(&mut self, client: u32, stamps: Stamps) -> bool;

    /// The same with a payload that is not the template's.
    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool;

    /// Sends the requests that are ready and returns how many left; the others are forgotten.
    fn send(&mut self) -> io::Result<usize>;

    /// Fetches datagrams that have come, without waiting, and returns how many.
    fn receive(&mut self) -> io::Result<usize>;

    /// Receives until a full round found nothing is this many calls.
    fn receive_calls(&self) -> usize;

    /// The datagrams that the last [`Port::receive`] fetched, the target's only.
    fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>>;

    /// Datagrams that the kernel had no room for, since the port was opened.
    fn dropped(&mut self) -> io::Result<u64>;

    /// ICMP messages seen that say that the target's port is closed, since the port was opened.
    fn port_closed(&self) -> u64;
}

/// One trial of one lane.
pub(crate) struct LaneTrial<'a, P, C> {
    pub(crate) port: &'a mut P,
    pub(crate) clock: &'a C,
    pub(crate) account: Account,
    pub(crate) schedule: Schedule,
    /// When the schedule is over.
    pub(crate) end: Timestamp<Monotonic>,
    /// How long a reply may take.
    pub(crate) timeout: Span,
    /// What `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`.
    pub(crate) realtime_ahead: Span,
    /// When the first of the intervals that are counted apart ends, and how long they are.
    pub(crate) interval: Option<(Timestamp<Monotonic>, Span)>,
    /// Set when the trial is to end early.
    pub(crate) stop: &'a AtomicBool,
    /// Where it says what it has counted so far, where somebody looks on.
    pub(crate) telling: Option<Telling<'a>>,
}

/// What a port had counted when it was last looked at.
#[derive(Clone, Copy)]
struct Looked {
    dropped: u64,
    closed: u64,
}

impl<P: Port, C: LaneClock> LaneTrial<'_, P, C> {
    /// Runs it to its end, hands over the books of each interval as they are closed, and returns
    /// what the lane takes to its next trial.
    pub(crate) fn run(mut self, closed: &mut dyn FnMut(Closed)) -> io::Result<Carried> {
        let mut looked = self.look()?;
        self.send_all(&mut looked, closed)?;
        self.drain()?;
        self.count_dropped(&mut looked)?;
        let taken = self.schedule.taken();
        let stopped = self.stop.load(Ordering::Relaxed);
        let planned = if stopped { taken } else { self.schedule.exhaust() };
        let left_out = planned - taken;
        let told = if self.interval.is_some() { left_out } else { planned };
        let (books, carried) = self.account.close(told);
        books.into_iter().for_each(closed);
        Ok(carried)
    }

    fn look(&mut self) -> io::Result<Looked> {
        Ok(Looked { dropped: self.port.dropped()?, closed: self.port.port_closed() })
    }

    fn count_dropped(&mut self, looked: &mut Looked) -> io::Result<()> {
        let now = self.look()?;
        let dropped = now.dropped.saturating_sub(looked.dropped);
        self.account.dropped(dropped, now.closed - looked.closed);
        *looked = now;
        Ok(())
    }

    /// At the end of an interval, counts what was dropped in it and closes those before it.
    fn turn(
        &mut self,
        now: Timestamp<Monotonic>,
        looked: &mut Looked,
        closed: &mut dyn FnMut(Closed),
    ) -> io::Result<()> {
        let Some((end, interval)) = &mut self.interval else { return Ok(()) };
        if now < *end {
            return Ok(());
        }
        *end = *end + *interval;
        // Somebody may have set the clock by which packets are stamped.
        self.realtime_ahead = self.clock.realtime_ahead();
        self.count_dropped(looked)?;
        while let Some(book) = self.account.close_interval(now) {
            closed(book);
        }
        Ok(())
    }

    /// Says what it has counted so far, where somebody looks on and it is time to.
    #[inline]
    fn tell(&mut self, now: Timestamp<Monotonic>) {
        if let Some(telling) = &mut self.telling
            && let Some(mut told) = telling.due(now)
        {
            self.account.so_far(&mut told);
        }
    }

    fn send_all(&mut self, looked: &mut Looked, closed: &mut dyn FnMut(Closed)) -> io::Result<()> {
        while let Some(intended) = self.schedule.peek() {
            let now = self.clock.now();
            if now >= self.end + GRACE || self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.turn(now, looked, closed)?;
            self.tell(now);
            let left_out = self.schedule.skip_phase(now - PHASE_GRACE);
            if left_out > 0 {
                self.account.left_out(intended, left_out);
                continue;
            }
            let early = intended - now;
            if early <= Span::ZERO {
                self.send_due(now)?;
                self.receive()?;
            } else if early > SPIN + SPIN {
                self.receive_until_empty()?;
                self.clock.sleep_until((intended - SPIN).min(now + SLEEP_MAX));
            } else if early > HOLD {
                self.receive()?;
            } else {
                self.clock.spin();
            }
        }
        Ok(())
    }

    /// Sends what is due, as much of it as goes into one call.
    fn send_due(&mut self, now: Timestamp<Monotonic>) -> io::Result<()> {
        let mut due = [(now, false); BATCH];
        let mut count = 0;
        while count < BATCH
            && let Some(intended) = self.schedule.peek()
            && intended <= now
        {
            let next = self.account.next(intended);
            // Before its payload is made, which may take a cookie.
            if !self.port.has_room(next.client) {
                break;
            }
            let pushed = match self.account.payload(&next) {
                None => self.port.push(next.client, next.stamps),
                Some(payload) => self.port.push_payload(next.client, payload),
            };
            if !pushed {
                break;
            }
            self.account.ask();
            self.schedule.advance();
            due[count] = (intended, next.authenticated);
            count += 1;
        }
        let sent = self.port.send()?;
        // The call sends one after the other, so the instants lie evenly between its two ends.
        let step = (self.clock.now() - now).as_ns() / count.max(1) as i64;
        let mut at = now;
        for &(intended, authenticated) in &due[..sent] {
            at = at + Span::from_ns(step);
            self.account.sent(intended, at, authenticated);
        }
        self.account.refused((count - sent) as u64);
        Ok(())
    }

    /// Takes in what has come, as much of it as one call fetches.
    fn receive(&mut self) -> io::Result<usize> {
        let count = self.port.receive()?;
        if count > 0 {
            let now = self.clock.now();
            for arrival in self.port.arrivals() {
                let received = arrival.received_at.map_or(now, |utc| {
                    Timestamp::from_ns(utc.as_ns() - self.realtime_ahead.as_ns()).min(now)
                });
                let stamps =
                    ReceiveStamps { kernel: arrival.received_at, card_ns: arrival.card_ns };
                self.account.receive(arrival.payload, arrival.client, received, now, stamps);
            }
        }
        Ok(count)
    }

    /// Takes in all that has come, but no more than a sleep would have delayed.
    fn receive_until_empty(&mut self) -> io::Result<usize> {
        let mut total = 0;
        for _ in 0..self.port.receive_calls() {
            total += self.receive()?;
        }
        Ok(total)
    }

    /// Waits for the last replies.
    fn drain(&mut self) -> io::Result<()> {
        let last_sent = self.account.last_sent();
        let mut drain = Drain { last_sent, heard: last_sent, timeout: self.timeout };
        while self.account.outstanding() > 0 {
            let answered = self.account.answered();
            let count = self.receive_until_empty()?;
            let now = self.clock.now();
            self.tell(now);
            if self.account.answered() > answered {
                drain.heard = now;
            }
            // Also while something comes: it may be what nobody asked for.
            if drain.is_over(now, self.account.longest_rtt()) {
                break;
            }
            if count == 0 {
                self.clock.sleep_until(now + DRAIN_PAUSE);
            }
        }
        Ok(())
    }
}
