//! Loop of one sending thread in a trial: sends each request at its intended send time, receives
//! replies in between, and waits for the last ones. The [`LanePort`] trait abstracts the device, so
//! that this loop is the same for all of them.
//!
//! One thread does both, because a second one for receiving would have no core of its own: on two
//! cores shared with a server over loopback, one thread lost nothing at 200,000 requests/s, where a
//! sender and a receiver lost a fifth and more, with the same send lateness.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_record::ProgressPublisher;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

use super::drain::{Drain, GRACE};
use crate::offset::ReceiveTimestamps;
use crate::request::RequestTimestamps;
use crate::request_tracker::{ClosedInterval, LaneCarryOver, RequestTracker};
use crate::schedule::LaneSchedule;

/// Most requests that one system call sends.
pub(crate) const BATCH: usize = 32;

/// Time before an intended send time from which on the thread no longer sleeps: the time that a
/// sleep takes to end, from the timer's interrupt until the thread runs again.
const SPIN: Span = Span::from_ns(60_000);

/// Time before an intended send time from which on the thread no longer receives: longer than most
/// calls that return a full batch.
const HOLD: Span = Span::from_ns(5_000);

/// Longest time after the end of a phase for which a sender that fell behind may continue it.
pub(crate) const PHASE_GRACE: Span = Span::from_ms(10);

/// Longest sleep, so that a trial at a low rate can be ended early.
const SLEEP_MAX: Span = Span::from_ms(100);

/// Pause between checks for replies when nothing is left to send.
const DRAIN_PAUSE: Span = Span::from_ns(50_000);

/// Clock of a lane, with its ways to wait.
pub(crate) trait LaneClock: Clock<Monotonic> + Sync {
    /// Waits until `instant` without using the CPU.
    fn sleep_until(&self, instant: Timestamp<Monotonic>);

    /// Lets a moment pass.
    fn spin(&self);

    /// Returns the lead of `CLOCK_REALTIME` over this clock.
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

/// Datagram from the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetDatagram<'a> {
    /// UDP payload, possibly truncated.
    pub(crate) payload: &'a [u8],
    /// Client that received it; `None` if it is none of this lane's.
    pub(crate) client: Option<u32>,
    /// Kernel receive timestamp, if the device provides it.
    pub(crate) received_at: Option<Timestamp<Utc>>,
    /// Receive timestamp of the PHC, in ns.
    pub(crate) phc_ns: Option<i64>,
}

/// Device through which a lane sends and receives.
pub(crate) trait LanePort: Send {
    /// Returns true if a request of this client can be queued before those already queued are sent.
    fn has_room(&self, client: u32) -> bool;

    /// Returns true after queueing one more request; false if the queued ones must be sent first.
    fn push(&mut self, client: u32, timestamps: RequestTimestamps) -> bool;

    /// Returns true after queueing one more request with a payload other than the template's; false
    /// as [`LanePort::push`] does.
    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool;

    /// Sends the queued requests and returns how many were sent; the others are discarded.
    fn send(&mut self) -> io::Result<usize>;

    /// Fetches the datagrams available, without waiting, and returns their number.
    fn receive(&mut self) -> io::Result<usize>;

    /// Returns the number of [`LanePort::receive`] calls after which a full round has found
    /// nothing.
    fn receive_calls(&self) -> usize;

    /// Returns the datagrams that the last [`LanePort::receive`] fetched, the target's only.
    fn arrivals(&self) -> impl Iterator<Item = TargetDatagram<'_>>;

    /// Returns the datagrams that the kernel dropped for lack of room since the port was opened.
    fn dropped(&mut self) -> io::Result<u64>;

    /// Returns the ICMP port-unreachable messages from the target since the port was opened.
    fn port_closed(&self) -> u64;
}

/// One trial of one lane.
pub(crate) struct LaneTrial<'a, P, C> {
    pub(crate) port: &'a mut P,
    pub(crate) clock: &'a C,
    pub(crate) account: RequestTracker,
    pub(crate) schedule: LaneSchedule,
    /// End of the schedule.
    pub(crate) end: Timestamp<Monotonic>,
    /// Reply timeout.
    pub(crate) timeout: Span,
    /// Lead of `CLOCK_REALTIME` over `CLOCK_MONOTONIC`.
    pub(crate) realtime_ahead: Span,
    /// End of the first interval, and the length of each, if intervals are counted separately.
    pub(crate) interval: Option<(Timestamp<Monotonic>, Span)>,
    /// Set when the trial must end early.
    pub(crate) stop: &'a AtomicBool,
    /// Destination of the lane's progress, if it is observed.
    pub(crate) publisher: Option<ProgressPublisher<'a>>,
}

/// Counts of a port at the last check.
#[derive(Clone, Copy)]
struct LanePortCounts {
    dropped: u64,
    closed: u64,
}

