//! Handoff channel of two sides: a shared page, and descriptors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ChannelEnds;
use crate::descriptor::{check, check_new};

/// Mechanism of handing over a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handoff {
    /// `sched_yield`: both are ready to run all the time, and yield to each other.
    Yield,
    /// Byte through a pipe forward and another one backward.
    Pipe,
    /// Word in shared memory, and futex(2) to wait for it.
    Futex,
    /// Count through an eventfd forward and another one backward.
    EventFd,
}

/// Owner of the turn, in the word.
const CALLER: u32 = 0;
const PEER: u32 = 1;
const OVER: u32 = 2;
/// Content of a descriptor: a turn, or the end.
const TURN: u64 = 1;
const END: u64 = 1 << 8;
/// Values of the word of readiness: not yet, ready, or an error and its number above.
const READY: u32 = 1;
const REFUSED: u32 = 2;

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

/// Channel of both sides: the first pair of one side is the second of the other.
#[derive(Debug)]
pub(super) struct Channel {
    way: Handoff,
    page: SharedPage,
    /// True if both sides are threads of one process.
    private: bool,
    /// Forward and backward pairs.
    pairs: Option<[ChannelEnds; 2]>,
}

impl Channel {
    pub(super) fn open(way: Handoff, private: bool) -> io::Result<Self> {
        let pairs = match way {
            Handoff::Yield | Handoff::Futex => None,
            Handoff::Pipe => Some([pipe()?, pipe()?]),
            Handoff::EventFd => Some([event()?, event()?]),
        };
        Ok(Self { way, page: SharedPage::map()?, private, pairs })
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
    pub(super) fn be_ready(&self, error: Option<i32>) {
        let value = match error {
            None => READY,
            Some(number) => {
                let number = if number == 0 { libc::EINVAL } else { number };
                (number as u32) << 2 | REFUSED
            }
        };
        self.page.words().readiness.store(value, Ordering::Release);
    }

    #[inline]
    pub(super) fn turn(&self) -> io::Result<()> {
        match (&self.way, &self.pairs) {
            (Handoff::Futex, _) => {
                let word = &self.page.words().turn;
                word.store(PEER, Ordering::Release);
                self.wake();
                self.wait_while(PEER)
            }
            (_, Some([there, back])) => {
                put(&there.1, TURN)?;
                get(&back.0).map(drop)
            }
            _ => {
                give_way();
                Ok(())
            }
        }
    }

    /// Makes the calls of one side without the other.
    #[inline]
    pub(super) fn baseline(&self) -> io::Result<()> {
        match (&self.way, &self.pairs) {
            (Handoff::Futex, _) => {
                let word = &self.page.words().turn;
                word.store(CALLER, Ordering::Release);
                self.wake();
                // The kernel finds another value than this one and does not wait.
                self.wait_once(PEER)
            }
            (_, Some([there, _])) => {
                put(&there.1, TURN)?;
                get(&there.0).map(drop)
            }
            _ => {
                give_way();
                Ok(())
            }
        }
    }

    /// Runs the peer's side until it is stopped.
    pub(super) fn answer(&self) {
        let word = &self.page.words().turn;
        match (&self.way, &self.pairs) {
            (Handoff::Futex, _) => loop {
                // A signal that ends the wait begins it again.
                let _ = self.wait_while(CALLER);
                // Never overwrites the word of the end, which may come at any time.
                let order = (Ordering::AcqRel, Ordering::Acquire);
                match word.compare_exchange(PEER, CALLER, order.0, order.1) {
                    Ok(_) => self.wake(),
                    Err(OVER) => return,
                    Err(_) => {}
                }
            },
            (_, Some([there, back])) => loop {
                match get(&there.0) {
                    Ok(TURN) => {
                        if put(&back.1, TURN).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    _ => return,
                }
            },
            _ => {
                while word.load(Ordering::Relaxed) != OVER {
                    give_way();
                }
            }
        }
    }

    /// Tells the peer to end.
    pub(super) fn stop(&self) {
        self.page.words().turn.store(OVER, Ordering::Release);
        self.wake();
        if let Some([there, _]) = &self.pairs {
            // It has room: no turn is in progress, or one of a peer that is gone.
            let _ = put(&there.1, END);
        }
    }

    fn wake(&self) {
        // SAFETY: a word that outlives the call; one waiter at most.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.page.words().turn.as_ptr(),
                libc::FUTEX_WAKE | self.flag(),
                1,
            )
        };
    }

    /// Waits as long as the word has this value.
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
                libc::FUTEX_WAIT | self.flag(),
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

    const fn flag(&self) -> libc::c_int {
        if self.private { libc::FUTEX_PRIVATE_FLAG } else { 0 }
    }
}

#[inline]
fn give_way() {
    // SAFETY: no argument; on Linux it always succeeds.
    unsafe { libc::sched_yield() };
}

/// Returns the end to read at and the end to write at.
fn pipe() -> io::Result<ChannelEnds> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are new and without another owner.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Returns the same descriptor for both.
fn event() -> io::Result<ChannelEnds> {
    // SAFETY: numbers in, a new descriptor out, owned from here on.
    let event = unsafe { check_new(libc::eventfd(0, libc::EFD_CLOEXEC)) }?;
    Ok((event.try_clone()?, event))
}

/// Writes 8 bytes, which both a pipe and an eventfd accept.
#[inline]
fn put(end: &OwnedFd, value: u64) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`.
    let written = unsafe {
        libc::write(end.as_raw_fd(), std::ptr::from_ref(&value).cast(), size_of::<u64>())
    };
    if written == 8 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[inline]
fn get(end: &OwnedFd) -> io::Result<u64> {
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
