//! Periods of one task: wait for each release, do the work, publish the outcome. A task that is
//! late for a release starts at once and skips no period; only a source of releases can skip some.
//! The source and the work are parameters, so that tests need no clock.

use std::sync::atomic::{AtomicU64, Ordering};

use horolog_record::CycleMeasurementCost;
use horolog_sys::clock::{ClockMonotonic, sleep_until};
use horolog_time::{Clock, Monotonic, Span, TimeGrid, Timestamp, Utc};

use super::order::FirstRelease;
use super::system_clock::SystemClockConverter;
use crate::entry::{PeriodEntry, PeriodEntryKind, PeriodOutcome};
use crate::ring::{RING_WORDS, RingWriter};

/// Number of clock readings whose median is the cost of one.
const CLOCK_READINGS: usize = 1_001;
/// Number of empty periods that measure the measuring overhead. Their entries, steps included, fit
/// into a ring.
const OVERHEAD_PERIODS: u64 = 400;

/// Source of releases of periods.
pub(crate) trait ReleaseSource {
    /// Waits for the next release, which is of this period or of a later one; periods count from 0.
    fn release(&mut self, period: u64) -> ReleaseWaitOutcome;
    /// Returns the present instant.
    fn now(&mut self) -> Timestamp<Monotonic>;
    /// Returns the number of detected steps of the system clock; 0 if releases do not follow it.
    fn clock_steps(&self) -> u64 {
        0
    }
}

/// Result of waiting for a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseWaitOutcome {
    /// Release of a period.
    Release(PeriodRelease),
    /// The run is stopped.
    Stopped,
    /// The source has no further releases.
    Ended,
}

/// Release of a period, and the start of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeriodRelease {
    /// Number of the period, from 0.
    pub(crate) period: u64,
    /// Instant of the release.
    pub(crate) released_at: Timestamp<Monotonic>,
    /// Instant at which the task started the period.
    pub(crate) started_at: Timestamp<Monotonic>,
    /// True if the release was before the task began to wait for it.
    pub(crate) is_overrun: bool,
}

/// Clock of a task whose release instants are known in advance, and the wait for them.
pub(crate) trait ReleaseTimer {
    /// Returns the instant of a period's release.
    fn release_time(&mut self, period: u64) -> Timestamp<Monotonic>;
    /// Returns the present instant.
    fn now(&mut self) -> Timestamp<Monotonic>;
    /// Sleeps until this instant; may return early.
    fn wait_until(&mut self, release_time: Timestamp<Monotonic>);
    /// Returns true if the run is stopped.
    fn is_stopped(&self) -> bool;
    /// Returns the value for [`ReleaseSource::clock_steps`].
    fn clock_steps(&self) -> u64 {
        0
    }
}

impl<T: ReleaseTimer> ReleaseSource for T {
    fn release(&mut self, period: u64) -> ReleaseWaitOutcome {
        let released_at = self.release_time(period);
        let mut started_at = ReleaseTimer::now(self);
        let is_overrun = started_at >= released_at;
        while started_at < released_at {
            self.wait_until(released_at);
            started_at = ReleaseTimer::now(self);
        }
        if self.is_stopped() {
            return ReleaseWaitOutcome::Stopped;
        }
        ReleaseWaitOutcome::Release(PeriodRelease { period, released_at, started_at, is_overrun })
    }

    fn now(&mut self) -> Timestamp<Monotonic> {
        ReleaseTimer::now(self)
    }

    fn clock_steps(&self) -> u64 {
        ReleaseTimer::clock_steps(self)
    }
}

/// Work of a task in a period.
pub(crate) trait PeriodWork {
    /// Does the work and records the time of each activity in `entry`. Entries of single steps or
    /// events are published by `publish`.
    fn run(
        &mut self,
        period: &CurrentPeriod,
        entry: &mut PeriodEntry,
        publish: &mut dyn FnMut(&PeriodEntry),
    ) -> WorkOutcome;
}

/// Outcome of a period's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkOutcome {
    /// The work was completed just now.
    Done,
    /// The work was completed at the time that the program marked; the entry has its start and end.
    Marked,
    /// The work was abandoned just now, and no further period is tried.
    Abandoned,
    /// The run is stopped, and this period does not count.
    Stopped,
}

/// Period of a task in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentPeriod {
    /// Number of the period, from 0.
    pub(crate) number: u64,
    /// Instant of the release.
    pub(crate) released_at: Timestamp<Monotonic>,
    /// Instant at which the task started the period.
    pub(crate) started_at: Timestamp<Monotonic>,
    /// Time from the start of the run to the release, in ns.
    pub(crate) released_ns: i64,
}

impl CurrentPeriod {
    /// Returns an empty entry of this period, or of a step or event of it.
    #[must_use]
    pub(crate) const fn entry(&self, kind: PeriodEntryKind) -> PeriodEntry {
        PeriodEntry { released_ns: self.released_ns, ..PeriodEntry::new(kind, self.number) }
    }

