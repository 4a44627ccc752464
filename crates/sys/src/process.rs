//! Other processes, referenced by a descriptor so that a reused process ID is never mistaken for
//! them (`pidfd_open(2)`); process groups, and sessions without a terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, WaitOptions, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
    set_child_subreaper, setsid,
};

use crate::descriptor::wait_for;
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
        Ok(Self { descriptor: pidfd_open(process_id(pid)?, PidfdFlags::empty())? })
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// `ESRCH` if it has ended and was reaped, `EPERM` if it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, signal.to_rustix())?)
    }

    /// Stops the process (`SIGSTOP`), which it cannot prevent.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::signal`].
    pub fn stop(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, rustix::process::Signal::STOP)?)
    }

    /// Continues the process after [`Self::stop`].
    ///
    /// # Errors
    ///
    /// Errors of [`Self::signal`].
    pub fn resume(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.descriptor, rustix::process::Signal::CONT)?)
    }

    /// Waits up to `wait` for the end of the process; returns true if it has ended. A signal
    /// handler ends the wait early.
    pub fn wait(&self, wait: Duration) -> io::Result<bool> {
        wait_for(self.descriptor.as_fd(), PollFlags::IN, wait)
    }
}

fn process_id(pid: u32) -> io::Result<Pid> {
    // 0 and negative numbers address groups; process 1 is never intended.
    let number = i32::try_from(pid).ok().filter(|number| *number > 1);
    number.and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput.into())
}

/// Sends a signal to a process group, whose leader this process has started and not yet reaped, so
/// that its ID cannot have been reused.
pub fn signal_group(leader: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process_group(process_id(leader)?, signal.to_rustix())?)
}

/// Kills a process group (`SIGKILL`), whose leader this process has started and not yet reaped.
pub fn kill_group(leader: u32) -> io::Result<()> {
    Ok(kill_process_group(process_id(leader)?, rustix::process::Signal::KILL)?)
}

/// Makes the program start in a session of its own, without a terminal (`setsid(2)`).
pub fn in_new_session(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs in the forked child; setsid is a plain system call, and nothing is
    // allocated.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) }
}

/// Makes this process the parent of orphaned descendants (`PR_SET_CHILD_SUBREAPER(2const)`). Reap
/// them with [`reap_child`].
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
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
    let options = if wait { WaitOptions::empty() } else { WaitOptions::NOHANG };
    loop {
        match rustix::process::wait(options) {
            Ok(None) => return Ok(ReapOutcome::None),
            Ok(Some((pid, status))) => {
                let status = ExitStatus::from_raw(status.as_raw());
                return Ok(ReapOutcome::Ended(pid.as_raw_pid().unsigned_abs(), status));
            }
            Err(Errno::CHILD) => return Ok(ReapOutcome::NoChildren),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
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
