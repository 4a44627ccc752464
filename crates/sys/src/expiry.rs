//! Timers with an absolute expiry on `CLOCK_MONOTONIC` that reach user space by a signal handler or
//! a descriptor (`timer_create`, `timerfd_create`), and return the instant at which the expiry
//! reached user space. Create, arm and wait in the same thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};

use horolog_time::{Clock, Monotonic, Timestamp};
use rustix::thread::gettid;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::clock::ClockMonotonic;
use crate::descriptor::check;

/// Value of no expiry yet.
const NO_EXPIRY: i64 = i64::MIN;

/// Timer whose expiry runs a signal handler in the thread that created it.
#[derive(Debug)]
pub struct SignalTimer {
    timer: libc::timer_t,
    /// Instant at which the handler ran. Never freed, because a signal that is still queued when
    /// the timer is deleted accesses it.
    handled_ns: &'static AtomicI64,
    /// Signal mask for the wait: the previous mask without the timer's signal.
    wait_mask: libc::sigset_t,
}

impl SignalTimer {
    /// Creates a timer for the calling thread, in which its signal is blocked from now on except
    /// during waits.
    ///
    /// # Errors
    ///
    /// If the user's limit of timers is reached (`RLIMIT_SIGPENDING`).
    pub fn new() -> io::Result<Self> {
        let number = signal_number();
        install_handler(number)?;
        let waiting = block_signal(number)?;
        let noticed_ns: &'static AtomicI64 = Box::leak(Box::new(AtomicI64::new(NO_EXPIRY)));
        // SAFETY: a plain C structure, for which all bytes zero is valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = number;
        event.sigev_value.sival_ptr = std::ptr::from_ref(noticed_ns).cast_mut().cast();
        event.sigev_notify_thread_id = gettid().as_raw_pid();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both structures outlive the call.
        check(unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        })?;
        Ok(Self { timer, handled_ns: noticed_ns, wait_mask: waiting })
    }

    /// Arms the timer and waits for the handler; returns the instant that the handler reads from
    /// the clock first. A past instant expires at once.
    ///
    /// # Errors
    ///
    /// `Interrupted` if another signal arrived first.
    pub fn expire_at(&self, due: Timestamp<Monotonic>) -> io::Result<Timestamp<Monotonic>> {
        self.handled_ns.store(NO_EXPIRY, Ordering::Relaxed);
        let setting = one_shot_setting(due);
        // SAFETY: one structure in the layout of an itimerspec that outlives the call; the old
        // setting is not requested.
        check(unsafe {
            libc::timer_settime(
                self.timer,
                libc::TIMER_ABSTIME,
                (&raw const setting).cast(),
                std::ptr::null_mut(),
            )
        })?;
        // SAFETY: an initialised set, only read. It always returns -1, after a handler ran.
        unsafe { libc::sigsuspend(&raw const self.wait_mask) };
        match self.handled_ns.load(Ordering::Relaxed) {
            NO_EXPIRY => Err(io::ErrorKind::Interrupted.into()),
            noticed_ns => Ok(Timestamp::from_ns(noticed_ns)),
        }
    }
}

impl Drop for SignalTimer {
    fn drop(&mut self) {
        // SAFETY: made in `new` and nowhere deleted.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Timer whose expiry makes a descriptor readable.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// Creates a timer.
    ///
    /// # Errors
    ///
    /// If the process has no free descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?))
    }

    /// Arms the timer, waits in read(2) for its expiry, and returns the instant at which read(2)
    /// returned.
    ///
    /// # Errors
    ///
    /// `Interrupted` if a signal arrived first.
    pub fn expire_at(&self, due: Timestamp<Monotonic>) -> io::Result<Timestamp<Monotonic>> {
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &one_shot_setting(due))?;
        let read = rustix::io::read(&self.0, &mut [0; size_of::<u64>()]);
        let noticed = ClockMonotonic.now();
        read?;
        Ok(noticed)
    }
}

/// Returns the signal of the timer: the third real-time signal that the C library leaves to
/// programs.
fn signal_number() -> libc::c_int {
    libc::SIGRTMIN() + 2
}

fn one_shot_setting(due: Timestamp<Monotonic>) -> Itimerspec {
    let (seconds, nanoseconds) = due.to_timespec();
    Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

extern "C" fn record_expiry(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let noticed_ns = ClockMonotonic.now().as_ns();
    // SAFETY: with SA_SIGINFO the kernel gives a valid structure. Its value is read only where
    // a timer sent the signal, and then it is the address of an atomic that is never freed. Both
    // reading the clock and storing are safe in a handler.
    unsafe {
        if (*info).si_code == libc::SI_TIMER {
            let slot: *const AtomicI64 = (*info).si_value().sival_ptr.cast();
            (*slot).store(noticed_ns, Ordering::Relaxed);
        }
    }
}

fn install_handler(number: libc::c_int) -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        record_expiry;
    // SAFETY: a plain C structure, for which all bytes zero is valid: an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action outlives the call, and its handler has the signature that the flag
    // requires and does only what a handler may.
    check(unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) }).map(drop)
}

/// Blocks the signal in this thread; returns the mask for the wait: the previous mask without the
/// signal.
fn block_signal(number: libc::c_int) -> io::Result<libc::sigset_t> {
    let mut waiting = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut timer_signal = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises `own` before it is read, and pthread_sigmask writes `waiting`
    // where it succeeds; the number is a valid one.
    unsafe {
        libc::sigemptyset(timer_signal.as_mut_ptr());
        libc::sigaddset(timer_signal.as_mut_ptr(), number);
        match libc::pthread_sigmask(libc::SIG_BLOCK, timer_signal.as_ptr(), waiting.as_mut_ptr()) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        libc::sigdelset(waiting.as_mut_ptr(), number);
        Ok(waiting.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use horolog_time::Span;

    fn later() -> Timestamp<Monotonic> {
        ClockMonotonic.now() + Span::from_ms(1)
    }

    /// In a thread of its own, which keeps the signal blocked.
    #[test]
    fn handlers_notice_each_expiry_and_none_too_early() {
        std::thread::spawn(|| {
            let (signal, descriptor) = (SignalTimer::new().unwrap(), TimerFd::new().unwrap());
            for _ in 0..5 {
                let due = later();
                assert!(signal.expire_at(due).unwrap() >= due);
                let due = later();
                assert!(descriptor.expire_at(due).unwrap() >= due);
            }
            let past = Timestamp::from_ns(1);
            assert!(signal.expire_at(past).unwrap() > past);
            assert!(descriptor.expire_at(past).unwrap() > past);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_timer_after_another_one_has_its_own_slot() {
        std::thread::spawn(|| {
            let first = SignalTimer::new().unwrap();
            first.expire_at(later()).unwrap();
            drop(first);
            let due = later();
            assert!(SignalTimer::new().unwrap().expire_at(due).unwrap() >= due);
        })
        .join()
        .unwrap();
    }
}
