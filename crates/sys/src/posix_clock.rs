//! POSIX clocks as programs use them: name, reported resolution, and readings by the C library, by
//! a direct system call and by older functions. Read only.

use std::io;

use horolog_time::NS_PER_S;

use crate::descriptor::check;

/// Identifier of a clock of `clock_gettime(2)`, with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PosixClockId {
    /// Name without the prefix `CLOCK_`.
    pub name: &'static str,
    number: libc::clockid_t,
}

impl PosixClockId {
    /// `CLOCK_REALTIME`.
    pub const REALTIME: Self = Self { name: "REALTIME", number: libc::CLOCK_REALTIME };
    /// `CLOCK_MONOTONIC`.
    pub const MONOTONIC: Self = Self { name: "MONOTONIC", number: libc::CLOCK_MONOTONIC };
    /// `CLOCK_MONOTONIC_COARSE`, which advances at each tick.
    pub const MONOTONIC_COARSE: Self =
        Self { name: "MONOTONIC_COARSE", number: libc::CLOCK_MONOTONIC_COARSE };

    /// `CLOCK_THREAD_CPUTIME_ID`: CPU time of the calling thread.
    pub const THREAD_TIME: Self =
        Self { name: "THREAD_CPUTIME_ID", number: libc::CLOCK_THREAD_CPUTIME_ID };

    /// All clocks of `clock_getres(2)`, in the order of its manual page.
    pub const ALL: [Self; 11] = [
        Self::REALTIME,
        Self { name: "REALTIME_ALARM", number: libc::CLOCK_REALTIME_ALARM },
        Self { name: "REALTIME_COARSE", number: libc::CLOCK_REALTIME_COARSE },
        Self { name: "TAI", number: libc::CLOCK_TAI },
        Self::MONOTONIC,
        Self::MONOTONIC_COARSE,
        Self { name: "MONOTONIC_RAW", number: libc::CLOCK_MONOTONIC_RAW },
        Self { name: "BOOTTIME", number: libc::CLOCK_BOOTTIME },
        Self { name: "BOOTTIME_ALARM", number: libc::CLOCK_BOOTTIME_ALARM },
        Self { name: "PROCESS_CPUTIME_ID", number: libc::CLOCK_PROCESS_CPUTIME_ID },
        Self::THREAD_TIME,
    ];

    /// Returns true for a clock of CPU time, which advances only while a program runs.
    #[must_use]
    pub const fn is_cpu_time(self) -> bool {
        matches!(self.number, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID)
    }

    /// Returns true for a clock that advances only at ticks.
    #[must_use]
    pub const fn is_coarse(self) -> bool {
        matches!(self.number, libc::CLOCK_REALTIME_COARSE | libc::CLOCK_MONOTONIC_COARSE)
    }

    /// Returns the resolution that the kernel reports (`clock_getres(2)`), in ns.
    ///
    /// # Errors
    ///
    /// If the kernel has no such clock, or the machine lacks what it needs.
    pub fn resolution_ns(self) -> io::Result<i64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: one timespec that outlives the call.
        check(unsafe { libc::clock_getres(self.number, &raw mut time) })?;
        Ok(as_ns(&time))
    }

    /// Reads the clock by the C library, in ns on its own timescale.
    ///
    /// # Errors
    ///
    /// Errors of [`PosixClockId::resolution_ns`].
    #[inline]
    pub fn now_ns(self) -> io::Result<i64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: one timespec that outlives the call.
        check(unsafe { libc::clock_gettime(self.number, &raw mut time) })?;
        Ok(as_ns(&time))
    }

    /// Reads the clock by a direct system call, bypassing the vDSO, in ns on its own timescale.
    ///
    /// # Errors
    ///
    /// Errors of [`PosixClockId::resolution_ns`].
    #[inline]
    pub fn now_by_system_call_ns(self) -> io::Result<i64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: one timespec that outlives the call, in the kernel's 64-bit form.
        check(unsafe {
            libc::syscall(libc::SYS_clock_gettime, self.number, &raw mut time) as libc::c_int
        })?;
        Ok(as_ns(&time))
    }
}

/// Reads gettimeofday(2), in ns since 1970 with a resolution of 1 µs.
#[inline]
#[must_use]
pub fn gettimeofday_ns() -> i64 {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: one timeval that outlives the call; no time zone is requested. With a good address it
    // cannot fail.
    let _ = unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
    time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_usec.saturating_mul(1_000))
}

/// Reads time(2), in ns since 1970 with a resolution of 1 s.
#[inline]
#[must_use]
pub fn time_ns() -> i64 {
    // SAFETY: a null pointer is allowed: the time is returned alone.
    unsafe { libc::time(std::ptr::null_mut()) }.saturating_mul(NS_PER_S)
}

/// Returns `USER_HZ`, the ticks per second in which the kernel reports process times (`_SC_CLK_TCK`
/// in sysconf(3)). It is unrelated to the timer frequency.
#[must_use]
pub fn user_hz() -> Option<u32> {
    u32::try_from(rustix::param::clock_ticks_per_second()).ok()
}

/// Returns the POSIX version of the C library (`_SC_VERSION`), such as 200809.
#[must_use]
pub fn posix_version() -> Option<u32> {
    // SAFETY: a number in, a number out.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_VERSION) }).ok()
}

/// Returns the timer slack of this thread in ns: the time by which the kernel may delay wake-ups to
/// coalesce them (`PR_GET_TIMERSLACK` in prctl(2)).
#[must_use]
pub fn timer_slack_ns() -> Option<u64> {
    // SAFETY: numbers only. The call by number, since the C library's own returns an `int`.
    u64::try_from(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) })
        .ok()
}

const fn as_ns(time: &libc::timespec) -> i64 {
    time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_read_the_same_clock() {
        for clock in PosixClockId::ALL {
            let Ok(before) = clock.now_ns() else { continue };
            let between = clock.now_by_system_call_ns().unwrap();
            let after = clock.now_ns().unwrap();
            assert!(before <= between && between <= after, "{clock:?}");
            assert!(clock.resolution_ns().unwrap() > 0, "{clock:?}");
        }
    }

    #[test]
    fn the_older_functions_show_the_system_clock() {
        let clock = PosixClockId::REALTIME;
        let before = clock.now_ns().unwrap();
        let (micro, second) = (gettimeofday_ns(), time_ns());
        let after = clock.now_ns().unwrap();
        assert!(micro + 1_000 > before && micro <= after, "{before} {micro} {after}");
        assert!(second + 2 * NS_PER_S > before && second <= after, "{before} {second} {after}");
    }

    #[test]
    fn a_thread_s_slack_is_what_it_was_set_to() {
        std::thread::spawn(|| {
            crate::affinity::set_timer_slack_ns(123_456).unwrap();
            assert_eq!(timer_slack_ns(), Some(123_456));
        })
        .join()
        .unwrap();
        assert!(user_hz().is_some_and(|hz| hz > 0) && posix_version().is_some());
    }
}
