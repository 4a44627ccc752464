//! Ping-pong: each request is sent after the reply to the previous one, or its timeout.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use horolog_record::{ProgressPublisher, UdpRowEndReason};
use horolog_stats::DuplicateWindow;
use horolog_sys::clock::{ClockMonotonic, sleep_until};
use horolog_sys::datagram::{self, WaitMode};
use horolog_sys::message::is_refusal;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::flow::{ReceivedDatagram, UdpFlow};
use super::flow_stats::{FlowStats, NearEndExchangeTimes};
use super::options::WARM_UP_TIME_MAX;
use super::shared::SharedRowState;

/// Receive calls between two readings of the clock when busy polling.
const POLLS_PER_CHECK: u32 = 64;
/// Minimum time without replies after which the far end is checked.
pub(super) const UNREACHABLE_AFTER: Span = Span::from_ms(1_000);
/// Number of "port unreachable" errors without a reply between them after which the port counts as
/// closed.
const REFUSALS_MAX: u32 = 3;
/// Pause after this host refused to send a request.
const SEND_RETRY_PAUSE: Span = Span::from_ns(200_000);

/// Outcome of a flow.
#[derive(Debug)]
pub(super) struct FlowOutcome {
    pub(super) stats: FlowStats,
    pub(super) started_at: Option<Timestamp<Monotonic>>,
    pub(super) ended_at: Timestamp<Monotonic>,
    pub(super) end_reason: Option<UdpRowEndReason>,
}

/// Outcome of the wait for a reply.
enum ReplyWaitOutcome {
    /// Reply received; its user receive time.
    Answered(Timestamp<Monotonic>),
    TimedOut,
    Refused,
    Failed,
}

