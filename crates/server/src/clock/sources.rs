//! Thread that polls the time sources once a second and selects among them. It shares the result
//! with the clock thread, which never waits for the lock.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use horolog_source::{
    ClockReadings, PlausibilityRuleParameters, PollableTimeSource, PreparedCalibration,
    REPORT_AGE_MAX, RetriedSource, RunningCalibration, ServerLeapSeconds, SourceEstimate,
    SourceSelector, SourceSpec, SourceStatus,
};
use horolog_sys::affinity::allowed_cores;
use horolog_sys::clock::ClockMonotonic;
use horolog_time::leap::LeapSecond;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::thread::read_clocks;
use crate::config::ServerConfig;
use crate::periodic::PeriodicThread;
use crate::sockets::engine::core_for;
use crate::start_error::StartError;

/// Polling interval of the sources.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of pending notices; older ones are dropped.
const NOTICES_MAX: usize = 64;
/// Validity of a selection without an update: the thread may be waiting for sources that do not
/// reply, up to a second for each.
const SELECTION_LIFE: Span = Span::from_ns(2 * REPORT_AGE_MAX.as_ns());

/// Result of polling the time sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum SourceSelectionOutcome {
    /// No time sources are configured: the kernel's report is used, or nothing.
    #[default]
    NotPolled,
    /// No time source is usable, or no majority of them agrees.
    NoSource,
    /// Estimate of the selected source, to be served.
    Selected(SourceEstimate),
}

/// Results and inputs that the sources' thread shares with other threads.
#[derive(Debug, Default)]
pub(crate) struct SharedSourceState {
    reading: Mutex<(SourceSelectionOutcome, Option<Timestamp<Monotonic>>)>,
    confirmed: Mutex<Option<Span>>,
    /// True if the operator has confirmed the present, implausible times.
    is_accepted: AtomicBool,
    leaps_s: AtomicI32,
    known_leaps: Mutex<ServerLeapSeconds>,
    states: Mutex<Vec<SourceStatus>>,
    notices: Mutex<VecDeque<String>>,
}

impl SharedSourceState {
    /// Returns the last result; `None` while it is being written, which takes a moment. A result
    /// older than [`SELECTION_LIFE`] counts as [`SourceSelectionOutcome::NoSource`].
    pub(crate) fn reading(&self, now: Timestamp<Monotonic>) -> Option<SourceSelectionOutcome> {
        let (reading, when) = match self.reading.try_lock() {
            Ok(guard) => *guard,
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let is_old = when.is_some_and(|when| now - when > SELECTION_LIFE);
        Some(if is_old { SourceSelectionOutcome::NoSource } else { reading })
    }

    /// Returns true time minus monotonic time, if several sources recently agreed on it; `None`
    /// also while the value is being written.
    pub(crate) fn confirmed(&self) -> Option<Span> {
        self.confirmed.try_lock().ok().and_then(|confirmed| *confirmed)
    }

    /// Tells the polling thread that the operator confirms the present, implausible times.
    pub(crate) fn accept_times(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
    }

    /// Passes the number of leap seconds since the start to the thread.
    pub(crate) fn set_passed_leaps(&self, leaps_s: i32) {
        self.leaps_s.store(leaps_s, Ordering::Relaxed);
    }

    /// Passes the leap seconds that the server itself knows to the thread.
    pub(crate) fn set_known_leaps(&self, known: ServerLeapSeconds) {
        // If a reader has the lock, the next page update passes the value.
        if let Ok(mut leaps) = self.known_leaps.try_lock() {
            *leaps = known;
        }
    }

    /// Returns the next leap second, if the server's list contains it.
    pub(crate) fn next_leap(&self) -> Option<LeapSecond> {
        lock(&self.known_leaps).next
    }

    /// Returns the states of the sources, for the status.
    pub(crate) fn states(&self) -> Vec<SourceStatus> {
        lock(&self.states).clone()
    }

    /// Adds a notice for the user; the oldest one is dropped if there are [`NOTICES_MAX`].
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

    fn poll(&self, selector: &mut SourceSelector) {
        if self.is_accepted.swap(false, Ordering::Relaxed) {
            selector.accept();
        }
        let polled = selector.poll(|| {
            let leaps = *lock(&self.known_leaps);
            clock_readings(self.leaps_s.load(Ordering::Relaxed), leaps)
        });
        let reading = polled
            .selected
            .map_or(SourceSelectionOutcome::NoSource, SourceSelectionOutcome::Selected);
        // Written before the reading, and read after it, so that a reading is never without its
        // confirmation.
        *lock(&self.confirmed) = polled.confirmed;
        *lock(&self.reading) = (reading, Some(ClockMonotonic.now()));
        *lock(&self.states) = polled.states;
        polled.notices.into_iter().for_each(|notice| self.push_notice(notice));
    }
}

/// Locks a mutex. The value stays consistent even if a thread panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock_readings(leaps_s: i32, leaps: ServerLeapSeconds) -> ClockReadings {
    let reading = read_clocks();
    ClockReadings {
        monotonic: reading.now,
        realtime_minus_monotonic: reading.offset.offset,
        kernel: reading.kernel,
        leaps_s,
        leaps,
    }
}

