//! Child between its creation and its program. It shares the memory of this process, whose thread
//! that created it stands still meanwhile, so nothing here allocates, locks or panics.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering::SeqCst};

use super::{CancelHandle, StartPriority, StartTime};
use crate::affinity::SchedulingParameters;
use crate::alarm_clock::AlarmClock;
use crate::descriptor::check;
use crate::signal::{change_mask, signal_set};

/// Order to the child.
pub(super) struct ChildOrder<'a> {
    /// Candidate paths of the program, and its words and environment, each list with a null at its
    /// end.
    pub(super) candidate_paths: &'a [*const libc::c_char],
    pub(super) words: *const *const libc::c_char,
    pub(super) environment: *const *const libc::c_char,
    /// Input, output and errors of the program, if they differ from those of this process; it then
    /// ends with the thread that starts it.
    pub(super) streams: Option<[libc::c_int; 3]>,
    pub(super) own_group: bool,
    pub(super) at: Option<&'a StartTime>,
    /// Process identifier of this process, and its thread that stands still.
    pub(super) process: libc::pid_t,
    pub(super) thread: libc::pid_t,
    /// Policy of the program.
    pub(super) policy: SchedulingParameters,
    pub(super) slack_ns: u32,
    pub(super) cancel: &'a CancelHandle,
    pub(super) report: &'a ChildReport,
}

/// Report of the child.
#[derive(Default)]
pub(super) struct ChildReport {
    /// Clock reading at its wake-up; 0 if it did not wake.
    pub(super) woken_ns: AtomicI64,
    /// True if it has a real-time priority.
    pub(super) rushes: AtomicBool,
    /// Error that stopped it; 0 if none.
    pub(super) error: AtomicI32,
}

/// Entry function of the child, with a pointer to its [`ChildOrder`].
pub(super) extern "C" fn run(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes an order that lives until the child has executed or ended.
    let order: &ChildOrder<'_> = unsafe { &*order.cast::<ChildOrder<'_>>() };
    let error = match order.get_ready() {
        Ok(()) => order.execute(),
        Err(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
    };
    order.report.error.store(error, SeqCst);
    libc::EXIT_FAILURE
}

impl ChildOrder<'_> {
    fn get_ready(&self) -> io::Result<()> {
        if self.own_group {
            // SAFETY: numbers only; 0 and 0 are a new group for this process.
            check(unsafe { libc::setpgid(0, 0) })?;
        }
        restore_broken_pipe()?;
        if let Some(streams) = self.streams {
            for (descriptor, stream) in (0..).zip(streams) {
                // SAFETY: numbers only. The child has a table of descriptors of its own.
                check(unsafe { libc::dup2(stream, descriptor) })?;
            }
            self.end_with_starter()?;
        }
        let start_priority =
            self.at.and_then(|at| at.start_priority).filter(|_| !self.policy.is_real_time());
        if let Some(at) = self.at {
            self.wait(at, start_priority)?;
        }
        if !start_priority.is_some_and(|start_priority| start_priority.keep) {
            self.policy.set(0)?;
            // In this order: with a real-time priority there is none to be set.
            set(libc::PR_SET_TIMERSLACK, self.slack_ns)?;
        }
        change_mask(libc::SIG_SETMASK, &signal_set([]))
    }

    /// Makes the kernel end the child when the thread that created it ends.
    fn end_with_starter(&self) -> io::Result<()> {
        set(libc::PR_SET_PDEATHSIG, libc::SIGKILL.unsigned_abs())?;
        // SAFETY: no argument, cannot fail.
        let is_orphan = unsafe { libc::getppid() } != self.process;
        if is_orphan { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
    }

    /// Sleeps until the start time. If the starter ends meanwhile, the child ends too.
    fn wait(&self, at: &StartTime, start_priority: Option<StartPriority>) -> io::Result<()> {
        self.end_with_starter()?;
        set(libc::PR_SET_TIMERSLACK, 1)?;
        if let Some(start_priority) = start_priority {
            // The thread has precedence over the child, so that it can always restore the
            // scheduling.
            let raised = SchedulingParameters::fifo(start_priority.priority, false)
                .set(self.thread)
                .and_then(|()| {
                    SchedulingParameters::fifo(start_priority.priority - 1, start_priority.keep)
                        .set(0)
                });
            self.report.rushes.store(raised.is_ok(), SeqCst);
        }
        loop {
            if self.cancel.is_called_off() {
                return Err(io::Error::from_raw_os_error(libc::ECANCELED));
            }
            let now_ns = at.clock.now_ns();
            if now_ns >= at.ns {
                self.report.woken_ns.store(now_ns, SeqCst);
                break;
            }
            sleep_until(at.clock, at.ns)?;
        }
        if self.streams.is_some() { Ok(()) } else { set(libc::PR_SET_PDEATHSIG, 0) }
    }

    /// Becomes the program; returns the error if it cannot (`execvp(3)`).
    fn execute(&self) -> libc::c_int {
        self.cancel.executes.store(true, SeqCst);
        let mut denied = false;
        for path in self.candidate_paths {
            // SAFETY: a text that ends with a zero, and two lists of such that end with a null.
            unsafe { libc::execve(*path, self.words, self.environment) };
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EACCES) => denied = true,
                Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE) | None => {}
                Some(error) => return error,
            }
        }
        if denied { libc::EACCES } else { libc::ENOENT }
    }
}

/// Restores the default of `SIGPIPE`: Rust's programs ignore it, which their children do not
/// expect.
fn restore_broken_pipe() -> io::Result<()> {
    // SAFETY: a plain C structure, for which all bytes zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the action outlives the call; the child has a table of its own.
    check(unsafe { libc::sigaction(libc::SIGPIPE, &raw const action, std::ptr::null_mut()) })
        .map(drop)
}

fn set(what: libc::c_int, value: u32) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(what, libc::c_ulong::from(value)) }).map(drop)
}

/// Makes the system call itself: the C library's function is a cancellation point, and writes into
/// the state that the thread that stands still keeps of that.
fn sleep_until(clock: AlarmClock, ns: i64) -> io::Result<()> {
    let until = crate::alarm_clock::timespec(ns);
    // SAFETY: numbers, and one timespec that outlives the call; the remainder is not requested.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            clock.number(),
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut::<libc::timespec>(),
        )
    };
    match check(result as libc::c_int) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
