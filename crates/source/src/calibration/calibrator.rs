//! Processing of pulses and sentences: the labeller assigns seconds to pulses, the servo computes
//! the clock error, which then steers the clock and goes to other programs and the log. It never
//! blocks and reads no clock; its thread passes all input and clock readings.

mod leap_transition;
mod leaps;
mod plausible;
mod report;
mod steer;

use std::collections::VecDeque;

use horolog_discipline::{
    self as discipline, ClockErrorLogEntry, LabelledPulse, PlausibilityJudge,
    PlausibilityRuleParameters, Pulse, PulseLabeller, PulseLabellerSettings, SentenceOnlyTime,
    SentenceRejectReason, Servo, ServoDecision, ServoSettings, SynchronisationState,
};
use horolog_sys::adjtimex::PendingLeap;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp;

use self::leap_transition::LeapTransitionProgress;
use self::leaps::CalibrationLeapSeconds;
use self::plausible::UnconfirmedSentences;
use self::steer::SteeringSuspension;
use super::error_log::ClockErrorLog;
use super::status::{
    pulse_reject_name, sentence_error_name, sentence_reject_name, state_name, verdict_name,
};
use super::{CalibrationConfig, NamedCounts};
use crate::gnss::{CollectedReceiverInput, FixStates, RejectedSentence};
use crate::output::SampleOutputs;
use crate::{
    ClockReadings, ClockSteering, OutputSample, ParsedSentence, PulseConditioner, PulseEdge,
    SentenceCounts, SentenceError, SourceError,
};

/// Error bound of an estimate, as a multiple of its standard deviation.
const BOUND_DEVIATIONS: f64 = 3.0;
/// Margin after the pulse width. If the width is checked, a pulse is known only at its end, and
/// sentences wait for that too.
const WIDTH_SLACK: Span = Span::from_ms(50);
/// Time without input after which pulses or sentences count as missing.
const MISSING_AFTER: Span = Span::from_ns(4 * NS_PER_S);
/// Time without progress of the thread after which no estimate is reported.
const STALLED_AFTER: Span = Span::from_ns(5 * NS_PER_S);
/// Interval at which missing input is checked for.
const TICK_INTERVAL: Span = Span::from_ns(NS_PER_S);
/// Smallest step of the system clock that is detected: its two clocks are not read at the same
/// instant.
const STEP_MIN: Span = Span::from_ns(100_000);
/// Smallest step that is detected by sentences alone, above the variation of their lag.
const COARSE_STEP_MIN: Span = Span::from_ms(1_500);
/// Time around a leap second in which its announcement is not withdrawn.
const LEAP_MARGIN: Span = Span::from_ns(2 * NS_PER_S);
/// Reason for which time by sentences alone is not output by default: SHM and SOCK have no field
/// for an error of this size that daemons respect.
const COARSE_OUTPUT_REASON: &str = "without a pulse the error is up to a second, which SHM and SOCK cannot \
                      represent; add --pps, or --coarse-output to output it regardless";
/// Maximum number of queued inputs, and of queued notices: more inputs than arrive while one waits
/// for those that may precede it.
const PENDING_MAX: usize = 64;

/// Input in the queue that restores the order of arrival.
#[derive(Clone, Copy, Debug)]
enum PendingInput {
    Pulse(PulseEdge),
    Sentence(Result<ParsedSentence, SentenceError>),
}

/// Arrival of the last input and of the last accepted one, and the reject reason, if any.
#[derive(Clone, Default, Debug)]
struct LastInputStatus {
    at: Option<Timestamp<Monotonic>>,
    accepted_at: Option<Timestamp<Monotonic>>,
    reject_reason: Option<String>,
}

impl LastInputStatus {
    fn record(&mut self, at: Timestamp<Monotonic>, reject: Option<String>) {
        self.at = Some(at);
        if reject.is_none() {
            self.accepted_at = Some(at);
        }
        self.reject_reason = reject;
    }

    fn is_missing(&self, now: Timestamp<Monotonic>) -> bool {
        self.at.is_none_or(|at| now - at > MISSING_AFTER)
    }
}

