//! Byte budgets of the far end: one per connection, and one per hour for all connections, on which
//! they draw in portions so that messages need no lock. The clock is a parameter.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::protocol::ByteBudgetKind;

/// Bytes that a connection draws from the hourly budget at a time.
const PORTION_BYTES: u64 = 16 << 20;
const HOUR: Duration = Duration::from_hours(1);

/// Byte budget of all connections: a token bucket with an hour's worth of bytes, refilled evenly.
#[derive(Debug)]
pub(super) struct HourlyByteBudget {
    bytes: u64,
    /// Remaining bytes, and when they were computed.
    remaining: Mutex<(u64, Instant)>,
}

impl HourlyByteBudget {
    pub(super) fn new(bytes: u64, now: Instant) -> Self {
        Self { bytes, remaining: Mutex::new((bytes, now)) }
    }

    /// Calls a function with the bytes that remain at `now`. The value stays valid if a thread
    /// panics.
    fn with_remaining<T>(&self, now: Instant, change: impl FnOnce(&mut u64) -> T) -> T {
        let mut guard = self.remaining.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = &mut *guard;
        let passed = now.saturating_duration_since(*since).min(HOUR);
        let more = u128::from(self.bytes) * passed.as_nanos() / HOUR.as_nanos();
        if more > 0 {
            // At most the whole budget, so it fits.
            *left = left.saturating_add(more as u64).min(self.bytes);
            *since = now;
        }
        change(left)
    }

    /// Draws up to `most` bytes; returns the number drawn.
    fn draw_bytes(&self, most: u64, now: Instant) -> u64 {
        self.with_remaining(now, |left| {
            let taken = most.min(*left);
            *left -= taken;
            taken
        })
    }

    /// Puts back bytes that were drawn and not used.
    fn return_bytes(&self, bytes: u64, now: Instant) {
        self.with_remaining(now, |left| *left = left.saturating_add(bytes).min(self.bytes));
    }

    /// Returns the time until the budget suffices for another connection; zero if it does.
    pub(super) fn time_until_available(&self, now: Instant) -> Duration {
        let enough = PORTION_BYTES.min(self.bytes / 100).max(1);
        let missing = enough.saturating_sub(self.with_remaining(now, |left| *left));
        HOUR.mul_f64(missing as f64 / self.bytes.max(1) as f64)
    }
}

/// Byte budget of one connection; unused bytes are returned to the hourly budget at its end.
#[derive(Debug)]
pub(super) struct ConnectionByteBudget<'a> {
    hourly_budget: &'a HourlyByteBudget,
    remaining: u64,
    drawn_bytes: u64,
}

impl<'a> ConnectionByteBudget<'a> {
    pub(super) const fn new(hour: &'a HourlyByteBudget, bytes: u64) -> Self {
        Self { hourly_budget: hour, remaining: bytes, drawn_bytes: 0 }
    }

    /// Spends `bytes`, or none and returns the exhausted budget. `now` is called only when a
    /// portion is drawn.
    pub(super) fn spend(
        &mut self,
        bytes: u64,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), ByteBudgetKind> {
        if bytes > self.remaining {
            return Err(ByteBudgetKind::Connection);
        }
        if bytes > self.drawn_bytes {
            let most = (bytes - self.drawn_bytes)
                .max(PORTION_BYTES)
                .min(self.remaining - self.drawn_bytes);
            self.drawn_bytes += self.hourly_budget.draw_bytes(most, now());
            if bytes > self.drawn_bytes {
                return Err(ByteBudgetKind::Hour);
            }
        }
        self.remaining -= bytes;
        self.drawn_bytes -= bytes;
        Ok(())
    }

    /// Returns the bytes that the connection may still spend.
    pub(super) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns drawn bytes that were not used to the hourly budget.
    pub(super) fn return_unused(&mut self, now: Instant) {
        self.hourly_budget.return_bytes(std::mem::take(&mut self.drawn_bytes), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_carries_its_bytes_and_no_more() {
        let now = Instant::now();
        let hour = HourlyByteBudget::new(1 << 40, now);
        let mut allowance = ConnectionByteBudget::new(&hour, 3 * PORTION_BYTES);
        for _ in 0..3 {
            assert_eq!(allowance.spend(PORTION_BYTES, || now), Ok(()));
        }
        assert_eq!(allowance.spend(1, || now), Err(ByteBudgetKind::Connection));
    }

    #[test]
    fn what_was_not_used_goes_back() {
        let now = Instant::now();
        let hour = HourlyByteBudget::new(2 * PORTION_BYTES, now);
        let spend = |bytes| {
            let mut allowance = ConnectionByteBudget::new(&hour, u64::MAX);
            let spent = allowance.spend(bytes, || now);
            allowance.return_unused(now);
            spent
        };
        for _ in 0..10 {
            assert_eq!(spend(1), Ok(()));
        }
        let all = 2 * PORTION_BYTES - 10;
        assert_eq!(spend(all + 1), Err(ByteBudgetKind::Hour));
        assert_eq!(spend(all), Ok(()));
    }

    #[test]
    fn an_hour_is_shared_and_comes_again_evenly() {
        let begun = Instant::now();
        let hour = HourlyByteBudget::new(3_600 * PORTION_BYTES, begun);
        let [mut one, mut other] = [(); 2].map(|()| ConnectionByteBudget::new(&hour, u64::MAX));
        assert_eq!(one.spend(3_000 * PORTION_BYTES, || begun), Ok(()));
        assert_eq!(other.spend(600 * PORTION_BYTES, || begun), Ok(()));
        assert_eq!(other.spend(1, || begun), Err(ByteBudgetKind::Hour));
        assert!((hour.time_until_available(begun).as_secs_f64() - 1.0).abs() < 1e-3);
        let later = begun + Duration::from_secs(10);
        assert_eq!(hour.time_until_available(later), Duration::ZERO);
        assert_eq!(one.spend(9 * PORTION_BYTES, || later), Ok(()));
        assert_eq!(other.spend(2 * PORTION_BYTES, || later), Err(ByteBudgetKind::Hour));
        assert_eq!(other.spend(PORTION_BYTES, || later), Ok(()), "it drew what was left");
        let next_day = begun + 24 * HOUR;
        assert_eq!(
            one.spend(3_601 * PORTION_BYTES, || next_day),
            Err(ByteBudgetKind::Hour),
            "no more than one"
        );
    }
}
