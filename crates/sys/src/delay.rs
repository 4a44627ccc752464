//! Delay functions of Linux, called as programs call them. The caller measures the delay. `sleep`
//! by an alarm is in [`crate::alarm`], since alarms belong to a whole process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::descriptor::{check, check_new, timespec};
use crate::io_uring::TimeoutRing;

/// Function of the C library or the kernel that waits for a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DelayFunction {
    /// sleep(3), in whole seconds.
    Sleep,
    /// usleep(3).
    Usleep,
    /// nanosleep(2).
    Nanosleep,
    /// `clock_nanosleep(2)`, relative, on `CLOCK_MONOTONIC`.
    ClockNanosleep,
    /// `clock_nanosleep(2)`, absolute, on `CLOCK_MONOTONIC`.
    ClockNanosleepAbsolute,
    /// select(2) with no descriptors.
    Select,
    /// poll(2) with no descriptors.
    Poll,
    /// `epoll_wait` on an empty set.
    EpollWait,
    /// `epoll_pwait2` on an empty set.
    EpollPwait2,
    /// read(2) on a timerfd.
    Timerfd,
    /// Timeout request of `io_uring` (`IORING_OP_TIMEOUT`).
    IoUring,
}

impl DelayFunction {
    /// Every function.
    pub const ALL: [Self; 11] = [
        Self::Sleep,
        Self::Usleep,
        Self::Nanosleep,
        Self::ClockNanosleep,
        Self::ClockNanosleepAbsolute,
        Self::Select,
        Self::Poll,
        Self::EpollWait,
        Self::EpollPwait2,
        Self::Timerfd,
        Self::IoUring,
    ];
}

/// Delay function with the descriptors that it needs.
#[derive(Debug)]
pub struct Delayer(DelayBackend);

#[derive(Debug)]
enum DelayBackend {
    Plain(DelayFunction),
    Epoll(DelayFunction, OwnedFd),
    Timer(OwnedFd),
    Ring(TimeoutRing),
}

impl Delayer {
    /// Opens the resources of the function.
    ///
    /// # Errors
    ///
    /// If the kernel has no such function, or forbids it.
    pub fn open(function: DelayFunction) -> io::Result<Self> {
        Ok(Self(match function {
            DelayFunction::EpollWait | DelayFunction::EpollPwait2 => {
                // SAFETY: one flag in, a new descriptor out, owned from here on.
                let set = unsafe { check_new(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
                DelayBackend::Epoll(function, set)
            }
            DelayFunction::Timerfd => {
                // SAFETY: numbers in, a new descriptor out, owned from here on.
                DelayBackend::Timer(unsafe {
                    check_new(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC))
                }?)
            }
            DelayFunction::IoUring => DelayBackend::Ring(TimeoutRing::open()?),
            plain => DelayBackend::Plain(plain),
        }))
    }

    /// Waits once for `delay`, rounded up to the unit of the function.
    ///
    /// # Errors
    ///
    /// `Interrupted` if a signal ended the wait; other errors of the kernel.
    pub fn wait(&mut self, delay: Duration) -> io::Result<()> {
        match self {
            Self(DelayBackend::Plain(function)) => call_plain(*function, delay),
            Self(DelayBackend::Epoll(function, set)) => wait_by_epoll(*function, set, delay),
            Self(DelayBackend::Timer(timer)) => wait_by_timerfd(timer, delay),
            Self(DelayBackend::Ring(ring)) => ring.wait(delay),
        }
    }
}

fn call_plain(function: DelayFunction, delay: Duration) -> io::Result<()> {
    let mut time = timespec(delay);
    match function {
        DelayFunction::Sleep => sleep(delay),
        DelayFunction::Usleep => usleep(whole_units(delay, 1_000)),
        DelayFunction::ClockNanosleep => clock_nanosleep(0, &time),
        DelayFunction::ClockNanosleepAbsolute => {
            let now = crate::clock::read(libc::CLOCK_MONOTONIC);
            time.tv_sec = time.tv_sec.saturating_add(now.tv_sec);
            time.tv_nsec += now.tv_nsec;
            if time.tv_nsec >= 1_000_000_000 {
                time.tv_nsec -= 1_000_000_000;
                time.tv_sec = time.tv_sec.saturating_add(1);
            }
            clock_nanosleep(libc::TIMER_ABSTIME, &time)
        }
        DelayFunction::Select => {
            let us = whole_units(delay, 1_000);
            let mut time = libc::timeval {
                tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
                tv_usec: (us % 1_000_000) as _,
            };
            let none = std::ptr::null_mut;
            // SAFETY: no sets, and a timeval that outlives the call, which may change it.
            check(unsafe { libc::select(0, none(), none(), none(), &raw mut time) }).map(drop)
        }
        DelayFunction::Poll => {
            // SAFETY: no descriptors are announced, so none are read.
            check(unsafe { libc::poll(std::ptr::null_mut(), 0, milliseconds(delay)) }).map(drop)
        }
        _ => nanosleep(&time, None),
    }
}

/// Converts a delay to units of `unit_ns` nanoseconds, rounded up.
fn whole_units(delay: Duration, unit_ns: u128) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(unit_ns)).unwrap_or(u64::MAX)
}

