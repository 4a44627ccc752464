//! Signal that only interrupts a blocking call of a thread. Its handler is installed temporarily;
//! the previous handler is restored afterwards.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::descriptor::check;

/// Lock for one user at a time, since a handler belongs to the whole process.
static IN_USE: Mutex<()> = Mutex::new(());

/// Installed handler of the wake signal; dropping it restores the previous one.
#[derive(Debug)]
pub struct WakeSignalHandler {
    previous_action: libc::sigaction,
    _exclusive: MutexGuard<'static, ()>,
}

/// Thread whose wait can be interrupted.
#[derive(Clone, Copy, Debug)]
pub struct WakeTarget(libc::pid_t);

impl WakeSignalHandler {
    /// Installs the handler, after waiting until no other part of this process uses it.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn install() -> io::Result<Self> {
        // The lock guards no data that a panic could leave inconsistent.
        let alone = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let handler: extern "C" fn(libc::c_int) = ignore_signal;
        // SAFETY: plain C structures, for which all bytes zero is valid: no flag, an empty mask.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: both outlive the call; the handler touches nothing.
        check(unsafe { libc::sigaction(signal(), &raw const action, &raw mut before) })?;
        Ok(Self { previous_action: before, _exclusive: alone })
    }

    /// Interrupts the wait of the thread; has no effect between two waits.
    ///
    /// # Errors
    ///
    /// If the thread no longer exists.
    pub fn send(&self, waiter: WakeTarget) -> io::Result<()> {
        // SAFETY: numbers only; the signal has a handler while `self` exists.
        check(unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), waiter.0, signal()) as libc::c_int
        })
        .map(drop)
    }
}

impl WakeTarget {
    /// Returns the calling thread, after unblocking the signal in it.
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

impl Drop for WakeSignalHandler {
    fn drop(&mut self) {
        // One that is still on its way must find a handler, or it would end the process: what is
        // pending is delivered before a system call of its thread returns, and threads that were
        // sent any have ended or have made some by now.
        // SAFETY: the action that was there before.
        let _ = unsafe {
            libc::sigaction(signal(), &raw const self.previous_action, std::ptr::null_mut())
        };
    }
}

extern "C" fn ignore_signal(_: libc::c_int) {}

/// Returns a real-time signal other than those of [`crate::signal`] and [`crate::expiry`].
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
        let interruption = WakeSignalHandler::install().unwrap();
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
