//! Start of a program at an instant, as fast as the system can: everything is prepared before it,
//! and the process that becomes the program sleeps until then itself, with a real-time priority if
//! that is allowed. The program has the scheduling, timer slack and nice value of this process, all
//! signals unblocked and none ignored that this process ignores for itself.
//!
//! The child shares this process's memory until it executes (`CLONE_VM`, `CLONE_VFORK` in
//! `clone(2)`), so nothing is copied. The standard library's method passes on the signal mask of a
//! thread, or forks the whole process.

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

use crate::affinity::{SchedulingParameters, timer_slack_ns};
use crate::alarm_clock::AlarmClock;
use crate::descriptor::check;
use crate::signal::{change_mask, signal_set};
use child::{ChildOrder, ChildReport};

/// Stack size of the child until it executes; it needs a few hundred bytes.
const STACK_BYTES: usize = 64 << 10;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Program with its arguments, in the kernel's form.
#[derive(Debug)]
pub struct SpawnCommand {
    candidate_paths: Vec<CString>,
    words: Vec<CString>,
    own_group: bool,
    surroundings: Option<SpawnEnvironment>,
}

/// Environment and streams of a program instead of those of this process. Such a program ends with
/// the thread that starts it, in every case.
#[derive(Debug)]
pub struct SpawnEnvironment {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
    /// `NAME=value`.
    environment: Vec<CString>,
}

impl SpawnEnvironment {
    /// Creates one with nothing to read, these outputs, and these variables.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a variable has a zero in it; none else is known.
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
    /// Creates the command of a program by its name, which is searched in `PATH`, or its path.
    /// `own_group` makes it the leader of a group of processes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a word has a zero in it.
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
        Ok(Self { candidate_paths, words, own_group, surroundings: None })
    }

    /// Replaces the environment.
    #[must_use]
    pub fn within(self, surroundings: SpawnEnvironment) -> Self {
        Self { surroundings: Some(surroundings), ..self }
    }
}

/// Instant to start a program at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartTime {
    /// Clock of the instant.
    pub clock: AlarmClock,
    /// Instant in ns since 1970 of that clock.
    pub ns: i64,
    /// Priority with which it waits and starts before sched-other threads.
    pub start_priority: Option<StartPriority>,
}

/// Scheduling of programs: that of this process at its start, regardless of later changes of its
/// threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultScheduling {
    policy: SchedulingParameters,
    slack_ns: u32,
}

impl DefaultScheduling {
    /// Returns the scheduling and timer slack of this thread. The nice value stays as it is.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn current() -> io::Result<Self> {
        Ok(Self { policy: SchedulingParameters::current()?, slack_ns: timer_slack_ns()? })
    }

    /// Returns the policy.
    #[must_use]
    pub const fn policy(self) -> SchedulingParameters {
        self.policy
    }
}

/// Real-time priority (`SCHED_FIFO`) to wait and start with. It is without effect if programs have
/// a real-time policy by default, or if it is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartPriority {
    /// Priority of the starting thread, 2 to 99; the program has one less.
    pub priority: i32,
    /// True if the program keeps it until [`SpawnedProgram::restore_scheduling`], and its children
    /// are sched-other; that needs `CAP_SYS_NICE`. Otherwise it ends before the program begins.
    pub keep: bool,
}

/// Handle that cancels one start that waits for its instant.
#[derive(Debug, Default)]
pub struct CancelHandle {
    called_off: AtomicBool,
    /// Child, until it has executed or ended; written by the kernel (`CLONE_PARENT_SETTID`).
    child: AtomicI32,
    /// True if it reached its program.
    executes: AtomicBool,
    /// Lock for signalling the child and for releasing its number.
    signalling: Mutex<()>,
}

impl CancelHandle {
    /// Cancels the start of the program, unless it has started.
    pub fn cancel(&self) {
        let _guard = self.signalling.lock().unwrap_or_else(PoisonError::into_inner);
        self.called_off.store(true, SeqCst);
        let child = self.child.load(SeqCst);
        if child > 0 && !self.executes.load(SeqCst) {
            // SAFETY: numbers only; the child has not been waited for.
            let _ = unsafe { libc::kill(child, libc::SIGKILL) };
        }
    }

    fn is_called_off(&self) -> bool {
        self.called_off.load(SeqCst)
    }

    fn let_go(&self) {
        let _guard = self.signalling.lock().unwrap_or_else(PoisonError::into_inner);
        self.child.store(0, SeqCst);
    }
}

/// Program that was started and not yet waited for.
#[derive(Debug)]
pub struct SpawnedProgram {
    pid: libc::pid_t,
    /// Policy to restore for this thread and the program.
    thread_usual: Option<SchedulingParameters>,
    program_usual: Option<DefaultScheduling>,
}

/// Outcome of a start.
#[derive(Debug)]
pub struct SpawnOutcome {
    /// Clock reading when the instant had come, in ns since 1970.
    pub woken_ns: Option<i64>,
    /// Started program; `None` if it was cancelled. Errors are those of `execve(2)`: `NotFound`,
    /// `PermissionDenied`.
    pub started: io::Result<Option<SpawnedProgram>>,
}

