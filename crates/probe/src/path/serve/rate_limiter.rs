//! Rate limiter with a burst tolerance (GCRA, ITU-T I.371). Pure.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};

/// Burst tolerance: time by which requests may be ahead of the rate.
const BURST_TOLERANCE: Span = Span::from_ms(100);

/// State of a generic cell rate algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimiter {
    interval: Span,
    /// Theoretical arrival time of the next request.
    theoretical_arrival: Timestamp<Monotonic>,
}

impl RateLimiter {
    /// Returns a limiter to `per_second` requests per second.
    pub(super) fn new(per_second: u64) -> Self {
        let interval = NS_PER_S / i64::try_from(per_second.max(1)).unwrap_or(NS_PER_S);
        Self { interval: Span::from_ns(interval), theoretical_arrival: Timestamp::from_ns(0) }
    }

    /// Returns true and counts the request if it conforms to the rate.
    pub(super) fn admit(&mut self, now: Timestamp<Monotonic>) -> bool {
        let due = self.theoretical_arrival.max(now);
        // After a pause one request is always admitted.
        let allowed = due == now || due - now <= BURST_TOLERANCE;
        if allowed {
            self.theoretical_arrival = due + self.interval;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_a_moments_worth_pass() {
        let mut bucket = RateLimiter::new(1_000);
        let mut passed = 0;
        // Ten thousand in a second, for two seconds.
        for step in 0..20_000 {
            let now = Timestamp::from_ns(5_000_000_000 + step * 100_000);
            passed += u32::from(bucket.admit(now));
        }
        assert!((2_000..2_110).contains(&passed), "{passed}");
        assert!(bucket.admit(Timestamp::from_ns(100 * NS_PER_S)));
        assert!(RateLimiter::new(1).admit(Timestamp::from_ns(1)), "the first one always passes");
    }
}