/// State of a calibration.
pub(super) struct Calibrator {
    name: String,
    conditioner: Option<PulseConditioner>,
    /// Time that input stays in the queue, so that earlier input can still be placed before it.
    reorder_delay: Span,
    pending: VecDeque<(Timestamp<Monotonic>, PendingInput)>,
    judge: PlausibilityJudge,
    /// UTC minus `CLOCK_MONOTONIC` by the last plausible sentence, if no other evidence supports
    /// it.
    unconfirmed: Option<Span>,
    /// Last consecutive sentences whose time is implausible; `None` if the last sentence with a fix
    /// was not one of these.
    unconfirmed_sentences: Option<UnconfirmedSentences>,
    labeller: PulseLabeller,
    settings: ServoSettings,
    servo: Servo,
    steering: Option<ClockSteering>,
    steering_ended: Option<String>,
    /// Present frequency correction and its last change, in ppb, and the instant of that change.
    commanded_ppb: f64,
    change_ppb: f64,
    changed_at: Option<Timestamp<Monotonic>>,
    pub(super) log: Option<ClockErrorLog>,
    outputs: SampleOutputs,
    /// True if outputs also receive the time of sentences alone.
    outputs_coarse: bool,
    pulses: NamedCounts,
    sentences: NamedCounts,
    /// Frames received since the line was opened, and the last one that was rejected.
    frames: SentenceCounts,
    rejected: Option<RejectedSentence>,
    /// Latest time by sentences alone; `None` before the first.
    coarse: Option<SentenceOnlyTime>,
    steps: u64,
    last_pulse: LastInputStatus,
    last_sentence: LastInputStatus,
    /// UTC of the last pulse that entered the estimate; `None` before the first.
    reference: Option<Timestamp<Utc>>,
    fixes: FixStates,
    ticked_at: Option<Timestamp<Monotonic>>,
    /// Instant of the last clock readings, and the system clock at that instant.
    clocks_read_at: Timestamp<Monotonic>,
    realtime: Timestamp<Utc>,
    leaps: CalibrationLeapSeconds,
    leap_transition: LeapTransitionProgress,
    selection_history: SteeringSuspension,
    state: SynchronisationState,
    notices: Vec<String>,
    /// Error of the serial line, gpsd connection or pulse device; `None` if these work.
    pub(super) input_error: Option<SourceError>,
}

impl Calibrator {
    /// Creates the state for a clock with the frequency correction `frequency_ppb`. `plausibility`
    /// limits acceptable times.
    pub(super) fn new(
        config: &CalibrationConfig,
        plausibility: PlausibilityRuleParameters,
        steering: Option<ClockSteering>,
        frequency_ppb: f64,
        mut outputs: SampleOutputs,
    ) -> Self {
        let mut notices = Vec::new();
        let outputs_coarse = config.pulse.is_some() || config.coarse_output;
        if !outputs_coarse && !outputs.is_empty() {
            outputs.set_suspended(COARSE_OUTPUT_REASON);
            notices.push(format!("no output to other programs: {COARSE_OUTPUT_REASON}"));
        }
        let width = config.pulse.as_ref().and_then(|pulse| pulse.width);
        let settings = ServoSettings {
            is_steering: steering.is_some(),
            initial_frequency_ppb: frequency_ppb,
            oscillator: config.oscillator,
            // A step moves the time of clients that are already served.
            step_later: config.step_threshold,
            holdover_max: config.holdover_limit,
            ..ServoSettings::default()
        };
        Self {
            name: config.name(),
            conditioner: config.pulse.as_ref().map(crate::PulseSpec::conditioner),
            reorder_delay: width.map_or(Span::ZERO, |width| width + width + WIDTH_SLACK),
            pending: VecDeque::new(),
            judge: PlausibilityJudge::new(plausibility),
            unconfirmed: None,
            unconfirmed_sentences: None,
            labeller: PulseLabeller::new(PulseLabellerSettings {
                width,
                lag_max: config.sentence_lag,
                ..PulseLabellerSettings::default()
            }),
            settings,
            servo: Servo::new(settings),
            steering,
            steering_ended: None,
            commanded_ppb: frequency_ppb,
            change_ppb: 0.0,
            changed_at: None,
            log: None,
            outputs,
            outputs_coarse,
            pulses: NamedCounts::default(),
            sentences: NamedCounts::default(),
            frames: SentenceCounts::default(),
            rejected: None,
            coarse: None,
            steps: 0,
            last_pulse: LastInputStatus::default(),
            last_sentence: LastInputStatus::default(),
            reference: None,
            fixes: FixStates::default(),
            ticked_at: None,
            clocks_read_at: Timestamp::from_ns(i64::MIN),
            realtime: Timestamp::from_ns(0),
            leaps: CalibrationLeapSeconds::default(),
            leap_transition: LeapTransitionProgress::default(),
            selection_history: SteeringSuspension::default(),
            state: SynchronisationState::Starting,
            notices,
            input_error: None,
        }
    }

    /// Processes an edge of the pulse input.
    pub(super) fn push_edge(&mut self, edge: PulseEdge) {
        let Some(conditioner) = &mut self.conditioner else { return };
        match conditioner.push_edge(edge) {
            Some(pulse) => self.enqueue(pulse.monotonic, PendingInput::Pulse(pulse)),
            // If the width is not checked, a pulse is complete at its first edge.
            None if self.reorder_delay == Span::ZERO => {
                self.labeller.add_opposite_edge(edge.monotonic);
            }
            None => {}
        }
    }