/// Runner of the exchanges of one flow: flow, stats, duplicate window, timeout and clock offset.
struct PingPongFlowRunner<'a> {
    flow: &'a mut UdpFlow,
    stats: &'a mut FlowStats,
    window: &'a DuplicateWindow,
    timeout: Span,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`.
    utc_offset: Span,
}

/// Runs exchanges until the row is over.
pub(super) fn ping_pong(
    flow: &mut UdpFlow,
    shared: &SharedRowState<'_>,
    mut stats: FlowStats,
    window: &DuplicateWindow,
    (offset, mut publisher): (Span, Option<ProgressPublisher<'_>>),
) -> FlowOutcome {
    let timeout = Span::from_ns(shared.timeout.as_nanos() as i64);
    let length = Span::from_ns(shared.time.as_nanos() as i64);
    let (mut begun, mut over) = (None, ClockMonotonic.now());
    let (mut last_received, mut refusals) = (over, 0);
    let mut ended = flow.set_receive_timeout(shared.timeout).err().map(|_| UdpRowEndReason::Failed);
    let warm_until = over + Span::from_ns(WARM_UP_TIME_MAX.as_nanos() as i64);
    let mut next = 0;
    while next < shared.count.unwrap_or(u32::MAX) {
        // Skips the numbers of unused warm-up requests.
        let sequence = if over < warm_until { next } else { next.max(shared.warm_up) };
        next = sequence + 1;
        let is_first = sequence == shared.warm_up;
        if is_first {
            begun = Some(over);
        }
        if ended.is_some() || shared.should_stop() || begun.is_some_and(|at| over - at >= length) {
            break;
        }
        shared.wait_for_load(is_first);
        let mut exchange = PingPongFlowRunner {
            flow: &mut *flow,
            stats: &mut stats,
            window,
            timeout,
            utc_offset: offset,
        };
        let waited = exchange.run_exchange(sequence, sequence < shared.warm_up);
        over = match waited {
            ReplyWaitOutcome::Answered(taken) => taken,
            _ => ClockMonotonic.now(),
        };
        if let Some(mut progress) =
            publisher.as_mut().and_then(|publisher| publisher.slot_if_due(over))
        {
            stats.publish_progress(stats.counts.sent, &mut progress);
        }
        match waited {
            ReplyWaitOutcome::Answered(_) => (last_received, refusals) = (over, 0),
            ReplyWaitOutcome::Failed => ended = Some(UdpRowEndReason::Failed),
            ReplyWaitOutcome::Refused => {
                refusals += 1;
                ended = (refusals >= REFUSALS_MAX).then_some(UdpRowEndReason::Closed);
            }
            ReplyWaitOutcome::TimedOut
                if over - last_received < UNREACHABLE_AFTER.max(timeout + timeout) => {}
            ReplyWaitOutcome::TimedOut => {
                if flow.is_reachable(shared.to) && flow.set_receive_timeout(shared.timeout).is_ok()
                {
                    last_received = over;
                } else {
                    ended = Some(UdpRowEndReason::Vanished);
                }
            }
        }
    }
    FlowOutcome { stats, started_at: begun, ended_at: over, end_reason: ended }
}

impl PingPongFlowRunner<'_> {
    /// Sends a request and waits for its reply; counts the request unless it belongs to the
    /// warm-up.
    fn run_exchange(&mut self, sequence: u32, is_warm_up: bool) -> ReplyWaitOutcome {
        let flow = &mut *self.flow;
        let now = if flow.codec.carries_time() { self.utc_ns(ClockMonotonic.now()) } else { 0 };
        let flow = &mut *self.flow;
        flow.codec.write_request(
            &mut flow.send_buffer,
            sequence,
            is_warm_up,
            Timestamp::from_ns(now),
        );
        self.window.open(u64::from(sequence));
        let sent = ClockMonotonic.now();
        if let Err(error) = datagram::send(flow.socket.as_fd(), &flow.send_buffer) {
            return match error.kind() {
                // ICMP error for an earlier request; this one was not sent.
                ErrorKind::ConnectionRefused => ReplyWaitOutcome::Refused,
                ErrorKind::WouldBlock => self.count_refused(is_warm_up),
                _ if is_refusal(&error) && error.raw_os_error() != Some(90) => {
                    self.count_refused(is_warm_up)
                }
                _ => ReplyWaitOutcome::Failed,
            };
        }
        flow.sent_count = flow.sent_count.wrapping_add(1);
        self.stats.counts.sent += u64::from(!is_warm_up);
        self.wait_for_reply(sequence, sent)
    }

    fn count_refused(&mut self, is_warm_up: bool) -> ReplyWaitOutcome {
        self.stats.counts.refused += u64::from(!is_warm_up);
        sleep_until(ClockMonotonic.now() + SEND_RETRY_PAUSE);
        ReplyWaitOutcome::TimedOut
    }

    fn utc_ns(&self, at: Timestamp<Monotonic>) -> i64 {
        (at + self.utc_offset).as_ns()
    }

    fn wait_for_reply(&mut self, sequence: u32, sent: Timestamp<Monotonic>) -> ReplyWaitOutcome {
        let mut polls = 0_u32;
        loop {
            match self.flow.receive() {
                Ok(received) => {
                    let taken = ClockMonotonic.now();
                    if self.process_datagram(received, sequence, sent, taken) {
                        return ReplyWaitOutcome::Answered(taken);
                    }
                    if taken - sent > self.timeout {
                        return ReplyWaitOutcome::TimedOut;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                        polls = polls.wrapping_add(1);
                        let is_check_due = self.flow.wait == WaitMode::Blocking
                            || polls.is_multiple_of(POLLS_PER_CHECK);
                        if is_check_due && ClockMonotonic.now() - sent >= self.timeout {
                            return ReplyWaitOutcome::TimedOut;
                        }
                    }
                    ErrorKind::ConnectionRefused => return ReplyWaitOutcome::Refused,
                    _ if is_refusal(&error) => {}
                    _ => return ReplyWaitOutcome::Failed,
                },
            }
        }
    }

    /// Processes a datagram; returns true if it is the awaited reply.
    fn process_datagram(
        &mut self,
        received: ReceivedDatagram,
        sequence: u32,
        sent: Timestamp<Monotonic>,
        taken: Timestamp<Monotonic>,
    ) -> bool {
        let (sent_ns, taken_ns) = (self.utc_ns(sent), self.utc_ns(taken));
        let bytes = &self.flow.receive_buffer[..received.len];
        let Some(reply) = self.flow.codec.parse_reply(bytes, Timestamp::from_ns(taken_ns)) else {
            self.stats.counts.invalid += 1;
            return false;
        };
        let is_awaited = reply.sequence == sequence;
        // A reply to an earlier request is late by definition.
        let latency = if is_awaited { taken - sent } else { Span::from_ns(i64::MAX) };
        let left_ns = if self.flow.kernel_timestamps { self.kernel_transmit_ns() } else { None };
        let at = NearEndExchangeTimes {
            latency,
            user_sent_ns: sent_ns,
            user_received_ns: taken_ns,
            kernel_sent_ns: left_ns,
            kernel_received_ns: received.received_ns,
        };
        self.stats.record_reply(&reply, &at, self.window);
        is_awaited
    }

    /// Returns the kernel transmit timestamp of the last request in ns since 1970, if there is one.
    fn kernel_transmit_ns(&mut self) -> Option<i64> {
        let last = self.flow.sent_count.wrapping_sub(1);
        while let Some((id, at)) = self.flow.transmit_timestamp() {
            if id == last {
                return Some(at);
            }
        }
        None
    }
}
