//! Outages of a server: periods in which requests were sent and none was answered. Late or invalid
//! replies end an outage. Evaluates nothing.

use horolog_time::{Monotonic, Span, Timestamp};

/// Shortest outage that is reported; shorter ones may be scheduling delays of this host.
pub const OUTAGE_MIN: Span = Span::from_ms(100);

/// Smallest number of unanswered requests of one lane that is an outage; fewer may just be lost.
const REQUESTS_MIN: u64 = 10;

/// Largest number of outages stored per trial.
const OUTAGES_MAX: usize = 64;

/// Period in which the server answered no request of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Intended send time of the last answered request before the outage, or arrival of a late or
    /// invalid reply; since the start of the trial.
    pub from: Span,
    /// Intended send time of the first answered request after the outage, or send time of the last
    /// request; from the start of the trial.
    pub to: Span,
    /// True if the server answered again within the trial.
    pub ended: bool,
}

/// Detects outages from the requests that are answered.
#[derive(Clone, Debug)]
pub struct OutageDetector {
    start: Timestamp<Monotonic>,
    /// Latest instant at which the server is known to have been up.
    last_answered: Timestamp<Monotonic>,
    /// Number of requests sent by then.
    sent: u64,
    found: Vec<Outage>,
}

impl OutageDetector {
    /// Creates the detector of a trial that begins at `start`.
    #[must_use]
    pub const fn new(start: Timestamp<Monotonic>) -> Self {
        Self { start, last_answered: start, sent: 0, found: Vec::new() }
    }

    /// Records that the request due at `intended` was answered, when `sent` requests had been sent.
    #[inline]
    pub fn answered(&mut self, intended: Timestamp<Monotonic>, sent: u64) {
        self.record_between(intended, intended, sent);
    }

    /// Records a datagram other than a valid reply, received at `received`, to a request sent at
    /// most `timeout` before; `sent` requests had been sent. It proves that its sender is up.
    pub fn record_invalid(&mut self, received: Timestamp<Monotonic>, timeout: Span, sent: u64) {
        self.record_between(received - timeout, received, sent);
    }

    #[inline]
    fn record_between(
        &mut self,
        earliest: Timestamp<Monotonic>,
        latest: Timestamp<Monotonic>,
        sent: u64,
    ) {
        if latest <= self.last_answered {
            return;
        }
        if earliest - self.last_answered >= OUTAGE_MIN {
            self.record_outage(earliest, sent, true);
        }
        self.last_answered = latest;
        self.sent = sent;
    }

    #[cold]
    fn record_outage(&mut self, to: Timestamp<Monotonic>, sent: u64, ended: bool) {
        if sent.saturating_sub(self.sent) < REQUESTS_MIN || self.found.len() == OUTAGES_MAX {
            return;
        }
        let (from, to) = (self.last_answered - self.start, to - self.start);
        self.found.push(Outage { from, to, ended });
    }

    /// Returns the outages of a trial, the last one of which may last until the last request, sent
    /// at `last_sent`.
    #[must_use]
    pub fn close(mut self, last_sent: Timestamp<Monotonic>, sent: u64) -> Vec<Outage> {
        if last_sent - self.last_answered >= OUTAGE_MIN {
            self.record_outage(last_sent, sent, false);
        }
        self.found
    }
}

/// Returns the periods of at least [`OUTAGE_MIN`] in which two parts of the same trial both had an
/// outage.
#[must_use]
pub fn common_outages(one: &[Outage], other: &[Outage]) -> Vec<Outage> {
    let both = one.iter().flat_map(|one| {
        other.iter().map(|other| Outage {
            from: one.from.max(other.from),
            to: one.to.min(other.to),
            ended: one.ended || other.ended,
        })
    });
    both.filter(|both| both.to - both.from >= OUTAGE_MIN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(1_000_000_000_000);

    fn outage(from: i64, to: i64, ended: bool) -> Outage {
        Outage { from: Span::from_ms(from), to: Span::from_ms(to), ended }
    }

    /// Outages of one second with a request each millisecond, answered where `answers` is true.
    fn listen(answers: impl Fn(i64) -> bool) -> Vec<Outage> {
        let mut listener = OutageDetector::new(START);
        for ms in (0..1000).filter(|ms| answers(*ms)) {
            listener.answered(START + Span::from_ms(ms), ms as u64 + 1);
        }
        listener.close(START + Span::from_ms(999), 1000)
    }

    #[test]
    fn a_server_that_dies_and_comes_back_has_an_outage_in_between() {
        assert_eq!(listen(|ms| !(300..=500).contains(&ms)), [outage(299, 501, true)]);
        assert_eq!(listen(|ms| ms >= 200), [outage(0, 200, true)]);
        assert_eq!(listen(|ms| ms < 700), [outage(699, 999, false)]);
        assert_eq!(listen(|_| false), [outage(0, 999, false)]);
        assert_eq!(listen(|ms| ms % 90 == 0), []);
    }

    #[test]
    fn invalid_replies_end_an_outage_only_if_no_request_can_have_waited_for_them() {
        let timeout = Span::from_ms(300);
        for (received_ms, outages) in [(399, vec![]), (400, vec![outage(0, 100, true)])] {
            let mut listener = OutageDetector::new(START);
            listener.record_invalid(START + Span::from_ms(received_ms), timeout, 500);
            listener.record_invalid(START + Span::from_ms(980), Span::from_ms(600), 980);
            assert_eq!(listener.close(START + Span::from_ms(1_000), 1_000), outages);
        }
    }

    #[test]
    fn few_unanswered_requests_are_no_outage() {
        let mut listener = OutageDetector::new(START);
        listener.answered(START + Span::from_ms(900), 9);
        assert_eq!(listener.close(START + Span::from_ms(900), 9), []);
    }

    #[test]
    fn replies_out_of_order_make_no_outage() {
        let mut listener = OutageDetector::new(START);
        for (sent, ms) in (100..).step_by(100).zip([50, 140, 60, 170, 150, 200]) {
            listener.answered(START + Span::from_ms(ms), sent);
        }
        assert_eq!(listener.close(START + Span::from_ms(210), 1000), []);
    }

    #[test]
    fn parts_have_a_common_outage_where_both_have_one() {
        let (long, short) = ([outage(100, 500, true)], [outage(300, 900, false)]);
        assert_eq!(common_outages(&long, &short), [outage(300, 500, true)]);
        assert_eq!(common_outages(&long, &[]), []);
        assert_eq!(common_outages(&long, &[outage(420, 900, true)]), []);
    }
}
