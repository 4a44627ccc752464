//! Continuity of the served time through a leap second, whether the system clock steps in time,
//! steps late, or does not step. Pure: it is called with each reading of the clocks, and keeps the
//! state between calls.
//!
//! The *leap transition* lasts from three seconds before to five seconds after a leap second.
//! During it, time is counted on the timescale before the leap, and a step of the system clock by
//! the leap second is subtracted from its readings. So it does not matter when the clock steps: the
//! served time steps at the exact instant stated in the clock page. If the clock does not step, a
//! source that measures its offset finds it a second off; that second is then part of the source's
//! offset.

use horolog_sys::adjtimex::{KernelClockStatus, PendingLeap};
use horolog_sys::clock::ClockOffset;
use horolog_time::leap::{
    LeapKind, LeapList, LeapListValidity, LeapOutlook, LeapSecond, LeapSources,
};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::leap_notice::LeapNotice;
use super::page_builder::SystemClockReading;
use super::thread::STEP_MIN;
use crate::config::SystemLeapBehaviour;

/// Time before a leap second at which the transition starts. A page built earlier expires before
/// the leap second.
const TRANSITION_BEFORE_LEAP: Span = Span::from_ms(3_000);
/// Time after a leap second at which the transition ends. By then, no page or receive timestamp
/// from before the leap second is in use.
const TRANSITION_AFTER_LEAP: Span = Span::from_ms(5_000);
/// Largest difference from an expected step for which a clock change still counts as that step.
const STEP_TOLERANCE: Span = Span::from_ms(250);
/// Timeout for the step if the kernel has the leap second pending. The kernel steps at a timer
/// tick, so the margin is ample.
const KERNEL_STEP_TIMEOUT: Span = Span::from_ms(2_000);
/// Timeout for the step if only a daemon can make it.
const DAEMON_STEP_TIMEOUT: Span = Span::from_ms(500);
/// Time after which a clock that did not step has been slewed to the correct time, or its daemon
/// reports it as unsynchronised.
const UNCERTAIN_AFTER_LEAP: Span = Span::from_ms(3_600_000);

/// Inputs of the leap transition other than the reading of the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeapInputs<'a> {
    /// Behaviour of the system clock at a leap.
    pub(crate) system: SystemLeapBehaviour,
    /// True if a daemon disciplines the system clock, so that it also corrects the clock at a leap
    /// second.
    pub(crate) disciplined: bool,
    /// True if the kernel's pending leap second is used: not if the served time deliberately
    /// differs from the system clock.
    pub(crate) uses_kernel_leap: bool,
    /// Offset of the served time from the system clock, from a source or for a test.
    pub(crate) served_lead: Span,
    /// Time of the source's report with that offset; `None` without a source.
    pub(crate) source_time: Option<Timestamp<Monotonic>>,
    /// List of leap seconds, if there is one.
    pub(crate) list: Option<&'a LeapList>,
    /// Next leap second received from satellites, used if there is no valid list.
    pub(crate) receiver_leap: Option<LeapSecond>,
}

/// Served time and leap seconds that follow from one reading of the clocks.
#[derive(Clone, Debug)]
pub(crate) struct LeapOutputs {
    /// Time to serve; during a leap transition, on the timescale before the leap.
    pub(crate) utc: Timestamp<Utc>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, without a step made for a leap second in
    /// transition.
    pub(crate) realtime_minus_monotonic: Span,
    /// Leap second in transition.
    pub(crate) active_leap: Option<LeapSecond>,
    /// Next leap second, announced or not.
    pub(crate) next: Option<LeapSecond>,
    /// Latest past leap second, by the list or since the start.
    pub(crate) latest: Option<LeapSecond>,
    /// Leap second to announce; `None` outside the day before it and its transition.
    pub(crate) announced: Option<LeapSecond>,
    /// True if the system clock did not step at a leap second, so that its time is uncertain.
    pub(crate) is_uncertain: bool,
    /// Warnings, repeated at each reading while their cause lasts.
    pub(crate) notices: Vec<LeapNotice>,
}

#[derive(Clone, Copy, Debug)]
struct ActiveLeap {
    leap: LeapSecond,
    /// True if the system clock was observed to step.
    stepped: bool,
    step_timeout: Span,
}

