//! Child process from its creation until it executes its program. It shares the memory of this
//! process, whose creating thread is suspended meanwhile, so it must not allocate, lock or panic.

use std::io;
use std::num::NonZeroU64;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering::SeqCst};

use rustix::process::{Signal, set_parent_process_death_signal, setpgid};
use rustix::thread::set_current_timer_slack;

use super::{CancelHandle, StartPriority, StartTime};
use crate::affinity::SchedulingParameters;
use crate::alarm_clock::SleepClock;
use crate::descriptor::check;
use crate::signal::{change_mask, signal_set};

/// Input of the child.
pub(super) struct ChildSpawnInput<'a> {
    /// Candidate paths of the program, its arguments, and its environment; the last two end with a
    /// null pointer.
    pub(super) candidate_paths: &'a [*const libc::c_char],
    pub(super) words: *const *const libc::c_char,
    pub(super) environment: *const *const libc::c_char,
    /// Standard input, output and error of the program, if they differ from those of this process;
    /// the program is then killed when the thread that starts it ends.
    pub(super) streams: Option<[libc::c_int; 3]>,
    pub(super) own_group: bool,
    pub(super) start_time: Option<&'a StartTime>,
    /// IDs of this process and of its suspended thread.
    pub(super) process: u32,
    pub(super) thread: libc::pid_t,
    /// Scheduling policy of the program.
    pub(super) policy: SchedulingParameters,
    pub(super) slack_ns: u32,
    pub(super) cancel_handle: &'a CancelHandle,
    pub(super) report: &'a ChildSpawnOutput,
}

/// Output of the child.
#[derive(Default)]
pub(super) struct ChildSpawnOutput {
    /// Clock reading at its wake-up, in ns since 1970; 0 if it did not wake.
    pub(super) woken_ns: AtomicI64,
    /// True if the child obtained its real-time priority.
    pub(super) is_real_time: AtomicBool,
    /// Error number that ended the child; 0 if none.
    pub(super) error: AtomicI32,
}

/// Entry function of the child, with a pointer to its [`ChildSpawnInput`].
pub(super) extern "C" fn run(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes an order that lives until the child has executed or ended.
    let order: &ChildSpawnInput<'_> = unsafe { &*order.cast::<ChildSpawnInput<'_>>() };
    let error = match order.prepare() {
        Ok(()) => order.execute(),
        Err(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
    };
    order.report.error.store(error, SeqCst);
    libc::EXIT_FAILURE
}

impl ChildSpawnInput<'_> {
    fn prepare(&self) -> io::Result<()> {
        if self.own_group {
            // A new group for this process.
            setpgid(None, None)?;
        }
        restore_broken_pipe()?;
        if let Some(streams) = self.streams {
            for (descriptor, stream) in (0..).zip(streams) {
                // SAFETY: numbers only. The child has a table of descriptors of its own.
                check(unsafe { libc::dup2(stream, descriptor) })?;
            }
            self.end_with_starter()?;
        }
        let start_priority = self
            .start_time
            .and_then(|at| at.start_priority)
            .filter(|_| !self.policy.is_real_time());
        if let Some(at) = self.start_time {
            self.wait(at, start_priority)?;
        }
        if !start_priority.is_some_and(|start_priority| start_priority.keeps_priority) {
            self.policy.set(0)?;
            // After the policy: a real-time thread has no timer slack to set.
            set_current_timer_slack(NonZeroU64::new(self.slack_ns.into()))?;
        }
        change_mask(libc::SIG_SETMASK, &signal_set([]))
    }

    /// Makes the kernel kill the child when the thread that created it ends.
    fn end_with_starter(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let is_orphan = parent_id() != self.process;
        if is_orphan { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
    }

    /// Sleeps until the start time; the child ends if the starting thread ends before.
    fn wait(
        &self,
        start_time: &StartTime,
        start_priority: Option<StartPriority>,
    ) -> io::Result<()> {
        self.end_with_starter()?;
        set_current_timer_slack(Some(NonZeroU64::MIN))?;
        if let Some(start_priority) = start_priority {
            // The starting thread has a higher priority than the child, so that it can always
            // restore the child's scheduling.
            let raised = SchedulingParameters::fifo(start_priority.priority, false)
                .set(self.thread)
                .and_then(|()| {
                    SchedulingParameters::fifo(
                        start_priority.priority - 1,
                        start_priority.keeps_priority,
                    )
                    .set(0)
                });
            self.report.is_real_time.store(raised.is_ok(), SeqCst);
        }
        loop {
            if self.cancel_handle.is_cancelled() {
                return Err(io::Error::from_raw_os_error(libc::ECANCELED));
            }
            let now_ns = start_time.clock.now_ns();
            if now_ns >= start_time.ns {
                self.report.woken_ns.store(now_ns, SeqCst);
                break;
            }
            sleep_until(start_time.clock, start_time.ns)?;
        }
        if self.streams.is_none() {
            set_parent_process_death_signal(None)?;
        }
        Ok(())
    }

    /// Executes the program; returns the error number if that fails (`execvp(3)`).
    fn execute(&self) -> libc::c_int {
        self.cancel_handle.executes.store(true, SeqCst);
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

/// Restores the default action of `SIGPIPE`, which Rust programs ignore and other programs expect.
fn restore_broken_pipe() -> io::Result<()> {
    // SAFETY: a plain C structure, for which all bytes zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the action outlives the call; the child has a table of its own.
    check(unsafe { libc::sigaction(libc::SIGPIPE, &raw const action, std::ptr::null_mut()) })
        .map(drop)
}

/// Sleeps by a direct system call: the C library's function is a cancellation point and writes to
/// the state of the suspended thread.
fn sleep_until(clock: SleepClock, ns: i64) -> io::Result<()> {
    let until = crate::alarm_clock::timespec(ns);
    // SAFETY: numbers, and one timespec that outlives the call; the remainder is not requested.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            clock.id() as libc::clockid_t,
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