/// Starts a program, at an instant or at once, and returns when it has been executed. One that
/// waits for its instant ends with this process.
///
/// # Errors
///
/// If no process can be created.
pub fn spawn(
    recipe: &SpawnCommand,
    at: Option<&StartTime>,
    usual: DefaultScheduling,
    call_off: &CancelHandle,
) -> io::Result<SpawnOutcome> {
    let report = ChildReport::default();
    let candidate_paths: Vec<_> = recipe.candidate_paths.iter().map(|path| path.as_ptr()).collect();
    let words = recipe.words.iter().map(|word| word.as_ptr()).chain([null()]);
    let words: Vec<_> = words.collect();
    let surroundings = recipe.surroundings.as_ref();
    let variables = surroundings.map(|own| {
        let own = own.environment.iter().map(|variable| variable.as_ptr());
        own.chain([null()]).collect::<Vec<_>>()
    });
    let order = ChildOrder {
        candidate_paths: &candidate_paths,
        words: words.as_ptr(),
        environment: match &variables {
            Some(own) => own.as_ptr(),
            // SAFETY: a list that the C library keeps; nothing changes it meanwhile.
            None => unsafe { environ },
        },
        streams: surroundings
            .map(|own| [own.input.as_raw_fd(), own.output.as_raw_fd(), own.errors.as_raw_fd()]),
        own_group: recipe.own_group,
        at,
        process: std::process::id().cast_signed(),
        // SAFETY: no argument, cannot fail.
        thread: unsafe { libc::gettid() },
        policy: usual.policy.without_reset(),
        slack_ns: usual.slack_ns,
        cancel: call_off,
        report: &report,
    };
    let pid = make_child(&order)?;
    call_off.let_go();
    let woken_ns = Some(report.woken_ns.load(SeqCst)).filter(|woken_ns| *woken_ns != 0);
    let start_priority = at.and_then(|at| at.start_priority);
    let keeps = start_priority.is_some_and(|start_priority| start_priority.keep)
        && report.rushes.load(SeqCst);
    let started = SpawnedProgram {
        pid,
        // Even if only one of the two could be raised.
        thread_usual: start_priority.map(|_| usual.policy),
        program_usual: keeps.then_some(usual),
    };
    Ok(SpawnOutcome { woken_ns, started: outcome(started, &report, call_off) })
}

fn outcome(
    mut started: SpawnedProgram,
    report: &ChildReport,
    call_off: &CancelHandle,
) -> io::Result<Option<SpawnedProgram>> {
    let error = report.error.load(SeqCst);
    if error == 0 && call_off.executes.load(SeqCst) {
        return Ok(Some(started));
    }
    started.program_usual = None;
    let status = started.wait()?;
    match (call_off.is_called_off(), error) {
        (true, _) => Ok(None),
        (false, 0) => Err(io::Error::other(format!("it was terminated while waiting ({status})"))),
        (false, error) => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Creates the child, and returns its number when it has executed or ended.
fn make_child(order: &ChildOrder<'_>) -> io::Result<libc::pid_t> {
    let mut stack = vec![0_u8; STACK_BYTES];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: within the stack; the top is on a border of 16 bytes, as all processors want it.
    let top = unsafe { top.sub(top as usize % 16) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
    // No handler runs in the child: it unblocks signals at the last.
    let before = block_all()?;
    let argument = std::ptr::from_ref(order).cast_mut().cast::<libc::c_void>();
    // SAFETY: the stack, the order and all that it points to live until the call returns, which is
    // when the child has executed or ended and uses nothing of it any more. This thread stands
    // still until then, so the child has its thread-local memory to itself. The child reads the
    // order and writes atomics alone.
    let made = check(unsafe {
        libc::clone(child::run, top.cast(), flags, argument, order.cancel.child.as_ptr())
    });
    change_mask(libc::SIG_SETMASK, &before)?;
    made
}

/// Blocks all signals in this thread; returns the previous mask.
fn block_all() -> io::Result<libc::sigset_t> {
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
    /// Returns its process identifier, which is its own until it has been waited for.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Returns true if the program keeps a real-time priority that must be restored.
    #[must_use]
    pub const fn keeps_priority(&self) -> bool {
        self.program_usual.is_some()
    }

    /// Restores the default scheduling of the program and of this thread, which has to be the one
    /// that started it.
    ///
    /// # Errors
    ///
    /// None is known: a thread that may raise a priority may lower it.
    pub fn restore_scheduling(&mut self) -> io::Result<()> {
        let pid = self.pid;
        let program = self.program_usual.take().map_or(Ok(()), |usual| {
            usual.policy.without_reset().set(pid)?;
            // With a real-time priority there is none, and a child inherits that.
            std::fs::write(format!("/proc/{pid}/timerslack_ns"), usual.slack_ns.to_string())
        });
        let thread = self.thread_usual.take().map_or(Ok(()), SchedulingParameters::apply);
        match program {
            // It may have ended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {
                thread
            }
            other => other.and(thread),
        }
    }

    /// Waits for its end.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.restore_scheduling()?;
        let mut status = 0;
        loop {
            // SAFETY: a number and room for the status.
            match check(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }) {
                Ok(_) => return Ok(ExitStatus::from_raw(status)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for SpawnedProgram {
    fn drop(&mut self) {
        // After a failure in between, no program keeps a priority that is not its own.
        let _ = self.restore_scheduling();
    }
}

/// Unblocks all signals in this thread, as before a program replaces this one.
pub fn unblock_all_signals() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &signal_set([]))
}

#[cfg(test)]
mod tests;
