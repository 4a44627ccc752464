//! Sleeping until an instant of a clock that somebody may set meanwhile (`clock_nanosleep(2)`,
//! `TIMER_ABSTIME`): the kernel follows a step, so the sleep ends when the clock shows the instant.

use std::io;

use horolog_time::NS_PER_S;

use crate::clock::read;

/// A clock to sleep by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmClock {
    /// `CLOCK_REALTIME`: UTC.
    Realtime,
    /// `CLOCK_TAI`: UTC and the kernel's TAI minus UTC.
    Tai,
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The clock shows the instant, or a later one.
    Reached,
    /// A signal handler ran.
    Interrupted,
}

impl AlarmClock {
    const fn number(self) -> libc::clockid_t {
        match self {
            Self::Realtime => libc::CLOCK_REALTIME,
            Self::Tai => libc::CLOCK_TAI,
        }
    }

    /// What it shows, in ns since 1970.
    #[must_use]
    pub fn now_ns(self) -> i64 {
        let time = read(self.number());
        time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_nsec)
    }

    /// Sleeps until it shows `ns` since 1970; at once where that is past.
    ///
    /// # Errors
    ///
    /// None is known for an instant from 1970 on; `InvalidInput` for one before.
    pub fn sleep_until_ns(self, ns: i64) -> io::Result<Wake> {
        let until = libc::timespec { tv_sec: ns.div_euclid(NS_PER_S), tv_nsec: ns % NS_PER_S };
        // SAFETY: one timespec that outlives the call; the remainder is not asked for.
        let error = unsafe {
            libc::clock_nanosleep(
                self.number(),
                libc::TIMER_ABSTIME,
                &raw const until,
                std::ptr::null_mut(),
            )
        };
        match error {
            0 => Ok(Wake::Reached),
            libc::EINTR => Ok(Wake::Interrupted),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_the_clock_shows_the_instant() {
        for clock in [AlarmClock::Realtime, AlarmClock::Tai] {
            let until_ns = clock.now_ns() + 2_000_000;
            assert_eq!(clock.sleep_until_ns(until_ns).unwrap(), Wake::Reached);
            assert!(clock.now_ns() >= until_ns);
            assert_eq!(clock.sleep_until_ns(0).unwrap(), Wake::Reached);
        }
        let before = AlarmClock::Realtime.sleep_until_ns(-1).unwrap_err();
        assert_eq!(before.kind(), io::ErrorKind::InvalidInput);
    }
}
