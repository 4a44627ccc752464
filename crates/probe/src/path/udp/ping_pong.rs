//! Ping-pong: a request, its reply or the timeout, the next request.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use horolog_record::{ProgressPublisher, RowEndReason};
use horolog_stats::DuplicateWindow;
use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_sys::datagram::{self, WaitMode};
use horolog_sys::message::is_refusal;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::flow::{ReceivedDatagram, UdpFlow};
use super::flow_stats::{ExchangeTimes, FlowStats};
use super::options::WARM_UP_TIME;
use super::shared::RowState;

/// Polls of the socket between two readings of the clock, when busy polling.
const POLLS: u32 = 64;
/// Time without replies that is no chance loss.
pub(super) const UNREACHABLE_AFTER: Span = Span::from_ms(1_000);
/// Consecutive rejections by the far end's host after which no listener is assumed.
const REFUSALS: u32 = 3;
/// Pause after the local send path refused a request.
const PAUSE: Span = Span::from_ns(200_000);

/// Outcome of a flow.
#[derive(Debug)]
pub(super) struct FlowOutcome {
    pub(super) stats: FlowStats,
    pub(super) begun: Option<Timestamp<Monotonic>>,
    pub(super) over: Timestamp<Monotonic>,
    pub(super) ended: Option<RowEndReason>,
}

/// End of the wait for a reply.
enum ReplyWait {
    /// Reply read by the program at this time.
    Answered(Timestamp<Monotonic>),
    TimedOut,
    Refused,
    Failed,
}

/// Exchange in progress.
struct PingPongExchange<'a> {
    flow: &'a mut UdpFlow,
    stats: &'a mut FlowStats,
    window: &'a DuplicateWindow,
    timeout: Span,
    /// UTC minus the monotonic clock.
    offset: Span,
}

