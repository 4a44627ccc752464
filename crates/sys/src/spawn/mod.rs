//! Start of a program at an instant, with the lowest latency: everything is prepared before, and
//! the child that becomes the program sleeps until the instant, with a real-time priority if
//! permitted. The program has the scheduling, timer slack and nice value of this process, no
//! blocked signals, and the default action of `SIGPIPE`, which Rust programs ignore.
//!
//! The child shares this process's memory until it executes (`CLONE_VM`, `CLONE_VFORK` in
//! `clone(2)`), so nothing is copied. The standard library would pass on the signal mask of a
//! thread, or fork the whole process.

mod child;
mod path;

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::gettid;

use crate::affinity::{SchedulingParameters, timer_slack_ns};
use crate::alarm_clock::SleepClock;
use crate::descriptor::check;
use crate::signal::{change_mask, signal_set};
use child::{ChildSpawnInput, ChildSpawnOutput};

/// Stack size of the child until it executes, in bytes; it needs a few hundred.
const STACK_BYTES: usize = 64 << 10;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Program with its arguments, as C strings.
#[derive(Debug)]
pub struct SpawnCommand {
    candidate_paths: Vec<CString>,
    words: Vec<CString>,
    own_group: bool,
    environment: Option<SpawnEnvironmentAndStreams>,
}

/// Environment and streams of a program that differ from those of this process. Such a program is
/// killed when the thread that starts it ends.
#[derive(Debug)]
pub struct SpawnEnvironmentAndStreams {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
    /// Environment variables as `NAME=value`.
    environment: Vec<CString>,
}

impl SpawnEnvironmentAndStreams {
    /// Creates an environment with empty input, these outputs, and these variables.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a variable contains a NUL byte; errors of opening `/dev/null`.
    pub fn new(
        output: OwnedFd,
        errors: OwnedFd,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            Ok(CString::new(name.into_vec())?)
        };
        let environment = environment.into_iter().map(variable).collect::<io::Result<_>>()?;
        Ok(Self { input: File::open("/dev/null")?.into(), output, errors, environment })
    }
}

impl SpawnCommand {
    /// Creates the command of a program, given by its path or by a name that is searched in `PATH`.
    /// With `own_group` it becomes the leader of a new process group.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if an argument contains a NUL byte.
    pub fn new<'a>(
        program: &'a OsStr,
        arguments: impl IntoIterator<Item = &'a OsString>,
        own_group: bool,
    ) -> io::Result<Self> {
        let arguments = arguments.into_iter().map(OsString::as_os_str);
        let words = std::iter::once(program).chain(arguments);
        let words = words.map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
        let path = std::env::var_os("PATH");
        let candidate_paths = path::candidate_paths(program, path.as_deref())?;
        Ok(Self { candidate_paths, words, own_group, environment: None })
    }

    /// Replaces the environment and the streams.
    #[must_use]
    pub fn with_environment(self, environment: SpawnEnvironmentAndStreams) -> Self {
        Self { environment: Some(environment), ..self }
    }
}

/// Instant at which a program starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartTime {
    /// Clock of the instant.
    pub clock: SleepClock,
    /// Instant in ns since 1970 of that clock.
    pub ns: i64,
    /// Real-time priority for waiting and starting; `None` for none.
    pub start_priority: Option<StartPriority>,
}

/// Default scheduling of programs: that of this process at its start, regardless of later changes
/// of its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultScheduling {
    policy: SchedulingParameters,
    slack_ns: u32,
}

impl DefaultScheduling {
    /// Returns the scheduling and timer slack of this thread; the nice value is not recorded.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn current() -> io::Result<Self> {
        Ok(Self { policy: SchedulingParameters::current()?, slack_ns: timer_slack_ns()? })
    }

    /// Returns the scheduling policy.
    #[must_use]
    pub const fn policy(self) -> SchedulingParameters {
        self.policy
    }
}

