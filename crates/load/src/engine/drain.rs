//! When to stop waiting for the last replies of a trial, and how its times are laid out around its
//! schedule: the same for every engine. Pure.

use horolog_time::{Monotonic, Span, Timestamp};

/// Time from the call to the first intended instant, for the threads to start and settle.
pub(super) const LEAD: Span = Span::from_ms(5);

/// How long after the end of the schedule a sender that fell behind may go on.
pub(super) const GRACE: Span = Span::from_ms(100);

/// The least time without a reply after which nothing more is expected.
const SILENCE: Span = Span::from_ms(25);

/// How the waiting stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// When the last request was sent.
    pub(super) last_sent: Timestamp<Monotonic>,
    /// When the last reply came, or when the waiting began.
    pub(super) heard: Timestamp<Monotonic>,
    /// How long a reply may take.
    pub(super) timeout: Span,
}

impl Drain {
    /// Whether nothing more is to be expected at `now`: no reply can be in time any more, or the
    /// silence has become longer than replies took so far.
    pub(super) fn is_over(&self, now: Timestamp<Monotonic>, longest_rtt: Option<Span>) -> bool {
        let silence = match longest_rtt {
            // As long as nothing is known of the way there and back, it may be long.
            None => self.timeout,
            Some(rtt) => SILENCE.max(Span::from_ns(rtt.as_ns().saturating_mul(4))),
        };
        now - self.last_sent > self.timeout || now - self.heard > silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_the_longer_replies_took() {
        let start = Timestamp::from_ns(1_000_000_000);
        let timeout = Span::from_ms(1000);
        let drain = Drain { last_sent: start, heard: start, timeout };
        let over =
            |ms, rtt: Option<i64>| drain.is_over(start + Span::from_ms(ms), rtt.map(Span::from_ms));
        assert!(!over(999, None) && over(1001, None));
        assert!(!over(25, Some(1)) && over(26, Some(1)));
        assert!(!over(400, Some(100)) && over(401, Some(100)));
        assert!(over(1001, Some(900)));
    }
}
