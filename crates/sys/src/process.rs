//! Other processes, referenced by a descriptor so that a reused process ID is never mistaken for
//! them (`pidfd_open(2)`); process groups, and sessions without a terminal.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::event::PollFlags;

use crate::descriptor::{check, check_new, wait_for};
use crate::signal::Signal;

/// Handle of a process, running or ended.
#[derive(Debug)]
pub struct ProcessHandle {
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// Opens the process that has this ID now.
    ///
    /// # Errors
    ///
    /// `ESRCH` if there is none; `InvalidInput` for the IDs 0 and 1.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = process_number(pid)?;
        // SAFETY: numbers only; the call gives a new descriptor or -1.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int;
        // SAFETY: it was created just now and has no other owner.
        Ok(Self { descriptor: unsafe { check_new(result) }? })
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// `ESRCH` if it has ended and was reaped, `EPERM` if it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.send(signal.number())
    }

    /// Stops the process (`SIGSTOP`), which it cannot prevent.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::signal`].
    pub fn stop(&self) -> io::Result<()> {
        self.send(libc::SIGSTOP)
    }

    /// Continues the process after [`Self::stop`].
    ///
    /// # Errors
    ///
    /// Errors of [`Self::signal`].
    pub fn resume(&self) -> io::Result<()> {
        self.send(libc::SIGCONT)
    }

    fn send(&self, number: libc::c_int) -> io::Result<()> {
        // SAFETY: an open descriptor and numbers; no details of the signal are passed.
        check(unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.descriptor.as_raw_fd(),
                number,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            ) as libc::c_int
        })
        .map(drop)
    }

    /// Waits up to `wait` for the end of the process; returns true if it has ended. A signal
    /// handler ends the wait early.
    pub fn wait(&self, wait: Duration) -> io::Result<bool> {
        wait_for(self.descriptor.as_fd(), PollFlags::IN, wait)
    }
}

fn process_number(pid: u32) -> io::Result<libc::pid_t> {
    // 0 and negative numbers address groups; process 1 is never intended.
    libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 1).ok_or(io::ErrorKind::InvalidInput.into())
}

/// Sends a signal to a process group, whose leader this process has started and not yet reaped, so
/// that its ID cannot have been reused.
pub fn signal_group(leader: u32, signal: Signal) -> io::Result<()> {
    let group = process_number(leader)?;
    // SAFETY: numbers only.
    check(unsafe { libc::kill(-group, signal.number()) }).map(drop)
}

/// Kills a process group (`SIGKILL`), whose leader this process has started and not yet reaped.
pub fn kill_group(leader: u32) -> io::Result<()> {
    let group = process_number(leader)?;
    // SAFETY: numbers only.
    check(unsafe { libc::kill(-group, libc::SIGKILL) }).map(drop)
}

/// Makes the program start in a session of its own, without a terminal (`setsid(2)`).
pub fn in_new_session(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs in the forked child; setsid is a plain system call, and nothing is
    // allocated.
    unsafe { command.pre_exec(|| check(libc::setsid()).map(drop)) }
}

/// Makes this process the parent of orphaned descendants (`PR_SET_CHILD_SUBREAPER(2const)`). Reap
/// them with [`reap_child`].
pub fn adopt_orphans() -> io::Result<()> {
    let yes: libc::c_ulong = 1;
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, yes) }).map(drop)
}

/// Result of reaping a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReapOutcome {
    /// Process ID and status of a child that had ended and was reaped.
    Ended(u32, ExitStatus),
    /// All children are running.
    None,
    /// There are no children.
    NoChildren,
}

/// Reaps a child that has ended; if `wait`, waits until one ends. A program that uses this must not
/// wait for children in any other way.
pub fn reap_child(wait: bool) -> io::Result<ReapOutcome> {
    let mut status = 0;
    let flags = if wait { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: numbers and room for the status.
        match check(unsafe { libc::waitpid(-1, &raw mut status, flags) }) {
            Ok(0) => return Ok(ReapOutcome::None),
            Ok(pid) => {
                return Ok(ReapOutcome::Ended(pid.unsigned_abs(), ExitStatus::from_raw(status)));
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                return Ok(ReapOutcome::NoChildren);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_signalled_and_its_end_detected() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        assert!(!handle.wait(Duration::ZERO).unwrap());
        handle.signal(Signal::Terminate).unwrap();
        assert!(handle.wait(Duration::from_secs(10)).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(handle.signal(Signal::Terminate).is_err(), "it is gone");
    }

    #[test]
    fn a_process_stands_still_and_goes_on() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit(") ").next().unwrap().chars().next().unwrap()
        };
        let becomes = |wanted: fn(char) -> bool| {
            (0..1_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                wanted(state())
            })
        };
        handle.stop().unwrap();
        assert!(becomes(|state| state == 'T'));
        handle.resume().unwrap();
        assert!(becomes(|state| state != 'T'));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_group_ends_with_all_that_is_in_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).process_group(0);
        let mut child = command.spawn().unwrap();
        kill_group(child.id()).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_new_session_is_its_own_leader() {
        let mut command = Command::new("sh");
        command.args(["-c", "cut -d' ' -f6 /proc/$$/stat"]).stdout(std::process::Stdio::piped());
        let child = in_new_session(&mut command).spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(output).unwrap().trim(), pid.to_string());
    }

    #[test]
    fn numbers_that_mean_something_else_are_refused() {
        for pid in [0, 1, u32::MAX] {
            assert!(ProcessHandle::open(pid).is_err() && kill_group(pid).is_err(), "{pid}");
            assert!(signal_group(pid, Signal::Terminate).is_err(), "{pid}");
        }
    }
}
