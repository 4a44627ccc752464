//! Loop of one sending thread in a trial: it sends each request at its intended send time, receives
//! replies in between, and waits for the last replies. The [`LaneDevice`] trait abstracts the
//! sockets, so all engines except XDP share this loop.
//!
//! One thread sends and receives, because a receiving thread would have no core of its own. On two
//! cores shared with a server over loopback, one thread lost nothing at 200,000 requests/s, whereas
//! separate threads lost a fifth or more at the same send lateness.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use horolog_record::ProgressPublisher;
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, Timestamp, Utc};

use super::drain::{ReplyDrain, SCHEDULE_GRACE};
use crate::offset::ReceiveTimestamps;
use crate::request::RequestTimestamps;
use crate::request_tracker::{ClosedInterval, LaneCarryOver, RequestTracker};
use crate::schedule::LaneSchedule;

/// Most requests that one system call sends.
pub(crate) const BATCH: usize = 32;

/// Time before an intended send time at which a sleep ends, to allow for the wake-up latency. Until
/// then the thread polls for replies, and at the end it spins.
const SPIN_TIME: Span = Span::from_ns(60_000);

/// Time before an intended send time during which the thread does not receive, because a call that
/// returns a full batch could delay the request.
const NO_RECEIVE_TIME: Span = Span::from_ns(5_000);

/// Longest time after the end of a phase for which a sender that fell behind may continue it.
pub(crate) const PHASE_GRACE: Span = Span::from_ms(10);

/// Longest sleep, so that a trial at a low rate can be ended early.
const SLEEP_MAX: Span = Span::from_ms(100);

/// Pause between checks for replies when nothing is left to send.
const DRAIN_PAUSE: Span = Span::from_ns(50_000);

/// Clock of a lane, with its wait functions.
pub(crate) trait LaneClock: Clock<Monotonic> + Sync {
    /// Waits until `instant` without using the CPU.
    fn sleep_until(&self, instant: Timestamp<Monotonic>);

    /// Spins once (a CPU pause, in real time).
    fn spin(&self);

    /// Returns `CLOCK_REALTIME` minus this clock.
    fn realtime_ahead(&self) -> Span;
}

impl LaneClock for ClockMonotonic {
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
pub(crate) struct DatagramFromTarget<'a> {
    /// UDP payload, possibly truncated.
    pub(crate) payload: &'a [u8],
    /// Client to which it is addressed; `None` if the address belongs to no client or the frame
    /// does not identify it.
    pub(crate) client: Option<u32>,
    /// Kernel receive timestamp, if the device provides it.
    pub(crate) received_at: Option<Timestamp<Utc>>,
    /// Receive timestamp of the PHC, in ns.
    pub(crate) phc_ns: Option<i64>,
}

/// Device through which a lane sends and receives.
pub(crate) trait LaneDevice: Send {
    /// Returns true if a request of this client can be queued now; false if the queued requests
    /// must be sent first.
    fn has_room(&self, client: u32) -> bool;

    /// Queues a request made from the template with these timestamps. Returns false, without
    /// queueing it, if the queued requests must be sent first.
    fn push(&mut self, client: u32, timestamps: RequestTimestamps) -> bool;

    /// Queues a request with its own payload; otherwise as [`LaneDevice::push`].
    fn push_payload(&mut self, client: u32, payload: &[u8]) -> bool;

    /// Sends the queued requests and returns how many were sent; the others are discarded.
    fn send(&mut self) -> io::Result<usize>;

    /// Fetches the datagrams available, without waiting, and returns their number.
    fn receive(&mut self) -> io::Result<usize>;

    /// Returns the number of [`LaneDevice::receive`] calls that poll every socket of the device
    /// once.
    fn receive_calls(&self) -> usize;

    /// Returns the target's datagrams among those that the last [`LaneDevice::receive`] received.
    fn arrivals(&self) -> impl Iterator<Item = DatagramFromTarget<'_>>;

    /// Returns the number of datagrams that the kernel dropped for lack of room since the device
    /// was opened.
    fn dropped(&mut self) -> io::Result<u64>;

