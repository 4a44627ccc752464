//! Network namespaces: creating them, naming them as `ip netns` does, and running code and programs
//! in them. [`crate::netlink`] configures them.
//!
//! Only the network namespace differs: a program inside uses the files, processes and mounts of its
//! parent. So `/sys/class/net` still shows the interfaces of the process that mounted `/sys` and
//! must not be used there; `/proc/thread-self/net` and `/proc/sys/net` show those of the thread
//! that opens them, and `/sys/fs/bpf` remains usable.

#![allow(unsafe_code, reason = "system calls that std does not offer: setns, unshare, mount")]

mod named;

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;
use std::sync::Arc;
use std::{io, thread};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::descriptor::check;
use crate::explain::explain;

pub use named::{delete_named, list_named, publish_all};

/// Reason for which an operation on a network namespace failed.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process lacks the privilege.
    #[error("cannot {0}: CAP_SYS_ADMIN and CAP_NET_ADMIN are required; run as root or with sudo")]
    NotPermitted(String),
    /// A name that cannot be a file's name in `/run/netns`.
    #[error("'{0}' cannot name a network namespace; use 1 to 255 bytes without '/'")]
    BadName(String),
    /// No namespace has this name.
    #[error("network namespace '{0}' not found; 'ip netns list' lists them")]
    NotFound(String),
    /// The name is taken.
    #[error("network namespace '{0}' exists already; 'ip netns delete {0}' removes it")]
    Exists(String),
    /// The file exists, but no namespace is mounted on it: its creator died halfway.
    #[error("/run/netns/{0} is not a network namespace; 'ip netns delete {0}' removes it")]
    Stale(String),
    /// A signal arrived while names were created; those already created were removed.
    #[error("interrupted; cleanup is complete")]
    Interrupted,
    /// Any other refusal of the kernel.
    #[error("cannot {action}: {why}", why = explain(.source))]
    System {
        /// Attempted operation, as a verb phrase.
        action: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl NamespaceError {
    fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted(action),
            _ => Self::System { action, source },
        }
    }
}

/// Handle of a network namespace. The namespace exists as long as a handle, a name, a socket or a
/// process in it; without a name it ends with the last of these, however the processes end.
#[derive(Debug, Clone)]
pub struct NetNs {
    file: Arc<File>,
}

/// Process found in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInNamespace {
    /// Process identifier.
    pub pid: u32,
    /// Process name (`/proc/PID/comm`), at most 15 bytes.
    pub name: String,
}

impl NetNs {
    /// Returns the namespace of the calling thread.
    pub fn current() -> Result<Self, NamespaceError> {
        let path = "/proc/thread-self/ns/net";
        let file = File::open(path)
            .map_err(|error| NamespaceError::system(format!("open {path}"), error))?;
        Ok(Self { file: Arc::new(file) })
    }

    /// Creates a namespace without a name. It contains nothing but a loopback interface that is
    /// down.
    pub fn anonymous() -> Result<Self, NamespaceError> {
        // A thread of its own enters the namespace and ends, so the calling thread is not moved.
        on_fresh_thread(|| {
            // SAFETY: changes only the network namespace of the calling thread.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|error| {
                NamespaceError::system("create a network namespace", error.into())
            })?;
            Self::current()
        })
    }

    /// Runs `work` on a new thread inside the namespace and returns its result. Threads and
    /// processes that it starts are in the namespace too; sockets that it opens stay in the
    /// namespace even if used elsewhere. A panic in `work` resumes in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        on_fresh_thread(|| {
            enter_namespace(self.file.as_fd())
                .map_err(|error| NamespaceError::system("enter a network namespace", error))?;
            Ok(work())
        })
    }

    /// Returns true if both handles are of the same namespace.
    pub fn is_same(&self, other: &Self) -> Result<bool, NamespaceError> {
        Ok(self.identity()? == other.identity()?)
    }

    /// Returns the processes whose main thread is in this namespace, by ascending process ID. Only
    /// root sees those of other users.
    pub fn processes(&self) -> Result<Vec<ProcessInNamespace>, NamespaceError> {
        let identity = self.identity()?;
        let entries = fs::read_dir("/proc")
            .map_err(|error| NamespaceError::system("list the processes", error))?;
        let mut found: Vec<ProcessInNamespace> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid: u32| process_in(pid, identity))
            .collect();
        found.sort_by_key(|process| process.pid);
        Ok(found)
    }

    /// Returns device and inode, which together identify a namespace (`namespaces(7)`).
    fn identity(&self) -> Result<(u64, u64), NamespaceError> {
        let metadata = self
            .file
            .metadata()
            .map_err(|error| NamespaceError::system("identify a network namespace", error))?;
        Ok((metadata.dev(), metadata.ino()))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the process `pid` if it is in the namespace; `None` if it is not, has ended, or may not
/// be inspected.
fn process_in(pid: u32, identity: (u64, u64)) -> Option<ProcessInNamespace> {
    let metadata = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    ((metadata.dev(), metadata.ino()) == identity)
        .then(|| ProcessInNamespace { pid, name: name.trim_end().to_owned() })
}

fn on_fresh_thread<T: Send>(
    work: impl FnOnce() -> Result<T, NamespaceError> + Send,
) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|error| NamespaceError::system("start a thread", error))?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread into a namespace. Makes one system call and allocates nothing, so it
/// may run between fork and exec, unlike the function of rustix: its dlsym(3) may wait for a lock.
fn enter_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and setns takes no pointer.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

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
            set_parent_process_death_signal(Some(Signal::KILL))?;
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
    fn this_thread_is_in_its_own_namespace() {
        let here = NetNs::current().unwrap();
        assert!(here.is_same(&NetNs::current().unwrap()).unwrap());
        let own_pid = std::process::id();
        assert!(here.processes().unwrap().iter().any(|process| process.pid == own_pid));
    }

    #[test]
    fn lack_of_privilege_names_the_required_capability() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let text = NamespaceError::system("create a network namespace", denied).to_string();
        assert!(text.contains("CAP_SYS_ADMIN") && text.contains("sudo"), "{text}");
        assert!(!text.contains('\n'));
    }

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
