//! Thread that repeats an action at an interval.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// Handle of a thread that repeats an action. Dropping it ends the thread. The default handle has
/// no thread.
#[derive(Debug, Default)]
pub(crate) struct PeriodicThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicThread {
    /// Starts a thread that calls `begin` once, and after each `pause` the action that `begin`
    /// returned. Unparking the thread ends the pause early.
    pub(crate) fn start<W: FnMut()>(
        name: &str,
        pause: Duration,
        begin: impl FnOnce() -> W + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let repeat = move || {
            let mut work = begin();
            loop {
                thread::park_timeout(pause);
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                work();
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(repeat)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Returns the thread, to unpark it; `None` if there is no thread.
    pub(crate) fn thread(&self) -> Option<Thread> {
        self.thread.as_ref().map(|thread| thread.thread().clone())
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panicked thread has already reported on stderr.
            let _ = thread.join();
        }
    }
}
