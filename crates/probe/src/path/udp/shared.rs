//! State shared by the threads of one row: its end, its progress, and the gate that keeps load and
//! valid datagrams in proportion. Atomics only; no thread waits for a lock.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use horolog_sys::clock::{MonotonicClock, sleep_until};
use horolog_time::{Clock, Span};

/// Sleep of threads that wait for each other and may sleep.
const NAP: Span = Span::from_ns(20_000);

/// State of a row shared by its threads.
pub(super) struct RowState<'a> {
    pub(super) to: SocketAddr,
    /// Requests of each flow that are not counted.
    pub(super) warm_up: u32,
    /// Requests of each flow, warm-up included, if their number is to end it.
    pub(super) count: Option<u32>,
    /// Duration of each flow after its warm-up.
    pub(super) time: Duration,
    pub(super) timeout: Duration,
    pub(super) busy_polling: bool,
    /// Returns true if the run is to end.
    pub(super) is_over: &'a (dyn Fn() -> bool + Sync),
    /// True once the row is to end, whichever thread found the reason.
    pub(super) ended: AtomicBool,
    pub(super) gate: LoadRatioGate,
}

/// Gate between load and valid datagrams, each of which waits for the other.
#[derive(Debug)]
pub(super) struct LoadRatioGate {
    /// Ratio R.
    ratio: f64,
    valid: AtomicU64,
    load: AtomicU64,
    /// Load owed when the first request that counts was sent.
    pub(super) load_before: AtomicU64,
    /// Valid datagrams at that time.
    pub(super) valid_before: AtomicU64,
}

impl RowState<'_> {
    /// Returns true if no further request is to be sent.
    pub(super) fn is_to_end(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || (self.is_over)()
    }

    fn rest(&self) {
        if self.busy_polling {
            std::hint::spin_loop();
        } else {
            sleep_until(MonotonicClock.now() + NAP);
        }
    }

    /// Waits until the load that earlier requests are owed has been sent, and counts one more
    /// request.
    pub(super) fn before_request(&self, is_first_counted: bool) {
        let gate = &self.gate;
        if !gate.is_there() {
            return;
        }
        let number = gate.valid.fetch_add(1, Ordering::Relaxed);
        while !self.is_to_end() && (gate.sent() as f64) < gate.ratio * number as f64 {
            self.rest();
        }
        if is_first_counted {
            // The first flow to get here decides; the lead is owed to requests that count.
            let owed = (gate.ratio * number as f64).round() as u64;
            let relaxed = Ordering::Relaxed;
            let _ = gate.load_before.compare_exchange(0, owed, relaxed, relaxed);
            let _ = gate.valid_before.compare_exchange(0, number, relaxed, relaxed);
        }
    }

    /// Waits until one more load datagram may be sent; returns false if there is to be none.
    pub(super) fn before_load(&self, is_done: &AtomicBool) -> bool {
        loop {
            let gate = &self.gate;
            // Read first: a request that arrives in between is counted the next time.
            let done = is_done.load(Ordering::Acquire);
            let ahead = u64::from(!done);
            let allowed = gate.ratio * (gate.valid.load(Ordering::Relaxed) + ahead) as f64;
            if (gate.sent() as f64) < allowed.round() {
                return true;
            }
            if done || (self.is_over)() {
                return false;
            }
            self.rest();
        }
    }
}

impl LoadRatioGate {
    pub(super) fn new(ratio: f64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { ratio, valid: zero(), load: zero(), load_before: zero(), valid_before: zero() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.ratio > 0.0
    }

    /// Counts one more load datagram.
    pub(super) fn count_load(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of load datagrams sent.
    pub(super) fn sent(&self) -> u64 {
        self.load.load(Ordering::Relaxed)
    }

    /// Returns the number of requests, warm-up included.
    pub(super) fn valid(&self) -> u64 {
        self.valid.load(Ordering::Relaxed)
    }
}
