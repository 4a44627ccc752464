//! Thread that polls the time sources once a second and selects among them, and its output for the
//! clock thread: a small value under a lock for which the clock thread never waits.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use horolog_source::{
    ClockReadings, PlausibilityRules, REPORT_AGE_MAX, RetriedSource, ServerLeapSeconds,
    SourceEstimate, SourceSelector, SourceSpec, SourceState, TimeSource,
};
use horolog_sys::clock::MonotonicClock;
use horolog_time::leap::LeapSecond;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use crate::StartError;
use crate::clock::read_clocks;
use crate::periodic::Periodic;

/// Polling interval of the sources.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of pending notices; older ones are dropped.
const NOTICES_MAX: usize = 64;
/// Validity of a selection that the sources' thread does not update: it may be waiting for sources
/// that do not reply, each up to a second.
const CHOICE_LIFE: Span = Span::from_ns(2 * REPORT_AGE_MAX.as_ns());

/// Result of polling the sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum SourceReading {
    /// No sources: the kernel's report is used, or none.
    #[default]
    NotPolled,
    /// No source, or no majority, provides the time.
    NoSource,
    /// Estimate to serve.
    Selected(SourceEstimate),
}

/// State that the sources' thread shares with the others.
#[derive(Debug, Default)]
pub(crate) struct SharedSources {
    reading: Mutex<(SourceReading, Option<Timestamp<Monotonic>>)>,
    confirmed: Mutex<Option<Span>>,
    /// True if the operator has confirmed that implausible times are correct.
    is_accepted: AtomicBool,
    leaps_s: AtomicI32,
    known_leaps: Mutex<ServerLeapSeconds>,
    states: Mutex<Vec<SourceState>>,
    notices: Mutex<VecDeque<String>>,
}

impl SharedSources {
    /// Returns the last reading; `None` while it is being written, which is brief.
    pub(crate) fn reading(&self, now: Timestamp<Monotonic>) -> Option<SourceReading> {
        let (reading, when) = match self.reading.try_lock() {
            Ok(guard) => *guard,
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let is_old = when.is_some_and(|when| now - when > CHOICE_LIFE);
        Some(if is_old { SourceReading::NoSource } else { reading })
    }

    /// Returns true time minus the monotonic clock, on which more than one source recently agreed.
    pub(crate) fn confirmed(&self) -> Option<Span> {
        self.confirmed.try_lock().ok().and_then(|confirmed| *confirmed)
    }

    /// Accepts the presently implausible times as correct, on the operator's behalf.
    pub(crate) fn accept(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
    }

    /// Passes to the sources the number of leap seconds since the start.
    pub(crate) fn passed_leaps(&self, leaps_s: i32) {
        self.leaps_s.store(leaps_s, Ordering::Relaxed);
    }

    /// Passes to the sources the leap seconds known to the server itself.
    pub(crate) fn known_leaps(&self, known: ServerLeapSeconds) {
        // A reader holds the lock briefly; the next page passes it again.
        if let Ok(mut leaps) = self.known_leaps.try_lock() {
            *leaps = known;
        }
    }

    /// Returns the next leap second by the server's list.
    pub(crate) fn next_leap(&self) -> Option<LeapSecond> {
        lock(&self.known_leaps).next
    }

    /// Returns the state of each source, for the status.
    pub(crate) fn states(&self) -> Vec<SourceState> {
        lock(&self.states).clone()
    }

    /// Adds a notice for the user.
    pub(crate) fn push_notice(&self, notice: String) {
        let mut notices = lock(&self.notices);
        if notices.len() == NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(notice);
    }

    /// Removes and returns the notices since the last call.
    pub(crate) fn notices(&self) -> Vec<String> {
        lock(&self.notices).drain(..).collect()
    }

    fn poll(&self, panel: &mut SourceSelector) {
        if self.is_accepted.swap(false, Ordering::Relaxed) {
            panel.accept();
        }
        let round = panel.poll(|| {
            let leaps = *lock(&self.known_leaps);
            clocks(self.leaps_s.load(Ordering::Relaxed), leaps)
        });
        let reading = round.selected.map_or(SourceReading::NoSource, SourceReading::Selected);
        // The confirmation of a time is written before the time, and read after it.
        *lock(&self.confirmed) = round.confirmed;
        *lock(&self.reading) = (reading, Some(MonotonicClock.now()));
        *lock(&self.states) = round.states;
        round.notices.into_iter().for_each(|notice| self.push_notice(notice));
    }
}

/// Locks a mutex. A thread that panicked while it held a lock has left the value intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clocks(leaps_s: i32, leaps: ServerLeapSeconds) -> ClockReadings {
    let reading = read_clocks();
    ClockReadings {
        monotonic: reading.now,
        realtime_minus_monotonic: reading.offset.offset,
        kernel: reading.kernel,
        leaps_s,
        leaps,
    }
}

