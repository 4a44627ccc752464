//! Zero-copy transmission (`MSG_ZEROCOPY`; Linux, `Documentation/networking/msg_zerocopy.rst`): the
//! kernel reads from the program's pages and reports in the socket's error queue when it no longer
//! needs them. One constant payload is sent repeatedly.

use std::io;
use std::mem::size_of;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::descriptor::wait_for;

/// Origin of a notification (`SO_EE_ORIGIN_ZEROCOPY` in linux/errqueue.h).
const ORIGIN_ZERO_COPY: u8 = 5;
/// Code of a send whose data the kernel copied after all (`SO_EE_CODE_ZEROCOPY_COPIED`).
const CODE_COPIED: u8 = 1;
/// Most pending sends; the kernel refuses more when its memory for notifications is exhausted.
const PENDING_MAX: u32 = 1_024;
/// Timeout of the final wait for the kernel's completions.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// Sender of one payload over a TCP connection without copies.
#[derive(Debug)]
pub struct ZeroCopySender<'a> {
    stream: &'a TcpStream,
    payload: Option<Box<[u8]>>,
    sent: u32,
    completed: u32,
    copied: u32,
}

impl<'a> ZeroCopySender<'a> {
    /// Enables zero-copy transmission on the stream (`SO_ZEROCOPY`).
    ///
    /// # Errors
    ///
    /// Of setsockopt(2), if the kernel does not support it.
    pub fn new(stream: &'a TcpStream, payload: Box<[u8]>) -> io::Result<Self> {
        super::allow_zero_copy(stream)?;
        Ok(Self { stream, payload: Some(payload), sent: 0, completed: 0, copied: 0 })
    }

    /// Sends the payload from offset `from` on, as far as there is room; returns the number of
    /// bytes. Blocks like the stream.
    pub fn send(&mut self, from: usize) -> io::Result<usize> {
        if self.pending() >= PENDING_MAX {
            self.read_notifications(COMPLETION_TIMEOUT)?;
        }
        loop {
            let payload = self.payload.as_deref().unwrap_or_default();
            let bytes = payload.get(from..).unwrap_or_default();
            // SAFETY: the pointer and length are those of a payload that is never written to, and
            // that is freed only when the kernel has reported that it needs it no more (see
            // `Drop`).
            let sent = unsafe {
                libc::send(
                    self.stream.as_raw_fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL,
                )
            };
            if let Ok(sent) = usize::try_from(sent) {
                self.sent = self.sent.wrapping_add(1);
                self.read_notifications(Duration::ZERO)?;
                return Ok(sent);
            }
            let error = io::Error::last_os_error();
            // No memory for another notification: pending ones have to be read first.
            if error.raw_os_error() != Some(libc::ENOBUFS)
                || !self.read_notifications(COMPLETION_TIMEOUT)?
            {
                return Err(error);
            }
        }
    }

    /// Returns the number of completed sends, and of those that the kernel copied after all, as on
    /// loopback or without driver support; modulo 2^32.
    #[must_use]
    pub const fn completions(&self) -> (u32, u32) {
        (self.completed, self.copied)
    }

    /// Waits until the kernel has completed all sends, but no longer than [`COMPLETION_TIMEOUT`],
    /// which is no error.
    pub fn finish(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while self.pending() > 0 && begun.elapsed() < COMPLETION_TIMEOUT {
            self.read_notifications(COMPLETION_TIMEOUT)?;
        }
        Ok(())
    }

    const fn pending(&self) -> u32 {
        self.sent.wrapping_sub(self.completed)
    }

    /// Reads all pending notifications, waiting up to `wait` for the first; returns true if there
    /// was one.
    fn read_notifications(&mut self, wait: Duration) -> io::Result<bool> {
        let before = self.completed;
        loop {
            match receive_notification(self.stream) {
                Ok(Some(notification)) => {
                    self.completed = self.completed.wrapping_add(notification.sends);
                    if notification.copied {
                        self.copied = self.copied.wrapping_add(notification.sends);
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.completed != before || wait.is_zero() {
                        return Ok(self.completed != before);
                    }
                    // A non-empty error queue always reports `POLLERR`.
                    if !wait_for(self.stream.as_fd(), PollFlags::ERR, wait)? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for ZeroCopySender<'_> {
    fn drop(&mut self) {
        // Errors are irrelevant at this point.
        let _ = self.finish();
        if self.pending() > 0 {
            // The kernel may still read the payload, so it is never freed.
            std::mem::forget(self.payload.take());
        }
    }
}

/// Notification of completed sends.
struct SendCompletion {
    sends: u32,
    copied: bool,
}

/// Buffer for a control message with an extended error and the address after it.
#[repr(C, align(8))]
struct ErrorControlBuffer([u8; 128]);

fn receive_notification(stream: &TcpStream) -> io::Result<Option<SendCompletion>> {
    let mut room = ErrorControlBuffer([0; 128]);
    // SAFETY: a plain C structure of numbers and pointers, for which all bytes zero is valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = room.0.as_mut_ptr().cast();
    header.msg_controllen = room.0.len() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to room that outlives the call, with its length.
    let result = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut header, flags) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let used = room.0.len().min(header.msg_controllen as _);
    Ok(parse_notification(room.0.get(..used).unwrap_or_default()))
}

/// Returns the first control message, if it is a notification.
fn parse_notification(control: &[u8]) -> Option<SendCompletion> {
    // The payload begins where the header ends, which is a multiple of its alignment.
    let error = control.get(size_of::<libc::cmsghdr>()..)?;
    let word = |at: usize| Some(u32::from_ne_bytes(*error.get(at..)?.first_chunk()?));
    // struct sock_extended_err: errno 0..4, origin 4, type 5, code 6, pad 7, info 8..12, data
    // 12..16
    let (origin, code) = (*error.get(4)?, *error.get(6)?);
    let (first, last) = (word(8)?, word(12)?);
    let sends = last.wrapping_sub(first).wrapping_add(1);
    (origin == ORIGIN_ZERO_COPY)
        .then_some(SendCompletion { sends, copied: code & CODE_COPIED != 0 })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::thread;

    use super::super::tests::pair;
    use super::*;

    #[test]
    fn all_bytes_arrive_and_the_kernel_reports_each_send() {
        const SENDS: usize = 50;
        let (near, mut far) = pair();
        let payload: Box<[u8]> = (0..100_000_u32).map(|at| at as u8).collect();
        let expected = payload.to_vec();
        let reader = thread::spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            received
        });
        let mut sender = ZeroCopySender::new(&near, payload).unwrap();
        for _ in 0..SENDS {
            let mut from = 0;
            while from < expected.len() {
                from += sender.send(from).unwrap();
            }
        }
        sender.finish().unwrap();
        assert_eq!(sender.pending(), 0);
        let (completed, copied) = sender.completions();
        assert!(completed as usize >= SENDS && copied <= completed);
        drop(sender);
        drop(near);
        let received = reader.join().unwrap();
        assert!(received.chunks(expected.len()).all(|chunk| chunk == expected));
        assert_eq!(received.len(), SENDS * expected.len());
    }

    #[test]
    fn other_messages_are_no_notifications() {
        assert!(
            parse_notification(&[]).is_none()
                && parse_notification(&[0; 20]).is_none()
                && parse_notification(&[0; 64]).is_none()
        );
    }
}
