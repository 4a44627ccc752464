//! Helpers for system calls on file descriptors: conversion of -1 to an error, socket options, and
//! waiting.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Converts the -1 of a system call to the error in `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Checks the result of a system call that returns a new descriptor, which the caller then owns.
///
/// # Safety
///
/// `result` is what a call that creates a descriptor returned just now, and nothing else owns it.
pub(crate) unsafe fn check_new(result: libc::c_int) -> io::Result<OwnedFd> {
    let descriptor = check(result)?;
    // SAFETY: the caller guarantees that this open descriptor is new and has no owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Passes the descriptor `from`, which must stay open until the program starts, to the program
/// under the number `number`, which no other passed descriptor may have.
pub(crate) fn pass_descriptor(command: &mut Command, from: RawFd, number: RawFd) -> &mut Command {
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed;
    // it makes one system call on numbers and allocates nothing. dup2 leaves a descriptor alone
    // that has the number already, so that its close-on-exec flag is cleared instead.
    unsafe {
        command.pre_exec(move || {
            let made = if from == number {
                libc::fcntl(from, libc::F_SETFD, 0)
            } else {
                libc::dup2(from, number)
            };
            check(made).map(drop)
        })
    }
}

/// Sets a socket option to a value that the kernel reads as the plain bytes of `T`.
pub(crate) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and length are those of `value`, which outlives the call; the kernel only
    // reads it.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads a socket option made of `N` 32-bit numbers. The kernel may return fewer; the rest stay 0.
pub(crate) fn get_option<const N: usize>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<[u32; N]> {
    let mut value = [0u32; N];
    let mut length = size_of::<[u32; N]>() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `value`, in which any bytes are valid.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Waits up to `wait`, with nanosecond resolution, for one of the poll `events`; returns true if
/// one occurred. A signal ends the wait like a timeout.
pub(crate) fn wait_for(
    descriptor: BorrowedFd<'_>,
    events: PollFlags,
    wait: Duration,
) -> io::Result<bool> {
    wait_for_any([descriptor], events, wait)
}

/// Waits like [`wait_for`] for any of several descriptors.
pub(crate) fn wait_for_any<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    events: PollFlags,
    wait: Duration,
) -> io::Result<bool> {
    let mut entries = descriptors.map(|one| PollFd::from_borrowed_fd(one, events));
    match poll(&mut entries, Some(&timespec(wait))) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Converts a duration to a `timespec`, saturating at the range of seconds.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
