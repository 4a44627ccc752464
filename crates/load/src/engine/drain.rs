//! End of the wait for the last replies of a trial, and the times around its schedule; shared by
//! all engines. Pure.

use horolog_time::{Monotonic, Span, Timestamp};

/// Time from the call to the first intended send time, for the threads to start and settle.
pub(super) const START_DELAY: Span = Span::from_ms(5);

/// Longest time after the end of the schedule for which a sender that fell behind may continue.
pub(super) const GRACE: Span = Span::from_ms(100);

/// Shortest time without a reply after which no more are expected.
const QUIET_MIN: Span = Span::from_ms(25);

/// State of the wait for the last replies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// Send time of the last request.
    pub(super) last_sent: Timestamp<Monotonic>,
    /// Receive time of the last reply, or the start of the wait.
    pub(super) last_reply: Timestamp<Monotonic>,
    /// Reply timeout.
    pub(super) timeout: Span,
}

impl Drain {
    /// Returns true if no more replies are expected at `now`: none can arrive before its timeout
    /// any more, or the time without a reply exceeds the longest round trip so far.
    pub(super) fn is_over(&self, now: Timestamp<Monotonic>, longest_rtt: Option<Span>) -> bool {
        let quiet_max = match longest_rtt {
            // While the round-trip time is unknown, it may be long.
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
        let drain = Drain { last_sent: start, last_reply: start, timeout };
        let over =
            |ms, rtt: Option<i64>| drain.is_over(start + Span::from_ms(ms), rtt.map(Span::from_ms));
        assert!(!over(999, None) && over(1001, None));
        assert!(!over(25, Some(1)) && over(26, Some(1)));
        assert!(!over(400, Some(100)) && over(401, Some(100)));
        assert!(over(1001, Some(900)));
    }
}
