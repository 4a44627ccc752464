//! A bound on how often something is done: so many in a second, with a moment's worth at once.
//! Pure.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// How much of the rate may be used at once.
const BURST: Span = Span::from_ms(100);

/// A rate that is not exceeded for long (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    interval: Span,
    /// When the next one would be due if all came evenly.
    due: Timestamp<Monotonic>,
}

impl Bucket {
    /// At most so many in a second.
    pub(super) fn new(per_second: u64) -> Self {
        let interval = NS_PER_S / i64::try_from(per_second.max(1)).unwrap_or(NS_PER_S);
        Self { interval: Span::from_ns(interval), due: Timestamp::from_ns(0) }
    }

    /// Whether one more may be done now; it counts if so.
    pub(super) fn take(&mut self, now: Timestamp<Monotonic>) -> bool {
        let due = self.due.max(now);
        // One is always allowed when none was for long.
        let allowed = due == now || due - now <= BURST;
        if allowed {
            self.due = due + self.interval;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_a_moments_worth_pass() {
        let mut bucket = Bucket::new(1_000);
        let mut passed = 0;
        // Ten thousand in a second, for two seconds.
        for step in 0..20_000 {
            let now = Timestamp::from_ns(5_000_000_000 + step * 100_000);
            passed += u32::from(bucket.take(now));
        }
        assert!((2_000..2_110).contains(&passed), "{passed}");
        assert!(bucket.take(Timestamp::from_ns(100 * NS_PER_S)));
        assert!(Bucket::new(1).take(Timestamp::from_ns(1)), "the first one always passes");
    }
}