    /// Runs `count` steps, publishes each of them and adds its times to the entry of the period.
    pub(crate) fn run_steps(
        &self,
        count: usize,
        entry: &mut PeriodEntry,
        publish: &mut dyn FnMut(&PeriodEntry),
        mut work: impl FnMut(usize, &mut PeriodEntry),
    ) {
        for at in 0..count {
            let begun = ClockMonotonic.now();
            let mut step = self.entry(PeriodEntryKind::Step(at as u8));
            work(at, &mut step);
            step.start_latency_ns = (begun - self.released_at).as_ns().max(0).unsigned_abs();
            step.execution_ns = (ClockMonotonic.now() - begun).as_ns().unsigned_abs();
            publish(&step);
            entry.add(&step);
        }
    }
}

/// Runs up to `cycles` periods of a run that starts at `begin`. Periods that are skipped by the
/// source are published as not released. Returns early if the run is stopped or the work is
/// abandoned.
pub(crate) fn run(
    (cycles, begin): (u64, Timestamp<Monotonic>),
    releases: &mut impl ReleaseSource,
    work: &mut impl PeriodWork,
    publish: &mut dyn FnMut(&PeriodEntry),
) {
    let mut next = 0;
    while next < cycles {
        let released = releases.release(next);
        let until = match released {
            ReleaseWaitOutcome::Release(release) => release.period.min(cycles),
            ReleaseWaitOutcome::Ended => cycles,
            ReleaseWaitOutcome::Stopped => return,
        };
        if until > next {
            let count = u32::try_from(until - next).unwrap_or(u32::MAX);
            publish(&PeriodEntry {
                backlog: count,
                ..PeriodEntry::new(PeriodEntryKind::NotReleased, next)
            });
        }
        let ReleaseWaitOutcome::Release(PeriodRelease {
            period: number,
            released_at,
            started_at,
            is_overrun,
        }) = released
        else {
            return;
        };
        if number >= cycles {
            return;
        }
        next = number + 1;
        let period = CurrentPeriod {
            number,
            released_at,
            started_at,
            released_ns: (released_at - begin).as_ns(),
        };
        let mut entry = period.entry(PeriodEntryKind::Period);
        entry.is_overrun = is_overrun;
        entry.start_latency_ns = (started_at - released_at).as_ns().unsigned_abs();
        let outcome = work.run(&period, &mut entry, publish);
        match outcome {
            WorkOutcome::Marked => {}
            WorkOutcome::Done => {
                entry.execution_ns = (releases.now() - started_at).as_ns().unsigned_abs();
            }
            WorkOutcome::Abandoned => {
                entry.end = PeriodOutcome::Abandoned;
                entry.execution_ns = (releases.now() - started_at).as_ns().unsigned_abs();
            }
            WorkOutcome::Stopped => return,
        }
        publish(&entry);
        if outcome == WorkOutcome::Abandoned {
            return;
        }
    }
}

/// Timer of a task's releases by a clock of this host.
#[derive(Debug)]
pub(crate) struct ClockReleaseTimer<'a> {
    /// Start of the run on the monotonic clock, converted at construction if it was in UTC.
    begin: Timestamp<Monotonic>,
    /// Start of the run in UTC, if the system clock releases the periods.
    utc: Option<(Timestamp<Utc>, SystemClockConverter)>,
    offset: Span,
    period: Span,
    injected: Span,
    stop: &'a AtomicU64,
}

impl<'a> ClockReleaseTimer<'a> {
    /// Creates the releases from `begin` plus the task's offset on, one per period, by a clock that
    /// is ahead by `injected_ns` on purpose.
    pub(crate) fn new(
        begin: FirstRelease,
        offset_ns: u64,
        period_ns: u64,
        injected_ns: i64,
        stop: &'a AtomicU64,
    ) -> Self {
        let (begin, utc) = match begin {
            FirstRelease::Monotonic(ns) => (Timestamp::from_ns(ns), None),
            FirstRelease::Utc(ns) => {
                let (utc, mut clock) = (Timestamp::from_ns(ns), SystemClockConverter::new());
                (to_monotonic(utc, &mut clock), Some((utc, clock)))
            }
            // Expected arrivals of the packets.
            FirstRelease::Signalled { in_ns, .. } => {
                (ClockMonotonic.now() + Span::from_ns(in_ns.cast_signed()), None)
            }
        };
        Self {
            begin,
            utc,
            offset: Span::from_ns(offset_ns as i64),
            period: Span::from_ns(period_ns as i64),
            injected: Span::from_ns(injected_ns),
            stop,
        }
    }

