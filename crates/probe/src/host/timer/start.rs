//! Start barrier: the first instant is set when all threads are ready, so that none starts late.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

/// Placeholder for a start instant that is not set yet.
const NOT_SET: i64 = i64::MIN;
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Start barrier of the measuring threads.
#[derive(Debug)]
pub(super) struct StartBarrier {
    ready: AtomicUsize,
    begin_ns: AtomicI64,
}

impl Default for StartBarrier {
    fn default() -> Self {
        Self { ready: AtomicUsize::new(0), begin_ns: AtomicI64::new(NOT_SET) }
    }
}

impl StartBarrier {
    /// Waits until `threads` threads are ready and sets their start instant to `lead` from then;
    /// `None` if `stop` is set first.
    pub(super) fn start_when_ready(
        &self,
        threads: usize,
        stop: &AtomicBool,
        lead: Span,
    ) -> Option<Timestamp<Monotonic>> {
        while self.ready.load(Ordering::Acquire) < threads {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let begin = ClockMonotonic.now() + lead;
        self.begin_ns.store(begin.as_ns(), Ordering::Release);
        Some(begin)
    }

    /// Marks the calling thread as ready and waits for the start instant; `None` if `stop` is set
    /// first.
    pub(super) fn wait_for_start(&self, stop: &AtomicBool) -> Option<Timestamp<Monotonic>> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        loop {
            match self.begin_ns.load(Ordering::Acquire) {
                NOT_SET if stop.load(Ordering::Relaxed) => return None,
                NOT_SET => thread::sleep(POLL_INTERVAL),
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
            let threads = [(); 3].map(|()| scope.spawn(|| start.wait_for_start(&stop).unwrap()));
            let before = ClockMonotonic.now();
            let begin = start.start_when_ready(3, &stop, Span::from_ms(1)).unwrap();
            assert!(begin >= before + Span::from_ms(1));
            assert!(threads.into_iter().all(|thread| thread.join().unwrap() == begin));
        });
    }

    #[test]
    fn one_that_cannot_begin_stops_the_others() {
        let (start, stop) = (StartBarrier::default(), AtomicBool::new(true));
        assert_eq!(
            (start.wait_for_start(&stop), start.start_when_ready(2, &stop, Span::ZERO)),
            (None, None)
        );
    }
}
