//! Names of network namespaces, compatible with `ip netns`: a file in `/run/netns` on which the
//! namespace is mounted (`ip-netns(8)`). A name keeps its namespace alive; removing it ends no
//! process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};

use super::{NamespaceError, NetNs};

/// Directory of the namespace names of `ip netns`.
const DIRECTORY: &str = "/run/netns";
/// Longest file name in bytes (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// Signals with which a terminal or a service manager terminates a program.
const TERMINATION_SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

impl NetNs {
    /// Opens the namespace with this name.
    pub fn open_named(name: &str) -> Result<Self, NamespaceError> {
        let path = name_path(name)?;
        let file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NamespaceError::NotFound(name.to_owned()),
            // The unmounted file has mode 000, which root's capabilities alone get past.
            _ => NamespaceError::system(format!("open {}", path.display()), error),
        })?;
        // SAFETY: this request takes no argument; on anything but a namespace it fails.
        let kind = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) };
        if kind == libc::CLONE_NEWNET {
            Ok(Self { file: Arc::new(file) })
        } else {
            Err(NamespaceError::Stale(name.to_owned()))
        }
    }

    /// Creates a namespace and gives it a name, as `ip netns add` does.
    pub fn create_named(name: &str) -> Result<Self, NamespaceError> {
        name_path(name)?;
        let namespace = Self::anonymous()?;
        publish_all(&[(name, &namespace)])?;
        Ok(namespace)
    }
}

