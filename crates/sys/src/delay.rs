//! Delay functions of Linux, called as programs call them. The caller measures the delay. `sleep`
//! by an alarm is in [`crate::alarm`], since alarms belong to a whole process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::thread::{
    NanosleepRelativeResult, clock_nanosleep_absolute, clock_nanosleep_relative, nanosleep,
};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::descriptor::{check, timespec};

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
pub struct Delayer(DelayBackend);

enum DelayBackend {
    Plain(DelayFunction),
    Epoll(DelayFunction, OwnedFd),
    Timer(OwnedFd),
    Ring(Box<IoUring>),
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
                DelayBackend::Epoll(function, epoll::create(CreateFlags::CLOEXEC)?)
            }
            DelayFunction::Timerfd => {
                let flags = TimerfdFlags::CLOEXEC;
                DelayBackend::Timer(timerfd_create(TimerfdClockId::Monotonic, flags)?)
            }
            DelayFunction::IoUring => DelayBackend::Ring(Box::new(IoUring::new(1)?)),
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
            Self(DelayBackend::Ring(ring)) => wait_by_ring(ring, delay),
        }
    }
}

fn call_plain(function: DelayFunction, delay: Duration) -> io::Result<()> {
    let time = timespec(delay);
    match function {
        DelayFunction::Sleep => sleep(delay),
        DelayFunction::Usleep => usleep(whole_units(delay, 1_000)),
        DelayFunction::ClockNanosleep => {
            whole_delay(&clock_nanosleep_relative(ClockId::Monotonic, &time))
        }
        DelayFunction::ClockNanosleepAbsolute => {
            let until = clock_gettime(ClockId::Monotonic).checked_add(time);
            let until = until.unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            Ok(clock_nanosleep_absolute(ClockId::Monotonic, &until)?)
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
        _ => whole_delay(&nanosleep(&time)),
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

fn whole_delay(result: &NanosleepRelativeResult) -> io::Result<()> {
    match result {
        NanosleepRelativeResult::Ok => Ok(()),
        NanosleepRelativeResult::Interrupted(_) => Err(io::ErrorKind::Interrupted.into()),
        NanosleepRelativeResult::Err(error) => Err((*error).into()),
    }
}

/// Calls nanosleep(2) once; returns the remaining delay if a signal ended it early.
///
/// # Errors
///
/// Other errors of the kernel.
pub fn nanosleep_once(delay: Duration) -> io::Result<Duration> {
    match nanosleep(&timespec(delay)) {
        NanosleepRelativeResult::Ok => Ok(Duration::ZERO),
        NanosleepRelativeResult::Interrupted(left) => {
            Ok(Duration::new(left.tv_sec as u64, left.tv_nsec as u32))
        }
        NanosleepRelativeResult::Err(error) => Err(error.into()),
    }
}

/// Calls nanosleep(2) with an invalid `tv_nsec` of 10⁹, as a program with a carry error does; it
/// fails at once.
pub fn nanosleep_with_invalid_time() -> io::Result<()> {
    whole_delay(&nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_000_000_000 }))
}

fn wait_by_epoll(function: DelayFunction, set: &OwnedFd, delay: Duration) -> io::Result<()> {
    let mut event = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
    if function == DelayFunction::EpollWait {
        let time = timespec(Duration::from_millis(milliseconds(delay) as u64));
        epoll::wait(set, &mut event, Some(&time))?;
        return Ok(());
    }
    let time = timespec(delay);
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: room for one event, a timespec and no mask, alive for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set.as_raw_fd(),
            event.as_mut_ptr(),
            1,
            &raw const time,
            no_mask,
            0_usize,
        )
    };
    check(result as libc::c_int).map(drop)
}

fn wait_by_timerfd(timer: &OwnedFd, delay: Duration) -> io::Result<()> {
    // An all-zero time would disarm the timer.
    let delay = delay.max(Duration::from_nanos(1));
    let setting = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(delay) };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting)?;
    rustix::io::read(timer, &mut [0; size_of::<u64>()])?;
    Ok(())
}

/// Waits by a timeout request. After `Interrupted` it is still in flight, so the ring cannot be
/// used again.
fn wait_by_ring(ring: &mut IoUring, delay: Duration) -> io::Result<()> {
    let time = types::Timespec::from(delay);
    let request = opcode::Timeout::new(&raw const time).build();
    // SAFETY: the kernel copies the time when the request is submitted, in the next call.
    unsafe { ring.submission().push(&request) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    // Without a completion the wait ended before the timeout expired.
    let completion = ring.completion().next().ok_or(io::ErrorKind::Interrupted)?;
    match -completion.result() {
        // `ETIME` is the result of an expired timeout.
        libc::ETIME | 0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
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
    fn timeouts_of_a_ring_follow_one_another() {
        // A sandbox may forbid it.
        let Ok(mut delayer) = Delayer::open(DelayFunction::IoUring) else { return };
        for _ in 0..40 {
            let begun = Instant::now();
            delayer.wait(Duration::from_micros(200)).unwrap();
            assert!(begun.elapsed() >= Duration::from_micros(200));
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
