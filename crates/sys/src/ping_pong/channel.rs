//! Channel between the two sides of a ping-pong: a shared page, and pipes or eventfds.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{futex, sched_yield};

use super::ReadAndWriteEnds;
use crate::shared_mapping::SharedMapping;

/// Mechanism that passes the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandoffMechanism {
    /// `sched_yield`: both sides are always runnable, and yield to each other.
    Yield,
    /// One pipe in each direction.
    Pipe,
    /// futex(2) on a word in shared memory.
    Futex,
    /// One eventfd in each direction.
    EventFd,
}

/// Values of the turn word: whose turn it is, or that the ping-pong is stopped.
const CALLER_TURN: u32 = 0;
const PEER_TURN: u32 = 1;
const STOPPED: u32 = 2;
/// Values written to a descriptor: a turn, or stop.
const TURN_VALUE: u64 = 1;
const STOP_VALUE: u64 = 1 << 8;
/// Values of the readiness word: 0 not yet, ready, or failed with the error number in the upper
/// bits.
const READY: u32 = 1;
const FAILED: u32 = 2;

/// Channel of both sides; each side writes to the pair that the other reads.
#[derive(Debug)]
pub(super) struct HandoffChannel {
    mechanism: HandoffMechanism,
    /// Readiness word and turn word, in a page that both sides share even after a fork.
    words: SharedMapping<AtomicU32>,
    /// True if both sides are threads of one process.
    private: bool,
    /// Pairs of the forward and the backward direction.
    pairs: Option<[ReadAndWriteEnds; 2]>,
}

impl HandoffChannel {
    pub(super) fn open(mechanism: HandoffMechanism, private: bool) -> io::Result<Self> {
        let pairs = match mechanism {
            HandoffMechanism::Yield | HandoffMechanism::Futex => None,
            HandoffMechanism::Pipe => {
                let flags = PipeFlags::CLOEXEC;
                Some([pipe_with(flags)?, pipe_with(flags)?])
            }
            HandoffMechanism::EventFd => Some([eventfd_ends()?, eventfd_ends()?]),
        };
        Ok(Self { mechanism, words: SharedMapping::map(None, 2)?, private, pairs })
    }

    /// Returns the readiness of the peer, or its error, once reported.
    pub(super) fn readiness(&self) -> Option<io::Result<()>> {
        match self.readiness_word().load(Ordering::Acquire) {
            0 => None,
            READY => Some(Ok(())),
            refused => Some(Err(io::Error::from_raw_os_error((refused >> 2) as i32))),
        }
    }

    /// Reports the peer's readiness, or the error that prevents it.
    pub(super) fn report_readiness(&self, error: Option<i32>) {
        let value = match error {
            None => READY,
            Some(number) => {
                let number = if number == 0 { libc::EINVAL } else { number };
                (number as u32) << 2 | FAILED
            }
        };
        self.readiness_word().store(value, Ordering::Release);
    }

    #[inline]
    pub(super) fn turn(&self) -> io::Result<()> {
        match (&self.mechanism, &self.pairs) {
            (HandoffMechanism::Futex, _) => {
                let word = self.turn_word();
                word.store(PEER_TURN, Ordering::Release);
                self.wake();
                self.wait_while(PEER_TURN)
            }
            (_, Some([there, back])) => {
                write_value(&there.1, TURN_VALUE)?;
                read_value(&back.0).map(drop)
            }
            _ => {
                sched_yield();
                Ok(())
            }
        }
    }

    /// Makes the system calls of one side without a peer.
    #[inline]
    pub(super) fn baseline_calls(&self) -> io::Result<()> {
        match (&self.mechanism, &self.pairs) {
            (HandoffMechanism::Futex, _) => {
                let word = self.turn_word();
                word.store(CALLER_TURN, Ordering::Release);
                self.wake();
                // The kernel finds another value than this one and does not wait.
                self.wait_once(PEER_TURN)
            }
            (_, Some([there, _])) => {
                write_value(&there.1, TURN_VALUE)?;
                read_value(&there.0).map(drop)
            }
            _ => {
                sched_yield();
                Ok(())
            }
        }
    }

    /// Runs the peer's side until it is stopped.
    pub(super) fn serve_turns(&self) {
        let word = self.turn_word();
        match (&self.mechanism, &self.pairs) {
            (HandoffMechanism::Futex, _) => loop {
                // A signal that ends the wait begins it again.
                let _ = self.wait_while(CALLER_TURN);
                // Does not overwrite the value of stop, which may arrive at any time.
                let order = (Ordering::AcqRel, Ordering::Acquire);
                match word.compare_exchange(PEER_TURN, CALLER_TURN, order.0, order.1) {
                    Ok(_) => self.wake(),
                    Err(STOPPED) => return,
                    Err(_) => {}
                }
            },
            (_, Some([there, back])) => loop {
                match read_value(&there.0) {
                    Ok(TURN_VALUE) => {
                        if write_value(&back.1, TURN_VALUE).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    _ => return,
                }
            },
            _ => {
                while word.load(Ordering::Relaxed) != STOPPED {
                    sched_yield();
                }
            }
        }
    }

    /// Makes the peer end.
    pub(super) fn stop(&self) {
        self.turn_word().store(STOPPED, Ordering::Release);
        self.wake();
        if let Some([there, _]) = &self.pairs {
            // The write cannot block: no turn is in progress, or the peer has ended.
            let _ = write_value(&there.1, STOP_VALUE);
        }
    }

    fn wake(&self) {
        // One waiter at most.
        let _ = futex::wake(self.turn_word(), self.futex_flags(), 1);
    }

    /// Waits while the turn word has this value.
    #[inline]
    fn wait_while(&self, value: u32) -> io::Result<()> {
        while self.turn_word().load(Ordering::Acquire) == value {
            self.wait_once(value)?;
        }
        Ok(())
    }

    #[inline]
    fn wait_once(&self, value: u32) -> io::Result<()> {
        match futex::wait(self.turn_word(), self.futex_flags(), value, None) {
            Err(Errno::INTR) => Err(Errno::INTR.into()),
            // The word had another value, or this side was woken: the caller checks.
            _ => Ok(()),
        }
    }

    const fn futex_flags(&self) -> futex::Flags {
        if self.private { futex::Flags::PRIVATE } else { futex::Flags::empty() }
    }

    fn readiness_word(&self) -> &AtomicU32 {
        &self.words.words()[0]
    }

    #[inline]
    fn turn_word(&self) -> &AtomicU32 {
        &self.words.words()[1]
    }
}

/// Returns two descriptors of a new eventfd.
fn eventfd_ends() -> io::Result<ReadAndWriteEnds> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    Ok((event.try_clone()?, event))
}

/// Writes 8 bytes, which both a pipe and an eventfd accept.
#[inline]
fn write_value(end: &OwnedFd, value: u64) -> io::Result<()> {
    match write(end, &value.to_ne_bytes())? {
        8 => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[inline]
fn read_value(end: &OwnedFd) -> io::Result<u64> {
    let mut value = [0; size_of::<u64>()];
    match read(end, &mut value)? {
        8 => Ok(u64::from_ne_bytes(value)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
