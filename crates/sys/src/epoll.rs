//! Waiting for any of many descriptors: epoll(7), level-triggered, for reading.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::descriptor::{check, check_new, wait_for};

/// A set of descriptors to wait for.
pub struct Epoll {
    descriptor: OwnedFd,
    events: Box<[libc::epoll_event]>,
}

impl Epoll {
    /// An empty set that reports up to `slots` descriptors at a time.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn new(slots: usize) -> io::Result<Self> {
        // SAFETY: one flag in, a new descriptor out, owned from here on.
        let descriptor = unsafe { check_new(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        let none = libc::epoll_event { events: 0, u64: 0 };
        Ok(Self { descriptor, events: vec![none; slots].into_boxed_slice() })
    }

    /// Adds a descriptor, to be reported by `token`. It leaves the set when it is closed.
    pub fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: the event outlives the call; both descriptors are open.
        check(unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor.as_raw_fd(),
                &raw mut event,
            )
        })
        .map(drop)
    }

    /// Waits up to `wait`, in nanosecond steps, until at least one descriptor can be
    /// read, and gives the tokens of those that can. None came if the time is over or a
    /// signal ended the wait.
    pub fn wait(&mut self, wait: Duration) -> io::Result<impl Iterator<Item = u64>> {
        let mut ready = self.poll()?;
        // epoll_wait(2) counts in milliseconds; an epoll descriptor itself can
        // be polled more finely.
        if ready == 0 && !wait.is_zero() && wait_for(self.descriptor.as_fd(), libc::POLLIN, wait)? {
            ready = self.poll()?;
        }
        Ok(self.events[..ready].iter().map(|event| event.u64))
    }

    fn poll(&mut self) -> io::Result<usize> {
        // SAFETY: room for as many events as are announced, alive for the call.
        check(unsafe {
            libc::epoll_wait(
                self.descriptor.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                0,
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
