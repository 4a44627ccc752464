//! Waiting for any of many descriptors with epoll(7), level-triggered, for reading and optionally
//! for writing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::descriptor::{check, check_new, wait_for};

/// Set of descriptors to wait for.
pub struct Epoll {
    descriptor: OwnedFd,
    events: Box<[libc::epoll_event]>,
}

impl Epoll {
    /// Creates an empty set that reports up to `slots` descriptors at a time.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new(slots: usize) -> io::Result<Self> {
        // SAFETY: one flag in, a new descriptor out, owned from here on.
        let descriptor = unsafe { check_new(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        let none = libc::epoll_event { events: 0, u64: 0 };
        Ok(Self { descriptor, events: vec![none; slots].into_boxed_slice() })
    }

    /// Adds a descriptor, reported as `token` when it is readable. Closing the descriptor removes
    /// it.
    pub fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, libc::EPOLLIN, token)
    }

    /// Adds a descriptor, reported when it is readable, that several sets wait for; of the threads
    /// that block in [`Epoll::wait_in_milliseconds`], about one is woken for each event
    /// (`EPOLLEXCLUSIVE`).
    pub fn add_shared(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, libc::EPOLLIN | libc::EPOLLEXCLUSIVE, token)
    }

    /// Enables or disables reports of writability for a descriptor in the set.
    pub fn watch_write(
        &self,
        descriptor: BorrowedFd<'_>,
        token: u64,
        write: bool,
    ) -> io::Result<()> {
        let write = if write { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, descriptor, libc::EPOLLIN | write, token)
    }

    /// Removes a descriptor from the set.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0)
    }

    fn control(
        &self,
        operation: libc::c_int,
        descriptor: BorrowedFd<'_>,
        events: libc::c_int,
        token: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: the event outlives the call; both descriptors are open.
        check(unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                operation,
                descriptor.as_raw_fd(),
                &raw mut event,
            )
        })
        .map(drop)
    }

    /// Waits like [`Epoll::wait`], with the timeout rounded up to milliseconds, or without a
    /// timeout for `None`; one system call instead of three.
    pub fn wait_in_milliseconds(
        &mut self,
        wait: Option<Duration>,
    ) -> io::Result<impl Iterator<Item = u64>> {
        let timeout = wait.map_or(-1, |wait| {
            libc::c_int::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        let ready = match self.collect_events(timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        Ok(self.events[..ready].iter().map(|event| event.u64))
    }

    /// Waits up to `wait`, with nanosecond resolution, until a descriptor is ready; returns the
    /// tokens of the ready ones. Empty after a timeout or a signal.
    pub fn wait(&mut self, wait: Duration) -> io::Result<impl Iterator<Item = u64>> {
        let mut ready = self.collect_ready()?;
        // The timeout of epoll_wait(2) is in milliseconds; ppoll(2) on the epoll descriptor is
        // finer.
        if ready == 0 && !wait.is_zero() && wait_for(self.descriptor.as_fd(), libc::POLLIN, wait)? {
            ready = self.collect_ready()?;
        }
        Ok(self.events[..ready].iter().map(|event| event.u64))
    }

    fn collect_ready(&mut self) -> io::Result<usize> {
        self.collect_events(0)
    }

    fn collect_events(&mut self, timeout_ms: libc::c_int) -> io::Result<usize> {
        // SAFETY: room for as many events as are announced, alive for the call.
        check(unsafe {
            libc::epoll_wait(
                self.descriptor.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                timeout_ms,
            )
        })
        .map(|ready| ready as usize)
    }
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoll").field("slots", &self.events.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_readable_one_is_named() {
        let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut epoll = Epoll::new(8).unwrap();
        for (token, socket) in (7..).zip(&sockets) {
            epoll.add(socket.as_fd(), token).unwrap();
        }
        assert_eq!(epoll.wait(Duration::from_micros(10)).unwrap().count(), 0);
        sockets[0].send_to(b"x", sockets[1].local_addr().unwrap()).unwrap();
        let ready: Vec<_> = epoll.wait(Duration::from_secs(1)).unwrap().collect();
        assert_eq!(ready, [8]);
    }
}
