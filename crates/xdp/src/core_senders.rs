//! Threads that send by a BPF program, one pinned to each core. Each is in a long test run, which a
//! signal ends. Schedules and counts are those of the programs.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use horolog_sys::affinity::pin_to_core;
use horolog_sys::signal::InterruptibleThread;

use crate::XdpError;

/// Interval at which lanes are checked for their end.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Lanes of a trial, one on each core.
#[derive(Clone, Copy)]
pub struct CoreSenders<'a> {
    /// Core of each lane.
    pub cores: &'a [usize],
    /// Starts the lane of this index, on its thread. Called even if the thread cannot be pinned, so
    /// it may wait for those of other lanes.
    pub start: &'a (dyn Fn(usize) + Sync),
    /// Returns true if the lane of a core has ended.
    pub is_done: &'a (dyn Fn(usize) -> bool + Sync),
    /// Sends from the CPU of the calling thread until a signal reaches it.
    pub send: &'a (dyn Fn() -> Result<(), XdpError> + Sync),
}

impl CoreSenders<'_> {
    /// Sends until all lanes have ended, and calls `check` every millisecond meanwhile. Resumes the
    /// panic of a sending thread.
    pub fn run(self, mut check: impl FnMut()) -> Result<(), XdpError> {
        thread::scope(|scope| {
            let spawn = |index| {
                let (ready, thread) = mpsc::channel();
                (scope.spawn(move || self.run_lane(index, &ready)), thread)
            };
            let senders: Vec<_> = (0..self.cores.len()).map(spawn).collect();
            for ((task, thread), core) in senders.iter().zip(self.cores) {
                let Ok(thread) = thread.recv() else { continue };
                while !(self.is_done)(*core) && !task.is_finished() {
                    thread::sleep(CHECK_INTERVAL);
                    check();
                }
                // A signal between two system calls has no effect, so it is repeated.
                while !task.is_finished() {
                    thread.interrupt().map_err(XdpError::Thread)?;
                    thread::sleep(CHECK_INTERVAL);
                }
            }
            senders.into_iter().try_for_each(|(task, _)| {
                task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    fn run_lane(self, index: usize, ready: &Sender<InterruptibleThread>) -> Result<(), XdpError> {
        let core = self.cores[index];
        let thread = pin_to_core(core).and_then(|()| InterruptibleThread::current());
        (self.start)(index);
        // If the receiver, which interrupts this thread, is gone, nothing is to be sent.
        if ready.send(thread.map_err(XdpError::Thread)?).is_err() {
            return Ok(());
        }
        while !(self.is_done)(core) {
            (self.send)()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::panic::AssertUnwindSafe;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    fn core() -> usize {
        horolog_sys::affinity::allowed_cores().unwrap()[0]
    }

    fn missing() -> XdpError {
        XdpError::Missing { object: "none", part: "send" }
    }

    #[test]
    fn lanes_start_together_and_send_until_they_are_ended() {
        let (cores, barrier, sent) = ([core(); 2], Barrier::new(2), AtomicUsize::new(0));
        let (is_over, mut checks) = (AtomicBool::new(false), 0);
        let senders = CoreSenders {
            cores: &cores,
            start: &|_| {
                barrier.wait();
            },
            is_done: &|_| is_over.load(Ordering::Relaxed),
            send: &|| {
                sent.fetch_add(1, Ordering::Relaxed);
                thread::sleep(CHECK_INTERVAL);
                Ok(())
            },
        };
        let check = || {
            checks += 1;
            is_over.store(checks >= 5 && sent.load(Ordering::Relaxed) >= 2, Ordering::Relaxed);
        };
        senders.run(check).unwrap();
        assert!(checks >= 5);
    }

    #[test]
    fn a_lane_that_never_ends_by_itself_is_interrupted() {
        let (cores, is_over) = ([core()], AtomicBool::new(false));
        let senders = CoreSenders {
            cores: &cores,
            start: &|_| (),
            is_done: &|_| is_over.load(Ordering::Relaxed),
            send: &|| {
                // Ends only by a signal.
                assert_eq!(wait_for_signal().kind(), io::ErrorKind::Interrupted);
                Ok(())
            },
        };
        senders.run(|| is_over.store(true, Ordering::Relaxed)).unwrap();
    }

    fn wait_for_signal() -> io::Error {
        // SAFETY: no descriptors and no memory are passed.
        let result = unsafe { libc::poll(std::ptr::null_mut(), 0, -1) };
        assert_eq!(result, -1);
        io::Error::last_os_error()
    }

    #[test]
    fn errors_and_panics_of_lanes_reach_the_caller() {
        let senders = CoreSenders {
            cores: &[core()],
            start: &|_| (),
            is_done: &|_| false,
            send: &|| Err(missing()),
        };
        assert!(matches!(senders.run(|| ()), Err(XdpError::Missing { .. })));
        let unpinned = CoreSenders { cores: &[usize::MAX], ..senders };
        assert!(matches!(unpinned.run(|| ()), Err(XdpError::Thread(_))));
        let panicking = CoreSenders { send: &|| panic!("of a lane"), ..senders };
        assert!(std::panic::catch_unwind(AssertUnwindSafe(|| panicking.run(|| ()))).is_err());
    }
}
