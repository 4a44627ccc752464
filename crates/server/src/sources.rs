//! The thread that asks the sources of time once a second and votes, and what it hands to the clock
//! thread: a small value under a lock that the clock thread never waits for.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use horolog_source::{
    Fault, KnownLeaps, Look, Panel, Report, STALE, Source, SourceSpec, SourceState,
};
use horolog_sys::clock::MonotonicClock;
use horolog_time::leap::Leap;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use crate::clock::look;
use crate::periodic::Periodic;

/// How often the sources are asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Notices that wait to be fetched; older ones are dropped.
const NOTICES_MAX: usize = 64;
/// How long a choice holds when the sources' thread does not renew it: it may be waiting for
/// sources that do not answer, each up to a second.
const CHOICE_LIFE: Span = Span::from_ns(2 * STALE.as_ns());

/// What the sources say.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Heard {
    /// There are no sources: the kernel's word holds, or nobody's.
    #[default]
    Unasked,
    /// No source, or no majority, says the time.
    Nobody,
    /// What to serve.
    Selected(Report),
}

/// What the sources' thread shares with the others.
#[derive(Debug, Default)]
pub(crate) struct SharedSources {
    heard: Mutex<(Heard, Option<Timestamp<Monotonic>>)>,
    confirmed: Mutex<Option<Span>>,
    leaps_s: AtomicI32,
    known_leaps: Mutex<KnownLeaps>,
    states: Mutex<Vec<SourceState>>,
    notices: Mutex<VecDeque<String>>,
}

impl SharedSources {
    /// What was heard last; `None` while it is being written, which takes no time.
    pub(crate) fn heard(&self, now: Timestamp<Monotonic>) -> Option<Heard> {
        let (heard, when) = match self.heard.try_lock() {
            Ok(heard) => *heard,
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let is_old = when.is_some_and(|when| now - when > CHOICE_LIFE);
        Some(if is_old { Heard::Nobody } else { heard })
    }

    /// True time minus the monotonic clock, as more than one source said a moment ago.
    pub(crate) fn confirmed(&self) -> Option<Span> {
        self.confirmed.try_lock().ok().and_then(|confirmed| *confirmed)
    }

    /// Tells the sources how many leap seconds have been passed since the start.
    pub(crate) fn passed_leaps(&self, leaps_s: i32) {
        self.leaps_s.store(leaps_s, Ordering::Relaxed);
    }

    /// Tells the sources what is known of leap seconds by none of them.
    pub(crate) fn known_leaps(&self, known: KnownLeaps) {
        // Whoever reads it takes no time; the next page says it again.
        if let Ok(mut leaps) = self.known_leaps.try_lock() {
            *leaps = known;
        }
    }

    /// The leap second that is next by the server's list.
    pub(crate) fn next_leap(&self) -> Option<Leap> {
        lock(&self.known_leaps).next
    }

    /// Each source, for the status.
    pub(crate) fn states(&self) -> Vec<SourceState> {
        lock(&self.states).clone()
    }

    /// Leaves a notice for the user.
    pub(crate) fn notify(&self, notice: String) {
        let mut notices = lock(&self.notices);
        if notices.len() == NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(notice);
    }

    /// Takes the notices that have come since the last time.
    pub(crate) fn notices(&self) -> Vec<String> {
        lock(&self.notices).drain(..).collect()
    }

    fn ask(&self, panel: &mut Panel) {
        let round = panel.poll(|| {
            let leaps = *lock(&self.known_leaps);
            clocks(self.leaps_s.load(Ordering::Relaxed), leaps)
        });
        let heard = round.selected.map_or(Heard::Nobody, Heard::Selected);
        *lock(&self.heard) = (heard, Some(MonotonicClock.now()));
        *lock(&self.confirmed) = round.confirmed;
        *lock(&self.states) = round.states;
        round.notices.into_iter().for_each(|notice| self.notify(notice));
    }
}

/// A thread that panicked while it held a lock has left a whole value behind it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clocks(leaps_s: i32, leaps: KnownLeaps) -> Look {
    let reading = look();
    Look {
        monotonic: reading.now,
        realtime_minus_monotonic: reading.offset.offset,
        kernel: reading.kernel,
        leaps_s,
        leaps,
    }
}

/// Sources that are open but not yet asked.
pub(crate) struct OpenSources(Vec<Box<dyn Source>>);

impl OpenSources {
    /// Opens them for a server that listens at `own`. The error names the source that is not there.
    pub(crate) fn open(specs: &[SourceSpec], own: &[SocketAddr]) -> Result<Self, (String, Fault)> {
        let open = |spec: &SourceSpec| spec.open(own).map_err(|fault| (spec.text.clone(), fault));
        specs.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// The same with one more.
    pub(crate) fn with(mut self, source: Box<dyn Source>) -> Self {
        self.0.push(source);
        self
    }
}

/// The thread; dropping it ends it.
#[derive(Debug)]
pub(crate) struct SourcesThread {
    shared: Arc<SharedSources>,
    thread: Periodic,
}

impl SourcesThread {
    /// Asks the sources once before it returns, and then every [`INTERVAL`].
    pub(crate) fn start(OpenSources(sources): OpenSources) -> io::Result<Self> {
        let mut panel = Panel::new(sources);
        let shared = Arc::new(SharedSources::default());
        if panel.is_empty() {
            return Ok(Self { shared, thread: Periodic::default() });
        }
        shared.ask(&mut panel);
        let asking = Arc::clone(&shared);
        let thread = Periodic::start("sources", INTERVAL, move || move || asking.ask(&mut panel))?;
        Ok(Self { shared, thread })
    }

    /// What the other threads see of it.
    pub(crate) fn shared(&self) -> &Arc<SharedSources> {
        &self.shared
    }

    /// Whether the thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_that_nobody_renews_is_none() {
        let shared = SharedSources::default();
        let at = |seconds| Timestamp::from_timespec(seconds, 0);
        assert_eq!(shared.heard(at(1_000)), Some(Heard::Unasked));
        *lock(&shared.heard) = (Heard::Nobody, Some(at(1_000)));
        let held = lock(&shared.heard);
        assert_eq!(shared.heard(at(1_000)), None);
        drop(held);
        assert_eq!(shared.heard(at(1_000)), Some(Heard::Nobody));
    }

    #[test]
    fn notices_are_bounded_and_taken_once() {
        let shared = SharedSources::default();
        (0..100).for_each(|number| shared.notify(number.to_string()));
        let notices = shared.notices();
        assert_eq!((notices.len(), notices[0].as_str()), (NOTICES_MAX, "36"));
        assert!(shared.notices().is_empty());
    }

    #[test]
    fn sources_are_asked_before_it_starts_and_named_when_wrong() {
        let spec: SourceSpec = "system:kernel".parse().unwrap();
        let sources = OpenSources::open(&[spec], &[]).unwrap();
        let thread = SourcesThread::start(sources).unwrap();
        assert_eq!(thread.shared().states().len(), 1);
        assert_ne!(thread.shared().heard(MonotonicClock.now()), Some(Heard::Unasked));
        assert!(!thread.has_died());
    }
}
