//! Open loop: each request is sent at its intended send time, regardless of earlier replies, and
//! latency counts from that time (no coordinated omission). One thread sends and one receives.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use horolog_record::{ProgressPublisher, UdpRowEndReason};
use horolog_stats::{DuplicateWindow, Histogram};
use horolog_sys::affinity::set_timer_slack_ns;
use horolog_sys::clock::{ClockMonotonic, sleep_until_unless};
use horolog_sys::datagram;
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::codec::ProbeCodec;
use super::flow::{ReceivedDatagram, UdpFlow};
use super::flow_stats::{FlowStats, NearEndExchangeTimes};
use super::ping_pong::{FlowOutcome, UNREACHABLE_AFTER};
use super::shared::SharedRowState;

/// Receive timeout, after which the receiver checks whether to end.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(10);
/// Receive calls between two checks of whether to end when busy polling.
const POLLS_PER_CHECK: u32 = 256;

/// Intended send times of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSchedule {
    pub(super) start: Timestamp<Monotonic>,
    /// Interval between requests, in ns.
    pub(super) interval_ns: f64,
    /// Number of requests, with the warm-up.
    pub(super) count: u32,
}

impl FlowSchedule {
    fn intended_send_time(&self, sequence: u32) -> Timestamp<Monotonic> {
        self.start + Span::from_ns((f64::from(sequence) * self.interval_ns) as i64)
    }
}

/// State shared by sender and receiver of a flow.
pub(super) struct SharedFlowState {
    pub(super) window: DuplicateWindow,
    /// User send times by sequence number modulo its length; `CLOCK_MONOTONIC`, in ns.
    sent_at: Box<[AtomicI64]>,
    /// Number of requests sent or refused by the host.
    next_sequence: AtomicU32,
    is_done: AtomicBool,
    /// True once a send failed: the kernel's timestamp numbers no longer match the sequence
    /// numbers.
    is_renumbered: AtomicBool,
}

impl SharedFlowState {
    pub(super) fn new(window: DuplicateWindow, reach: usize) -> Self {
        let sent_at = (0..reach.next_power_of_two()).map(|_| AtomicI64::new(0)).collect();
        let (next, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
        Self {
            window,
            sent_at,
            next_sequence: next,
            is_done,
            is_renumbered: AtomicBool::new(false),
        }
    }

    fn sent_at(&self, sequence: u32) -> &AtomicI64 {
        &self.sent_at[sequence as usize & (self.sent_at.len() - 1)]
    }
}

/// Outcome of the sender, without the warm-up.
#[derive(Debug)]
pub(super) struct SenderOutcome {
    pub(super) send_late: Histogram,
    pub(super) sent_count: u64,
    pub(super) refused: u64,
    pub(super) first_sent_at: Option<Timestamp<Monotonic>>,
    pub(super) last_sent_at: Timestamp<Monotonic>,
}

/// Sender of a flow.
pub(super) struct FlowSender<'a> {
    pub(super) socket: &'a DatagramSocket,
    pub(super) codec: ProbeCodec,
    pub(super) send_buffer: Vec<u8>,
    pub(super) shared: &'a SharedRowState<'a>,
    pub(super) flow_shared: &'a SharedFlowState,
    pub(super) schedule: FlowSchedule,
    pub(super) utc_offset: Span,
}

impl FlowSender<'_> {
    /// Sends the requests of the schedule, until it or the row ends.
    pub(super) fn send_all(mut self) -> SenderOutcome {
        // Best effort; has no effect on real-time threads.
        let _ = set_timer_slack_ns(1);
        let now = ClockMonotonic.now();
        let mut sent = SenderOutcome {
            send_late: Histogram::new(),
            sent_count: 0,
            refused: 0,
            first_sent_at: None,
            last_sent_at: now,
        };
        for sequence in 0..self.schedule.count {
            let due = self.schedule.intended_send_time(sequence);
            if !self.sleep_until_due(due) {
                break;
            }
            self.send_request(sequence, due, &mut sent);
        }
        self.flow_shared.is_done.store(true, Ordering::Release);
        sent
    }

    fn sleep_until_due(&self, due: Timestamp<Monotonic>) -> bool {
        if !self.shared.busy_polling {
            return sleep_until_unless(due, || self.shared.should_stop());
        }
        while ClockMonotonic.now() < due && !self.shared.should_stop() {
            std::hint::spin_loop();
        }
        // A sender that is late checks too.
        !self.shared.should_stop()
    }

    fn send_request(&mut self, sequence: u32, due: Timestamp<Monotonic>, sent: &mut SenderOutcome) {
        let is_warm_up = sequence < self.shared.warm_up;
        self.shared.wait_for_load(sequence == self.shared.warm_up);
        let now = ClockMonotonic.now();
        self.codec.write_request(
            &mut self.send_buffer,
            sequence,
            is_warm_up,
            Timestamp::from_ns((now + self.utc_offset).as_ns()),
        );
        self.flow_shared.window.open(u64::from(sequence));
        self.flow_shared.sent_at(sequence).store(now.as_ns(), Ordering::Relaxed);
        let left = datagram::send(self.socket.as_fd(), &self.send_buffer).is_ok();
        self.flow_shared.next_sequence.store(sequence + 1, Ordering::Release);
        if !left {
            self.flow_shared.is_renumbered.store(true, Ordering::Relaxed);
        }
        if is_warm_up {
            return;
        }
        sent.first_sent_at = sent.first_sent_at.or(Some(now));
        sent.last_sent_at = now;
        sent.sent_count += u64::from(left);
        sent.refused += u64::from(!left);
        sent.send_late.record(u64::try_from((now - due).as_ns()).unwrap_or(0));
    }
}

