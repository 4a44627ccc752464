//! Fixed rate: each request is sent at its intended send time, whatever the state of the others,
//! and latency counts from that time, so that a wait for the sender counts too. One thread sends
//! and another receives.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use horolog_record::{ProgressPublisher, RowEndReason};
use horolog_stats::{DuplicateWindow, Recorder};
use horolog_sys::affinity::set_timer_slack_ns;
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_sys::datagram;
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::codec::Codec;
use super::flow::{ReceivedDatagram, UdpFlow};
use super::flow_stats::{ExchangeTimes, FlowStats};
use super::ping_pong::{FlowOutcome, UNREACHABLE_AFTER};
use super::shared::RowState;

/// Longest sleep of the receiver between checks of whether to end.
const TICK: Duration = Duration::from_millis(10);
/// Polls of the socket between two such checks, when busy polling.
const POLLS: u32 = 256;
/// Longest sleep of the sender, so that a request to end the run is noticed.
const NAP: Span = Span::from_ms(50);

/// Intended send times of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSchedule {
    pub(super) start: Timestamp<Monotonic>,
    /// Interval between requests, in ns.
    pub(super) interval_ns: f64,
    /// Number of requests.
    pub(super) count: u32,
}

impl FlowSchedule {
    fn due(&self, sequence: u32) -> Timestamp<Monotonic> {
        self.start + Span::from_ns((f64::from(sequence) * self.interval_ns) as i64)
    }
}

/// State shared by sender and receiver of a flow.
pub(super) struct FlowShared {
    pub(super) window: DuplicateWindow,
    /// User send times by number modulo its length; monotonic, in ns.
    sent_at: Box<[AtomicI64]>,
    /// Requests sent or refused.
    next: AtomicU32,
    is_done: AtomicBool,
    /// True once the kernel's numbers no longer match those of requests.
    is_renumbered: AtomicBool,
}

impl FlowShared {
    pub(super) fn new(window: DuplicateWindow, reach: usize) -> Self {
        let sent_at = (0..reach.next_power_of_two()).map(|_| AtomicI64::new(0)).collect();
        let (next, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { window, sent_at, next, is_done, is_renumbered: AtomicBool::new(false) }
    }

    fn sent_at(&self, sequence: u32) -> &AtomicI64 {
        &self.sent_at[sequence as usize & (self.sent_at.len() - 1)]
    }
}

/// Outcome of the sender.
#[derive(Debug)]
pub(super) struct SenderOutcome {
    pub(super) late: Recorder,
    pub(super) left: u64,
    pub(super) refused: u64,
    pub(super) begun: Option<Timestamp<Monotonic>>,
    pub(super) over: Timestamp<Monotonic>,
}

/// Sender of a flow.
pub(super) struct FlowSender<'a> {
    pub(super) socket: &'a Socket,
    pub(super) codec: Codec,
    pub(super) out: Vec<u8>,
    pub(super) shared: &'a RowState<'a>,
    pub(super) between: &'a FlowShared,
    pub(super) schedule: FlowSchedule,
    pub(super) offset: Span,
}

