//! Decision when to renew the keys of an NTS association (RFC 8915, section 5.7), and the delay
//! between attempts (section 4.2). Pure.

use std::time::Duration;

use horolog_time::{Monotonic, Span, Timestamp};

/// Number of consecutive requests without an authentic reply after which the keys are renewed.
const UNANSWERED_MAX: u32 = 2;
/// Delay after the first attempt, and maximum; each further attempt without an authentic reply
/// extends it by half.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_hours(120);

/// State that decides on the renewal of keys.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NtsKeyRenewalState {
    is_refused: bool,
    unanswered: u32,
    /// True after an authentic reply with the present keys.
    is_proved: bool,
    attempts: u32,
    /// True if the last attempt was made for lack of replies, not because of a refusal.
    is_retry_for_outage: bool,
    next_attempt_at: Option<Timestamp<Monotonic>>,
}

impl NtsKeyRenewalState {
    /// Records an authentic reply: the keys are valid, and an earlier refusal was forged.
    pub(super) fn record_reply(&mut self) {
        *self = Self { is_proved: true, ..Self::default() };
    }

    /// Records a refusal of the cookie. After an attempt for lack of replies another attempt is
    /// permitted at once, since the server replies again.
    pub(super) fn record_refusal(&mut self) {
        self.is_refused = true;
        if std::mem::take(&mut self.is_retry_for_outage) {
            self.next_attempt_at = None;
        }
    }

    /// Records a request without an authentic reply.
    pub(super) const fn count_unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Records an attempt to renew the keys, and delays the next.
    pub(super) fn record_attempt(&mut self, now: Timestamp<Monotonic>) {
        let factor = 1.5_f64.powi(i32::try_from(self.attempts).unwrap_or(i32::MAX));
        let wait = (RETRY_MIN.as_secs_f64() * factor).min(RETRY_MAX.as_secs_f64());
        self.attempts = self.attempts.saturating_add(1);
        self.is_retry_for_outage = !self.is_refused;
        self.next_attempt_at = Some(now + Span::from_ns((wait * 1e9) as i64));
    }

    /// Records new keys, with which no reply has been authenticated yet.
    pub(super) fn record_new_keys(&mut self) {
        let Self { attempts, next_attempt_at: not_before, .. } = *self;
        *self = Self { attempts, next_attempt_at: not_before, ..Self::default() };
    }

    pub(super) const fn is_proved(&self) -> bool {
        self.is_proved
    }

    /// Returns true if the keys should be renewed: the cookie was refused, or [`UNANSWERED_MAX`]
    /// requests in a row received no authentic reply.
    pub(super) const fn is_wanted(&self) -> bool {
        self.is_refused || self.unanswered >= UNANSWERED_MAX
    }

    /// Returns true if the delay since the last attempt is over.
    pub(super) fn is_allowed(&self, now: Timestamp<Monotonic>) -> bool {
        self.next_attempt_at.is_none_or(|earliest| now >= earliest)
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
        let mut renewal = NtsKeyRenewalState::default();
        renewal.count_unanswered();
        assert!(!renewal.is_wanted(), "one packet may be lost");
        renewal.count_unanswered();
        assert!(renewal.is_wanted());
        renewal.record_reply();
        assert!(!renewal.is_wanted());
        renewal.record_refusal();
        assert!(renewal.is_wanted() && renewal.is_allowed(at(0)));
        renewal.record_reply();
        assert!(!renewal.is_wanted(), "a refusal can be forged, a reply cannot");
    }

    #[test]
    fn a_refusal_after_unanswered_polls_is_followed_at_once_but_once() {
        let mut renewal = NtsKeyRenewalState::default();
        renewal.count_unanswered();
        renewal.count_unanswered();
        renewal.record_attempt(at(0));
        assert!(!renewal.is_allowed(at(1)));
        renewal.record_refusal();
        assert!(renewal.is_allowed(at(1)));
        renewal.record_attempt(at(1));
        renewal.record_refusal();
        assert!(!renewal.is_allowed(at(2)));
    }

    #[test]
    fn attempts_follow_one_another_ever_more_slowly_until_a_reply_comes() {
        let (mut renewal, mut now) = (NtsKeyRenewalState::default(), 0);
        for wait in [10, 15, 22, 33] {
            renewal.record_refusal();
            assert!(renewal.is_allowed(at(now)));
            renewal.record_attempt(at(now));
            // Also where it gave keys: they may be as useless.
            renewal.record_new_keys();
            renewal.record_refusal();
            assert!(!renewal.is_allowed(at(now + wait - 1)), "{wait}");
            now += wait + 1;
        }
        for _ in 0..100 {
            renewal.record_attempt(at(now));
        }
        assert!(renewal.is_allowed(at(now + 432_000)));
        renewal.record_reply();
        assert!(renewal.is_allowed(at(now)));
    }
}
