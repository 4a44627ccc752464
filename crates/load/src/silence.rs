//! When a server was silent: times in which requests were sent and none of them was answered. A
//! server that dies and comes back shows so, in any run and to the millisecond. It draws no
//! conclusion.

use horolog_time::{Monotonic, Span, Timestamp};

/// The shortest silence that is told of; anything shorter may be a busy processor's doing.
pub const SHORTEST: Span = Span::from_ms(100);

/// Requests of one lane that must have stayed unanswered in it: a few may just be lost.
const REQUESTS_MIN: u64 = 10;

/// Silences that are kept of a trial; a server that falls silent more often than this is described
/// by its loss.
const KEPT: usize = 64;

/// A time without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// The instant of the last request before it that was answered, since the start of the trial.
    pub from: Span,
    /// The instant of the first request after it that was answered, or of the last request.
    pub to: Span,
    /// Whether the server answered again within the trial.
    pub ended: bool,
}

/// Notes which requests are answered, and when none is.
#[derive(Clone, Debug)]
pub struct Listener {
    start: Timestamp<Monotonic>,
    /// The latest instant of a request that was answered.
    answered: Timestamp<Monotonic>,
    /// Requests that had been sent when that was known.
    sent: u64,
    found: Vec<Silence>,
}

impl Listener {
    /// A trial that begins at `start`.
    #[must_use]
    pub const fn new(start: Timestamp<Monotonic>) -> Self {
        Self { start, answered: start, sent: 0, found: Vec::new() }
    }

    /// The request that was due at `intended` was answered, by when `sent` had been sent.
    #[inline]
    pub fn heard(&mut self, intended: Timestamp<Monotonic>, sent: u64) {
        if intended <= self.answered {
            return;
        }
        if intended - self.answered >= SHORTEST {
            self.note(intended, sent, true);
        }
        self.answered = intended;
        self.sent = sent;
    }

    #[cold]
    fn note(&mut self, to: Timestamp<Monotonic>, sent: u64, ended: bool) {
        if sent.saturating_sub(self.sent) < REQUESTS_MIN || self.found.len() == KEPT {
            return;
        }
        let (from, to) = (self.answered - self.start, to - self.start);
        self.found.push(Silence { from, to, ended });
    }

    /// The silences of a trial whose last request was sent at `last_sent`.
    #[must_use]
    pub fn close(mut self, last_sent: Timestamp<Monotonic>, sent: u64) -> Vec<Silence> {
        if last_sent - self.answered >= SHORTEST {
            self.note(last_sent, sent, false);
        }
        self.found
    }
}

/// The times in which two parts of the same trial were both silent.
#[must_use]
pub fn common(one: &[Silence], other: &[Silence]) -> Vec<Silence> {
    let both = one.iter().flat_map(|one| {
        other.iter().map(|other| Silence {
            from: one.from.max(other.from),
            to: one.to.min(other.to),
            ended: one.ended || other.ended,
        })
    });
    both.filter(|both| both.to - both.from >= SHORTEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(1_000_000_000_000);

    fn silence(from: i64, to: i64, ended: bool) -> Silence {
        Silence { from: Span::from_ms(from), to: Span::from_ms(to), ended }
    }

    /// A request each millisecond for a second, answered where `answers` says so.
    fn listen(answers: impl Fn(i64) -> bool) -> Vec<Silence> {
        let mut listener = Listener::new(START);
        for ms in (0..1000).filter(|ms| answers(*ms)) {
            listener.heard(START + Span::from_ms(ms), ms as u64 + 1);
        }
        listener.close(START + Span::from_ms(999), 1000)
    }

    #[test]
    fn a_server_that_dies_and_comes_back_is_silent_in_between() {
        assert_eq!(listen(|ms| !(300..=500).contains(&ms)), [silence(299, 501, true)]);
        assert_eq!(listen(|ms| ms >= 200), [silence(0, 200, true)]);
        assert_eq!(listen(|ms| ms < 700), [silence(699, 999, false)]);
        assert_eq!(listen(|_| false), [silence(0, 999, false)]);
        assert_eq!(listen(|ms| ms % 90 == 0), []);
    }

    #[test]
    fn few_requests_without_an_answer_are_no_silence() {
        let mut listener = Listener::new(START);
        listener.heard(START + Span::from_ms(900), 9);
        assert_eq!(listener.close(START + Span::from_ms(900), 9), []);
    }

    #[test]
    fn replies_out_of_order_make_no_silence() {
        let mut listener = Listener::new(START);
        for (sent, ms) in (100..).step_by(100).zip([50, 140, 60, 170, 150, 200]) {
            listener.heard(START + Span::from_ms(ms), sent);
        }
        assert_eq!(listener.close(START + Span::from_ms(210), 1000), []);
    }

    #[test]
    fn parts_are_silent_together_where_both_are() {
        let (long, short) = ([silence(100, 500, true)], [silence(300, 900, false)]);
        assert_eq!(common(&long, &short), [silence(300, 500, true)]);
        assert_eq!(common(&long, &[]), []);
        assert_eq!(common(&long, &[silence(420, 900, true)]), []);
    }
}
