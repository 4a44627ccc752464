//! Continuity of served time through a leap second, while the system clock steps in time, steps
//! late, or does not step. Pure: it takes each reading of the clocks and keeps the state needed for
//! the next.
//!
//! From three seconds before a leap until five seconds after it, the *leap transition* is active:
//! time is counted on the scale before the leap, and a step of the system clock by the second is
//! subtracted from readings. So the instant of that step is irrelevant; the served time steps at
//! the instant stated by the page, which is exact. A source that measures the clock detects a
//! second that the clock did not step: the second is then part of the source's offset, and is
//! subtracted from it, or no longer owed.

use horolog_sys::adjtimex::{KernelClock, PendingLeap};
use horolog_sys::clock::ClockOffset;
use horolog_time::leap::{LeapKind, LeapList, LeapListValidity, LeapSecond, LeapSources, Outlook};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::clock::STEP_MIN;
use crate::config::LeapSystem;
use crate::leap_notice::LeapNotice;
use crate::page_builder::SystemClockReading;

/// Start of the transition before a leap. A page built earlier has expired when the leap comes.
const PASSING_BEFORE: Span = Span::from_ms(3_000);
/// End of the transition after a leap. No page or receive timestamp from before the leap is used
/// any more.
const PASSING_AFTER: Span = Span::from_ms(5_000);
/// Largest difference of two steps that are regarded as the same one.
const SAME_STEP: Span = Span::from_ms(250);
/// Timeout for the step by a kernel that knows of the leap: its timer tick, with ample margin.
const KERNEL_STEP_TIMEOUT: Span = Span::from_ms(2_000);
/// Timeout for the step by a daemon that steps the clock itself.
const DAEMON_STEP_TIMEOUT: Span = Span::from_ms(500);
/// Time after which a clock that was not stepped has been slewed to the correct time, or its daemon
/// reports otherwise.
const UNCERTAIN_AFTER_LEAP: Span = Span::from_ms(3_600_000);

/// Inputs of the leap transition, in addition to the readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeapInputs<'a> {
    /// Behaviour of the system clock at a leap.
    pub(crate) system: LeapSystem,
    /// True if the system clock is disciplined by a daemon, which will also correct for a leap.
    pub(crate) disciplined: bool,
    /// True if the kernel's leap state counts: not while the served time is other than that of the
    /// system clock.
    pub(crate) uses_kernel_leap: bool,
    /// Lead of the served time over the system clock, deliberate or from a source.
    pub(crate) ahead: Span,
    /// Time of the source's report from which that lead derives.
    pub(crate) source_time: Option<Timestamp<Monotonic>>,
    /// List of leap seconds.
    pub(crate) list: Option<&'a LeapList>,
    /// Next leap second reported by a receiver, used if there is no list.
    pub(crate) receiver_leap: Option<LeapSecond>,
}

/// Result of one reading of the clocks.
#[derive(Clone, Debug)]
pub(crate) struct LeapOutputs {
    /// Time to serve; on the scale before the leap during a leap transition.
    pub(crate) utc: Timestamp<Utc>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, without a step since a leap that is in transition.
    pub(crate) realtime_minus_monotonic: Span,
    /// Leap in transition.
    pub(crate) passing: Option<LeapSecond>,
    /// Next leap, announced or not.
    pub(crate) next: Option<LeapSecond>,
    /// Last leap.
    pub(crate) latest: Option<LeapSecond>,
    /// Leap to announce, before its step.
    pub(crate) announced: Option<LeapSecond>,
    /// True if the system clock did not step, so that its time is uncertain.
    pub(crate) is_uncertain: bool,
    /// Warnings, repeated as long as their cause lasts.
    pub(crate) notices: Vec<LeapNotice>,
}

#[derive(Clone, Copy, Debug)]
struct ActiveLeap {
    leap: LeapSecond,
    /// True if a step of the system clock was detected.
    stepped: bool,
    step_timeout: Span,
}