/// Tracker of leap transitions, with the state between readings of the clocks.
#[derive(Debug)]
pub(crate) struct LeapTransitionTracker {
    offset: ClockOffset,
    /// Step of a past leap second that the system clock has not made; it is added to the clock's
    /// reading.
    owed_step: Span,
    /// Step contained in the source's offset that must be subtracted from it: because the leap
    /// second is still in transition, or because the clock has stepped since the report.
    source_step: Span,
    /// Source's offset of the system clock at the last reading.
    source_offset: Option<Span>,
    /// Time of the source's report at the last reading.
    source_time: Option<Timestamp<Monotonic>>,
    steps_since_report: Span,
    /// Sum of the steps of the leap seconds whose transition has ended.
    passed_steps: Span,
    /// Served time at the last reading: leap seconds up to it are past.
    past_until: Option<Timestamp<Utc>>,
    active_leap: Option<ActiveLeap>,
    latest: Option<LeapSecond>,
    uncertain_until: Option<Timestamp<Monotonic>>,
    /// True while the kernel still reports the last leap second, because its flag has not been
    /// cleared.
    kernel_is_stale: bool,
}

impl LeapTransitionTracker {
    pub(crate) fn new(offset: ClockOffset) -> Self {
        Self {
            offset,
            owed_step: Span::ZERO,
            source_step: Span::ZERO,
            source_offset: None,
            source_time: None,
            steps_since_report: Span::ZERO,
            passed_steps: Span::ZERO,
            past_until: None,
            active_leap: None,
            latest: None,
            uncertain_until: None,
            kernel_is_stale: false,
        }
    }

    /// Returns the number of leap seconds since the start; one in transition counts from its step
    /// on. Deleted seconds are negative.
    pub(crate) fn leaps_s(&self) -> i32 {
        let present = self.active_leap.map(|passing| passing.leap);
        let begun =
            present.filter(|leap| self.past_until.is_some_and(|utc| utc >= leap.step_instant()));
        let steps = self.passed_steps + begun.map_or(Span::ZERO, |leap| leap.step());
        (-steps.as_ns() / NS_PER_S) as i32
    }

    /// Returns the number of leap seconds since the start whose transition has ended. Deleted
    /// seconds are negative.
    pub(crate) fn passed_leaps_s(&self) -> i32 {
        (-self.passed_steps.as_ns() / NS_PER_S) as i32
    }

    /// Updates the state with a reading of the clocks, and returns the time and the leap seconds
    /// that follow from it.
    pub(crate) fn advance(
        &mut self,
        reading: &SystemClockReading,
        inputs: &LeapInputs<'_>,
    ) -> LeapOutputs {
        let earlier_offset = self.offset.offset + self.owed_step;
        self.apply_reading(reading, inputs);
        self.retain_source_offset(self.offset.offset + self.owed_step - earlier_offset, inputs);
        self.detect_source_step(reading, inputs);
        if self.uncertain_until.is_some_and(|until| reading.now >= until) {
            (self.uncertain_until, self.owed_step) = (None, Span::ZERO);
            self.past_until = None;
        }
        let utc = self.utc(reading.now, inputs);
        let reached = self.past_until.map_or(utc, |reached| reached.min(utc));
        self.count_current_leap(reading, inputs, utc);
        let kernel = self.kernel_leap(reading, inputs);
        let mut outlook = LeapOutlook { next: None, disagreement: None };
        if inputs.system != SystemLeapBehaviour::Smears {
            let kernel_should_know = inputs.uses_kernel_leap && inputs.disciplined;
            let sources = LeapSources { list: inputs.list, kernel, kernel_should_know };
            outlook = LeapOutlook::new(&sources, reached);
            let is_listed =
                inputs.list.is_some_and(|list| list.validity(utc) != LeapListValidity::Expired);
            let receiver_leap =
                inputs.receiver_leap.filter(|leap| !is_listed && leap.step_instant() > reached);
            outlook.next = outlook.next.or(receiver_leap).filter(|leap| Some(*leap) != self.latest);
        }
        if self.active_leap.is_none() {
            self.active_leap = outlook
                .next
                .filter(|leap| leap.step_instant() - utc <= TRANSITION_BEFORE_LEAP)
                .map(|leap| ActiveLeap {
                    leap,
                    stepped: false,
                    step_timeout: step_timeout(inputs, kernel),
                });
        }
        self.end_transition(utc, reading, inputs);
        self.outputs(reading, inputs, &outlook)
    }

