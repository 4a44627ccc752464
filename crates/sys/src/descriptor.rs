//! Helpers for system calls on file descriptors: conversion of -1 to an error, socket options, and
//! waiting.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

/// Converts the -1 of a system call to the error in `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes over the descriptor that the parent program passed under this number, if it is a wanted
/// one. Call it at most once for each number.
///
/// # Errors
///
/// `InvalidInput` for any other descriptor, which is left open.
pub(crate) fn inherited(
    number: RawFd,
    is_wanted: impl FnOnce(BorrowedFd<'_>) -> bool,
) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; a number that is no descriptor is an error.
    let is_open = number >= 3 && unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
    if !is_open {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is open, and the program that started this one left it for this call, unless it is
    // of another kind; then it is left open.
    let descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    if !is_wanted(descriptor.as_fd()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fcntl_setfd(&*descriptor, FdFlags::CLOEXEC)?;
    Ok(ManuallyDrop::into_inner(descriptor))
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

/// Sets a socket option to a value that the kernel reads as plain bytes.
pub(crate) fn set_option<T: ?Sized>(
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
            size_of_val(value) as libc::socklen_t,
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
    let mut words = [[0; 4]; N];
    get_option_bytes(socket, level, name, words.as_flattened_mut())?;
    Ok(words.map(u32::from_ne_bytes))
}

/// Reads a socket option into `bytes`; returns its length.
pub(crate) fn get_option_bytes(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the pointer and length are those of `bytes`, in which any bytes are valid.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(length as usize)
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