impl FlowSender<'_> {
    /// Sends all requests.
    pub(super) fn run(mut self) -> SenderOutcome {
        // Of no use to real-time threads, and harmless if not available.
        let _ = set_timer_slack_ns(1);
        let now = MonotonicClock.now();
        let mut sent =
            SenderOutcome { late: Recorder::new(), left: 0, refused: 0, begun: None, over: now };
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
                // A late sender checks as well.
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

    fn once(&mut self, sequence: u32, due: Timestamp<Monotonic>, sent: &mut SenderOutcome) {
        let is_warm_up = sequence < self.shared.warm_up;
        self.shared.before_request(sequence == self.shared.warm_up);
        let now = MonotonicClock.now();
        self.codec.write(
            &mut self.out,
            sequence,
            is_warm_up,
            Timestamp::from_ns((now + self.offset).as_ns()),
        );
        self.between.window.open(u64::from(sequence));
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

/// Receiver of a flow.
pub(super) struct FlowReceiver<'a> {
    pub(super) flow: UdpFlow,
    pub(super) stats: FlowStats,
    pub(super) shared: &'a RowState<'a>,
    pub(super) between: &'a FlowShared,
    pub(super) schedule: FlowSchedule,
    pub(super) offset: Span,
    /// Kernel transmit timestamps by number modulo its length; empty without them.
    pub(super) left_at: Vec<i64>,
    /// Publisher of progress, with an observer only.
    pub(super) publisher: Option<ProgressPublisher<'a>>,
}

impl FlowReceiver<'_> {
    /// Receives until all replies have arrived or none can be in time any more.
    pub(super) fn run(mut self) -> (FlowOutcome, UdpFlow) {
        let timeout = Span::from_ns(self.shared.timeout.as_nanos() as i64);
        let mut ended = self.flow.sleep_at_most(TICK).err().map(|_| RowEndReason::Failed);
        let mut last_received = MonotonicClock.now();
        let mut polls = 0_u32;
        let mut quiet_since = None;
        while ended.is_none() {
            match self.flow.receive() {
                Ok(received) => {
                    last_received = MonotonicClock.now();
                    self.take(received, last_received);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => std::hint::spin_loop(),
                    ErrorKind::ConnectionRefused => ended = Some(RowEndReason::Closed),
                    _ => {}
                },
            }
            polls = polls.wrapping_add(1);
            if self.shared.busy_polling && !polls.is_multiple_of(POLLS) {
                continue;
            }
            let now = MonotonicClock.now();
            self.publish_progress(now);
            if self.between.is_done.load(Ordering::Acquire) {
                let since = *quiet_since.get_or_insert(now);
                if now - since > timeout || self.is_all_answered() {
                    break;
                }
            } else if now - last_received > UNREACHABLE_AFTER.max(timeout + timeout)
                && now > self.schedule.start + UNREACHABLE_AFTER
            {
                if self.flow.is_there(self.shared.to) && self.flow.sleep_at_most(TICK).is_ok() {
                    last_received = MonotonicClock.now();
                } else {
                    ended = Some(RowEndReason::Vanished);
                }
            }
        }
        if ended.is_some() {
            self.shared.ended.store(true, Ordering::Relaxed);
        }
        let over = MonotonicClock.now();
        (FlowOutcome { stats: self.stats, begun: None, over, ended }, self.flow)
    }

    /// Returns the number of requests that count and have been sent.
    fn left_so_far(&self) -> u64 {
        self.between.next.load(Ordering::Acquire).saturating_sub(self.shared.warm_up).into()
    }

    fn publish_progress(&mut self, now: Timestamp<Monotonic>) {
        if let Some(mut progress) =
            self.publisher.as_mut().and_then(|publisher| publisher.slot_if_due(now))
        {
            self.stats.publish_progress(self.left_so_far(), &mut progress);
        }
    }

    fn is_all_answered(&self) -> bool {
        let counts = &self.stats.counts;
        counts.received + counts.late >= self.left_so_far()
    }

    fn take(&mut self, received: ReceivedDatagram, taken: Timestamp<Monotonic>) {
        let taken_ns = (taken + self.offset).as_ns();
        let bytes = &self.flow.input[..received.len];
        let Some(reply) = self.flow.codec.read(bytes, Timestamp::from_ns(taken_ns)) else {
            self.stats.counts.invalid += 1;
            return;
        };
        let sent = self.between.sent_at(reply.sequence).load(Ordering::Relaxed);
        let sent = Timestamp::<Monotonic>::from_ns(sent);
        let at = ExchangeTimes {
            latency: taken - self.schedule.due(reply.sequence),
            sent_ns: (sent + self.offset).as_ns(),
            taken_ns,
            left_ns: self.left(reply.sequence),
            received_ns: received.received_ns,
        };
        self.stats.take(&reply, &at, &self.between.window);
    }

    /// Returns the kernel transmit timestamp of a request.
    fn left(&mut self, sequence: u32) -> Option<i64> {
        if self.left_at.is_empty() || self.between.is_renumbered.load(Ordering::Relaxed) {
            return None;
        }
        let mask = self.left_at.len() - 1;
        while let Some((id, at)) = self.flow.transmit_timestamp() {
            self.left_at[id as usize & mask] = at;
        }
        Some(self.left_at[sequence as usize & mask]).filter(|at| *at != 0)
    }
}