impl<P: LanePort, C: LaneClock> LaneTrial<'_, P, C> {
    /// Runs the trial to its end, delivers the counts of each interval as it closes, and returns
    /// the state that the lane carries over to its next trial.
    pub(crate) fn run(
        mut self,
        closed: &mut dyn FnMut(ClosedInterval),
    ) -> io::Result<LaneCarryOver> {
        let mut last_counts = self.port_counts()?;
        self.send_all(&mut last_counts, closed)?;
        self.drain()?;
        self.count_dropped(&mut last_counts)?;
        let taken = self.schedule.taken();
        let stopped = self.stop.load(Ordering::Relaxed);
        let planned = if stopped { taken } else { self.schedule.exhaust() };
        let left_out = planned - taken;
        let planned_count = if self.interval.is_some() { left_out } else { planned };
        let (intervals, carried) = self.account.close(planned_count);
        intervals.into_iter().for_each(closed);
        Ok(carried)
    }

    fn port_counts(&mut self) -> io::Result<LanePortCounts> {
        Ok(LanePortCounts { dropped: self.port.dropped()?, closed: self.port.port_closed() })
    }

    fn count_dropped(&mut self, last_counts: &mut LanePortCounts) -> io::Result<()> {
        let now = self.port_counts()?;
        let dropped = now.dropped.saturating_sub(last_counts.dropped);
        self.account.dropped(dropped, now.closed - last_counts.closed);
        *last_counts = now;
        Ok(())
    }

    /// Counts the drops of an interval at its end, and closes the intervals before it.
    fn turn(
        &mut self,
        now: Timestamp<Monotonic>,
        last_counts: &mut LanePortCounts,
        closed: &mut dyn FnMut(ClosedInterval),
    ) -> io::Result<()> {
        let Some((end, interval)) = &mut self.interval else { return Ok(()) };
        if now < *end {
            return Ok(());
        }
        *end = *end + *interval;
        // The clock of the packet timestamps may have been stepped.
        self.realtime_ahead = self.clock.realtime_ahead();
        self.count_dropped(last_counts)?;
        while let Some(closed_interval) = self.account.close_interval(now) {
            closed(closed_interval);
        }
        Ok(())
    }

    /// Publishes the counts so far, if they are observed and an update is due.
    #[inline]
    fn publish_progress(&mut self, now: Timestamp<Monotonic>) {
        if let Some(publisher) = &mut self.publisher
            && let Some(mut progress) = publisher.slot_if_due(now)
        {
            self.account.publish_progress(&mut progress);
        }
    }

    fn send_all(
        &mut self,
        last_counts: &mut LanePortCounts,
        closed: &mut dyn FnMut(ClosedInterval),
    ) -> io::Result<()> {
        while let Some(intended) = self.schedule.peek() {
            let now = self.clock.now();
            if now >= self.end + GRACE || self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.turn(now, last_counts, closed)?;
            self.publish_progress(now);
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

    /// Sends the requests that are due, as many as fit into one call.
    fn send_due(&mut self, now: Timestamp<Monotonic>) -> io::Result<()> {
        let mut due = [(now, false); BATCH];
        let mut count = 0;
        while count < BATCH
            && let Some(intended) = self.schedule.peek()
            && intended <= now
        {
            let next = self.account.next(intended);
            // Checked before the payload is made, which may consume a cookie.
            if !self.port.has_room(next.client) {
                break;
            }
            let pushed = match self.account.payload(&next) {
                None => self.port.push(next.client, next.timestamps),
                Some(payload) => self.port.push_payload(next.client, payload),
            };
            if !pushed {
                break;
            }
            self.account.register();
            self.schedule.advance();
            due[count] = (intended, next.authenticated);
            count += 1;
        }
        let sent = self.port.send()?;
        // The call sends one after the other, so the send times lie evenly between its start and
        // end.
        let step = (self.clock.now() - now).as_ns() / count.max(1) as i64;
        let mut at = now;
        for &(intended, authenticated) in &due[..sent] {
            at = at + Span::from_ns(step);
            self.account.sent(intended, at, authenticated);
        }
        self.account.refused((count - sent) as u64);
        Ok(())
    }

    /// Receives the datagrams available, as many as one call fetches.
    fn receive(&mut self) -> io::Result<usize> {
        let count = self.port.receive()?;
        if count > 0 {
            let now = self.clock.now();
            for arrival in self.port.arrivals() {
                let received = arrival.received_at.map_or(now, |utc| {
                    Timestamp::from_ns(utc.as_ns() - self.realtime_ahead.as_ns()).min(now)
                });
                let timestamps =
                    ReceiveTimestamps { kernel: arrival.received_at, phc_ns: arrival.phc_ns };
                self.account.receive(arrival.payload, arrival.client, received, now, timestamps);
            }
        }
        Ok(count)
    }

    /// Receives all datagrams available, but for no longer than a sleep would have lasted.
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
        let mut drain = Drain { last_sent, last_reply: last_sent, timeout: self.timeout };
        while self.account.outstanding() > 0 {
            let answered = self.account.answered();
            let count = self.receive_until_empty()?;
            let now = self.clock.now();
            self.publish_progress(now);
            if self.account.answered() > answered {
                drain.last_reply = now;
            }
            // Also while packets arrive: they may be unsolicited.
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