/// Opened time sources, before the thread is started.
pub(crate) struct OpenSources(Vec<Box<dyn PollableTimeSource>>);

impl OpenSources {
    /// Opens the sources for a server that listens on `own`. A source that cannot be opened is
    /// retried later if another source, or the receiver (`has_receiver`), is available. Otherwise
    /// the first error is returned.
    pub(crate) fn open(
        specs: &[SourceSpec],
        own: &[SocketAddr],
        has_receiver: bool,
    ) -> Result<Self, StartError> {
        let (mut all, mut first): (Vec<Box<dyn PollableTimeSource>>, Option<StartError>) =
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

    /// Returns the sources with a further one.
    pub(crate) fn with_source(mut self, source: Box<dyn PollableTimeSource>) -> Self {
        self.0.push(source);
        self
    }
}

/// Handle of the sources' thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct SourcesThread {
    shared: Arc<SharedSourceState>,
    thread: PeriodicThread,
}

impl SourcesThread {
    /// Polls the sources once before it returns, and then every [`INTERVAL`] in a thread; without
    /// sources there is no thread. `rules` decide which times are plausible.
    pub(crate) fn start(
        sources: OpenSources,
        rules: PlausibilityRuleParameters,
    ) -> io::Result<Self> {
        let mut selector = SourceSelector::new(sources.0, rules);
        let shared = Arc::new(SharedSourceState::default());
        if selector.is_empty() {
            return Ok(Self { shared, thread: PeriodicThread::default() });
        }
        shared.poll(&mut selector);
        let polled = Arc::clone(&shared);
        let thread =
            PeriodicThread::start("sources", INTERVAL, move || move || polled.poll(&mut selector))?;
        Ok(Self { shared, thread })
    }

    /// Returns the state that the thread shares with other threads.
    pub(crate) fn shared(&self) -> &Arc<SharedSourceState> {
        &self.shared
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

/// Opens the receiver and the pulse input; `None` if none is configured. `rules` decide which times
/// are plausible.
pub(crate) fn open_calibration(
    config: &ServerConfig,
    rules: PlausibilityRuleParameters,
) -> Result<Option<PreparedCalibration>, StartError> {
    let Some(calibration) = &config.calibration else { return Ok(None) };
    let has_sources = !config.source.sources.is_empty();
    let opened = PreparedCalibration::open(calibration, has_sources, rules);
    opened.map(Some).map_err(|fault| StartError::Source(calibration.name(), fault))
}

/// Starts the calibration thread and adds the calibration to the time sources; without a prepared
/// calibration the sources are returned unchanged.
pub(crate) fn start_calibration(
    opened: Option<PreparedCalibration>,
    sources: OpenSources,
    config: &ServerConfig,
) -> Result<(Option<RunningCalibration>, OpenSources), StartError> {
    let Some(opened) = opened else { return Ok((None, sources)) };
    let started = opened.start(unpinned_core(config)).map_err(StartError::Thread)?;
    let sources = sources.with_source(started.source());
    Ok((Some(started), sources))
}

/// Returns a core on which no socket thread is pinned; `None` if there is none.
fn unpinned_core(config: &ServerConfig) -> Option<usize> {
    let cores = allowed_cores().ok()?;
    let pinned: Vec<_> =
        (0..config.threads).filter_map(|index| core_for(index, config.threads, &cores)).collect();
    cores.iter().rev().copied().find(|core| !pinned.contains(core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_that_is_not_updated_expires() {
        let shared = SharedSourceState::default();
        let at = |seconds| Timestamp::from_timespec(seconds, 0);
        assert_eq!(shared.reading(at(1_000)), Some(SourceSelectionOutcome::NotPolled));
        *lock(&shared.reading) = (SourceSelectionOutcome::NoSource, Some(at(1_000)));
        let held = lock(&shared.reading);
        assert_eq!(shared.reading(at(1_000)), None);
        drop(held);
        assert_eq!(shared.reading(at(1_000)), Some(SourceSelectionOutcome::NoSource));
    }

    #[test]
    fn notices_are_bounded_and_taken_once() {
        let shared = SharedSourceState::default();
        (0..100).for_each(|number| shared.push_notice(number.to_string()));
        let notices = shared.notices();
        assert_eq!((notices.len(), notices[0].as_str()), (NOTICES_MAX, "36"));
        assert!(shared.notices().is_empty());
    }

    #[test]
    fn sources_are_polled_before_it_starts_and_named_if_wrong() {
        let spec: SourceSpec = "system:kernel".parse().unwrap();
        let sources = OpenSources::open(&[spec], &[], false).unwrap();
        let thread = SourcesThread::start(sources, PlausibilityRuleParameters::default()).unwrap();
        assert_eq!(thread.shared().states().len(), 1);
        assert_ne!(
            thread.shared().reading(ClockMonotonic.now()),
            Some(SourceSelectionOutcome::NotPolled)
        );
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
        let fault = sources.0[0]
            .poll(&clock_readings(0, ServerLeapSeconds::default()))
            .unwrap_err()
            .to_string();
        assert!(fault.ends_with("retrying every 5 s"), "{fault}");
    }
}
