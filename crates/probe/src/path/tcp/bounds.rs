//! Byte budgets of the far end: one per connection, and one per hour for all of them. Connections
//! draw on the hourly budget in portions, so that no message waits for a lock. Nothing here reads a
//! clock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::protocol::ByteBudget;

/// Bytes that a connection draws at a time.
const PORTION: u64 = 16 << 20;
const HOUR: Duration = Duration::from_hours(1);

/// Byte budget of all connections: an hour's worth at once, refilled evenly.
#[derive(Debug)]
pub(super) struct HourlyBudget {
    bytes: u64,
    /// Bytes left, and the instant of that value.
    left: Mutex<(u64, Instant)>,
}

impl HourlyBudget {
    pub(super) fn new(bytes: u64, now: Instant) -> Self {
        Self { bytes, left: Mutex::new((bytes, now)) }
    }

    /// Calls a function with the bytes left now. The numbers are consistent even after a panic of a
    /// thread.
    fn with<T>(&self, now: Instant, change: impl FnOnce(&mut u64) -> T) -> T {
        let mut guard = self.left.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Takes up to `most` bytes.
    fn take(&self, most: u64, now: Instant) -> u64 {
        self.with(now, |left| {
            let taken = most.min(*left);
            *left -= taken;
            taken
        })
    }

    /// Returns bytes that were taken and not used.
    fn give_back(&self, bytes: u64, now: Instant) {
        self.with(now, |left| *left = left.saturating_add(bytes).min(self.bytes));
    }

    /// Returns the time until there is enough for one more connection; zero if there is.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let enough = PORTION.min(self.bytes / 100).max(1);
        let missing = enough.saturating_sub(self.with(now, |left| *left));
        HOUR.mul_f64(missing as f64 / self.bytes.max(1) as f64)
    }
}

/// Byte budget of one connection. Bytes drawn and not used go back when it ends.
#[derive(Debug)]
pub(super) struct ConnectionBudget<'a> {
    hour: &'a HourlyBudget,
    left: u64,
    drawn: u64,
}

impl<'a> ConnectionBudget<'a> {
    pub(super) const fn new(hour: &'a HourlyBudget, bytes: u64) -> Self {
        Self { hour, left: bytes, drawn: 0 }
    }

    /// Spends `bytes`, all or none. `now` is called when a portion is drawn.
    pub(super) fn spend(
        &mut self,
        bytes: u64,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), ByteBudget> {
        if bytes > self.left {
            return Err(ByteBudget::Connection);
        }
        if bytes > self.drawn {
            let most = (bytes - self.drawn).max(PORTION).min(self.left - self.drawn);
            self.drawn += self.hour.take(most, now());
            if bytes > self.drawn {
                return Err(ByteBudget::Hour);
            }
        }
        self.left -= bytes;
        self.drawn -= bytes;
        Ok(())
    }

    /// Returns the bytes left for the connection.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Ends the budget.
    pub(super) fn end(&mut self, now: Instant) {
        self.hour.give_back(std::mem::take(&mut self.drawn), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_carries_its_bytes_and_no_more() {
        let now = Instant::now();
        let hour = HourlyBudget::new(1 << 40, now);
        let mut allowance = ConnectionBudget::new(&hour, 3 * PORTION);
        for _ in 0..3 {
            assert_eq!(allowance.spend(PORTION, || now), Ok(()));
        }
        assert_eq!(allowance.spend(1, || now), Err(ByteBudget::Connection));
    }

    #[test]
    fn what_was_not_used_goes_back() {
        let now = Instant::now();
        let hour = HourlyBudget::new(2 * PORTION, now);
        let spend = |bytes| {
            let mut allowance = ConnectionBudget::new(&hour, u64::MAX);
            let spent = allowance.spend(bytes, || now);
            allowance.end(now);
            spent
        };
        for _ in 0..10 {
            assert_eq!(spend(1), Ok(()));
        }
        let all = 2 * PORTION - 10;
        assert_eq!(spend(all + 1), Err(ByteBudget::Hour));
        assert_eq!(spend(all), Ok(()));
    }

    #[test]
    fn an_hour_is_shared_and_comes_again_evenly() {
        let begun = Instant::now();
        let hour = HourlyBudget::new(3_600 * PORTION, begun);
        let [mut one, mut other] = [(); 2].map(|()| ConnectionBudget::new(&hour, u64::MAX));
        assert_eq!(one.spend(3_000 * PORTION, || begun), Ok(()));
        assert_eq!(other.spend(600 * PORTION, || begun), Ok(()));
        assert_eq!(other.spend(1, || begun), Err(ByteBudget::Hour));
        assert!((hour.wait(begun).as_secs_f64() - 1.0).abs() < 1e-3);
        let later = begun + Duration::from_secs(10);
        assert_eq!(hour.wait(later), Duration::ZERO);
        assert_eq!(one.spend(9 * PORTION, || later), Ok(()));
        assert_eq!(other.spend(2 * PORTION, || later), Err(ByteBudget::Hour));
        assert_eq!(other.spend(PORTION, || later), Ok(()), "it drew what was left");
        let next_day = begun + 24 * HOUR;
        assert_eq!(
            one.spend(3_601 * PORTION, || next_day),
            Err(ByteBudget::Hour),
            "no more than one"
        );
    }
}