fn milliseconds(delay: Duration) -> libc::c_int {
    libc::c_int::try_from(whole_units(delay, 1_000_000)).unwrap_or(libc::c_int::MAX)
}

fn sleep(delay: Duration) -> io::Result<()> {
    let seconds = u32::try_from(whole_units(delay, 1_000_000_000)).unwrap_or(u32::MAX);
    // SAFETY: a number in, a number out.
    match unsafe { libc::sleep(seconds) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Calls usleep(3) with any argument, even one of a second or more, which POSIX forbids.
///
/// # Errors
///
/// Errors of the C library; `InvalidInput` if it accepts only less than a second.
pub fn usleep(microseconds: u64) -> io::Result<()> {
    let microseconds = u32::try_from(microseconds).unwrap_or(u32::MAX);
    // SAFETY: a number in, a number out.
    check(unsafe { libc::usleep(microseconds) }).map(drop)
}

fn clock_nanosleep(flags: libc::c_int, time: &libc::timespec) -> io::Result<()> {
    let remaining = std::ptr::null_mut();
    // SAFETY: a timespec that outlives the call; the remainder is not requested.
    let result = unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, time, remaining) };
    // The function returns the error number and does not set `errno`.
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

fn nanosleep(time: &libc::timespec, remaining: Option<&mut libc::timespec>) -> io::Result<()> {
    let left = remaining.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: both are null or outlive the call.
    check(unsafe { libc::nanosleep(time, left) }).map(drop)
}

/// Calls nanosleep(2) once; returns the remaining delay if a signal ended it early.
///
/// # Errors
///
/// Other errors of the kernel.
pub fn nanosleep_once(delay: Duration) -> io::Result<Duration> {
    let mut left = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    match nanosleep(&timespec(delay), Some(&mut left)) {
        Ok(()) => Ok(Duration::ZERO),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Ok(Duration::new(left.tv_sec as u64, left.tv_nsec as u32))
        }
        Err(error) => Err(error),
    }
}

/// Calls nanosleep(2) with an invalid `tv_nsec` of 10⁹, as a program with a carry error does; it
/// fails at once.
pub fn nanosleep_with_invalid_time() -> io::Result<()> {
    nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 }, None)
}

fn wait_by_epoll(function: DelayFunction, set: &OwnedFd, delay: Duration) -> io::Result<()> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let result = if function == DelayFunction::EpollWait {
        // SAFETY: room for the one event that is announced, alive for the call.
        unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut event, 1, milliseconds(delay)) }
    } else {
        let time = timespec(delay);
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: room for one event, a timespec and no mask, alive for the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                set.as_raw_fd(),
                &raw mut event,
                1,
                &raw const time,
                no_mask,
                0_usize,
            )
        };
        result as libc::c_int
    };
    check(result).map(drop)
}

fn wait_by_timerfd(timer: &OwnedFd, delay: Duration) -> io::Result<()> {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // An all-zero time would disarm the timer.
    let delay = delay.max(Duration::from_nanos(1));
    let setting = libc::itimerspec { it_interval: zero, it_value: timespec(delay) };
    let mut expirations = 0_u64;
    // SAFETY: a setting that outlives the call; the old one is not requested.
    check(unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut())
    })?;
    let room = size_of::<u64>();
    // SAFETY: eight bytes of room for the count, alive for the call.
    let result = unsafe { libc::read(timer.as_raw_fd(), (&raw mut expirations).cast(), room) };
    check(result as libc::c_int).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn no_function_ends_early() {
        for function in DelayFunction::ALL {
            let mut delayer = match Delayer::open(function) {
                Ok(delayer) => delayer,
                // A sandbox may forbid it.
                Err(_) if function == DelayFunction::IoUring => continue,
                Err(error) => panic!("{function:?}: {error}"),
            };
            if function == DelayFunction::Sleep {
                continue;
            }
            for delay in [Duration::from_millis(1), Duration::from_millis(3)] {
                let begun = Instant::now();
                delayer.wait(delay).unwrap();
                assert!(begun.elapsed() >= delay, "{function:?}: {:?}", begun.elapsed());
            }
        }
    }

    #[test]
    fn what_is_no_time_is_refused_at_once() {
        let error = nanosleep_with_invalid_time().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(nanosleep_once(Duration::from_micros(10)).unwrap(), Duration::ZERO);
    }

    #[test]
    fn delays_are_rounded_up() {
        assert_eq!(whole_units(Duration::from_nanos(1_001), 1_000), 2);
        assert_eq!(milliseconds(Duration::from_millis(1)), 1);
        assert_eq!(milliseconds(Duration::MAX), libc::c_int::MAX);
    }
}
