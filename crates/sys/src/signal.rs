//! Synchronous signal handling: a program blocks the signals that it handles, and one thread waits
//! for them. Also interruption of a thread in a blocking system call.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::descriptor::{check, timespec};

/// Signal from a user or a service manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// `SIGINT`: Ctrl-C.
    Interrupt,
    /// `SIGTERM`: request to terminate.
    Terminate,
    /// `SIGHUP`: the terminal was closed.
    HangUp,
    /// `SIGUSR1`: meaning defined by the program.
    User1,
}

impl Signal {
    const ALL: [Self; 4] = [Self::Interrupt, Self::Terminate, Self::HangUp, Self::User1];

    /// Returns the signal number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.to_rustix().as_raw()
    }

    pub(crate) const fn to_rustix(self) -> rustix::process::Signal {
        match self {
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::HangUp => rustix::process::Signal::HUP,
            Self::User1 => rustix::process::Signal::USR1,
        }
    }
}

/// `si_code` of a signal sent by the kernel (`sigaction(2)`).
const SI_KERNEL: libc::c_int = 0x80;

/// Origin of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalOrigin {
    /// The kernel, for example for a key of the terminal; all processes of the foreground group
    /// receive it.
    Kernel,
    /// A process, to this process alone.
    Process,
}

/// Blocked signals, which stay pending until a wait accepts them.
#[derive(Debug)]
pub struct BlockedSignals {
    set: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks `signals` in this thread and in threads that it starts later. Call it before any
    /// thread is started, so that it holds for the process.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn block(signals: &[Signal]) -> io::Result<Self> {
        let set = signal_set(signals.iter().map(|signal| signal.number()));
        change_mask(libc::SIG_BLOCK, &set)?;
        Ok(Self { set })
    }

    /// Waits up to `wait` for one of the signals; `None` at the timeout, or if the handler of
    /// another signal ran.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn wait(&self, wait: Duration) -> io::Result<Option<Signal>> {
        Ok(self.wait_for_sender(wait)?.map(|(signal, _)| signal))
    }

    /// Waits like [`Self::wait`] and also returns the sender.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn wait_for_sender(&self, wait: Duration) -> io::Result<Option<(Signal, SignalOrigin)>> {
        let timeout = timespec(wait);
        // SAFETY: a plain C structure, for which all bytes zero is valid.
        let mut details: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: an initialised set, the details and a time in the layout of a timespec, alive for
        // the call.
        let result = check(unsafe {
            libc::sigtimedwait(&raw const self.set, &raw mut details, (&raw const timeout).cast())
        });
        match result {
            Ok(number) => {
                let sender = if details.si_code == SI_KERNEL {
                    SignalOrigin::Kernel
                } else {
                    SignalOrigin::Process
                };
                let signal = Signal::ALL.into_iter().find(|signal| signal.number() == number);
                Ok(signal.map(|signal| (signal, sender)))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// Returns true if this process ignores a signal, usually by inheritance, as from nohup(1) or from
/// a shell for a job started with `&`.
pub fn is_ignored(signal: Signal) -> io::Result<bool> {
    // SAFETY: a plain C structure, for which all bytes zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a valid number and room for the result; nothing is changed.
    check(unsafe { libc::sigaction(signal.number(), std::ptr::null(), &raw mut action) })?;
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// Makes the program start with no signal blocked, whatever this thread's mask is.
pub fn unblock_in_child(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs in the forked child; it fills a set on the stack and makes one
    // system call.
    unsafe { command.pre_exec(|| change_mask(libc::SIG_SETMASK, &signal_set([]))) }
}

/// Thread of this process that can be interrupted in a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptibleThread {
    thread: libc::pid_t,
}

impl InterruptibleThread {
    /// Makes the calling thread interruptible.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn current() -> io::Result<Self> {
        install_handler()?;
        change_mask(libc::SIG_UNBLOCK, &signal_set([wake_up_signal()]))?;
        // SAFETY: no argument, cannot fail.
        Ok(Self { thread: unsafe { libc::gettid() } })
    }

    /// Interrupts the system call that the thread is in, which then returns `Interrupted` or a
    /// partial result. Has no effect between two system calls, so repeat it until the thread
    /// reacts. Returns true if the thread still exists.
    ///
    /// If the kernel has reused the thread ID within this process, the interruption is harmless.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn interrupt(self) -> io::Result<bool> {
        // SAFETY: numbers only; the handler of this signal was installed by `current`.
        let result = check(unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, wake_up_signal())
                as libc::c_int
        });
        match result {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the signal of interruptions: the second real-time signal that the C library leaves to
/// programs.
fn wake_up_signal() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

extern "C" fn ignore_signal(_: libc::c_int) {}

/// Installs the handler without `SA_RESTART`, so that system calls are interrupted.
fn install_handler() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = ignore_signal;
    // SAFETY: a plain C structure, for which all bytes zero is valid: no flag, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the action outlives the call, and its handler has the right signature and touches
    // nothing, so it may run at any moment.
    check(unsafe { libc::sigaction(wake_up_signal(), &raw const action, std::ptr::null_mut()) })
        .map(drop)
}

pub(crate) fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: an initialised set, only read; the old mask is not requested.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

pub(crate) fn signal_set(numbers: impl IntoIterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, then it is added to; valid signal numbers only.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::NanosleepRelativeResult;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_blocked_signal_is_waited_for() {
        // In a thread, and sent to that thread, so that no other test sees it.
        thread::spawn(|| {
            let signals = BlockedSignals::block(&[Signal::User1]).unwrap();
            assert_eq!(signals.wait(Duration::ZERO).unwrap(), None);
            // SAFETY: numbers only; the signal is blocked in this thread.
            let sent = unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGUSR1)
            };
            assert_eq!(sent, 0);
            assert_eq!(signals.wait(Duration::from_secs(1)).unwrap(), Some(Signal::User1));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn signals_are_not_ignored_unless_requested() {
        assert!(!is_ignored(Signal::Terminate).unwrap());
        // SAFETY: numbers only; no other test uses this signal's action.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        assert!(is_ignored(Signal::HangUp).unwrap());
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    }

    #[test]
    fn a_thread_is_called_out_of_a_long_system_call() {
        let (announce, announced) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            announce.send(InterruptibleThread::current().unwrap()).unwrap();
            rustix::thread::nanosleep(&timespec(Duration::from_mins(1)))
        });
        let thread = announced.recv().unwrap();
        while !sleeper.is_finished() {
            thread.interrupt().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        let ended = sleeper.join().unwrap();
        assert!(matches!(ended, NanosleepRelativeResult::Interrupted(_)));
    }
}
