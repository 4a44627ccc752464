//! Network namespaces: creating them, naming them as `ip netns` does, and running code and programs
//! in them. [`crate::netlink`] configures them.
//!
//! Only the network namespace differs: a program inside uses the files, processes and mounts of its
//! parent. So `/sys/class/net` still shows the interfaces of the process that mounted `/sys` and
//! must not be used there; `/proc/thread-self/net` and `/proc/sys/net` show those of the thread
//! that opens them, and `/sys/fs/bpf` remains usable.
#![allow(unsafe_code, reason = "system calls that std does not offer: setns, unshare, mount")]

mod child;
mod named;

use crate::explain::explain;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;

pub use child::die_with_parent;
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
pub struct NamespaceProcess {
    /// Its process identifier.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`), at most 15 bytes.
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
            // SAFETY: unshare takes no pointer and changes only the calling thread.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
                .map_err(|error| NamespaceError::system("create a network namespace", error))?;
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
    pub fn processes(&self) -> Result<Vec<NamespaceProcess>, NamespaceError> {
        let identity = self.identity()?;
        let entries = fs::read_dir("/proc")
            .map_err(|error| NamespaceError::system("list the processes", error))?;
        let mut found: Vec<NamespaceProcess> = entries
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

/// Returns the process `pid` if it is in the namespace; `None` if it ended meanwhile.
fn process_in(pid: u32, identity: (u64, u64)) -> Option<NamespaceProcess> {
    let metadata = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    ((metadata.dev(), metadata.ino()) == identity)
        .then(|| NamespaceProcess { pid, name: name.trim_end().to_owned() })
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
/// may run between fork and exec.
fn enter_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and setns takes no pointer.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Converts the return value of a system call to a result.
fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
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
}
