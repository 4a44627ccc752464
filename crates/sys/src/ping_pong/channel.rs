//! Channel between the two sides of a ping-pong: a shared page, and pipes or eventfds.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ReadAndWriteEnds;
use crate::descriptor::{check, check_new};

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

/// Page shared by both sides, even after a fork.
#[derive(Debug)]
struct SharedPage(NonNull<HandoffWords>);

#[derive(Debug)]
#[repr(C)]
struct HandoffWords {
    readiness: AtomicU32,
    turn: AtomicU32,
}

// SAFETY: the page is mapped until the value is dropped and is reached through atomics alone.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    fn map() -> io::Result<Self> {
        // SAFETY: a fresh mapping, at an address that the kernel chooses; all bytes are zero, which
        // is valid for the words, and it is aligned to a page.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<HandoffWords>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast()).map(Self).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    fn words(&self) -> &HandoffWords {
        // SAFETY: mapped and aligned by `map`, until `self` is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<HandoffWords>()) };
    }
}

/// Channel of both sides; each side writes to the pair that the other reads.
#[derive(Debug)]
pub(super) struct HandoffChannel {
    mechanism: HandoffMechanism,
    page: SharedPage,
    /// True if both sides are threads of one process.
    private: bool,
    /// Pairs of the forward and the backward direction.
    pairs: Option<[ReadAndWriteEnds; 2]>,
}

impl HandoffChannel {
    pub(super) fn open(mechanism: HandoffMechanism, private: bool) -> io::Result<Self> {
        let pairs = match mechanism {
            HandoffMechanism::Yield | HandoffMechanism::Futex => None,
            HandoffMechanism::Pipe => Some([pipe_ends()?, pipe_ends()?]),
            HandoffMechanism::EventFd => Some([eventfd_ends()?, eventfd_ends()?]),
        };
        Ok(Self { mechanism, page: SharedPage::map()?, private, pairs })
    }

    /// Returns the readiness of the peer, or its error, once reported.
    pub(super) fn readiness(&self) -> Option<io::Result<()>> {
        match self.page.words().readiness.load(Ordering::Acquire) {
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
        self.page.words().readiness.store(value, Ordering::Release);
    }

    #[inline]
    pub(super) fn turn(&self) -> io::Result<()> {
        match (&self.mechanism, &self.pairs) {
            (HandoffMechanism::Futex, _) => {
                let word = &self.page.words().turn;
                word.store(PEER_TURN, Ordering::Release);
                self.wake();
                self.wait_while(PEER_TURN)
            }
            (_, Some([there, back])) => {
                write_value(&there.1, TURN_VALUE)?;
                read_value(&back.0).map(drop)
            }
            _ => {
                yield_core();
                Ok(())
            }
        }
    }

    /// Makes the system calls of one side without a peer.
    #[inline]
    pub(super) fn baseline_calls(&self) -> io::Result<()> {
        match (&self.mechanism, &self.pairs) {
            (HandoffMechanism::Futex, _) => {
                let word = &self.page.words().turn;
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
                yield_core();
                Ok(())
            }
        }
    }

    /// Runs the peer's side until it is stopped.
    pub(super) fn serve_turns(&self) {
        let word = &self.page.words().turn;
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
                    yield_core();
                }
            }
        }
    }

    /// Makes the peer end.
    pub(super) fn stop(&self) {
        self.page.words().turn.store(STOPPED, Ordering::Release);
        self.wake();
        if let Some([there, _]) = &self.pairs {
            // The write cannot block: no turn is in progress, or the peer has ended.
            let _ = write_value(&there.1, STOP_VALUE);
        }
    }

    fn wake(&self) {
        // SAFETY: a word that outlives the call; one waiter at most.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.page.words().turn.as_ptr(),
                libc::FUTEX_WAKE | self.futex_flag(),
                1,
            )
        };
    }

    /// Waits while the turn word has this value.
    #[inline]
    fn wait_while(&self, value: u32) -> io::Result<()> {
        while self.page.words().turn.load(Ordering::Acquire) == value {
            self.wait_once(value)?;
        }
        Ok(())
    }

    #[inline]
    fn wait_once(&self, value: u32) -> io::Result<()> {
        // SAFETY: a word that outlives the call, and no timeout.
        let result = check(unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.page.words().turn.as_ptr(),
                libc::FUTEX_WAIT | self.futex_flag(),
                value,
                std::ptr::null::<libc::timespec>(),
            ) as libc::c_int
        });
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            // The word had another value, or this side was woken: the caller checks.
            _ => Ok(()),
        }
    }

    const fn futex_flag(&self) -> libc::c_int {
        if self.private { libc::FUTEX_PRIVATE_FLAG } else { 0 }
    }
}

#[inline]
fn yield_core() {
    // SAFETY: no argument; on Linux it always succeeds.
    unsafe { libc::sched_yield() };
}

/// Returns the read end and the write end of a new pipe.
fn pipe_ends() -> io::Result<ReadAndWriteEnds> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are new and without another owner.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Returns two descriptors of a new eventfd.
fn eventfd_ends() -> io::Result<ReadAndWriteEnds> {
    // SAFETY: numbers in, a new descriptor out, owned from here on.
    let event = unsafe { check_new(libc::eventfd(0, libc::EFD_CLOEXEC)) }?;
    Ok((event.try_clone()?, event))
}

/// Writes 8 bytes, which both a pipe and an eventfd accept.
#[inline]
fn write_value(end: &OwnedFd, value: u64) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`.
    let written = unsafe {
        libc::write(end.as_raw_fd(), std::ptr::from_ref(&value).cast(), size_of::<u64>())
    };
    if written == 8 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[inline]
fn read_value(end: &OwnedFd) -> io::Result<u64> {
    let mut value = 0_u64;
    // SAFETY: the pointer and the length are those of `value`, in which any bytes are valid.
    let read = unsafe {
        libc::read(end.as_raw_fd(), std::ptr::from_mut(&mut value).cast(), size_of::<u64>())
    };
    match read {
        8 => Ok(value),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
