//! Threads that send by a BPF program, one pinned to each core. Each is in a long test run, which a
//! signal ends. Schedules and counts are those of the programs.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
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
    /// Returns true if the lane of a core has ended.
    pub is_done: &'a (dyn Fn(usize) -> bool + Sync),
    /// Sends from the CPU of the calling thread until a signal reaches it.
    pub send: &'a (dyn Fn() -> Result<(), XdpError> + Sync),
}

impl CoreSenders<'_> {
    /// Calls `start` once the threads of all lanes are pinned, since on a busy host a thread may
    /// take long to start. Then sends until all lanes have ended, and calls `check` every
    /// millisecond meanwhile. Returns what `start` returned. Resumes the panic of a sending thread.
    pub fn run<T, E: From<XdpError>>(
        self,
        start: impl FnOnce() -> Result<T, E>,
        mut check: impl FnMut(&mut T),
    ) -> Result<T, E> {
        thread::scope(|scope| {
            let spawn = |&core| {
                let (ready, thread) = mpsc::channel();
                let (go, gate) = mpsc::channel();
                (scope.spawn(move || self.run_lane(core, &ready, &gate)), thread, go)
            };
            let lanes: Vec<_> = self.cores.iter().map(spawn).collect();
            let mut senders = Vec::with_capacity(lanes.len());
            for (task, thread, go) in lanes {
                let thread = thread.recv().map_err(io::Error::other).flatten();
                senders.push((task, thread.map_err(XdpError::Thread)?, go));
            }
            let mut trial = start()?;
            // A thread that has ended since has an error, which its end returns.
            for (.., go) in &senders {
                go.send(()).ok();
            }
            for ((task, thread, _), core) in senders.iter().zip(self.cores) {
                while !(self.is_done)(*core) && !task.is_finished() {
                    thread::sleep(CHECK_INTERVAL);
                    check(&mut trial);
                }
                // A signal between two system calls has no effect, so it is repeated.
                while !task.is_finished() {
                    thread.interrupt().map_err(XdpError::Thread)?;
                    thread::sleep(CHECK_INTERVAL);
                }
            }
            senders.into_iter().try_for_each(|(task, ..)| {
                task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
            Ok(trial)
        })
    }

    /// Sends as soon as `gate` has a message; nothing if its sender is gone, because another lane
    /// or the start failed.
    fn run_lane(
        self,
        core: usize,
        ready: &Sender<io::Result<InterruptibleThread>>,
        gate: &Receiver<()>,
    ) -> Result<(), XdpError> {
        let thread = pin_to_core(core).and_then(|()| InterruptibleThread::current());
        if ready.send(thread).is_err() || gate.recv().is_err() {
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
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    fn core() -> usize {
        horolog_sys::affinity::allowed_cores().unwrap()[0]
    }

    fn missing() -> XdpError {
        XdpError::Missing { object: "none", part: "send" }
    }

    #[test]
    fn lanes_send_after_the_start_until_they_are_ended() {
        let (cores, sent) = ([core(); 2], AtomicUsize::new(0));
        let (is_started, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let senders = CoreSenders {
            cores: &cores,
            is_done: &|_| is_over.load(Ordering::Relaxed),
            send: &|| {
                assert!(is_started.load(Ordering::Relaxed));
                sent.fetch_add(1, Ordering::Relaxed);
                thread::sleep(CHECK_INTERVAL);
                Ok(())
            },
        };
        let start = || {
            thread::sleep(10 * CHECK_INTERVAL);
            is_started.store(true, Ordering::Relaxed);
            Ok::<_, XdpError>(0)
        };
        let check = |checks: &mut u32| {
            *checks += 1;
            is_over.store(*checks >= 5 && sent.load(Ordering::Relaxed) >= 2, Ordering::Relaxed);
        };
        assert!(senders.run(start, check).unwrap() >= 5);
    }

    #[test]
    fn a_lane_that_never_ends_by_itself_is_interrupted() {
        let (cores, is_over) = ([core()], AtomicBool::new(false));
        let senders = CoreSenders {
            cores: &cores,
            is_done: &|_| is_over.load(Ordering::Relaxed),
            send: &|| {
                // Ends only by a signal.
                assert_eq!(wait_for_signal().kind(), io::ErrorKind::Interrupted);
                Ok(())
            },
        };
        senders.run(|| Ok::<_, XdpError>(()), |()| is_over.store(true, Ordering::Relaxed)).unwrap();
    }

    fn wait_for_signal() -> io::Error {
        // SAFETY: no descriptors and no memory are passed.
        let result = unsafe { libc::poll(std::ptr::null_mut(), 0, -1) };
        assert_eq!(result, -1);
        io::Error::last_os_error()
    }

    #[test]
    fn errors_and_panics_of_lanes_reach_the_caller() {
        let senders =
            CoreSenders { cores: &[core()], is_done: &|_| false, send: &|| Err(missing()) };
        let run = |senders: CoreSenders<'_>| senders.run(|| Ok::<_, XdpError>(()), |()| ());
        assert!(matches!(run(senders), Err(XdpError::Missing { .. })));
        let unpinned = CoreSenders { cores: &[core(), usize::MAX], ..senders };
        assert!(matches!(run(unpinned), Err(XdpError::Thread(_))));
        let panicking = CoreSenders { send: &|| panic!("of a lane"), ..senders };
        assert!(std::panic::catch_unwind(AssertUnwindSafe(|| run(panicking))).is_err());
    }

    #[test]
    fn nothing_is_sent_if_the_start_fails() {
        let senders =
            CoreSenders { cores: &[core()], is_done: &|_| false, send: &|| panic!("it sends") };
        let failed = senders.run(|| Err::<(), _>(missing()), |()| ());
        assert!(matches!(failed, Err(XdpError::Missing { .. })));
    }
}