/// Open sources that are not polled yet.
pub(crate) struct OpenSources(Vec<Box<dyn TimeSource>>);

impl OpenSources {
    /// Opens them for a server that listens at `own`. A source that is not available yet is retried
    /// while the server runs, if there is another one, which `has_receiver` may be. Otherwise the
    /// error names the first of them.
    pub(crate) fn open(
        specs: &[SourceSpec],
        own: &[SocketAddr],
        has_receiver: bool,
    ) -> Result<Self, StartError> {
        let (mut all, mut first): (Vec<Box<dyn TimeSource>>, Option<StartError>) =
            (Vec::new(), None);
        let mut is_open = has_receiver || specs.is_empty();
        for spec in specs {
            all.push(match spec.open(own) {
                Ok(source) => {
                    is_open = true;
                    source
                }
                Err(fault) => {
                    first = first
                        .or_else(|| Some(StartError::Source(spec.text.clone(), fault.clone())));
                    Box::new(RetriedSource::new(spec, own, fault))
                }
            });
        }
        first.filter(|_| !is_open).map_or(Ok(Self(all)), Err)
    }

    /// Returns the sources with one more.
    pub(crate) fn with(mut self, source: Box<dyn TimeSource>) -> Self {
        self.0.push(source);
        self
    }
}

/// Handle of the thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct SourcesThread {
    shared: Arc<SharedSources>,
    thread: Periodic,
}

impl SourcesThread {
    /// Polls the sources once before it returns, and then every [`INTERVAL`]. Their times are
    /// judged by `basis`.
    pub(crate) fn start(sources: OpenSources, basis: PlausibilityRules) -> io::Result<Self> {
        let mut panel = SourceSelector::new(sources.0, basis);
        let shared = Arc::new(SharedSources::default());
        if panel.is_empty() {
            return Ok(Self { shared, thread: Periodic::default() });
        }
        shared.poll(&mut panel);
        let polled = Arc::clone(&shared);
        let thread = Periodic::start("sources", INTERVAL, move || move || polled.poll(&mut panel))?;
        Ok(Self { shared, thread })
    }

    /// Returns the state that it shares with the other threads.
    pub(crate) fn shared(&self) -> &Arc<SharedSources> {
        &self.shared
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_that_is_not_updated_expires() {
        let shared = SharedSources::default();
        let at = |seconds| Timestamp::from_timespec(seconds, 0);
        assert_eq!(shared.reading(at(1_000)), Some(SourceReading::NotPolled));
        *lock(&shared.reading) = (SourceReading::NoSource, Some(at(1_000)));
        let held = lock(&shared.reading);
        assert_eq!(shared.reading(at(1_000)), None);
        drop(held);
        assert_eq!(shared.reading(at(1_000)), Some(SourceReading::NoSource));
    }

    #[test]
    fn notices_are_bounded_and_taken_once() {
        let shared = SharedSources::default();
        (0..100).for_each(|number| shared.push_notice(number.to_string()));
        let notices = shared.notices();
        assert_eq!((notices.len(), notices[0].as_str()), (NOTICES_MAX, "36"));
        assert!(shared.notices().is_empty());
    }

    #[test]
    fn sources_are_polled_before_it_starts_and_named_if_wrong() {
        let spec: SourceSpec = "system:kernel".parse().unwrap();
        let sources = OpenSources::open(&[spec], &[], false).unwrap();
        let thread = SourcesThread::start(sources, PlausibilityRules::default()).unwrap();
        assert_eq!(thread.shared().states().len(), 1);
        assert_ne!(thread.shared().reading(MonotonicClock.now()), Some(SourceReading::NotPolled));
        assert!(!thread.has_died());
    }

    #[test]
    fn an_absent_source_needs_another_one() {
        let spec = |text: &str| text.parse::<SourceSpec>().unwrap();
        let (gone, kernel) = (spec("phc:/dev/no-such-clock"), spec("system:kernel"));
        let open = |specs: &[&SourceSpec], has_receiver| {
            let specs: Vec<_> = specs.iter().map(|spec| (*spec).clone()).collect();
            OpenSources::open(&specs, &[], has_receiver).map(|OpenSources(all)| all.len())
        };
        assert_eq!(open(&[&gone, &kernel], false).unwrap(), 2);
        assert_eq!(open(&[&gone], true).unwrap(), 1);
        let first = open(&[&gone, &gone], false).err();
        assert!(matches!(first, Some(StartError::Source(name, _)) if name == gone.text));
        let mut sources = OpenSources::open(&[gone, kernel], &[], false).unwrap();
        let fault =
            sources.0[0].poll(&clocks(0, ServerLeapSeconds::default())).unwrap_err().to_string();
        assert!(fault.ends_with("retrying every 5 s"), "{fault}");
    }
}