    /// If the kernel is within an inserted leap second at the first reading, counts that leap
    /// second as past, although its instant is still to recur.
    fn count_current_leap(
        &mut self,
        reading: &SystemClockReading,
        inputs: &LeapInputs<'_>,
        utc: Timestamp<Utc>,
    ) {
        let is_in_it = reading.kernel.as_ref().is_some_and(|kernel| kernel.is_leap_second);
        if is_in_it && inputs.uses_kernel_leap && self.past_until.is_none() {
            self.latest = Some(LeapSecond::at_end_of_day(utc, LeapKind::Insert));
        }
    }

    /// Adopts the measured offset, less the step of a leap second in transition. Any other step of
    /// the clock ends the transition and cancels an owed step.
    fn apply_reading(&mut self, reading: &SystemClockReading, inputs: &LeapInputs<'_>) {
        let jump = reading.offset.offset - self.offset.offset;
        let mut offset = reading.offset;
        if let Some(passing) = &mut self.active_leap {
            let (leap, step) = (passing.leap, passing.leap.step());
            let utc = Timestamp::<Utc>::from_ns(reading.now.as_ns())
                + self.offset.offset
                + self.owed_step
                + self
                    .source_offset
                    .filter(|_| inputs.source_time.is_some())
                    .unwrap_or(inputs.served_lead)
                - self.source_step;
            let is_due = utc + STEP_TOLERANCE >= leap.step_instant();
            passing.stepped = is_due && is_step(jump, step);
            if passing.stepped {
                offset.offset = offset.offset - step;
            } else if !is_step(jump, Span::ZERO) {
                // Another process set the clock; whether that included the leap second is unknown.
                if utc >= leap.step_instant() {
                    self.passed_steps = self.passed_steps + step;
                }
                (self.active_leap, self.owed_step, self.past_until) = (None, Span::ZERO, None);
                self.source_step = Span::ZERO;
            }
        } else if !is_step(jump, Span::ZERO) {
            // The clock has made the owed step, or another one that includes it.
            (self.owed_step, self.uncertain_until, self.past_until) = (Span::ZERO, None, None);
        }
        self.offset = self.offset.latest_or_tighter(offset);
    }

    /// Keeps the source's offset valid until its next report: steps of the clock since the report,
    /// of [`STEP_MIN`] or more, are subtracted from it.
    fn retain_source_offset(&mut self, offset_change: Span, inputs: &LeapInputs<'_>) {
        let before = std::mem::replace(&mut self.source_time, inputs.source_time);
        if before != inputs.source_time {
            self.steps_since_report = Span::ZERO;
        } else if before.is_some()
            && offset_change.as_ns().unsigned_abs() >= STEP_MIN.as_ns().unsigned_abs()
        {
            self.steps_since_report = self.steps_since_report + offset_change;
        }
    }

    /// Detects a step that the system clock did not make and that the source's offset therefore
    /// contains, and the end of that.
    fn detect_source_step(&mut self, reading: &SystemClockReading, inputs: &LeapInputs<'_>) {
        if inputs.source_time.is_none() {
            return;
        }
        let Some(before) = self.source_offset.replace(inputs.served_lead) else { return };
        let jump = inputs.served_lead - before;
        let leap = self.active_leap.map(|passing| passing.leap).filter(|leap| {
            let utc = self.utc(reading.now, inputs) - jump;
            is_step(jump, leap.step()) && utc + STEP_TOLERANCE >= leap.step_instant()
        });
        if let Some(leap) = leap {
            self.source_step = leap.step();
        } else if self.source_step != Span::ZERO && is_step(jump, -self.source_step) {
            self.source_step = Span::ZERO;
        } else if self.owed_step != Span::ZERO && is_step(jump, self.owed_step) {
            (self.owed_step, self.uncertain_until) = (Span::ZERO, None);
        }
    }

    fn utc(&self, now: Timestamp<Monotonic>, inputs: &LeapInputs<'_>) -> Timestamp<Utc> {
        let realtime = Timestamp::from_ns(now.as_ns().saturating_add(self.offset.offset.as_ns()));
        realtime + self.owed_step + inputs.served_lead - self.source_step - self.steps_since_report
    }