/// State carried from one reading to the next.
#[derive(Debug)]
pub(crate) struct LeapTransition {
    offset: ClockOffset,
    /// Step that served time has made and the system clock has not.
    owed: Span,
    /// Step that is contained in the source's offset and is subtracted from it: it is yet to come
    /// on the scale of a leap in transition, or the clock has made it since.
    learnt: Span,
    /// Last offset of the clock reported by the source.
    source_offset: Option<Span>,
    /// Time of the source's report at the last reading, and the total clock step since.
    source_time: Option<Timestamp<Monotonic>>,
    set: Span,
    /// Sum of the steps of the leaps before the one in transition.
    passed: Span,
    /// Instant up to which leaps are past.
    reached: Option<Timestamp<Utc>>,
    passing: Option<ActiveLeap>,
    latest: Option<LeapSecond>,
    uncertain_until: Option<Timestamp<Monotonic>>,
    /// True if the kernel still reports the past leap: its flag stays until it is cleared.
    kernel_is_stale: bool,
}

impl LeapTransition {
    pub(crate) fn new(offset: ClockOffset) -> Self {
        Self {
            offset,
            owed: Span::ZERO,
            learnt: Span::ZERO,
            source_offset: None,
            source_time: None,
            set: Span::ZERO,
            passed: Span::ZERO,
            reached: None,
            passing: None,
            latest: None,
            uncertain_until: None,
            kernel_is_stale: false,
        }
    }

    /// Returns the number of leap seconds since the start, counting the present one from its
    /// instant on.
    pub(crate) fn leaps_s(&self) -> i32 {
        let present = self.passing.map(|passing| passing.leap);
        let begun = present.filter(|leap| self.reached.is_some_and(|utc| utc >= leap.instant()));
        let steps = self.passed + begun.map_or(Span::ZERO, |leap| leap.step());
        (-steps.as_ns() / NS_PER_S) as i32
    }

    /// Returns the number of leap seconds since the start, counting the present one only after its
    /// transition.
    pub(crate) fn passed_s(&self) -> i32 {
        (-self.passed.as_ns() / NS_PER_S) as i32
    }

    /// Advances to the instant of a reading.
    pub(crate) fn advance(
        &mut self,
        reading: &SystemClockReading,
        terms: &LeapInputs<'_>,
    ) -> LeapOutputs {
        let shown = self.offset.offset + self.owed;
        self.take(reading, terms);
        self.keep_word(self.offset.offset + self.owed - shown, terms);
        self.learn(reading, terms);
        if self.uncertain_until.is_some_and(|until| reading.now >= until) {
            (self.uncertain_until, self.owed) = (None, Span::ZERO);
            self.reached = None;
        }
        let utc = self.utc(reading.now, terms);
        let reached = self.reached.map_or(utc, |reached| reached.min(utc));
        self.begin(reading, terms, utc);
        let kernel = self.kernel(reading, terms);
        let mut outlook = Outlook { next: None, discord: None };
        if terms.system != LeapSystem::Smears {
            let kernel_should_know = terms.uses_kernel_leap && terms.disciplined;
            let sources = LeapSources { list: terms.list, kernel, kernel_should_know };
            outlook = Outlook::new(&sources, reached);
            let is_listed =
                terms.list.is_some_and(|list| list.validity(utc) != LeapListValidity::Expired);
            let receiver_leap =
                terms.receiver_leap.filter(|leap| !is_listed && leap.instant() > reached);
            outlook.next = outlook.next.or(receiver_leap).filter(|leap| Some(*leap) != self.latest);
        }
        if self.passing.is_none() {
            self.passing =
                outlook.next.filter(|leap| leap.instant() - utc <= PASSING_BEFORE).map(|leap| {
                    ActiveLeap { leap, stepped: false, step_timeout: step_timeout(terms, kernel) }
                });
        }
        self.finish(utc, reading, terms);
        self.point(reading, terms, &outlook)
    }

