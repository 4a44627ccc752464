//! First instant of all threads: it is set when all of them are ready, so that none begins late.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

/// Value before the instant is set.
const UNKNOWN: i64 = i64::MIN;
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// State of the barrier.
#[derive(Debug)]
pub(super) struct StartBarrier {
    ready: AtomicUsize,
    begin_ns: AtomicI64,
}

impl Default for StartBarrier {
    fn default() -> Self {
        Self { ready: AtomicUsize::new(0), begin_ns: AtomicI64::new(UNKNOWN) }
    }
}

impl StartBarrier {
    /// Waits for `threads` threads and sets their start to `later` after that; `None` if they are
    /// to stop.
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
            thread::sleep(POLL_INTERVAL);
        }
        let begin = MonotonicClock.now() + later;
        self.begin_ns.store(begin.as_ns(), Ordering::Release);
        Some(begin)
    }

    /// Signals that a thread is ready and waits for the start instant; `None` if it is to stop
    /// instead.
    pub(super) fn wait(&self, stop: &AtomicBool) -> Option<Timestamp<Monotonic>> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        loop {
            match self.begin_ns.load(Ordering::Acquire) {
                UNKNOWN if stop.load(Ordering::Relaxed) => return None,
                UNKNOWN => thread::sleep(POLL_INTERVAL),
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
        let (start, stop) = (StartBarrier::default(), AtomicBool::new(false));
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
        let (start, stop) = (StartBarrier::default(), AtomicBool::new(true));
        assert_eq!((start.wait(&stop), start.when_ready(2, &stop, Span::ZERO)), (None, None));
    }
}
