//! A thread that does the same again and again, until it is dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// The thread; dropping it ends it. The default is none.
#[derive(Debug, Default)]
pub(crate) struct Periodic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts it. `begin` is called in the thread and returns what to do after each pause, which
    /// ends early when the thread is unparked.
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

    /// The thread, to unpark it by.
    pub(crate) fn thread(&self) -> Option<Thread> {
        self.thread.as_ref().map(|thread| thread.thread().clone())
    }

    /// Whether the thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has said so on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}
