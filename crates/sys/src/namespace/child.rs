//! Starting programs inside a namespace, and programs that do not outlive their parent.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

use super::{NetNs, check, enter_namespace};

impl NetNs {
    /// Makes `command` start its program inside this namespace; the calling thread is not moved.
    /// The command keeps the namespace alive.
    pub fn start_inside<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let namespace = self.clone();
        // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are
        // allowed; it makes one setns call, allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || enter_namespace(namespace.as_fd())) }
    }
}

/// Makes the kernel kill the program (SIGKILL) when the thread that starts it ends, whether that
/// thread returns, panics or is killed with its process.
///
/// The kernel ties this to the parent *thread*, not the process (`PR_SET_PDEATHSIG(2const)`): start
/// the program from a thread that lives as long as the program should, never from inside
/// [`NetNs::run`], whose thread ends at once. The tie is lost when the program has a set-user-ID
/// bit or file capabilities, and the program's own children do not inherit it.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: the closure runs in the forked child; prctl and getppid are plain system calls, and
    // nothing is allocated (an error made from an error number holds no heap memory).
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // If the parent died before the prctl, the signal is never sent.
            if parent_id() == parent {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            die_with_parent(Command::new("sleep").arg("60").stdin(Stdio::null())).spawn().unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_child_of_a_living_thread_lives() {
        let status = die_with_parent(&mut Command::new("true")).status().unwrap();
        assert!(status.success());
    }
}