/// Receiver of a flow.
pub(super) struct FlowReceiver<'a> {
    pub(super) flow: UdpFlow,
    pub(super) stats: FlowStats,
    pub(super) shared: &'a SharedRowState<'a>,
    pub(super) flow_shared: &'a SharedFlowState,
    pub(super) schedule: FlowSchedule,
    pub(super) utc_offset: Span,
    /// Kernel transmit timestamps by sequence number modulo its length, in ns since 1970; empty if
    /// not enabled.
    pub(super) transmit_timestamps: Vec<i64>,
    /// Publisher of progress; `None` without an observer.
    pub(super) publisher: Option<ProgressPublisher<'a>>,
}

impl FlowReceiver<'_> {
    /// Receives until all requests are answered, the timeout of the last one is over, or the row
    /// ends early.
    pub(super) fn receive_all(mut self) -> (FlowOutcome, UdpFlow) {
        let timeout = Span::from_ns(self.shared.timeout.as_nanos() as i64);
        let mut ended =
            self.flow.set_receive_timeout(RECEIVE_TIMEOUT).err().map(|_| UdpRowEndReason::Failed);
        let mut last_received = ClockMonotonic.now();
        let mut polls = 0_u32;
        let mut quiet_since = None;
        while ended.is_none() {
            match self.flow.receive() {
                Ok(received) => {
                    last_received = ClockMonotonic.now();
                    self.process_datagram(received, last_received);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => std::hint::spin_loop(),
                    ErrorKind::ConnectionRefused => ended = Some(UdpRowEndReason::Closed),
                    _ => {}
                },
            }
            polls = polls.wrapping_add(1);
            if self.shared.busy_polling && !polls.is_multiple_of(POLLS_PER_CHECK) {
                continue;
            }
            let now = ClockMonotonic.now();
            self.publish_progress(now);
            if self.flow_shared.is_done.load(Ordering::Acquire) {
                let since = *quiet_since.get_or_insert(now);
                if now - since > timeout || self.has_all_replies() {
                    break;
                }
            } else if now - last_received > UNREACHABLE_AFTER.max(timeout + timeout)
                && now > self.schedule.start + UNREACHABLE_AFTER
            {
                if self.flow.is_reachable(self.shared.to)
                    && self.flow.set_receive_timeout(RECEIVE_TIMEOUT).is_ok()
                {
                    last_received = ClockMonotonic.now();
                } else {
                    ended = Some(UdpRowEndReason::Vanished);
                }
            }
        }
        if ended.is_some() {
            self.shared.is_row_ended.store(true, Ordering::Relaxed);
        }
        let over = ClockMonotonic.now();
        (
            FlowOutcome { stats: self.stats, started_at: None, ended_at: over, end_reason: ended },
            self.flow,
        )
    }

    /// Returns the number of counted requests sent so far.
    fn counted_sent(&self) -> u64 {
        self.flow_shared
            .next_sequence
            .load(Ordering::Acquire)
            .saturating_sub(self.shared.warm_up)
            .into()
    }

    fn publish_progress(&mut self, now: Timestamp<Monotonic>) {
        if let Some(mut progress) =
            self.publisher.as_mut().and_then(|publisher| publisher.slot_if_due(now))
        {
            self.stats.publish_progress(self.counted_sent(), &mut progress);
        }
    }

    fn has_all_replies(&self) -> bool {
        let counts = &self.stats.counts;
        counts.received + counts.late >= self.counted_sent()
    }

    fn process_datagram(&mut self, received: ReceivedDatagram, taken: Timestamp<Monotonic>) {
        let taken_ns = (taken + self.utc_offset).as_ns();
        let bytes = &self.flow.receive_buffer[..received.len];
        let Some(reply) = self.flow.codec.parse_reply(bytes, Timestamp::from_ns(taken_ns)) else {
            self.stats.counts.invalid += 1;
            return;
        };
        let sent = self.flow_shared.sent_at(reply.sequence).load(Ordering::Relaxed);
        let sent = Timestamp::<Monotonic>::from_ns(sent);
        let at = NearEndExchangeTimes {
            latency: taken - self.schedule.intended_send_time(reply.sequence),
            user_sent_ns: (sent + self.utc_offset).as_ns(),
            user_received_ns: taken_ns,
            kernel_sent_ns: self.kernel_transmit_ns(reply.sequence),
            kernel_received_ns: received.received_ns,
        };
        self.stats.record_reply(&reply, &at, &self.flow_shared.window);
    }

    /// Returns the kernel transmit timestamp of a request in ns since 1970, if there is one.
    fn kernel_transmit_ns(&mut self, sequence: u32) -> Option<i64> {
        if self.transmit_timestamps.is_empty()
            || self.flow_shared.is_renumbered.load(Ordering::Relaxed)
        {
            return None;
        }
        let mask = self.transmit_timestamps.len() - 1;
        while let Some((id, at)) = self.flow.transmit_timestamp() {
            self.transmit_timestamps[id as usize & mask] = at;
        }
        Some(self.transmit_timestamps[sequence as usize & mask]).filter(|at| *at != 0)
    }
}
