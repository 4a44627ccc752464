//! The first instant of all threads: it is known when each of them is ready, so that none begins
//! late.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

/// Not known yet.
const UNKNOWN: i64 = i64::MIN;
const LOOK: Duration = Duration::from_micros(500);

/// What is agreed on.
#[derive(Debug)]
pub(super) struct Start {
    ready: AtomicUsize,
    begin_ns: AtomicI64,
}

impl Default for Start {
    fn default() -> Self {
        Self { ready: AtomicUsize::new(0), begin_ns: AtomicI64::new(UNKNOWN) }
    }
}

impl Start {
    /// Waits for so many threads, and has them begin so much later; `None` where they are to stop.
    pub(super) fn when_ready(
        &self,
        threads: usize,
        stop: &AtomicBool,
        later: Span,
    ) -> Option<Timestamp<Monotonic>> {
        while self.ready.load(Ordering::Acquire) < threads {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            thread::sleep(LOOK);
        }
        let begin = MonotonicClock.now() + later;
        self.begin_ns.store(begin.as_ns(), Ordering::Release);
        Some(begin)
    }

    /// A thread is ready and waits to be told when to begin; `None` where it is to stop instead.
    pub(super) fn wait(&self, stop: &AtomicBool) -> Option<Timestamp<Monotonic>> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        loop {
            match self.begin_ns.load(Ordering::Acquire) {
                UNKNOWN if stop.load(Ordering::Relaxed) => return None,
                UNKNOWN => thread::sleep(LOOK),
                begin_ns => return Some(Timestamp::from_ns(begin_ns)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_begin_together_and_behind_the_last_that_is_ready() {
        let (start, stop) = (Start::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(|| start.wait(&stop).unwrap()));
            let before = MonotonicClock.now();
            let begin = start.when_ready(3, &stop, Span::from_ms(1)).unwrap();
            assert!(begin >= before + Span::from_ms(1));
            assert!(threads.into_iter().all(|thread| thread.join().unwrap() == begin));
        });
    }

    #[test]
    fn one_that_cannot_begin_stops_the_others() {
        let (start, stop) = (Start::default(), AtomicBool::new(true));
        assert_eq!((start.wait(&stop), start.when_ready(2, &stop, Span::ZERO)), (None, None));
    }
}
