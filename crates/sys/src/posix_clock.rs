//! POSIX clocks of this machine as programs use them: each by its name, its reported resolution,
//! and its readings by the C library, by a bare system call and by the older functions. Clocks are
//! read here, never set.

use std::io;

use horolog_time::NS_PER_S;

use crate::descriptor::check;

/// Clock of `clock_gettime(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PosixClock {
    /// Its name without `CLOCK_`.
    pub name: &'static str,
    number: libc::clockid_t,
}

impl PosixClock {
    /// `CLOCK_REALTIME`.
    pub const REALTIME: Self = Self { name: "REALTIME", number: libc::CLOCK_REALTIME };
    /// `CLOCK_MONOTONIC`.
    pub const MONOTONIC: Self = Self { name: "MONOTONIC", number: libc::CLOCK_MONOTONIC };
    /// `CLOCK_MONOTONIC_COARSE`, which moves at each tick.
    pub const MONOTONIC_COARSE: Self =
        Self { name: "MONOTONIC_COARSE", number: libc::CLOCK_MONOTONIC_COARSE };

    /// `CLOCK_THREAD_CPUTIME_ID`: the processor time of the calling thread.
    pub const THREAD_TIME: Self =
        Self { name: "THREAD_CPUTIME_ID", number: libc::CLOCK_THREAD_CPUTIME_ID };

    /// Every clock that `clock_getres(2)` names, in the order of its manual page.
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

    /// Returns true if it counts the run time of a program, and so stands still in between.
    #[must_use]
    pub const fn is_of_processor_time(self) -> bool {
        matches!(self.number, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID)
    }

    /// Returns true if it moves at ticks alone.
    #[must_use]
    pub const fn is_coarse(self) -> bool {
        matches!(self.number, libc::CLOCK_REALTIME_COARSE | libc::CLOCK_MONOTONIC_COARSE)
    }

    /// Returns its resolution as the kernel reports it (`clock_getres(2)`), in ns.
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

    /// Returns its reading through the C library, in ns of its own timescale.
    ///
    /// # Errors
    ///
    /// As of [`PosixClock::resolution_ns`].
    #[inline]
    pub fn now_ns(self) -> io::Result<i64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: one timespec that outlives the call.
        check(unsafe { libc::clock_gettime(self.number, &raw mut time) })?;
        Ok(as_ns(&time))
    }

    /// Returns its reading by a system call, regardless of the C library's method.
    ///
    /// # Errors
    ///
    /// As of [`PosixClock::resolution_ns`].
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

/// Returns the time of gettimeofday(2), in ns since 1970; it has whole microseconds.
#[inline]
#[must_use]
pub fn gettimeofday_ns() -> i64 {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: one timeval that outlives the call; no time zone is requested. With a good address it
    // cannot fail.
    let _ = unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
    time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_usec.saturating_mul(1_000))
}

/// Returns the time of time(2), in ns since 1970; it has whole seconds.
#[inline]
#[must_use]
pub fn time_ns() -> i64 {
    // SAFETY: a null pointer is allowed: the time is returned alone.
    unsafe { libc::time(std::ptr::null_mut()) }.saturating_mul(NS_PER_S)
}

/// Returns `USER_HZ`: the unit in which the kernel reports times of processes, in ticks per second
/// (`_SC_CLK_TCK` in sysconf(3)). It is no property of the timer.
#[must_use]
pub fn user_hz() -> Option<u32> {
    // SAFETY: a number in, a number out.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()
}

/// Returns the edition of POSIX that the C library follows (`_SC_VERSION`), such as 200809.
#[must_use]
pub fn posix_version() -> Option<u32> {
    // SAFETY: a number in, a number out.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_VERSION) }).ok()
}

/// Returns the timer slack of this thread in ns, by which the kernel may join wake-ups
/// (`PR_GET_TIMERSLACK` in prctl(2)).
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
        for clock in PosixClock::ALL {
            let Ok(before) = clock.now_ns() else { continue };
            let between = clock.now_by_system_call_ns().unwrap();
            let after = clock.now_ns().unwrap();
            assert!(before <= between && between <= after, "{clock:?}");
            assert!(clock.resolution_ns().unwrap() > 0, "{clock:?}");
        }
    }

    #[test]
    fn the_older_functions_show_the_system_clock() {
        let clock = PosixClock::REALTIME;
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