    /// Starts the transition state. A start within an inserted second counts it as already made,
    /// although its instant recurs.
    fn begin(&mut self, reading: &SystemClockReading, terms: &LeapInputs<'_>, utc: Timestamp<Utc>) {
        let is_in_it = reading.kernel.as_ref().is_some_and(|kernel| kernel.is_leap_second);
        if is_in_it && terms.uses_kernel_leap && self.reached.is_none() {
            self.latest = Some(LeapSecond::at_end_of_day(utc, LeapKind::Insert));
        }
    }

    /// Applies the measured offset, without the step of a leap in transition.
    fn take(&mut self, reading: &SystemClockReading, terms: &LeapInputs<'_>) {
        let jump = reading.offset.offset - self.offset.offset;
        let mut offset = reading.offset;
        if let Some(passing) = &mut self.passing {
            let (leap, step) = (passing.leap, passing.leap.step());
            let utc = Timestamp::<Utc>::from_ns(reading.now.as_ns())
                + self.offset.offset
                + self.owed
                + self.source_offset.filter(|_| terms.source_time.is_some()).unwrap_or(terms.ahead)
                - self.learnt;
            let is_due = utc + SAME_STEP >= leap.instant();
            passing.stepped = is_due && is(jump, step);
            if passing.stepped {
                offset.offset = offset.offset - step;
            } else if !is(jump, Span::ZERO) {
                // The clock was set by another process, with or without knowledge of the leap.
                if utc >= leap.instant() {
                    self.passed = self.passed + step;
                }
                (self.passing, self.owed, self.reached) = (None, Span::ZERO, None);
                self.learnt = Span::ZERO;
            }
        } else if !is(jump, Span::ZERO) {
            // The owed step has come, or another one that also makes up for it.
            (self.owed, self.uncertain_until, self.reached) = (Span::ZERO, None, None);
        }
        self.offset = self.offset.latest_or_tighter(offset);
    }

    /// Keeps the reported offset valid for the clock as it was at the report, however it was moved
    /// since, until the next report.
    fn keep_word(&mut self, moved: Span, terms: &LeapInputs<'_>) {
        let before = std::mem::replace(&mut self.source_time, terms.source_time);
        if before != terms.source_time {
            self.set = Span::ZERO;
        } else if before.is_some()
            && moved.as_ns().unsigned_abs() >= STEP_MIN.as_ns().unsigned_abs()
        {
            self.set = self.set + moved;
        }
    }

    /// Accounts for a step that the system clock did not make and the source has measured.
    fn learn(&mut self, reading: &SystemClockReading, terms: &LeapInputs<'_>) {
        if terms.source_time.is_none() {
            return;
        }
        let Some(before) = self.source_offset.replace(terms.ahead) else { return };
        let jump = terms.ahead - before;
        let leap = self.passing.map(|passing| passing.leap).filter(|leap| {
            let utc = self.utc(reading.now, terms) - jump;
            is(jump, leap.step()) && utc + SAME_STEP >= leap.instant()
        });
        if let Some(leap) = leap {
            self.learnt = leap.step();
        } else if self.learnt != Span::ZERO && is(jump, -self.learnt) {
            self.learnt = Span::ZERO;
        } else if self.owed != Span::ZERO && is(jump, self.owed) {
            (self.owed, self.uncertain_until) = (Span::ZERO, None);
        }
    }

    fn utc(&self, now: Timestamp<Monotonic>, terms: &LeapInputs<'_>) -> Timestamp<Utc> {
        let realtime = Timestamp::from_ns(now.as_ns().saturating_add(self.offset.offset.as_ns()));
        realtime + self.owed + terms.ahead - self.learnt - self.set
    }

