//! Starting a program as fast as the system can (`posix_spawn(3)`), with all signals let through
//! and none ignored that this process ignores for itself, and waiting for its end. The standard
//! library's way hands on the signals that a thread keeps back, or forks the whole process.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;

use crate::descriptor::check;
use crate::signal::{change_mask, signal_set};

unsafe extern "C" {
    static environ: *const *mut libc::c_char;
}

/// A program that was started and not yet waited for.
#[derive(Debug)]
pub struct Started {
    pid: libc::pid_t,
}

/// Attributes of a program to start, freed in the end.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new(own_group: bool) -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: it initialises what it is given.
        errno(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: initialised above.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        let mut flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        if own_group {
            flags |= libc::POSIX_SPAWN_SETPGROUP;
        }
        let (none, pipe) = (signal_set([]), signal_set([libc::SIGPIPE]));
        let attributes_of = &raw mut attributes.0;
        // SAFETY: initialised attributes, initialised sets that are only read, and numbers; group
        // 0 is a new one.
        unsafe {
            errno(libc::posix_spawnattr_setsigmask(attributes_of, &raw const none))?;
            errno(libc::posix_spawnattr_setsigdefault(attributes_of, &raw const pipe))?;
            errno(libc::posix_spawnattr_setpgroup(attributes_of, 0))?;
            errno(libc::posix_spawnattr_setflags(attributes_of, flags as libc::c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised, and not used after; it cannot fail.
        let _ = unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// Starts a program by its name, which is looked for in `PATH`, or its path. It has been executed
/// when this returns. `own_group` makes it the leader of a group of processes.
///
/// # Errors
///
/// Of `execve(2)`: `NotFound`, `PermissionDenied`; `InvalidInput` where a word has a zero in it.
pub fn start<'a>(
    program: &'a OsStr,
    arguments: impl IntoIterator<Item = &'a OsString>,
    own_group: bool,
) -> io::Result<Started> {
    let arguments = arguments.into_iter().map(OsString::as_os_str);
    let words = std::iter::once(program).chain(arguments).map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let Some(name) = words.first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(null_mut());
    let attributes = Attributes::new(own_group)?;
    let mut pid = 0;
    // SAFETY: words that end with a zero and a list of them that ends with a null pointer,
    // attributes and a place for the number, all alive for the call; the environment is that of
    // this process, which nobody changes meanwhile.
    errno(unsafe {
        libc::posix_spawnp(
            &raw mut pid,
            name.as_ptr(),
            std::ptr::null(),
            &raw const attributes.0,
            pointers.as_ptr(),
            environ,
        )
    })?;
    Ok(Started { pid })
}

impl Started {
    /// Its number, which is its own until it has been waited for.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits for its end.
    pub fn wait(self) -> io::Result<ExitStatus> {
        let mut status = 0;
        loop {
            // SAFETY: a number and a place for the status.
            match check(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }) {
                Ok(_) => return Ok(ExitStatus::from_raw(status)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Lets all signals through to this thread, as before a program takes the place of this one.
pub fn let_signals_through() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &signal_set([]))
}

/// The error of calls that return it.
fn errno(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::signal_group;
    use crate::signal::{BlockedSignals, Signal};

    fn run(words: &[&str]) -> ExitStatus {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        start(&words[0], &words[1..], false).unwrap().wait().unwrap()
    }

    #[test]
    fn a_program_is_started_with_its_arguments_and_waited_for() {
        assert_eq!(run(&["sh", "-c", "exit $#", "sh", "a", "b c"]).code(), Some(2));
        assert_eq!(run(&["/bin/sh", "-c", "kill -9 $$"]).signal(), Some(9));
        let missing = start(OsStr::new("/nowhere/at/all"), [], false).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let zero = start(OsStr::new("a\0b"), [], false).unwrap_err();
        assert_eq!(zero.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn signals_that_a_thread_keeps_back_reach_what_it_starts() {
        std::thread::spawn(|| {
            let _blocked = BlockedSignals::block(&[Signal::Terminate]).unwrap();
            let words = [OsString::from("60")];
            let sleep = start(OsStr::new("sleep"), &words, true).unwrap();
            signal_group(sleep.pid(), Signal::Terminate).unwrap();
            assert_eq!(sleep.wait().unwrap().signal(), Some(libc::SIGTERM));
        })
        .join()
        .unwrap();
    }
}