/// Names the namespaces: all of them, or none if a name is taken, the kernel refuses, or SIGINT,
/// SIGTERM or SIGHUP arrives meanwhile.
///
/// The signals are blocked in the calling thread only. If the program has other threads, the signal
/// may terminate the process, unless it has a handler.
pub fn publish_all(names: &[(&str, &NetNs)]) -> Result<(), NamespaceError> {
    let paths = names.iter().map(|(name, _)| name_path(name)).collect::<Result<Vec<_>, _>>()?;
    prepare_directory()?;
    let signals = BlockedTerminationSignals::new()
        .map_err(|error| NamespaceError::system("hold back signals", error))?;
    for (done, ((name, namespace), path)) in names.iter().zip(&paths).enumerate() {
        let published = match publish(name, namespace, path) {
            Ok(()) if signals.is_pending() => Err((done + 1, NamespaceError::Interrupted)),
            Ok(()) => Ok(()),
            Err(error) => Err((done, error)),
        };
        if let Err((made, error)) = published {
            for path in &paths[..made] {
                // A name that could not be removed is still listed and can be deleted later; the
                // first error is the relevant one.
                let _ = remove(path);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Removes a name, as `ip netns delete` does, or the stale file of one. The namespace continues to
/// exist while processes, sockets or handles are in it.
pub fn delete_named(name: &str) -> Result<(), NamespaceError> {
    let path = name_path(name)?;
    remove(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NamespaceError::NotFound(name.to_owned()),
        _ => NamespaceError::system(format!("remove {}", path.display()), error),
    })
}

/// Returns all names, sorted, including stale ones without a namespace.
pub fn list_named() -> Result<Vec<String>, NamespaceError> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(NamespaceError::system(format!("list {DIRECTORY}"), error)),
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

fn name_path(name: &str) -> Result<PathBuf, NamespaceError> {
    let usable = (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.contains(['/', '\0'])
        && !matches!(name, "." | "..");
    if usable {
        Ok(Path::new(DIRECTORY).join(name))
    } else {
        Err(NamespaceError::BadName(name.to_owned()))
    }
}

/// Creates the directory and makes it a shared mount, so that names appear and disappear in all
/// mount namespaces. Otherwise a service with private mounts would keep a deleted namespace alive.
fn prepare_directory() -> Result<(), NamespaceError> {
    let failed = |error| NamespaceError::system(format!("prepare {DIRECTORY}"), error);
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY).map_err(failed)?;
    // Two of these at once would stack two mounts; `ip netns` takes the same lock.
    let lock = File::open(DIRECTORY).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let share =
        || mount_change(DIRECTORY, MountPropagationFlags::SHARED | MountPropagationFlags::REC);
    let shared = match share() {
        // The directory is not a mount point yet.
        Err(Errno::INVAL) => mount_bind_recursive(DIRECTORY, DIRECTORY).and_then(|()| share()),
        other => other,
    };
    shared.map_err(|error| failed(error.into()))
}

fn publish(name: &str, namespace: &NetNs, path: &Path) -> Result<(), NamespaceError> {
    let failed = |error| NamespaceError::system(format!("make {}", path.display()), error);
    OpenOptions::new().write(true).create_new(true).mode(0o000).open(path).map_err(|error| {
        match error.kind() {
            io::ErrorKind::AlreadyExists => NamespaceError::Exists(name.to_owned()),
            _ => failed(error),
        }
    })?;
    let source = format!("/proc/thread-self/fd/{}", namespace.file.as_raw_fd());
    mount_bind(source, path).map_err(|error| {
        // Best effort: the failed mount is the error to report.
        let _ = fs::remove_file(path);
        failed(error.into())
    })
}

fn remove(path: &Path) -> io::Result<()> {
    loop {
        match unmount(path, UnmountFlags::DETACH) {
            Ok(()) => {} // once more, should several be stacked
            // Nothing is mounted there (any more).
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    fs::remove_file(path)
}

/// Termination signals blocked in this thread until dropped.
struct BlockedTerminationSignals {
    previous_mask: libc::sigset_t,
}

impl BlockedTerminationSignals {
    fn new() -> io::Result<Self> {
        // SAFETY: a signal set is plain data, for which all zero bytes are a valid
        // value; sigemptyset and sigaddset write only to the set of the call, and the
        // numbers are valid signals.
        let (ending, mut before) = unsafe {
            let mut ending: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut ending);
            for signal in TERMINATION_SIGNALS {
                libc::sigaddset(&raw mut ending, signal);
            }
            (ending, std::mem::zeroed::<libc::sigset_t>())
        };
        // SAFETY: both sets are valid for the length of the call.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ending, &raw mut before) }
        {
            0 => Ok(Self { previous_mask: before }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Returns true if a termination signal is pending that was not blocked before.
    fn is_pending(&self) -> bool {
        // SAFETY: as above, zero bytes are a valid set, and sigpending writes only to that set.
        let pending = unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&raw mut pending);
            pending
        };
        TERMINATION_SIGNALS.iter().any(|&signal| {
            // SAFETY: sigismember reads two sets that are valid, and the number is a valid signal.
            // Signals that were blocked before are left to the caller.
            unsafe {
                libc::sigismember(&raw const pending, signal) == 1
                    && libc::sigismember(&raw const self.previous_mask, signal) == 0
            }
        })
    }
}

impl Drop for BlockedTerminationSignals {
    fn drop(&mut self) {
        // SAFETY: the set is that of pthread_sigmask; the old one is not requested.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.previous_mask,
                std::ptr::null_mut(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "/", "a\0b", &"x".repeat(256)] {
            assert!(matches!(name_path(name), Err(NamespaceError::BadName(_))), "{name:?}");
        }
        assert_eq!(name_path("lab-1").unwrap(), Path::new("/run/netns/lab-1"));
        assert!(name_path(&"x".repeat(255)).is_ok());
    }

    #[test]
    fn an_unknown_name_is_reported() {
        let name = "no-such-namespace-here";
        assert!(matches!(NetNs::open_named(name), Err(NamespaceError::NotFound(_))));
    }

    #[test]
    fn blocked_signals_are_pending_and_the_mask_is_restored() {
        // On a thread of its own, so that other tests' masks are untouched.
        std::thread::spawn(|| {
            let outer = BlockedTerminationSignals::new().unwrap();
            assert!(!outer.is_pending());
            // SAFETY: sends a signal, which is held back, to this very thread.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
            assert!(outer.is_pending());
            // Inside, the signal was blocked by the caller already, so it is none of its business.
            let inner = BlockedTerminationSignals::new().unwrap();
            assert!(!inner.is_pending());
            drop(inner);
            assert!(outer.is_pending());
            // SAFETY: takes the pending signal away, so that dropping the guard
            // does not deliver it.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGHUP);
                let mut got = 0;
                libc::sigwait(&raw const set, &raw mut got);
                assert_eq!(got, libc::SIGHUP);
            }
            assert!(!outer.is_pending());
        })
        .join()
        .unwrap();
    }
}
