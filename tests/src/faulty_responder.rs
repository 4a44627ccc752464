//! Thread that answers requests until it is ended, some of them with a deliberate fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// Counts and stop flag of a responder.
#[derive(Default)]
pub(crate) struct ResponderState {
    stop: AtomicBool,
    requests: AtomicU64,
    faults: AtomicU64,
}

impl ResponderState {
    pub(crate) fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts a request; returns the number of requests before it.
    pub(crate) fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }
}

/// Running responder; it ends when dropped.
pub(crate) struct FaultyResponder {
    state: Arc<ResponderState>,
    thread: Option<JoinHandle<()>>,
}

impl FaultyResponder {
    /// Starts a thread that serves while the state is running.
    pub(crate) fn start(serve: impl FnOnce(&ResponderState) + Send + 'static) -> Self {
        let state = Arc::new(ResponderState::default());
        let shared = Arc::clone(&state);
        Self { state, thread: Some(thread::spawn(move || serve(&shared))) }
    }

    /// Number of requests received so far.
    pub(crate) fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Ends the thread; returns the counts of requests and of replies with a fault.
    pub(crate) fn end(mut self) -> [u64; 2] {
        self.join();
        [&self.state.requests, &self.state.faults].map(|count| count.load(Ordering::Relaxed))
    }

    fn join(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for FaultyResponder {
    fn drop(&mut self) {
        self.join();
    }
}
