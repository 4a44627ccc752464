//! Signal that does nothing but end a thread's wait, while it is installed: the previous handler is
//! restored afterwards.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::descriptor::check;

/// Lock for one user at a time in a process: a handler is the process's.
static IN_USE: Mutex<()> = Mutex::new(());

/// Handler, installed until this is dropped.
#[derive(Debug)]
pub struct WakeSignal {
    before: libc::sigaction,
    _alone: MutexGuard<'static, ()>,
}

/// Thread whose wait can be ended.
#[derive(Clone, Copy, Debug)]
pub struct WakeTarget(libc::pid_t);

impl WakeSignal {
    /// Installs the handler; waits until no other user in this process has it.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn install() -> io::Result<Self> {
        // Nothing is guarded that a panic could leave half done.
        let alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let handler: extern "C" fn(libc::c_int) = do_nothing;
        // SAFETY: plain C structures, for which all bytes zero is valid: no flag, an empty mask.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: both outlive the call; the handler touches nothing.
        check(unsafe { libc::sigaction(signal(), &raw const action, &raw mut before) })?;
        Ok(Self { before, _alone: alone })
    }

    /// Ends the wait that the thread is in; between two waits it does nothing.
    ///
    /// # Errors
    ///
    /// If there is no such thread any more.
    pub fn send(&self, waiter: WakeTarget) -> io::Result<()> {
        // SAFETY: numbers only; the signal has a handler while `self` exists.
        check(unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter.0, signal()) as libc::c_int
        })
        .map(drop)
    }
}

impl WakeTarget {
    /// Returns this thread, which accepts the signal from here on.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn current() -> io::Result<Self> {
        // SAFETY: the set is initialised before it is used; gettid has no argument.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal());
            match libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Self(libc::gettid())),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for WakeSignal {
    fn drop(&mut self) {
        // One that is still on its way must find a handler, or it would end the process: what is
        // pending is delivered before a system call of its thread returns, and threads that were
        // sent any have ended or have made some by now.
        // SAFETY: the action that was there before.
        let _ = unsafe { libc::sigaction(signal(), &raw const self.before, std::ptr::null_mut()) };
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// Returns the number of a signal other than those of [`crate::signal`] and [`crate::expiry`].
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::delay::nanosleep_once;

    fn handler() -> libc::sighandler_t {
        // SAFETY: a plain C structure, written by a call that changes nothing.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal(), std::ptr::null(), &raw mut now);
            now.sa_sigaction
        }
    }

    #[test]
    fn a_wait_is_ended_and_the_handler_is_as_before() {
        let interruption = WakeSignal::install().unwrap();
        assert_ne!(handler(), libc::SIG_DFL);
        let (announce, announced) = mpsc::channel();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || {
                announce.send(WakeTarget::current().unwrap()).unwrap();
                nanosleep_once(Duration::from_mins(1)).unwrap()
            });
            let waiter = announced.recv().unwrap();
            while !sleeper.is_finished() {
                interruption.send(waiter).unwrap_or(());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(sleeper.join().unwrap() > Duration::from_secs(1));
        });
        drop(interruption);
        // No test may install it again before it was checked.
        let _alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(handler(), libc::SIG_DFL);
    }
}