    /// Returns the start of the run on this node's monotonic clock. Neither an injected clock
    /// offset nor a later step of the clock changes it.
    pub(crate) const fn begin(&self) -> Timestamp<Monotonic> {
        self.begin
    }
}

/// Converts a time of the system clock by its present offset.
fn to_monotonic(utc: Timestamp<Utc>, clock: &mut SystemClockConverter) -> Timestamp<Monotonic> {
    Timestamp::from_ns((utc - clock.offset()).as_ns())
}

impl ReleaseTimer for ClockReleaseTimer<'_> {
    fn release_time(&mut self, period: u64) -> Timestamp<Monotonic> {
        // Converted again for each period, so that a step of the clock moves the releases.
        let begin = match &mut self.utc {
            Some((utc, clock)) => to_monotonic(*utc, clock),
            None => self.begin,
        };
        // A clock that is ahead reaches each instant earlier.
        let grid = TimeGrid { start: begin + self.offset, interval: self.period };
        grid.instant(period) - self.injected
    }

    fn now(&mut self) -> Timestamp<Monotonic> {
        ClockMonotonic.now()
    }

    fn wait_until(&mut self, release_time: Timestamp<Monotonic>) {
        sleep_until(release_time);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    fn clock_steps(&self) -> u64 {
        self.utc.as_ref().map_or(0, |(_, clock)| clock.steps())
    }
}

