//! Thread that answers requests until it is ended, some of them with a deliberate fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, ensure};

/// Kinds of faults with one expected outcome. A responder commits them in turn, at every second
/// request or at each, so that one run covers all of them.
#[derive(Clone)]
pub(crate) struct FaultGroup<O, F> {
    /// Outcome expected of each.
    pub(crate) outcome: O,
    kinds: Vec<(&'static str, F)>,
    /// One fault in so many requests.
    interval: u64,
}

impl<O: Copy + PartialEq, F: Copy> FaultGroup<O, F> {
    /// Groups kinds of faults by outcome, in order of appearance.
    pub(crate) fn by_outcome(faults: impl IntoIterator<Item = (&'static str, O, F)>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (name, outcome, fault) in faults {
            match groups.iter_mut().find(|group| group.outcome == outcome) {
                Some(group) => group.kinds.push((name, fault)),
                None => groups.push(Self { outcome, kinds: vec![(name, fault)], interval: 2 }),
            }
        }
        groups
    }

    /// Returns one kind of fault, committed at each request.
    pub(crate) fn at_each_request(outcome: O, fault: F) -> Self {
        Self { outcome, kinds: vec![("only", fault)], interval: 1 }
    }

    /// Commits and counts the fault of the request with this number, and returns what `commit` made
    /// of it; `None` if the request gets a correct reply. With a fault at every second request, the
    /// first one is correct, since clients learn from it who answers, and so is the last one of an
    /// even number: a trial ends with the last reply, and what a fault sends after its own reply
    /// would not be counted.
    pub(crate) fn commit<R>(
        &self,
        state: &ResponderState,
        request: u64,
        commit: impl FnOnce(F) -> Option<R>,
    ) -> Option<R> {
        if self.interval > 1 && (request == 0 || !request.is_multiple_of(self.interval)) {
            return None;
        }
        let index = (request / self.interval) as usize % self.kinds.len();
        let committed = commit(self.kinds[index].1)?;
        state.faults.fetch_add(1, Ordering::Relaxed);
        state.kinds.fetch_or(1 << index, Ordering::Relaxed);
        Some(committed)
    }

    /// Returns the names of all kinds.
    pub(crate) fn names(&self) -> String {
        self.kinds.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Checks that each kind was committed by a responder with these counts.
    pub(crate) fn check_all_committed(&self, counts: ResponderCounts) -> Result<()> {
        let is_missing = |index: &usize| counts.kinds & 1 << index == 0;
        let missing = (0..self.kinds.len()).find(is_missing).map(|index| self.kinds[index].0);
        ensure!(missing.is_none(), "not committed: {}", missing.unwrap_or_default());
        Ok(())
    }
}

/// Counts of a responder that has ended.
#[derive(Clone, Copy)]
pub(crate) struct ResponderCounts {
    /// Requests received.
    pub(crate) requests: u64,
    /// Requests that were answered with a fault.
    pub(crate) faults: u64,
    /// Bit mask of the kinds of faults committed, by index.
    kinds: u64,
}

/// Counts and stop flag of a responder.
#[derive(Default)]
pub(crate) struct ResponderState {
    stop: AtomicBool,
    requests: AtomicU64,
    faults: AtomicU64,
    kinds: AtomicU64,
}

impl ResponderState {
    pub(crate) fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts a request; returns the number of requests before it.
    pub(crate) fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
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

    /// Ends the thread and returns its counts.
    pub(crate) fn end(mut self) -> ResponderCounts {
        self.join();
        let ResponderState { requests, faults, kinds, .. } = &*self.state;
        let [requests, faults, kinds] =
            [requests, faults, kinds].map(|count| count.load(Ordering::Relaxed));
        ResponderCounts { requests, faults, kinds }
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
