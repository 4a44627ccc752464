//! State shared by the threads of one row: end condition, and the gate that keeps load and requests
//! in proportion. Atomics only, no locks.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use horolog_sys::clock::{ClockMonotonic, sleep_until};
use horolog_time::{Clock, Span};

/// Sleep of a thread that waits for another one, unless busy polling.
const SLEEP_TIME: Span = Span::from_ns(20_000);

/// State of a row shared by its threads.
pub(super) struct SharedRowState<'a> {
    pub(super) to: SocketAddr,
    /// Number of warm-up requests of each flow.
    pub(super) warm_up: u32,
    /// Number of requests of each flow, with the warm-up, that ends it; `None` if time does.
    pub(super) count: Option<u32>,
    /// Duration of each flow after its warm-up.
    pub(super) time: Duration,
    pub(super) timeout: Duration,
    pub(super) busy_polling: bool,
    /// Returns true if the run is to end.
    pub(super) is_over: &'a (dyn Fn() -> bool + Sync),
    /// True once any thread has ended the row.
    pub(super) is_row_ended: AtomicBool,
    pub(super) gate: LoadRatioPacer,
}

/// Pacer that keeps load and requests in a fixed ratio: each waits for the other.
#[derive(Debug)]
pub(super) struct LoadRatioPacer {
    /// Load datagrams per request (R).
    ratio: f64,
    valid_sent: AtomicU64,
    load_sent: AtomicU64,
    /// Load that preceded the first counted request, by the ratio.
    pub(super) load_before_measurement: AtomicU64,
    /// Number of requests that preceded the first counted one.
    pub(super) valid_before_measurement: AtomicU64,
}

impl SharedRowState<'_> {
    /// Returns true if no further request is to be sent.
    pub(super) fn should_stop(&self) -> bool {
        self.is_row_ended.load(Ordering::Relaxed) || (self.is_over)()
    }

    fn pause(&self) {
        if self.busy_polling {
            std::hint::spin_loop();
        } else {
            sleep_until(ClockMonotonic.now() + SLEEP_TIME);
        }
    }

    /// Counts a request, after waiting until the load for all earlier requests has been sent.
    pub(super) fn wait_for_load(&self, is_first_counted: bool) {
        let gate = &self.gate;
        if !gate.has_load() {
            return;
        }
        let number = gate.valid_sent.fetch_add(1, Ordering::Relaxed);
        while !self.should_stop() && (gate.load_sent() as f64) < gate.ratio * number as f64 {
            self.pause();
        }
        if is_first_counted {
            // The first flow to get here decides.
            let owed = (gate.ratio * number as f64).round() as u64;
            let relaxed = Ordering::Relaxed;
            let _ = gate.load_before_measurement.compare_exchange(0, owed, relaxed, relaxed);
            let _ = gate.valid_before_measurement.compare_exchange(0, number, relaxed, relaxed);
        }
    }

    /// Waits until another load datagram may be sent; returns false if there is to be no more load.
    pub(super) fn wait_to_load(&self, is_done: &AtomicBool) -> bool {
        loop {
            let gate = &self.gate;
            // Read before the number of requests, so that no request is missed.
            let done = is_done.load(Ordering::Acquire);
            let pending_request = u64::from(!done);
            let allowed =
                gate.ratio * (gate.valid_sent.load(Ordering::Relaxed) + pending_request) as f64;
            if (gate.load_sent() as f64) < allowed.round() {
                return true;
            }
            if done || (self.is_over)() {
                return false;
            }
            self.pause();
        }
    }
}

impl LoadRatioPacer {
    pub(super) fn new(ratio: f64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            ratio,
            valid_sent: zero(),
            load_sent: zero(),
            load_before_measurement: zero(),
            valid_before_measurement: zero(),
        }
    }

    pub(super) fn has_load(&self) -> bool {
        self.ratio > 0.0
    }

    /// Counts one more load datagram.
    pub(super) fn count_load(&self) {
        self.load_sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of load datagrams sent.
    pub(super) fn load_sent(&self) -> u64 {
        self.load_sent.load(Ordering::Relaxed)
    }

    /// Returns the number of requests, with the warm-up; 0 without load.
    pub(super) fn valid_sent(&self) -> u64 {
        self.valid_sent.load(Ordering::Relaxed)
    }
}
