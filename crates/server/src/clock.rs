//! The thread that renews the clock page: it looks at the system's clocks, makes a page and hands
//! it to every sink, ten times a second. It runs before all ordinary threads where that is allowed,
//! so that a machine busy with packets still renews; where it cannot run in time, the page expires
//! and the server falls silent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::affinity::{Scheduling, prefer_real_time};
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Span};
use serde::Serialize;

use crate::ServerConfig;
use crate::config::RENEWAL;
use crate::page::PageSink;
use crate::periodic::Periodic;
use crate::renewal::{Reading, Renewal};
use crate::sources::SharedSources;

/// The lowest real-time priority: before everything ordinary, behind everything that a user has
/// made real-time on purpose.
const PRIORITY: i32 = 1;

/// How the renewing goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ClockHealth {
    /// Pages made.
    pub renewals: u64,
    /// Pages that a sink did not take.
    pub publish_errors: u64,
    /// The longest time from one renewal to the next, in nanoseconds.
    pub gap_max_ns: u64,
    /// Whether the thread has real-time scheduling.
    pub real_time: bool,
    /// How often the system clock was stepped: by more than [`STEP_MIN`] between two renewals.
    pub steps: u64,
    /// By how much it was stepped last, in nanoseconds.
    pub last_step_ns: i64,
}

/// A change of the system clock against the monotonic one that is a step and no better measurement.
pub const STEP_MIN: Span = Span::from_ms(1);

#[derive(Debug, Default)]
struct Health {
    renewals: AtomicU64,
    publish_errors: AtomicU64,
    gap_max_ns: AtomicU64,
    real_time: AtomicBool,
    steps: AtomicU64,
    last_step_ns: AtomicI64,
}

/// Looks at the system's clocks.
pub(crate) fn look() -> Reading {
    let kernel = kernel_clock().ok();
    let offset = realtime_minus_monotonic();
    Reading { now: MonotonicClock.now(), offset, kernel }
}

/// The renewing thread; dropping it ends it, and the last page expires.
#[derive(Debug)]
pub(crate) struct ClockThread {
    health: Arc<Health>,
    next: Arc<ArcSwapOption<ServerConfig>>,
    thread: Periodic,
}

/// Where a configuration is put that the clock thread is to take over.
#[derive(Debug)]
pub(crate) struct NextConfig {
    slot: Arc<ArcSwapOption<ServerConfig>>,
    thread: Option<Thread>,
}

impl NextConfig {
    /// Has it taken over at once.
    pub(crate) fn put(&self, config: Arc<ServerConfig>) {
        self.slot.store(Some(config));
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

impl ClockThread {
    /// Renews at once and then every [`RENEWAL`].
    pub(crate) fn start(
        mut renewal: Renewal,
        sources: Arc<SharedSources>,
        mut sinks: Vec<Box<dyn PageSink>>,
    ) -> io::Result<Self> {
        let health = Arc::new(Health::default());
        let shared = Arc::clone(&health);
        let next: Arc<ArcSwapOption<ServerConfig>> = Arc::default();
        let taken = Arc::clone(&next);
        let begin = move || {
            let real_time = matches!(prefer_real_time(PRIORITY), Scheduling::RealTime);
            shared.real_time.store(real_time, Ordering::Relaxed);
            let mut last = Instant::now();
            let mut offset = None;
            let mut renew = move || {
                last = shared.renewed_after(last);
                if let Some(config) = taken.swap(None) {
                    renewal.reconfigure(&config);
                }
                let pages = renewal.hearing(&sources).pages(&look());
                renewal.tell(&sources);
                let ahead = pages.stepped.realtime_minus_monotonic;
                shared.moved(offset.replace(ahead).map(|before| ahead - before));
                let failed = sinks.iter_mut().filter_map(|sink| sink.publish(&pages).err()).count();
                shared.publish_errors.fetch_add(failed as u64, Ordering::Relaxed);
                for notice in renewal.take_notices() {
                    sources.notify(notice.to_string());
                }
            };
            renew();
            renew
        };
        let thread = Periodic::start("clock", RENEWAL, begin)?;
        Ok(Self { health, next, thread })
    }

    /// Where to put a configuration that the thread is to take over.
    pub(crate) fn next(&self) -> NextConfig {
        NextConfig { slot: Arc::clone(&self.next), thread: self.thread.thread() }
    }

    /// How it goes.
    pub(crate) fn health(&self) -> ClockHealth {
        ClockHealth {
            renewals: self.health.renewals.load(Ordering::Relaxed),
            publish_errors: self.health.publish_errors.load(Ordering::Relaxed),
            gap_max_ns: self.health.gap_max_ns.load(Ordering::Relaxed),
            real_time: self.health.real_time.load(Ordering::Relaxed),
            steps: self.health.steps.load(Ordering::Relaxed),
            last_step_ns: self.health.last_step_ns.load(Ordering::Relaxed),
        }
    }

    /// Whether the thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

impl Health {
    /// The system clock went so much further than the monotonic one.
    fn moved(&self, by: Option<Span>) {
        if let Some(by) = by
            && (by > STEP_MIN || by < -STEP_MIN)
        {
            self.last_step_ns.store(by.as_ns(), Ordering::Relaxed);
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn renewed_after(&self, last: Instant) -> Instant {
        let now = Instant::now();
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.gap_max_ns.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
        now
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::page;
    use crate::{Pages, ServerConfig, Trust};

    struct Refusing;

    impl PageSink for Refusing {
        fn publish(&mut self, _: &Pages) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn renews_until_dropped_even_beside_a_sink_that_refuses() {
        let config = ServerConfig { trust: Trust::Local, ..ServerConfig::default() };
        let first = look();
        let mut renewal = Renewal::new(&config, -25, &first);
        let (writer, reader) = page::shared(&renewal.pages(&first));
        let before = reader.read();
        let clock =
            ClockThread::start(renewal, Arc::default(), vec![Box::new(Refusing), Box::new(writer)])
                .unwrap();
        thread::sleep(3 * RENEWAL);
        assert!(!clock.has_died());
        let health = clock.health();
        assert!(health.renewals >= 2 && health.publish_errors >= health.renewals - 1, "{health:?}");
        assert!(health.gap_max_ns > RENEWAL.as_nanos() as u64 / 2, "{health:?}");
        let started = Instant::now();
        drop(clock);
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
        let after = reader.read();
        assert!(after.timebase.expires > before.timebase.expires);
        let last = after.timebase.anchor;
        thread::sleep(RENEWAL);
        assert_eq!(reader.read().timebase.anchor, last);
    }

    #[test]
    fn the_page_shows_the_time_of_the_system() {
        let config = ServerConfig { trust: Trust::Local, ..ServerConfig::default() };
        let first = look();
        let page = Renewal::new(&config, -25, &first).pages(&first).stepped;
        let before = horolog_sys::clock::Realtime.now();
        let served = page.timebase.ntp_at(MonotonicClock.now()).unwrap().to_utc(before);
        let error = (served - before).as_ns();
        assert!((-1_000_000..1_000_000_000).contains(&error), "{error}");
    }
}