/// Real-time priority (`SCHED_FIFO`) for waiting and starting. It has no effect if programs have a
/// real-time policy by default, or if it is not permitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartPriority {
    /// Priority of the starting thread, 2 to 99; the program has a priority one lower.
    pub priority: i32,
    /// True if the program keeps the priority until [`SpawnedProgram::restore_scheduling`], with
    /// sched-other children, which requires `CAP_SYS_NICE`; false if the priority ends before the
    /// program executes.
    pub keeps_priority: bool,
}

/// Handle that cancels a pending start.
#[derive(Debug, Default)]
pub struct CancelHandle {
    is_cancelled: AtomicBool,
    /// Process ID of the child until it has executed or ended; written by the kernel
    /// (`CLONE_PARENT_SETTID`).
    child: AtomicI32,
    /// True once the child executes the program.
    executes: AtomicBool,
    /// Lock that keeps the process ID valid while the child is signalled.
    signalling: Mutex<()>,
}

impl CancelHandle {
    /// Cancels the start, unless the program has started.
    pub fn cancel(&self) {
        let _guard = self.signalling.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_cancelled.store(true, SeqCst);
        let child = self.child.load(SeqCst);
        if let Some(child) = Pid::from_raw(child)
            && !self.executes.load(SeqCst)
        {
            // The child has not been waited for.
            let _ = kill_process(child, Signal::KILL);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(SeqCst)
    }

    fn release_child(&self) {
        let _guard = self.signalling.lock().unwrap_or_else(PoisonError::into_inner);
        self.child.store(0, SeqCst);
    }
}

/// Started program that has not been waited for.
#[derive(Debug)]
pub struct SpawnedProgram {
    pid: libc::pid_t,
    /// Scheduling to restore for the starting thread and for the program.
    thread_default: Option<SchedulingParameters>,
    program_default: Option<DefaultScheduling>,
}

/// Result of a start.
#[derive(Debug)]
pub struct SpawnOutcome {
    /// Clock reading of the child at its wake-up, in ns since 1970; `None` if it had no instant to
    /// wait for, or did not wake.
    pub woken_ns: Option<i64>,
    /// Started program; `None` if the start was cancelled. Errors are those of `execve(2)`, such as
    /// `NotFound` and `PermissionDenied`.
    pub started: io::Result<Option<SpawnedProgram>>,
}

/// Starts a program, at an instant or at once, and returns after it has been executed, has failed,
/// or was cancelled. A child that waits for its instant ends with the calling thread.
///
/// # Errors
///
/// If no process can be created.
pub fn spawn(
    command: &SpawnCommand,
    start_time: Option<&StartTime>,
    default_scheduling: DefaultScheduling,
    cancel_handle: &CancelHandle,
) -> io::Result<SpawnOutcome> {
    let report = ChildSpawnOutput::default();
    let candidate_paths: Vec<_> =
        command.candidate_paths.iter().map(|path| path.as_ptr()).collect();
    let words = command.words.iter().map(|word| word.as_ptr()).chain([null()]);
    let words: Vec<_> = words.collect();
    let surroundings = command.environment.as_ref();
    let variables = surroundings.map(|environment| {
        let own = environment.environment.iter().map(|variable| variable.as_ptr());
        own.chain([null()]).collect::<Vec<_>>()
    });
    let order = ChildSpawnInput {
        candidate_paths: &candidate_paths,
        words: words.as_ptr(),
        environment: match &variables {
            Some(own) => own.as_ptr(),
            // SAFETY: a list that the C library keeps; nothing changes it meanwhile.
            None => unsafe { environ },
        },
        streams: surroundings
            .map(|own| [own.input.as_raw_fd(), own.output.as_raw_fd(), own.errors.as_raw_fd()]),
        own_group: command.own_group,
        start_time,
        process: std::process::id(),
        thread: gettid().as_raw_pid(),
        policy: default_scheduling.policy.without_reset(),
        slack_ns: default_scheduling.slack_ns,
        cancel_handle,
        report: &report,
    };
    let pid = create_child(&order)?;
    cancel_handle.release_child();
    let woken_ns = Some(report.woken_ns.load(SeqCst)).filter(|woken_ns| *woken_ns != 0);
    let start_priority = start_time.and_then(|at| at.start_priority);
    let keeps = start_priority.is_some_and(|start_priority| start_priority.keeps_priority)
        && report.is_real_time.load(SeqCst);
    let started = SpawnedProgram {
        pid,
        // Restored even if only one of the two could be raised.
        thread_default: start_priority.map(|_| default_scheduling.policy),
        program_default: keeps.then_some(default_scheduling),
    };
    Ok(SpawnOutcome { woken_ns, started: start_result(started, &report, cancel_handle) })
}

fn start_result(
    mut started: SpawnedProgram,
    report: &ChildSpawnOutput,
    cancel_handle: &CancelHandle,
) -> io::Result<Option<SpawnedProgram>> {
    let error = report.error.load(SeqCst);
    if error == 0 && cancel_handle.executes.load(SeqCst) {
        return Ok(Some(started));
    }
    started.program_default = None;
    let status = started.wait()?;
    match (cancel_handle.is_cancelled(), error) {
        (true, _) => Ok(None),
        (false, 0) => Err(io::Error::other(format!("it was terminated while waiting ({status})"))),
        (false, error) => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Creates the child; returns its process ID after it has executed or ended.
fn create_child(order: &ChildSpawnInput<'_>) -> io::Result<libc::pid_t> {
    let mut stack = vec![0_u8; STACK_BYTES];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: within the stack; the top is on a border of 16 bytes, as all processors want it.
    let top = unsafe { top.sub(top as usize % 16) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
    // No signal handler runs in the child, because it unblocks signals last.
    let before = block_all_signals()?;
    let argument = std::ptr::from_ref(order).cast_mut().cast::<libc::c_void>();
    // SAFETY: the stack, the order and all that it points to live until the call returns, which is
    // when the child has executed or ended and uses nothing of it any more. This thread stands
    // still until then, so the child has its thread-local memory to itself. The child reads the
    // order and writes atomics alone.
    let made = check(unsafe {
        libc::clone(child::run, top.cast(), flags, argument, order.cancel_handle.child.as_ptr())
    });
    change_mask(libc::SIG_SETMASK, &before)?;
    made
}

/// Blocks all signals in this thread; returns the previous mask.
fn block_all_signals() -> io::Result<libc::sigset_t> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first is initialised by the first call and only read by the second, which
    // initialises the other one.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl SpawnedProgram {
    /// Returns the process ID, which is not reused before the program has been waited for.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Returns true if the program keeps a real-time priority that must be restored.
    #[must_use]
    pub const fn keeps_priority(&self) -> bool {
        self.program_default.is_some()
    }

    /// Restores the default scheduling of the program and of this thread, which must be the one
    /// that started the program.
    ///
    /// # Errors
    ///
    /// None is known, since a thread that may raise a priority may lower it.
    pub fn restore_scheduling(&mut self) -> io::Result<()> {
        let pid = self.pid;
        let program = self.program_default.take().map_or(Ok(()), |scheduling| {
            scheduling.policy.without_reset().set(pid)?;
            // A real-time thread has no timer slack, and a child inherits that.
            std::fs::write(format!("/proc/{pid}/timerslack_ns"), scheduling.slack_ns.to_string())
        });
        let thread = self.thread_default.take().map_or(Ok(()), SchedulingParameters::apply);
        match program {
            // The program may have ended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {
                thread
            }
            other => other.and(thread),
        }
    }

    /// Restores the scheduling and waits for the end of the program.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.restore_scheduling()?;
        loop {
            match waitpid(Pid::from_raw(self.pid), WaitOptions::empty()) {
                Ok(status) => {
                    let status = status.map_or(0, |(_, status)| status.as_raw());
                    return Ok(ExitStatus::from_raw(status));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for SpawnedProgram {
    fn drop(&mut self) {
        // Restores the scheduling after an error in between.
        let _ = self.restore_scheduling();
    }
}

/// Unblocks all signals in this thread, for use before exec.
pub fn unblock_all_signals() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &signal_set([]))
}

#[cfg(test)]
mod tests;
