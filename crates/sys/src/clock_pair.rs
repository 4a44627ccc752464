//! Readings of other kernel clocks, each between two readings of `CLOCK_REALTIME`
//! (`clock_gettime(2)`).

use horolog_time::{Clock, NS_PER_S, Timestamp, Utc};

use crate::clock::{BRACKETS, ClockRealtime, read};

/// Kernel clock other than `CLOCK_REALTIME`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelClockId {
    /// `CLOCK_MONOTONIC`: slewed as `CLOCK_REALTIME` is, never stepped.
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`: the free-running oscillator, neither slewed nor stepped.
    MonotonicRaw,
    /// `CLOCK_TAI`: `CLOCK_REALTIME` plus the kernel's TAI minus UTC.
    Tai,
}

/// Reading of a clock between two readings of the system clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// `CLOCK_REALTIME` before the reading.
    pub before: Timestamp<Utc>,
    /// Reading of the clock, in ns on its own timescale.
    pub clock_ns: i64,
    /// `CLOCK_REALTIME` after the reading.
    pub after: Timestamp<Utc>,
}

impl KernelClockId {
    const fn number(self) -> libc::clockid_t {
        match self {
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::MonotonicRaw => libc::CLOCK_MONOTONIC_RAW,
            Self::Tai => libc::CLOCK_TAI,
        }
    }

    /// Returns the tightest of several bracketed readings. A bracket with a backward step of the
    /// system clock is used only if all have one.
    #[must_use]
    pub fn read(self) -> ClockReading {
        let mut best = self.read_bracketed();
        for _ in 1..BRACKETS {
            let next = self.read_bracketed();
            if next.width_ns() < best.width_ns() {
                best = next;
            }
        }
        best
    }

    fn read_bracketed(self) -> ClockReading {
        let before = ClockRealtime.now();
        let time = read(self.number());
        let after = ClockRealtime.now();
        let clock_ns = time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_nsec);
        ClockReading { before, clock_ns, after }
    }
}

impl ClockReading {
    /// Returns the width of the bracket in ns; the largest value for one with a backward step.
    fn width_ns(&self) -> u64 {
        u64::try_from((self.after - self.before).as_ns()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clock_runs_on_between_two_readings() {
        for clock in [KernelClockId::Monotonic, KernelClockId::MonotonicRaw, KernelClockId::Tai] {
            let (first, second) = (clock.read(), clock.read());
            assert!(first.before <= first.after && first.after <= second.before, "{first:?}");
            assert!(first.clock_ns < second.clock_ns, "{first:?} {second:?}");
        }
    }

    #[test]
    fn a_reading_with_a_step_back_in_it_is_the_worst() {
        let reading = |before, after| ClockReading {
            before: Timestamp::from_ns(before),
            clock_ns: 0,
            after: Timestamp::from_ns(after),
        };
        assert_eq!(reading(5, 9).width_ns(), 4);
        assert_eq!(reading(9, 5).width_ns(), u64::MAX);
    }
}