/// Runs exchanges until the row is over.
pub(super) fn ping_pong(
    flow: &mut UdpFlow,
    shared: &RowState<'_>,
    mut stats: FlowStats,
    window: &DuplicateWindow,
    (offset, mut publisher): (Span, Option<ProgressPublisher<'_>>),
) -> FlowOutcome {
    let timeout = Span::from_ns(shared.timeout.as_nanos() as i64);
    let length = Span::from_ns(shared.time.as_nanos() as i64);
    let (mut begun, mut over) = (None, MonotonicClock.now());
    let (mut last_received, mut refusals) = (over, 0);
    let mut ended = flow.sleep_at_most(shared.timeout).err().map(|_| RowEndReason::Failed);
    let warm_until = over + Span::from_ns(WARM_UP_TIME.as_nanos() as i64);
    let mut next = 0;
    while next < shared.count.unwrap_or(u32::MAX) {
        // Numbers of unused warm-up requests are skipped.
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
        let mut exchange =
            PingPongExchange { flow: &mut *flow, stats: &mut stats, window, timeout, offset };
        let waited = exchange.once(sequence, sequence < shared.warm_up);
        over = match waited {
            ReplyWait::Answered(taken) => taken,
            _ => MonotonicClock.now(),
        };
        if let Some(mut progress) =
            publisher.as_mut().and_then(|publisher| publisher.slot_if_due(over))
        {
            stats.publish_progress(stats.counts.sent, &mut progress);
        }
        match waited {
            ReplyWait::Answered(_) => (last_received, refusals) = (over, 0),
            ReplyWait::Failed => ended = Some(RowEndReason::Failed),
            ReplyWait::Refused => {
                refusals += 1;
                ended = (refusals >= REFUSALS).then_some(RowEndReason::Closed);
            }
            ReplyWait::TimedOut
                if over - last_received < UNREACHABLE_AFTER.max(timeout + timeout) => {}
            ReplyWait::TimedOut => {
                if flow.is_there(shared.to) && flow.sleep_at_most(shared.timeout).is_ok() {
                    last_received = over;
                } else {
                    ended = Some(RowEndReason::Vanished);
                }
            }
        }
    }
    FlowOutcome { stats, begun, over, ended }
}

impl PingPongExchange<'_> {
    /// Runs one exchange.
    fn once(&mut self, sequence: u32, is_warm_up: bool) -> ReplyWait {
        let flow = &mut *self.flow;
        let now = if flow.codec.carries_time() { self.utc(MonotonicClock.now()) } else { 0 };
        let flow = &mut *self.flow;
        flow.codec.write(&mut flow.out, sequence, is_warm_up, Timestamp::from_ns(now));
        self.window.open(u64::from(sequence));
        let sent = MonotonicClock.now();
        if let Err(error) = datagram::send(flow.socket.as_fd(), &flow.out) {
            return match error.kind() {
                // The error belongs to an earlier request; this one was not sent.
                ErrorKind::ConnectionRefused => ReplyWait::Refused,
                ErrorKind::WouldBlock => self.refused(is_warm_up),
                _ if is_refusal(&error) && error.raw_os_error() != Some(90) => {
                    self.refused(is_warm_up)
                }
                _ => ReplyWait::Failed,
            };
        }
        flow.sent = flow.sent.wrapping_add(1);
        self.stats.counts.sent += u64::from(!is_warm_up);
        self.wait(sequence, sent)
    }

    fn refused(&mut self, is_warm_up: bool) -> ReplyWait {
        self.stats.counts.refused += u64::from(!is_warm_up);
        sleep_until(MonotonicClock.now() + PAUSE);
        ReplyWait::TimedOut
    }

    fn utc(&self, at: Timestamp<Monotonic>) -> i64 {
        (at + self.offset).as_ns()
    }

    fn wait(&mut self, sequence: u32, sent: Timestamp<Monotonic>) -> ReplyWait {
        let mut polls = 0_u32;
        loop {
            match self.flow.receive() {
                Ok(received) => {
                    let taken = MonotonicClock.now();
                    if self.take(received, sequence, sent, taken) {
                        return ReplyWait::Answered(taken);
                    }
                    if taken - sent > self.timeout {
                        return ReplyWait::TimedOut;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                        polls = polls.wrapping_add(1);
                        let is_check_due =
                            self.flow.wait == WaitMode::Blocking || polls.is_multiple_of(POLLS);
                        if is_check_due && MonotonicClock.now() - sent >= self.timeout {
                            return ReplyWait::TimedOut;
                        }
                    }
                    ErrorKind::ConnectionRefused => return ReplyWait::Refused,
                    _ if is_refusal(&error) => {}
                    _ => return ReplyWait::Failed,
                },
            }
        }
    }

    /// Takes a datagram; returns true if it is the awaited reply.
    fn take(
        &mut self,
        received: ReceivedDatagram,
        sequence: u32,
        sent: Timestamp<Monotonic>,
        taken: Timestamp<Monotonic>,
    ) -> bool {
        let (sent_ns, taken_ns) = (self.utc(sent), self.utc(taken));
        let bytes = &self.flow.input[..received.len];
        let Some(reply) = self.flow.codec.read(bytes, Timestamp::from_ns(taken_ns)) else {
            self.stats.counts.invalid += 1;
            return false;
        };
        let is_awaited = reply.sequence == sequence;
        // Any other request is no longer awaited, so its reply is late whenever it was sent.
        let latency = if is_awaited { taken - sent } else { Span::from_ns(i64::MAX) };
        let left_ns = if self.flow.kernel { self.left() } else { None };
        let at = ExchangeTimes {
            latency,
            sent_ns,
            taken_ns,
            left_ns,
            received_ns: received.received_ns,
        };
        self.stats.take(&reply, &at, self.window);
        is_awaited
    }

    /// Returns the kernel transmit timestamp of the last request.
    fn left(&mut self) -> Option<i64> {
        let last = self.flow.sent.wrapping_sub(1);
        while let Some((id, at)) = self.flow.transmit_timestamp() {
            if id == last {
                return Some(at);
            }
        }
        None
    }
}
