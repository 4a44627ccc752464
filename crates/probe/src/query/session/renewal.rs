//! Renewal of an association's keys when its requests are refused or not answered (RFC 8915,
//! section 5.7), and the delay between attempts (section 4.2). Pure.

use std::time::Duration;

use horolog_time::{Monotonic, Span, Timestamp};

/// Consecutive requests without an authentic reply after which a server may have lost its keys.
const UNANSWERED_MAX: u32 = 2;
/// Delay between attempts without an authentic reply between them; each further one is half as long
/// again.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_hours(120);

/// State of an association as far as its keys may have to be renewed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RenewalState {
    refused: bool,
    unanswered: u32,
    /// True after an authentic reply under the present keys.
    answered: bool,
    attempts: u32,
    /// True if the last attempt was made for lack of replies.
    for_outage: bool,
    not_before: Option<Timestamp<Monotonic>>,
}

impl RenewalState {
    /// Records an authentic reply: the keys are good, and a refusal before it was not the server's.
    pub(super) fn answered(&mut self) {
        *self = Self { answered: true, ..Self::default() };
    }

    /// Records that the server refused the cookie, or proved to have other keys. After an attempt
    /// for lack of replies this is new information: the server is back.
    pub(super) fn refused(&mut self) {
        self.refused = true;
        if std::mem::take(&mut self.for_outage) {
            self.not_before = None;
        }
    }

    /// Records a request without an authentic reply.
    pub(super) const fn unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Records an attempt.
    pub(super) fn attempted(&mut self, now: Timestamp<Monotonic>) {
        let factor = 1.5_f64.powi(i32::try_from(self.attempts).unwrap_or(i32::MAX));
        let wait = (RETRY_MIN.as_secs_f64() * factor).min(RETRY_MAX.as_secs_f64());
        self.attempts = self.attempts.saturating_add(1);
        self.for_outage = !self.refused;
        self.not_before = Some(now + Span::from_ns((wait * 1e9) as i64));
    }

    /// Records new keys, which have yet to be proved.
    pub(super) fn renewed(&mut self) {
        let Self { attempts, not_before, .. } = *self;
        *self = Self { attempts, not_before, ..Self::default() };
    }

    pub(super) const fn was_answered(&self) -> bool {
        self.answered
    }

    /// Returns true if the present keys should be replaced.
    pub(super) const fn is_wanted(&self) -> bool {
        self.refused || self.unanswered >= UNANSWERED_MAX
    }

    /// Returns true if an attempt does not follow another one too soon.
    pub(super) fn is_allowed(&self, now: Timestamp<Monotonic>) -> bool {
        self.not_before.is_none_or(|earliest| now >= earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn a_refusal_or_two_unanswered_polls_suffice_and_a_reply_resets_them() {
        let mut renewal = RenewalState::default();
        renewal.unanswered();
        assert!(!renewal.is_wanted(), "one packet may be lost");
        renewal.unanswered();
        assert!(renewal.is_wanted());
        renewal.answered();
        assert!(!renewal.is_wanted());
        renewal.refused();
        assert!(renewal.is_wanted() && renewal.is_allowed(at(0)));
        renewal.answered();
        assert!(!renewal.is_wanted(), "a refusal can be forged, a reply cannot");
    }

    #[test]
    fn a_refusal_after_unanswered_polls_is_followed_at_once_but_once() {
        let mut renewal = RenewalState::default();
        renewal.unanswered();
        renewal.unanswered();
        renewal.attempted(at(0));
        assert!(!renewal.is_allowed(at(1)));
        renewal.refused();
        assert!(renewal.is_allowed(at(1)));
        renewal.attempted(at(1));
        renewal.refused();
        assert!(!renewal.is_allowed(at(2)));
    }

    #[test]
    fn attempts_follow_one_another_ever_more_slowly_until_a_reply_comes() {
        let (mut renewal, mut now) = (RenewalState::default(), 0);
        for wait in [10, 15, 22, 33] {
            renewal.refused();
            assert!(renewal.is_allowed(at(now)));
            renewal.attempted(at(now));
            // Also where it gave keys: they may be as useless.
            renewal.renewed();
            renewal.refused();
            assert!(!renewal.is_allowed(at(now + wait - 1)), "{wait}");
            now += wait + 1;
        }
        for _ in 0..100 {
            renewal.attempted(at(now));
        }
        assert!(renewal.is_allowed(at(now + 432_000)));
        renewal.answered();
        assert!(renewal.is_allowed(at(now)));
    }
}
