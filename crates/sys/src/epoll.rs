//! Waiting for any of many descriptors with epoll(7), level-triggered, for reading and optionally
//! for writing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;

use crate::descriptor::{timespec, wait_for};

/// Set of descriptors to wait for.
pub struct Epoll {
    descriptor: OwnedFd,
    events: Box<[Event]>,
}

// SAFETY: the events carry tokens alone, although they could carry pointers.
unsafe impl Send for Epoll {}

impl Epoll {
    /// Creates an empty set that reports up to `slots` descriptors at a time.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new(slots: usize) -> io::Result<Self> {
        let descriptor = epoll::create(CreateFlags::CLOEXEC)?;
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        Ok(Self { descriptor, events: vec![none; slots].into_boxed_slice() })
    }

    /// Adds a descriptor, reported as `token` when it is readable. Closing the descriptor removes
    /// it.
    pub fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.add_for(descriptor, EventFlags::IN, token)
    }

    /// Adds a descriptor, reported when it is readable, that several sets wait for; of the threads
    /// that block in [`Epoll::wait_in_milliseconds`], about one is woken for each event
    /// (`EPOLLEXCLUSIVE`).
    pub fn add_shared(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.add_for(descriptor, EventFlags::IN | EventFlags::EXCLUSIVE, token)
    }

    /// Enables or disables reports of writability for a descriptor in the set.
    pub fn watch_write(
        &self,
        descriptor: BorrowedFd<'_>,
        token: u64,
        write: bool,
    ) -> io::Result<()> {
        let write = if write { EventFlags::OUT } else { EventFlags::empty() };
        let events = EventFlags::IN | write;
        Ok(epoll::modify(&self.descriptor, descriptor, EventData::new_u64(token), events)?)
    }

    /// Removes a descriptor from the set.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.descriptor, descriptor)?)
    }

    fn add_for(
        &self,
        descriptor: BorrowedFd<'_>,
        events: EventFlags,
        token: u64,
    ) -> io::Result<()> {
        Ok(epoll::add(&self.descriptor, descriptor, EventData::new_u64(token), events)?)
    }

    /// Waits like [`Epoll::wait`], with the timeout rounded up to milliseconds, or without a
    /// timeout for `None`; one system call instead of three.
    pub fn wait_in_milliseconds(
        &mut self,
        wait: Option<Duration>,
    ) -> io::Result<impl Iterator<Item = u64>> {
        // Longer than epoll_wait(2) can wait is an error.
        let timeout = wait.map(|wait| timespec(wait.min(Duration::from_millis(i32::MAX as u64))));
        let ready = match self.collect_events(timeout.as_ref()) {
            Err(Errno::INTR) => 0,
            other => other?,
        };
        Ok(self.events[..ready].iter().map(|event| event.data.u64()))
    }

    /// Waits up to `wait`, with nanosecond resolution, until a descriptor is ready; returns the
    /// tokens of the ready ones. Empty after a timeout or a signal.
    pub fn wait(&mut self, wait: Duration) -> io::Result<impl Iterator<Item = u64>> {
        let mut ready = self.collect_ready()?;
        // The timeout of epoll_wait(2) is in milliseconds; ppoll(2) on the epoll descriptor is
        // finer.
        if ready == 0 && !wait.is_zero() && wait_for(self.descriptor.as_fd(), PollFlags::IN, wait)?
        {
            ready = self.collect_ready()?;
        }
        Ok(self.events[..ready].iter().map(|event| event.data.u64()))
    }

    fn collect_ready(&mut self) -> io::Result<usize> {
        Ok(self.collect_events(Some(&timespec(Duration::ZERO)))?)
    }

    fn collect_events(&mut self, timeout: Option<&Timespec>) -> Result<usize, Errno> {
        epoll::wait(&self.descriptor, &mut self.events[..], timeout)
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
