//! End of the wait for the last replies of a trial, and the margins before and after its schedule.
//! Shared by all engines; does no I/O.

use horolog_time::{Monotonic, Span, Timestamp};

/// Delay of the first intended send time, in which the threads of a trial start.
pub(super) const START_DELAY: Span = Span::from_ms(5);

/// Longest time after the end of the schedule for which a sender that fell behind may continue.
pub(super) const SCHEDULE_GRACE: Span = Span::from_ms(100);

/// Shortest time without a reply after which the wait may end. Longer than a busy server waits for
/// a core, so that the requests it still has count as answered.
const QUIET_MIN: Span = Span::from_ms(100);

/// State of the wait for the last replies.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyDrain {
    /// Send time of the last request, or the start of the wait.
    pub(super) last_sent: Timestamp<Monotonic>,
    /// Instant at which the wait last found a reply; before the first, the same as `last_sent`.
    pub(super) last_reply: Timestamp<Monotonic>,
    /// Reply timeout: time after `last_sent` beyond which the wait is over in any case.
    pub(super) timeout: Span,
}

impl ReplyDrain {
    /// Returns true if no more replies are expected at `now`: the last request has timed out, or no
    /// reply has arrived for four times the longest round trip so far, and at least [`QUIET_MIN`].
    pub(super) fn is_over(&self, now: Timestamp<Monotonic>, longest_rtt: Option<Span>) -> bool {
        let quiet_max = match longest_rtt {
            // Without a known round-trip time, wait for the full timeout.
            None => self.timeout,
            Some(rtt) => QUIET_MIN.max(Span::from_ns(rtt.as_ns().saturating_mul(4))),
        };
        now - self.last_sent > self.timeout || now - self.last_reply > quiet_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_the_longer_replies_took() {
        let start = Timestamp::from_ns(1_000_000_000);
        let timeout = Span::from_ms(1000);
        let drain = ReplyDrain { last_sent: start, last_reply: start, timeout };
        let over =
            |ms, rtt: Option<i64>| drain.is_over(start + Span::from_ms(ms), rtt.map(Span::from_ms));
        assert!(!over(999, None) && over(1001, None));
        assert!(!over(100, Some(1)) && over(101, Some(1)));
        assert!(!over(400, Some(100)) && over(401, Some(100)));
        assert!(over(1001, Some(900)));
    }
}