    fn kernel_leap(
        &mut self,
        reading: &SystemClockReading,
        inputs: &LeapInputs<'_>,
    ) -> Option<LeapSecond> {
        let kind = reading.kernel.as_ref().and_then(kernel_leap_kind);
        self.kernel_is_stale &= kind.is_some();
        let kind = kind.filter(|_| inputs.uses_kernel_leap && !self.kernel_is_stale)?;
        // After the leap second the current day is another, but the kernel still reports the same
        // leap second.
        if let Some(leap) = self.active_leap.map(|passing| passing.leap) {
            return Some(LeapSecond { kind, ..leap });
        }
        let system = reading.now.as_ns().saturating_add(reading.offset.offset.as_ns());
        Some(LeapSecond::at_end_of_day(Timestamp::from_ns(system), kind))
    }

    /// Ends the transition five seconds after the leap second. Marks the time as uncertain if the
    /// system clock should have stepped by now.
    fn end_transition(
        &mut self,
        utc: Timestamp<Utc>,
        reading: &SystemClockReading,
        inputs: &LeapInputs<'_>,
    ) {
        self.past_until = Some(utc);
        let Some(ActiveLeap { leap, stepped, step_timeout }) = self.active_leap else {
            return;
        };
        let behind = utc - leap.step_instant();
        let is_known = stepped || self.source_step != Span::ZERO;
        let is_late = !is_known && inputs.disciplined && behind >= step_timeout;
        if is_known {
            self.uncertain_until = None;
        } else if is_late && self.uncertain_until.is_none() {
            self.uncertain_until = Some(reading.now + UNCERTAIN_AFTER_LEAP);
        }
        if behind < TRANSITION_AFTER_LEAP {
            return;
        }
        if stepped {
            self.offset.offset = self.offset.offset + leap.step();
        } else {
            // A missing step that the source has measured is part of its offset already.
            self.owed_step = self.owed_step + leap.step() - std::mem::take(&mut self.source_step);
        }
        self.passed_steps = self.passed_steps + leap.step();
        (self.active_leap, self.latest, self.kernel_is_stale) = (None, Some(leap), true);
        self.past_until = Some(utc + leap.step());
    }

    fn outputs(
        &self,
        reading: &SystemClockReading,
        inputs: &LeapInputs<'_>,
        outlook: &LeapOutlook,
    ) -> LeapOutputs {
        let utc = self.utc(reading.now, inputs);
        let passing = self.active_leap.map(|passing| passing.leap);
        // The next leap second may have become past with this reading.
        let next = passing.or(outlook.next).filter(|leap| Some(*leap) != self.latest);
        let announced = passing.or(LeapOutlook { next, ..*outlook }.announced(utc));
        let is_uncertain = self.uncertain_until.is_some();
        let mut notices = Vec::new();
        notices.extend(inputs.list.and_then(|list| match list.validity(utc) {
            LeapListValidity::Valid => None,
            LeapListValidity::ExpiresSoon => Some(LeapNotice::ExpiresSoon(list.expires())),
            LeapListValidity::Expired => Some(LeapNotice::Expired(list.expires())),
        }));
        notices.extend(outlook.disagreement.map(LeapNotice::Disagreement));
        notices.extend(is_uncertain.then_some(LeapNotice::DidNotStep));
        LeapOutputs {
            utc,
            realtime_minus_monotonic: self.offset.offset,
            active_leap: passing,
            next,
            latest: LeapOutlook::latest_past_leap(inputs.list, utc).max(self.latest),
            announced,
            is_uncertain,
            notices,
        }
    }
}

/// Returns true if a change of the clock is this step, within [`STEP_TOLERANCE`].
fn is_step(jump: Span, step: Span) -> bool {
    (jump - step).as_ns().unsigned_abs() < STEP_TOLERANCE.as_ns().unsigned_abs()
}

fn kernel_leap_kind(kernel: &KernelClockStatus) -> Option<LeapKind> {
    match kernel.leap {
        PendingLeap::None => None,
        PendingLeap::Insert => Some(LeapKind::Insert),
        PendingLeap::Delete => Some(LeapKind::Delete),
    }
}

fn step_timeout(inputs: &LeapInputs<'_>, kernel: Option<LeapSecond>) -> Span {
    match inputs.system {
        SystemLeapBehaviour::Slews => Span::ZERO,
        _ if kernel.is_some() => KERNEL_STEP_TIMEOUT,
        _ => DAEMON_STEP_TIMEOUT,
    }
}