/// Measures the measuring overhead on this core: a clock reading, and a period whose work waits for
/// nothing, including the publication of its outcome.
pub(crate) fn measure_overhead(work: &mut impl PeriodWork) -> CycleMeasurementCost {
    // Initialised by writing, so that each page is present.
    let words: Vec<AtomicU64> = (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect();
    let mut writer = RingWriter::new(&words);
    let mut publish = |entry: &PeriodEntry| {
        if let Some(writer) = &mut writer {
            writer.push(entry);
        }
    };
    let mut readings: Vec<u64> = (0..CLOCK_READINGS)
        .map(|_| {
            let before = ClockMonotonic.now();
            (ClockMonotonic.now() - before).as_ns().unsigned_abs()
        })
        .collect();
    readings.sort_unstable();
    let past = ClockMonotonic.now() - Span::from_ms(1_000);
    let stop = AtomicU64::new(0);
    let mut releases =
        ClockReleaseTimer::new(FirstRelease::Monotonic(past.as_ns()), 0, 1, 0, &stop);
    let begun = ClockMonotonic.now();
    run((OVERHEAD_PERIODS, past), &mut releases, work, &mut publish);
    let taken_ns = (ClockMonotonic.now() - begun).as_ns().unsigned_abs();
    CycleMeasurementCost {
        clock_ns: readings[CLOCK_READINGS / 2],
        period_ns: taken_ns / OVERHEAD_PERIODS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock on which each wait ends so much late, and work takes what it says.
    struct Simulated {
        now_ns: i64,
        late_ns: i64,
    }

    impl ReleaseTimer for std::rc::Rc<std::cell::RefCell<Simulated>> {
        fn release_time(&mut self, cycle: u64) -> Timestamp<Monotonic> {
            Timestamp::from_ns(1_000 + cycle as i64 * 1_000)
        }

        fn now(&mut self) -> Timestamp<Monotonic> {
            Timestamp::from_ns(self.borrow().now_ns)
        }

        fn wait_until(&mut self, due: Timestamp<Monotonic>) {
            let mut clock = self.borrow_mut();
            clock.now_ns = due.as_ns() + clock.late_ns;
        }

        fn is_stopped(&self) -> bool {
            false
        }
    }

    struct Takes(std::rc::Rc<std::cell::RefCell<Simulated>>, Vec<i64>);

    impl PeriodWork for Takes {
        fn run(
            &mut self,
            period: &CurrentPeriod,
            _: &mut PeriodEntry,
            _: &mut dyn FnMut(&PeriodEntry),
        ) -> WorkOutcome {
            self.0.borrow_mut().now_ns += self.1[period.number as usize];
            WorkOutcome::Done
        }
    }

    fn entries(late_ns: i64, takes: Vec<i64>) -> Vec<PeriodEntry> {
        let clock = Simulated { now_ns: 0, late_ns };
        let mut clock = std::rc::Rc::new(std::cell::RefCell::new(clock));
        let cycles = takes.len() as u64;
        let mut work = Takes(std::rc::Rc::clone(&clock), takes);
        let mut entries = Vec::new();
        let mut put = |entry: &PeriodEntry| entries.push(*entry);
        run((cycles, Timestamp::from_ns(500)), &mut clock, &mut work, &mut put);
        entries
    }

    #[test]
    fn lateness_counts_from_the_release_and_execution_from_the_beginning() {
        let entries = entries(7, vec![100, 200]);
        let of = |entry: &PeriodEntry| {
            (entry.period, entry.start_latency_ns, entry.execution_ns, entry.is_overrun)
        };
        assert_eq!(
            entries.iter().map(of).collect::<Vec<_>>(),
            [(0, 7, 100, false), (1, 7, 200, false)]
        );
    }

    /// Whatever was planned: the run begins at 500, and the first release is at 1,000.
    #[test]
    fn each_entry_has_what_its_period_was_released_by() {
        let released: Vec<_> =
            entries(7, vec![100, 2_000, 1]).iter().map(|entry| entry.released_ns).collect();
        assert_eq!(released, [500, 1_500, 2_500]);
    }

    /// Work of two and a half periods: the next two begin late by what is left of it, and none is
    /// skipped.
    #[test]
    fn a_long_period_makes_the_next_ones_late_and_skips_none() {
        let entries = entries(0, vec![2_500, 300, 300, 300]);
        let of =
            |entry: &PeriodEntry| (entry.start_latency_ns, entry.response_ns(), entry.is_overrun);
        assert_eq!(
            entries.iter().map(of).collect::<Vec<_>>(),
            [(0, 2_500, false), (1_500, 1_800, true), (800, 1_100, true), (100, 400, true)]
        );
    }

    /// Releases of some periods only.
    struct ListedReleases(Vec<u64>, Timestamp<Monotonic>);

    impl ReleaseSource for ListedReleases {
        fn release(&mut self, cycle: u64) -> ReleaseWaitOutcome {
            if self.0.is_empty() {
                return ReleaseWaitOutcome::Ended;
            }
            let released = self.0.remove(0);
            assert!(released >= cycle);
            let (due, begun) = (self.1, self.1);
            ReleaseWaitOutcome::Release(PeriodRelease {
                period: released,
                released_at: due,
                started_at: begun,
                is_overrun: false,
            })
        }

        fn now(&mut self) -> Timestamp<Monotonic> {
            self.1
        }
    }

    struct Nothing;

    impl PeriodWork for Nothing {
        fn run(
            &mut self,
            _: &CurrentPeriod,
            _: &mut PeriodEntry,
            _: &mut dyn FnMut(&PeriodEntry),
        ) -> WorkOutcome {
            WorkOutcome::Done
        }
    }

    #[test]
    fn periods_without_a_release_are_reported_and_not_executed() {
        let rows_of = |released: &[u64]| {
            let mut rows = Vec::new();
            let mut put = |entry: &PeriodEntry| {
                let row =
                    if entry.kind == PeriodEntryKind::NotReleased { entry.backlog } else { 0 };
                rows.push((entry.period, row));
            };
            let begin = Timestamp::from_ns(0);
            run((5, begin), &mut ListedReleases(released.to_vec(), begin), &mut Nothing, &mut put);
            rows
        };
        assert_eq!(rows_of(&[0, 1, 2, 3, 4]), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!(rows_of(&[1, 3]), [(0, 1), (1, 0), (2, 1), (3, 0), (4, 1)]);
        assert_eq!(rows_of(&[]), [(0, 5)]);
        // Whoever sends it, a release of a period that there is not ends the task.
        assert_eq!(rows_of(&[0, 9]), [(0, 0), (1, 4)]);
    }

    #[test]
    fn releases_go_on_by_the_period_and_a_clock_ahead_has_them_earlier() {
        let never = AtomicU64::new(0);
        let mut plain =
            ClockReleaseTimer::new(FirstRelease::Monotonic(5_000), 70, 1_000, 0, &never);
        assert_eq!([0, 1, 2].map(|cycle| plain.release_time(cycle).as_ns()), [5_070, 6_070, 7_070]);
        let mut ahead =
            ClockReleaseTimer::new(FirstRelease::Monotonic(5_000), 0, 1_000, 300, &never);
        assert_eq!((ahead.release_time(1).as_ns(), ahead.begin().as_ns()), (5_700, 5_000));
    }

    #[test]
    fn a_step_of_the_system_clock_moves_the_releases_and_is_detected() {
        let never = AtomicU64::new(0);
        let now = horolog_sys::clock::ClockRealtime.now();
        let mut releases =
            ClockReleaseTimer::new(FirstRelease::Utc(now.as_ns()), 0, 1_000, 0, &never);
        for instant in [releases.release_time(0), releases.begin()] {
            assert!((ClockMonotonic.now() - instant).as_ns().abs() < 1_000_000_000);
        }
        let before = releases.release_time(7);
        assert_eq!(ReleaseSource::clock_steps(&releases), 0);
        if let Some((_, clock)) = &mut releases.utc {
            clock.was_ahead(Span::from_ms(3_600_000));
        }
        let after = releases.release_time(7);
        assert_eq!(ReleaseSource::clock_steps(&releases), 1);
        // It shows the right time again.
        assert!((after - before).as_ns().abs() < 1_000_000, "{before:?} {after:?}");
    }
}
