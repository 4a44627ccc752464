//! Clock thread: ten times a second it reads the system's clocks, builds the clock pages and
//! publishes them to every sink. It runs at real-time priority if permitted, so that a host busy
//! with packets still updates the pages. If it does not run in time, the pages expire and the
//! server stops answering.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use horolog_source::ClockPageSink;
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::affinity::{RealTimeSchedulingOutcome, try_real_time};
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_time::{Clock, Span};
use serde::{Deserialize, Serialize};

use super::page_builder::{ClockPageBuilder, SystemClockReading};
use super::sources::SharedSourceState;
use crate::config::{PAGE_UPDATE_INTERVAL, ServerConfig};
use crate::periodic::PeriodicThread;

/// Lowest real-time priority: above all sched-other threads, and below all other real-time threads.
const PRIORITY: i32 = 1;

/// Status of the clock thread: its page updates, and the steps of the system clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClockThreadStatus {
    /// Number of page updates since the start.
    pub page_updates: u64,
    /// Number of failures to publish pages, over all sinks.
    pub publish_errors: u64,
    /// Longest time between two page updates, in nanoseconds.
    pub gap_max_ns: u64,
    /// True if the thread has real-time scheduling.
    pub real_time: bool,
    /// Number of steps of the system clock: changes by more than [`STEP_MIN`] between two page
    /// updates.
    pub steps: u64,
    /// Size of the last step, in nanoseconds; positive if the clock was set forward.
    pub last_step_ns: i64,
}

/// Smallest change of the offset between the system clock and the monotonic clock that counts as a
/// step rather than measurement noise.
pub const STEP_MIN: Span = Span::from_ms(1);

#[derive(Debug, Default)]
struct ClockThreadCounters {
    page_updates: AtomicU64,
    publish_errors: AtomicU64,
    gap_max_ns: AtomicU64,
    real_time: AtomicBool,
    steps: AtomicU64,
    last_step_ns: AtomicI64,
}

/// Reads the system's clocks and the kernel's report on their state.
pub(crate) fn read_clocks() -> SystemClockReading {
    let kernel = kernel_clock().ok();
    let offset = realtime_minus_monotonic();
    SystemClockReading { now: ClockMonotonic.now(), offset, kernel }
}

/// Clock thread. Dropping it ends the thread; the last pages then expire.
#[derive(Debug)]
pub(crate) struct ClockThread {
    health: Arc<ClockThreadCounters>,
    next_config: Arc<ArcSwapOption<ServerConfig>>,
    thread: PeriodicThread,
}

/// Slot by which a configuration is passed to the clock thread.
#[derive(Debug)]
pub(crate) struct NextConfigSlot {
    slot: Arc<ArcSwapOption<ServerConfig>>,
    thread: Option<Thread>,
}