    /// Processes line input other than sentences: leap reports, fix reports, frame counts and the
    /// last rejected frame.
    pub(super) fn push_line_input(&mut self, input: &CollectedReceiverInput) {
        input.leaps.iter().for_each(|report| self.leap_report(report));
        input.fixes.iter().for_each(|(note, at)| self.fixes.apply_report(*note, *at));
        let new_counts = input.counts.since(&self.frames);
        self.frames = input.counts;
        for (name, count) in [
            ("checksum", new_counts.checksum),
            ("no_checksum", new_counts.no_checksum),
            ("garbled", new_counts.garbled),
            ("overlong", new_counts.overlong),
        ] {
            self.sentences.set(name, self.sentences.get(name) + count);
        }
        self.rejected.clone_from(&input.rejected);
    }

    /// Queues a sentence whose first character arrived at `began`.
    pub(super) fn push_sentence(
        &mut self,
        sentence: Result<ParsedSentence, SentenceError>,
        began: Timestamp<Monotonic>,
    ) {
        self.enqueue(began, PendingInput::Sentence(sentence));
    }

    fn enqueue(&mut self, at: Timestamp<Monotonic>, input: PendingInput) {
        let index = self.pending.partition_point(|(earlier, _)| *earlier <= at);
        self.pending.insert(index, (at, input));
        if self.pending.len() > PENDING_MAX {
            self.pending.pop_front();
        }
    }

    /// Advances to `readings`: processes queued input that is old enough, in order of arrival.
    pub(super) fn advance(&mut self, readings: &ClockReadings) {
        let now = readings.monotonic;
        (self.clocks_read_at, self.realtime) = (now, readings.realtime());
        self.advance_leap_transition(readings);
        self.advance_leaps(readings);
        while let Some((at, input)) = self.pending.front().copied() {
            if now - at < self.reorder_delay {
                break;
            }
            self.pending.pop_front();
            match input {
                PendingInput::Pulse(pulse) => self.process_pulse(&pulse),
                PendingInput::Sentence(sentence) => {
                    self.process_sentence_result(&sentence, at, readings);
                }
            }
        }
        if self.ticked_at.is_none_or(|ticked| now - ticked >= TICK_INTERVAL) {
            self.ticked_at = Some(now);
            if let Some(decision) = self.servo.tick(now) {
                self.apply_decision(&decision, None);
            }
        }
        self.report_state();
    }

    /// Adds a notice when the state becomes locked, holdover or unsynchronised.
    fn report_state(&mut self) {
        let previous = std::mem::replace(&mut self.state, self.servo.state());
        let is_reported = matches!(
            self.state,
            SynchronisationState::Locked
                | SynchronisationState::Holdover
                | SynchronisationState::Unsynchronised
        );
        if self.state != previous && is_reported {
            let state = state_name(self.state);
            self.notify(format!("the calibration by {} is {state}", self.name));
        }
    }

    fn notify(&mut self, notice: String) {
        if self.notices.len() < PENDING_MAX {
            self.notices.push(notice);
        }
    }

    /// Returns the notices since the last call, one line each.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the step of the clock by another program since the last pulse; `None` if there was
    /// none above [`STEP_MIN`], or it is that of the announced leap second.
    fn foreign_step(&self, readings: &ClockReadings) -> Option<Span> {
        self.servo
            .external_step(readings.realtime_minus_monotonic)
            .filter(|step| step.as_ns().saturating_abs() > STEP_MIN.as_ns())
            .filter(|_| self.kernel_leap_step(readings).is_none())
    }

    fn process_pulse(&mut self, edge: &PulseEdge) {
        let pulse = Pulse {
            monotonic: edge.monotonic,
            realtime: edge.realtime,
            sequence: edge.sequence.into(),
        };
        match self.labeller.label_pulse(&pulse) {
            Ok(labelled) => {
                self.last_pulse.record(edge.monotonic, None);
                self.process_labelled_pulse(&labelled);
            }
            Err(reject) => {
                self.pulses.add(pulse_reject_name(reject));
                self.last_pulse.record(edge.monotonic, Some(reject.to_string()));
            }
        }
    }

    fn process_sentence_result(
        &mut self,
        result: &Result<ParsedSentence, SentenceError>,
        at: Timestamp<Monotonic>,
        readings: &ClockReadings,
    ) {
        let has_fix = self.fixes.apply_sentence(result, at);
        match result {
            Ok(sentence) => self.process_sentence(sentence, has_fix, at, readings),
            Err(error) => {
                self.sentences.add(sentence_error_name(*error));
                self.last_sentence.record(at, Some(error.to_string()));
            }
        }
    }