    fn kernel(
        &mut self,
        reading: &SystemClockReading,
        terms: &LeapInputs<'_>,
    ) -> Option<LeapSecond> {
        let kind = reading.kernel.as_ref().and_then(kind);
        self.kernel_is_stale &= kind.is_some();
        let kind = kind.filter(|_| terms.uses_kernel_leap && !self.kernel_is_stale)?;
        // After the leap it is another day, but the kernel still reports the same leap.
        if let Some(leap) = self.passing.map(|passing| passing.leap) {
            return Some(LeapSecond { kind, ..leap });
        }
        let system = reading.now.as_ns().saturating_add(reading.offset.offset.as_ns());
        Some(LeapSecond::at_end_of_day(Timestamp::from_ns(system), kind))
    }

    /// Ends the transition when the leap is far enough in the past, and marks the time as uncertain
    /// if the system clock should have stepped by now.
    fn finish(
        &mut self,
        utc: Timestamp<Utc>,
        reading: &SystemClockReading,
        terms: &LeapInputs<'_>,
    ) {
        self.reached = Some(utc);
        let Some(ActiveLeap { leap, stepped, step_timeout }) = self.passing else {
            return;
        };
        let behind = utc - leap.instant();
        let is_known = stepped || self.learnt != Span::ZERO;
        let is_late = !is_known && terms.disciplined && behind >= step_timeout;
        if is_known {
            self.uncertain_until = None;
        } else if is_late && self.uncertain_until.is_none() {
            self.uncertain_until = Some(reading.now + UNCERTAIN_AFTER_LEAP);
        }
        if behind < PASSING_AFTER {
            return;
        }
        if stepped {
            self.offset.offset = self.offset.offset + leap.step();
        } else {
            // A second measured by a source is contained in its offset.
            self.owed = self.owed + leap.step() - std::mem::take(&mut self.learnt);
        }
        self.passed = self.passed + leap.step();
        (self.passing, self.latest, self.kernel_is_stale) = (None, Some(leap), true);
        self.reached = Some(utc + leap.step());
    }

    fn point(
        &self,
        reading: &SystemClockReading,
        terms: &LeapInputs<'_>,
        outlook: &Outlook,
    ) -> LeapOutputs {
        let utc = self.utc(reading.now, terms);
        let passing = self.passing.map(|passing| passing.leap);
        // The leap of the outlook may have passed just now.
        let next = passing.or(outlook.next).filter(|leap| Some(*leap) != self.latest);
        let announced = passing.or(Outlook { next, ..*outlook }.announced(utc));
        let is_uncertain = self.uncertain_until.is_some();
        let mut notices = Vec::new();
        notices.extend(terms.list.and_then(|list| match list.validity(utc) {
            LeapListValidity::Valid => None,
            LeapListValidity::ExpiresSoon => Some(LeapNotice::ExpiresSoon(list.expires())),
            LeapListValidity::Expired => Some(LeapNotice::Expired(list.expires())),
        }));
        notices.extend(outlook.discord.map(LeapNotice::Discord));
        notices.extend(is_uncertain.then_some(LeapNotice::DidNotStep));
        LeapOutputs {
            utc,
            realtime_minus_monotonic: self.offset.offset,
            passing,
            next,
            latest: Outlook::latest(terms.list, utc).max(self.latest),
            announced,
            is_uncertain,
            notices,
        }
    }
}

/// Returns true if a jump equals this step.
fn is(jump: Span, step: Span) -> bool {
    (jump - step).as_ns().unsigned_abs() < SAME_STEP.as_ns().unsigned_abs()
}

fn kind(kernel: &KernelClock) -> Option<LeapKind> {
    match kernel.leap {
        PendingLeap::None => None,
        PendingLeap::Insert => Some(LeapKind::Insert),
        PendingLeap::Delete => Some(LeapKind::Delete),
    }
}

fn step_timeout(terms: &LeapInputs<'_>, kernel: Option<LeapSecond>) -> Span {
    match terms.system {
        LeapSystem::Slews => Span::ZERO,
        _ if kernel.is_some() => KERNEL_STEP_TIMEOUT,
        _ => DAEMON_STEP_TIMEOUT,
    }
}