impl NextConfigSlot {
    /// Stores a configuration and wakes the clock thread to adopt it.
    pub(crate) fn store_config(&self, config: Arc<ServerConfig>) {
        self.slot.store(Some(config));
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

impl ClockThread {
    /// Starts the thread, which updates the pages at once and then every [`PAGE_UPDATE_INTERVAL`].
    pub(crate) fn start(
        mut page_builder: ClockPageBuilder,
        sources: Arc<SharedSourceState>,
        mut sinks: Vec<Box<dyn ClockPageSink>>,
    ) -> io::Result<Self> {
        let health = Arc::new(ClockThreadCounters::default());
        let shared = Arc::clone(&health);
        let next: Arc<ArcSwapOption<ServerConfig>> = Arc::default();
        let pending_config = Arc::clone(&next);
        let begin = move || {
            let real_time = matches!(try_real_time(PRIORITY), RealTimeSchedulingOutcome::RealTime);
            shared.real_time.store(real_time, Ordering::Relaxed);
            let mut last = Instant::now();
            let mut offset = None;
            let mut update_page = move || {
                last = shared.record_page_update(last);
                if let Some(config) = pending_config.swap(None) {
                    page_builder.reconfigure(&config);
                    sources.accept_times();
                }
                let pages = page_builder.update_from_sources(&sources).pages(&read_clocks());
                page_builder.report_to_sources(&sources);
                let ahead = pages.stepped.realtime_minus_monotonic;
                shared.record_offset_change(offset.replace(ahead).map(|before| ahead - before));
                let failed = sinks.iter_mut().filter_map(|sink| sink.publish(&pages).err()).count();
                shared.publish_errors.fetch_add(failed as u64, Ordering::Relaxed);
                for notice in page_builder.take_notices() {
                    sources.push_notice(notice.to_string());
                }
            };
            update_page();
            update_page
        };
        let thread = PeriodicThread::start("clock", PAGE_UPDATE_INTERVAL, begin)?;
        Ok(Self { health, next_config: next, thread })
    }

    /// Returns the slot by which the thread receives a new configuration.
    pub(crate) fn next_config_slot(&self) -> NextConfigSlot {
        NextConfigSlot { slot: Arc::clone(&self.next_config), thread: self.thread.thread() }
    }

    /// Returns the status of the page updates and of the steps of the system clock.
    pub(crate) fn health(&self) -> ClockThreadStatus {
        ClockThreadStatus {
            page_updates: self.health.page_updates.load(Ordering::Relaxed),
            publish_errors: self.health.publish_errors.load(Ordering::Relaxed),
            gap_max_ns: self.health.gap_max_ns.load(Ordering::Relaxed),
            real_time: self.health.real_time.load(Ordering::Relaxed),
            steps: self.health.steps.load(Ordering::Relaxed),
            last_step_ns: self.health.last_step_ns.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

impl ClockThreadCounters {
    /// Records the change of `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` since the last update; one of
    /// more than [`STEP_MIN`] in either direction counts as a step.
    fn record_offset_change(&self, change: Option<Span>) {
        if let Some(by) = change
            && (by > STEP_MIN || by < -STEP_MIN)
        {
            self.last_step_ns.store(by.as_ns(), Ordering::Relaxed);
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn record_page_update(&self, last: Instant) -> Instant {
        let now = Instant::now();
        self.page_updates.fetch_add(1, Ordering::Relaxed);
        self.gap_max_ns.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
        now
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use horolog_source::{ClockPages, shared_pages};

    use super::*;
    use crate::config::{ClockTrust, ServerConfig};

    struct Refusing;

    impl ClockPageSink for Refusing {
        fn publish(&mut self, _: &ClockPages) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn updates_pages_until_dropped_even_if_another_sink_refuses() {
        let config = ServerConfig { trust: ClockTrust::Local, ..ServerConfig::default() };
        let first = read_clocks();
        let mut renewal = ClockPageBuilder::new(&config, -25, &first);
        let (writer, reader) = shared_pages(&renewal.pages(&first));
        let before = reader.read();
        let clock =
            ClockThread::start(renewal, Arc::default(), vec![Box::new(Refusing), Box::new(writer)])
                .unwrap();
        thread::sleep(3 * PAGE_UPDATE_INTERVAL);
        assert!(!clock.has_died());
        let health = clock.health();
        assert!(
            health.page_updates >= 2 && health.publish_errors >= health.page_updates - 1,
            "{health:?}"
        );
        assert!(health.gap_max_ns > PAGE_UPDATE_INTERVAL.as_nanos() as u64 / 2, "{health:?}");
        let started = Instant::now();
        drop(clock);
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
        let after = reader.read();
        assert!(after.timebase.expires > before.timebase.expires);
        let last = after.timebase.anchor;
        thread::sleep(PAGE_UPDATE_INTERVAL);
        assert_eq!(reader.read().timebase.anchor, last);
    }

    #[test]
    fn the_page_shows_the_time_of_the_system() {
        let config = ServerConfig { trust: ClockTrust::Local, ..ServerConfig::default() };
        let first = read_clocks();
        let page = ClockPageBuilder::new(&config, -25, &first).pages(&first).stepped;
        let before = horolog_sys::clock::ClockRealtime.now();
        let served = page.timebase.ntp_at(ClockMonotonic.now()).unwrap().to_utc(before);
        let error = (served - before).as_ns();
        assert!((-1_000_000..1_000_000_000).contains(&error), "{error}");
    }
}