    fn process_sentence(
        &mut self,
        sentence: &ParsedSentence,
        has_fix: bool,
        at: Timestamp<Monotonic>,
        readings: &ClockReadings,
    ) {
        let input = discipline::Sentence {
            second: sentence.utc,
            received: at,
            is_valid: has_fix,
            is_leap_second: sentence.is_leap_second,
        };
        // A sentence without a fix is rejected by the labeller and sets no clock, so it is not
        // judged.
        let plausibility =
            if input.is_valid { self.check_plausibility(sentence, at, readings) } else { Ok(()) };
        let result = match plausibility {
            Err(reason) => Err(SentenceRejectReason::Implausible(reason)),
            Ok(()) => self.labeller.add_sentence(&input),
        };
        // A second sentence for one second is normal. Without a pulse input, a sentence that yields
        // a coarse time counts as accepted.
        let reject = result.err();
        let second_start = at - Span::from_ns(sentence.utc.to_timespec().1.into());
        let coarse = self.labeller.coarse_time(at).filter(|coarse| coarse.at == second_start);
        let coarse = coarse.filter(|_| self.conditioner.is_none());
        let counted = reject.filter(|_| coarse.is_none());
        self.sentences.add(counted.map_or("accepted", sentence_reject_name));
        let is_harmless = match reject {
            None | Some(SentenceRejectReason::Repeated) => true,
            Some(SentenceRejectReason::NoPulse) => self.conditioner.is_none(),
            Some(_) => false,
        };
        let reject = reject.filter(|_| !is_harmless).map(|reject| reject.to_string());
        self.last_sentence.record(at, reject);
        if let Some(coarse) = coarse {
            self.report_coarse_step(coarse);
        }
        if let Some(coarse) = coarse.filter(|_| self.outputs_coarse) {
            let system =
                Timestamp::<Utc>::from_ns(second_start.as_ns()) + readings.realtime_minus_monotonic;
            let offset = coarse.utc - system;
            self.write_outputs(system, offset, coarse.error_bound);
        }
    }

    /// Adds a notice if the time by sentences alone has stepped.
    fn report_coarse_step(&mut self, now: SentenceOnlyTime) {
        let Some(previous) = self.coarse.replace(now) else { return };
        let step = now.utc - (previous.utc + (now.at - previous.at));
        if step.as_ns().saturating_abs() > COARSE_STEP_MIN.as_ns() {
            let step_s = step.as_seconds().round();
            self.notify(format!(
                "the sentences of {} have consistently reported another second: the time moves by \
                 {step_s:+} s",
                self.name
            ));
        }
    }

    /// Applies the decision of the servo on a pulse or on its absence.
    fn apply_decision(&mut self, decision: &ServoDecision, pulse: Option<&LabelledPulse>) {
        let entry = &decision.entry;
        self.pulses.add(verdict_name(entry.verdict));
        let step = decision.command.and_then(|command| command.step);
        let is_done = self.apply_command(decision).unwrap_or_else(|error| {
            self.end_steering(&error);
            true
        });
        if !is_done {
            let not_applied = ClockErrorLogEntry { command_ppb: None, step_ns: None, ..*entry };
            self.log.iter().for_each(|log| log.write(&not_applied));
            return;
        }
        if let Some(log) = &self.log {
            log.write(entry);
        }
        if step.is_some() {
            // Clock readings from before the step are invalid, so queued pulses are discarded.
            self.pending.retain(|(_, what)| matches!(what, PendingInput::Sentence(_)));
            return;
        }
        let offset = entry.offset_ns.filter(|_| entry.state.is_synchronised());
        if let (Some(pulse), Some(offset)) = (pulse, offset) {
            self.reference = Some(pulse.utc);
            let uncertainty = error_bound(entry.uncertainty_ns.unwrap_or(f64::INFINITY));
            self.write_outputs(pulse.pulse.realtime, Span::from_ns(-offset), uncertainty);
        }
    }

    fn write_outputs(&mut self, system: Timestamp<Utc>, offset: Span, uncertainty: Span) {
        let leap = wire_leap(self.leaps.today);
        let sample = OutputSample { system, offset, uncertainty, leap };
        self.outputs.write(&sample).into_iter().for_each(|notice| self.notify(notice));
    }
}

/// Returns the error bound of an estimate with this standard deviation in ns.
fn error_bound(ns: f64) -> Span {
    Span::from_ns((BOUND_DEVIATIONS * ns).clamp(0.0, 1e18).ceil() as i64)
}

const fn wire_leap(leap: PendingLeap) -> ntp::LeapIndicator {
    match leap {
        PendingLeap::None => ntp::LeapIndicator::None,
        PendingLeap::Insert => ntp::LeapIndicator::Insert,
        PendingLeap::Delete => ntp::LeapIndicator::Delete,
    }
}

#[cfg(test)]
mod coarse_tests;
#[cfg(test)]
mod leap_tests;
#[cfg(test)]
mod panel_tests;
#[cfg(test)]
mod plausible_tests;
#[cfg(test)]
mod tests;