    /// Returns the number of ICMP port-unreachable messages from the target since the device was
    /// opened.
    fn port_closed(&self) -> u64;
}

/// One trial of one lane.
pub(crate) struct LaneTrial<'a, P, C> {
    pub(crate) device: &'a mut P,
    pub(crate) clock: &'a C,
    pub(crate) tracker: RequestTracker,
    pub(crate) schedule: LaneSchedule,
    /// End of the schedule.
    pub(crate) end: Timestamp<Monotonic>,
    /// Reply timeout.
    pub(crate) timeout: Span,
    /// Lead of `CLOCK_REALTIME` over `CLOCK_MONOTONIC`.
    pub(crate) realtime_ahead: Span,
    /// End of the first interval, and the length of each; `None` without a load profile.
    pub(crate) interval: Option<(Timestamp<Monotonic>, Span)>,
    /// Set by another thread to end the trial early.
    pub(crate) stop: &'a AtomicBool,
    /// Destination of the lane's progress, if it is observed.
    pub(crate) publisher: Option<ProgressPublisher<'a>>,
}

/// Drops and port-unreachable messages of a device at the last check.
#[derive(Clone, Copy)]
struct LaneDeviceCounts {
    dropped: u64,
    port_closed: u64,
}

impl<P: LaneDevice, C: LaneClock> LaneTrial<'_, P, C> {
    /// Runs the trial to its end and passes the counts of each interval to `deliver` as it closes.
    /// Returns the state that the lane carries over to its next trial.
    pub(crate) fn run(
        mut self,
        deliver: &mut dyn FnMut(ClosedInterval),
    ) -> io::Result<LaneCarryOver> {
        let mut last_counts = self.device_counts()?;
        self.send_all(&mut last_counts, deliver)?;
        self.drain()?;
        self.count_dropped(&mut last_counts)?;
        let taken = self.schedule.advanced_count();
        let stopped = self.stop.load(Ordering::Relaxed);
        let planned = if stopped { taken } else { self.schedule.advance_to_end() };
        let left_out = planned - taken;
        let planned_count = if self.interval.is_some() { left_out } else { planned };
        let (intervals, carried) = self.tracker.close(planned_count);
        intervals.into_iter().for_each(deliver);
        Ok(carried)
    }

    fn device_counts(&mut self) -> io::Result<LaneDeviceCounts> {
        Ok(LaneDeviceCounts {
            dropped: self.device.dropped()?,
            port_closed: self.device.port_closed(),
        })
    }

    fn count_dropped(&mut self, last_counts: &mut LaneDeviceCounts) -> io::Result<()> {
        let now = self.device_counts()?;
        let dropped = now.dropped.saturating_sub(last_counts.dropped);
        self.tracker.count_dropped(dropped, now.port_closed - last_counts.port_closed);
        *last_counts = now;
        Ok(())
    }

    /// At the end of an interval, counts its drops, renews [`LaneTrial::realtime_ahead`], and
    /// delivers the intervals that can be closed.
    fn close_due_intervals(
        &mut self,
        now: Timestamp<Monotonic>,
        last_counts: &mut LaneDeviceCounts,
        deliver: &mut dyn FnMut(ClosedInterval),
    ) -> io::Result<()> {
        let Some((end, interval)) = &mut self.interval else { return Ok(()) };
        if now < *end {
            return Ok(());
        }
        *end = *end + *interval;
        // `CLOCK_REALTIME`, the clock of the packet timestamps, may have been stepped.
        self.realtime_ahead = self.clock.realtime_ahead();
        self.count_dropped(last_counts)?;
        while let Some(closed_interval) = self.tracker.close_interval(now) {
            deliver(closed_interval);
        }
        Ok(())
    }

    /// Publishes the counts so far, if they are observed and an update is due.
    #[inline]
    fn publish_progress(&mut self, now: Timestamp<Monotonic>) {
        if let Some(publisher) = &mut self.publisher
            && let Some(mut progress) = publisher.slot_if_due(now)
        {
            self.tracker.publish_progress(&mut progress);
        }
    }

    fn send_all(
        &mut self,
        last_counts: &mut LaneDeviceCounts,
        deliver: &mut dyn FnMut(ClosedInterval),
    ) -> io::Result<()> {
        while let Some(intended) = self.schedule.peek() {
            let now = self.clock.now();
            if now >= self.end + SCHEDULE_GRACE || self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.close_due_intervals(now, last_counts, deliver)?;
            self.publish_progress(now);
            let left_out = self.schedule.skip_phase(now - PHASE_GRACE);
            if left_out > 0 {
                self.tracker.count_omitted(intended, left_out);
                continue;
            }
            let time_left = intended - now;
            if time_left <= Span::ZERO {
                self.send_due(now)?;
                self.receive()?;
            } else if time_left > SPIN_TIME + SPIN_TIME {
                self.receive_until_empty()?;
                self.clock.sleep_until((intended - SPIN_TIME).min(now + SLEEP_MAX));
            } else if time_left > NO_RECEIVE_TIME {
                self.receive()?;
            } else {
                self.clock.spin();
            }
        }
        Ok(())
    }

    /// Sends the requests that are due, up to [`BATCH`] in one call.
    fn send_due(&mut self, now: Timestamp<Monotonic>) -> io::Result<()> {
        let mut due = [(now, false); BATCH];
        let mut count = 0;
        while count < BATCH
            && let Some(intended) = self.schedule.peek()
            && intended <= now
        {
            let next = self.tracker.next(intended);
            // Checked before the payload is built, because building it may consume an NTS cookie.
            if !self.device.has_room(next.client) {
                break;
            }
            let pushed = match self.tracker.payload(&next) {
                None => self.device.push(next.client, next.timestamps),
                Some(payload) => self.device.push_payload(next.client, payload),
            };
            if !pushed {
                break;
            }
            self.tracker.register();
            self.schedule.advance();
            due[count] = (intended, next.authenticated);
            count += 1;
        }
        let sent = self.device.send()?;
        // One system call sends the requests one after the other, so their send times are
        // interpolated between its start and end.
        let send_interval_ns = (self.clock.now() - now).as_ns() / count.max(1) as i64;
        let mut sent_at = now;
        for &(intended, authenticated) in &due[..sent] {
            sent_at = sent_at + Span::from_ns(send_interval_ns);
            self.tracker.count_sent(intended, sent_at, authenticated);
        }
        self.tracker.count_refused((count - sent) as u64);
        Ok(())
    }

    /// Receives the datagrams that one call returns, counts them, and returns their number.
    fn receive(&mut self) -> io::Result<usize> {
        let count = self.device.receive()?;
        if count > 0 {
            let now = self.clock.now();
            for arrival in self.device.arrivals() {
                let received = arrival.received_at.map_or(now, |utc| {
                    Timestamp::from_ns(utc.as_ns() - self.realtime_ahead.as_ns()).min(now)
                });
                let timestamps =
                    ReceiveTimestamps { kernel: arrival.received_at, phc_ns: arrival.phc_ns };
                self.tracker.receive(arrival.payload, arrival.client, received, now, timestamps);
            }
        }
        Ok(count)
    }

    /// Polls every socket once; returns the number of datagrams.
    fn receive_until_empty(&mut self) -> io::Result<usize> {
        let mut total = 0;
        for _ in 0..self.device.receive_calls() {
            total += self.receive()?;
        }
        Ok(total)
    }

    /// Receives until every request is answered or [`ReplyDrain::is_over`] is true.
    fn drain(&mut self) -> io::Result<()> {
        let last_sent = self.tracker.last_sent();
        let mut drain = ReplyDrain { last_sent, last_reply: last_sent, timeout: self.timeout };
        while self.tracker.outstanding() > 0 {
            let answered = self.tracker.answered();
            let count = self.receive_until_empty()?;
            let now = self.clock.now();
            self.publish_progress(now);
            if self.tracker.answered() > answered {
                drain.last_reply = now;
            }
            // Checked after received datagrams too, because these may be unsolicited.
            if drain.is_over(now, self.tracker.longest_rtt()) {
                break;
            }
            if count == 0 {
                self.clock.sleep_until(now + DRAIN_PAUSE);
            }
        }
        Ok(())
    }
}
