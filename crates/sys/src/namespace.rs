//! Network namespaces: making them, naming them as `ip netns` does, running code and programs in
//! them. What is inside one is the business of [`crate::netlink`].
//!
//! Only the network namespace changes: a program run in one sees the files, the processes and the
//! mounts of its parent. So `/sys/class/net` still shows the interfaces of whoever mounted `/sys`
//! and must not be read there, while `/proc/thread-self/net` and `/proc/sys/net` show those of the
//! thread that opens them, and `/sys/fs/bpf` stays usable.
#![allow(unsafe_code, reason = "system calls that std does not offer: setns, unshare, mount")]

mod child;
mod named;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;

pub use child::die_with_parent;
pub use named::{delete_named, list_named, publish_all};

/// Why something with a network namespace failed.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process lacks the privilege.
    #[error("cannot {0}: that needs CAP_SYS_ADMIN and CAP_NET_ADMIN; run as root or with sudo")]
    NotPermitted(String),
    /// A name that cannot be a file's name in `/run/netns`.
    #[error("'{0}' cannot name a network namespace; use 1 to 255 bytes without '/'")]
    BadName(String),
    /// No namespace has this name.
    #[error("no network namespace is called '{0}'; 'ip netns list' shows them")]
    NotFound(String),
    /// The name is taken.
    #[error("a network namespace called '{0}' exists already; 'ip netns delete {0}' removes it")]
    Exists(String),
    /// The file is there, but no namespace is mounted on it: whoever made it died halfway.
    #[error("/run/netns/{0} is no network namespace; 'ip netns delete {0}' removes it")]
    Stale(String),
    /// A signal came while names were given out; those already given were taken back.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
    /// Anything else that the kernel refused.
    #[error("cannot {action}: {source}")]
    System {
        /// What was attempted, as a verb phrase.
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

/// A handle on a network namespace. The namespace lives for as long as such a handle, a name, a
/// socket or a process in it does; without a name it vanishes with the last of those, however the
/// processes end.
#[derive(Debug, Clone)]
pub struct NetNs {
    file: Arc<File>,
}

/// A process found in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process identifier.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`), at most 15 bytes.
    pub name: String,
}

impl NetNs {
    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, NamespaceError> {
        let path = "/proc/thread-self/ns/net";
        let file = File::open(path)
            .map_err(|error| NamespaceError::system(format!("open {path}"), error))?;
        Ok(Self { file: Arc::new(file) })
    }

    /// Makes a namespace without a name. It holds nothing but a loopback interface that is down.
    pub fn anonymous() -> Result<Self, NamespaceError> {
        // A thread of its own moves there and ends, so the caller's stays where it is.
        on_fresh_thread(|| {
            // SAFETY: unshare takes no pointer and changes only the calling thread.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
                .map_err(|error| NamespaceError::system("make a network namespace", error))?;
            Self::current()
        })
    }

    /// Runs `work` on a fresh thread inside the namespace and returns what it returns. Threads
    /// and processes that `work` starts are in the namespace too; sockets that it opens stay
    /// there wherever they are handed to. A panic in `work` goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        on_fresh_thread(|| {
            enter(self.file.as_fd())
                .map_err(|error| NamespaceError::system("enter a network namespace", error))?;
            Ok(work())
        })
    }

    /// Whether both handles are of the same namespace.
    pub fn is_same(&self, other: &Self) -> Result<bool, NamespaceError> {
        Ok(self.identity()? == other.identity()?)
    }

    /// The processes whose main thread is in this namespace, by rising pid. Those of other users
    /// are seen by root only.
    pub fn processes(&self) -> Result<Vec<Process>, NamespaceError> {
        let identity = self.identity()?;
        let entries = fs::read_dir("/proc")
            .map_err(|error| NamespaceError::system("list the processes", error))?;
        let mut found: Vec<Process> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid: u32| process_in(pid, identity))
            .collect();
        found.sort_by_key(|process| process.pid);
        Ok(found)
    }

    /// Device and inode, which together tell one namespace from another (`namespaces(7)`).
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

/// The process `pid` if it is in the namespace; one that ended meanwhile is not.
fn process_in(pid: u32, identity: (u64, u64)) -> Option<Process> {
    let metadata = fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    ((metadata.dev(), metadata.ino()) == identity)
        .then(|| Process { pid, name: name.trim_end().to_owned() })
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

/// Moves the calling thread. Makes one system call and allocates nothing, so it may run between
/// fork and exec.
fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and setns takes no pointer.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Turns the return value of a system call into a result.
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
    fn lack_of_privilege_says_what_is_needed() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let text = NamespaceError::system("make a network namespace", denied).to_string();
        assert!(text.contains("CAP_SYS_ADMIN") && text.contains("sudo"), "{text}");
        assert!(!text.contains('\n'));
    }
}
