//! Processing of pulses and sentences: the labeller names their seconds, the servo computes the
//! error of the clock, and with that the clock is steered, other programs receive samples and a log
//! is written. It blocks on nothing and reads no clock of its own; the thread passes its input.

mod falseticker;
mod leap_transition;
mod leaps;
mod plausible;
mod report;
mod steer;

use std::collections::VecDeque;

use horolog_discipline::{
    self as discipline, ClockErrorEntry, CoarseTime, Decision, LabelSettings, LabelledPulse,
    Plausibility, Pulse, PulseLabeller, SentenceReject, Servo, ServoSettings, SynchronisationState,
    TimeJudge,
};
use horolog_sys::adjtimex::PendingLeap;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp;

use self::falseticker::SelectionHistory;
use self::leap_transition::LeapTransitionProgress;
use self::leaps::Leaps;
use self::plausible::UnconfirmedRun;
use super::counts::{pulse_reject, sentence_error, sentence_reject, verdict};
use super::error_log::ErrorLog;
use super::status::state_name;
use super::{CalibrationConfig, NamedCounts};
use crate::gnss::{Fixes, LineInput, RejectedSentence};
use crate::output::Outputs;
use crate::{
    ClockReadings, ClockSteering, Conditioner, FrameCounts, OutputSample, ParsedSentence,
    PulseEdge, SentenceError, SourceError,
};

/// Error bound of an estimate, in standard deviations.
const DEVIATIONS: f64 = 3.0;
/// Slack after the width: if the width is checked, a pulse is known at its end, and everything
/// waits for that.
const WIDTH_SLACK: Span = Span::from_ms(50);
/// Time after which pulses and sentences count as missing.
const MISSING: Span = Span::from_ns(4 * NS_PER_S);
/// Time after which a thread that has not advanced reports nothing any more.
const STUCK: Span = Span::from_ns(5 * NS_PER_S);
/// Interval at which absence is judged.
const TICK: Span = Span::from_ns(NS_PER_S);
/// Smallest step that a single reading detects: the two clocks are not read at the same instant.
const MOVED_MIN: Span = Span::from_ns(100_000);
/// Smallest step that sentences alone detect: their lag varies by less.
const COARSE_MOVED_MIN: Span = Span::from_ms(1_500);
/// Distance from a leap second within which it cannot be withdrawn any more.
const LEAP_NEAR: Span = Span::from_ns(2 * NS_PER_S);
/// Reason for which other programs do not receive the time of sentences alone: SHM and SOCK have no
/// field for an error of this size that daemons respect.
const COARSE: &str = "without a pulse the error is up to a second, which SHM and SOCK cannot \
                      represent; add --pps, or --coarse-output to output it regardless";
/// Maximum of pending input: more than arrives while the end of a pulse is awaited.
const WAITING_MAX: usize = 64;

/// Input that waits for earlier input.
#[derive(Clone, Copy, Debug)]
enum PendingInput {
    Pulse(PulseEdge),
    Sentence(Result<ParsedSentence, SentenceError>),
}

/// Arrival of the last input, and its reject reason, if any.
#[derive(Clone, Default, Debug)]
struct LastInput {
    at: Option<Timestamp<Monotonic>>,
    good_at: Option<Timestamp<Monotonic>>,
    reject_reason: Option<String>,
}

impl LastInput {
    fn record(&mut self, at: Timestamp<Monotonic>, reject: Option<String>) {
        self.at = Some(at);
        if reject.is_none() {
            self.good_at = Some(at);
        }
        self.reject_reason = reject;
    }

    fn is_missing(&self, now: Timestamp<Monotonic>) -> bool {
        self.at.is_none_or(|at| now - at > MISSING)
    }
}

/// The state of a calibration.
pub(super) struct Calibrator {
    name: String,
    conditioner: Option<Conditioner>,
    /// Time for which everything waits for earlier input.
    reorder_delay: Span,
    waiting: VecDeque<(Timestamp<Monotonic>, PendingInput)>,
    judge: TimeJudge,
    /// Last time of sentences by which the clock may have been set although nothing confirms it.
    unconfirmed: Option<Span>,
    /// Last sentences in a row whose time is implausible.
    unconfirmed_run: Option<UnconfirmedRun>,
    labeller: PulseLabeller,
    settings: ServoSettings,
    servo: Servo,
    control: Option<ClockSteering>,
    control_ended: Option<String>,
    /// Present correction of the frequency, its last change, and the instant of that.
    commanded_ppb: f64,
    change_ppb: f64,
    changed: Option<Timestamp<Monotonic>>,
    pub(super) log: Option<ErrorLog>,
    outputs: Outputs,
    /// True if outputs also receive the time of sentences alone.
    gives_coarse: bool,
    pulses: NamedCounts,
    sentences: NamedCounts,
    /// Frames received since the line was opened, and the last one that was rejected.
    frames: FrameCounts,
    rejected: Option<RejectedSentence>,
    /// Last time by sentences alone.
    coarse: Option<CoarseTime>,
    steps: u64,
    last_pulse: LastInput,
    last_sentence: LastInput,
    /// Last pulse that was used.
    reference: Option<Timestamp<Utc>>,
    fixes: Fixes,
    ticked: Option<Timestamp<Monotonic>>,
    /// Instant of the last clock readings, and the system clock at that instant.
    clocks_read_at: Timestamp<Monotonic>,
    realtime: Timestamp<Utc>,
    leaps: Leaps,
    crossing: LeapTransitionProgress,
    votes: SelectionHistory,
    state: SynchronisationState,
    notices: Vec<String>,
    /// Error of the line or the device.
    pub(super) broken: Option<SourceError>,
}

impl Calibrator {
    /// Creates the state of a clock whose frequency already has this correction. Times are judged
    /// by `basis`.
    pub(super) fn new(
        config: &CalibrationConfig,
        basis: Plausibility,
        control: Option<ClockSteering>,
        frequency_ppb: f64,
        mut outputs: Outputs,
    ) -> Self {
        let mut notices = Vec::new();
        let gives_coarse = config.pulse.is_some() || config.coarse_output;
        if !gives_coarse && !outputs.is_empty() {
            outputs.note_suspended(COARSE);
            notices.push(format!("no output to other programs: {COARSE}"));
        }
        let width = config.pulse.as_ref().and_then(|pulse| pulse.width);
        let settings = ServoSettings {
            is_steering: control.is_some(),
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
            waiting: VecDeque::new(),
            judge: TimeJudge::new(basis),
            unconfirmed: None,
            unconfirmed_run: None,
            labeller: PulseLabeller::new(LabelSettings {
                width,
                lag_max: config.sentence_lag,
                ..LabelSettings::default()
            }),
            settings,
            servo: Servo::new(settings),
            control,
            control_ended: None,
            commanded_ppb: frequency_ppb,
            change_ppb: 0.0,
            changed: None,
            log: None,
            outputs,
            gives_coarse,
            pulses: NamedCounts::default(),
            sentences: NamedCounts::default(),
            frames: FrameCounts::default(),
            rejected: None,
            coarse: None,
            steps: 0,
            last_pulse: LastInput::default(),
            last_sentence: LastInput::default(),
            reference: None,
            fixes: Fixes::default(),
            ticked: None,
            clocks_read_at: Timestamp::from_ns(i64::MIN),
            realtime: Timestamp::from_ns(0),
            leaps: Leaps::default(),
            crossing: LeapTransitionProgress::default(),
            votes: SelectionHistory::default(),
            state: SynchronisationState::Starting,
            notices,
            broken: None,
        }
    }

    /// Takes an edge of the pulse.
    pub(super) fn edge(&mut self, edge: PulseEdge) {
        let Some(conditioner) = &mut self.conditioner else { return };
        match conditioner.take(edge) {
            Some(pulse) => self.wait(pulse.monotonic, PendingInput::Pulse(pulse)),
            // If the width is not checked, every pulse is taken at its first edge.
            None if self.reorder_delay == Span::ZERO => self.labeller.opposite_edge(edge.monotonic),
            None => {}
        }
    }

    /// Takes the input of the line other than sentences that name the time.
    pub(super) fn line(&mut self, input: &LineInput) {
        input.leaps.iter().for_each(|report| self.leap_report(report));
        input.fixes.iter().for_each(|(note, at)| self.fixes.report(*note, *at));
        let more = input.counts.since(&self.frames);
        self.frames = input.counts;
        for (name, count) in [
            ("checksum", more.checksum),
            ("no_checksum", more.no_checksum),
            ("garbled", more.garbled),
            ("overlong", more.overlong),
        ] {
            self.sentences.set(name, self.sentences.get(name) + count);
        }
        self.rejected.clone_from(&input.rejected);
    }

    /// Takes a sentence that began to arrive at `began`.
    pub(super) fn sentence(
        &mut self,
        sentence: Result<ParsedSentence, SentenceError>,
        began: Timestamp<Monotonic>,
    ) {
        self.wait(began, PendingInput::Sentence(sentence));
    }

    fn wait(&mut self, at: Timestamp<Monotonic>, what: PendingInput) {
        let index = self.waiting.partition_point(|(earlier, _)| *earlier <= at);
        self.waiting.insert(index, (at, what));
        if self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
    }

    /// Advances to `readings`: input that has waited long enough is taken in order of arrival.
    pub(super) fn advance(&mut self, readings: &ClockReadings) {
        let now = readings.monotonic;
        (self.clocks_read_at, self.realtime) = (now, readings.realtime());
        self.cross_leap(readings);
        self.advance_leaps(readings);
        while let Some((at, what)) = self.waiting.front().copied() {
            if now - at < self.reorder_delay {
                break;
            }
            self.waiting.pop_front();
            match what {
                PendingInput::Pulse(pulse) => self.take_pulse(&pulse),
                PendingInput::Sentence(sentence) => self.take_read(&sentence, at, readings),
            }
        }
        if self.ticked.is_none_or(|ticked| now - ticked >= TICK) {
            self.ticked = Some(now);
            if let Some(decision) = self.servo.tick(now) {
                self.carry_out(&decision, None);
            }
        }
        self.note_state();
    }

    /// Adds a notice when the locked state is lost, and when it is reached again.
    fn note_state(&mut self) {
        let before = std::mem::replace(&mut self.state, self.servo.state());
        let is_reported = matches!(
            self.state,
            SynchronisationState::Locked
                | SynchronisationState::Holdover
                | SynchronisationState::Unsynchronised
        );
        if self.state != before && is_reported {
            let state = state_name(self.state);
            self.notify(format!("the calibration by {} is {state}", self.name));
        }
    }

    fn notify(&mut self, notice: String) {
        if self.notices.len() < WAITING_MAX {
            self.notices.push(notice);
        }
    }

    /// Returns the notices since the last call, one line each.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the amount by which another program has set the clock since the last pulse.
    fn moved(&self, readings: &ClockReadings) -> Option<Span> {
        self.servo
            .moved(readings.realtime_minus_monotonic)
            .filter(|moved| moved.as_ns().saturating_abs() > MOVED_MIN.as_ns())
            .filter(|_| self.leap_passed(readings).is_none())
    }

    fn take_pulse(&mut self, edge: &PulseEdge) {
        let pulse = Pulse {
            monotonic: edge.monotonic,
            realtime: edge.realtime,
            sequence: edge.sequence.into(),
        };
        match self.labeller.pulse(&pulse) {
            Ok(labelled) => {
                self.last_pulse.record(edge.monotonic, None);
                self.take_labelled(&labelled);
            }
            Err(reject) => {
                self.pulses.add(pulse_reject(reject));
                self.last_pulse.record(edge.monotonic, Some(reject.to_string()));
            }
        }
    }

    fn take_read(
        &mut self,
        read: &Result<ParsedSentence, SentenceError>,
        at: Timestamp<Monotonic>,
        readings: &ClockReadings,
    ) {
        let has_fix = self.fixes.take(read, at);
        match read {
            Ok(sentence) => self.take_sentence(sentence, has_fix, at, readings),
            Err(error) => {
                self.sentences.add(sentence_error(*error));
                self.last_sentence.record(at, Some(error.to_string()));
            }
        }
    }

    fn take_sentence(
        &mut self,
        sentence: &ParsedSentence,
        has_fix: bool,
        at: Timestamp<Monotonic>,
        readings: &ClockReadings,
    ) {
        let taken = discipline::Sentence {
            second: sentence.utc,
            received: at,
            is_valid: has_fix,
            is_leap_second: sentence.is_leap_second,
        };
        // No clock is set by sentences that the labeller does not receive.
        let judged = if taken.is_valid { self.consider(sentence, at, readings) } else { Ok(()) };
        let result = match judged {
            Err(reason) => Err(SentenceReject::Implausible(reason)),
            Ok(()) => self.labeller.sentence(&taken),
        };
        // A second kind of sentence for one second is normal, and without a pulse nothing else can
        // be checked.
        let reject = result.err();
        let begun = at - Span::from_ns(sentence.utc.to_timespec().1.into());
        let coarse = self.labeller.coarse(at).filter(|coarse| coarse.at == begun);
        let coarse = coarse.filter(|_| self.conditioner.is_none());
        let counted = reject.filter(|_| coarse.is_none());
        self.sentences.add(counted.map_or("accepted", sentence_reject));
        let harmless = match reject {
            None | Some(SentenceReject::Repeated) => true,
            Some(SentenceReject::NoPulse) => self.conditioner.is_none(),
            Some(_) => false,
        };
        let reject = reject.filter(|_| !harmless).map(|reject| reject.to_string());
        self.last_sentence.record(at, reject);
        if let Some(coarse) = coarse {
            self.note_coarse(coarse);
        }
        if let Some(coarse) = coarse.filter(|_| self.gives_coarse) {
            let system =
                Timestamp::<Utc>::from_ns(begun.as_ns()) + readings.realtime_minus_monotonic;
            let offset = coarse.utc - system;
            self.give(system, offset, coarse.uncertainty);
        }
    }

    /// Adds a notice when the time by sentences alone has moved.
    fn note_coarse(&mut self, now: CoarseTime) {
        let Some(before) = self.coarse.replace(now) else { return };
        let moved = now.utc - (before.utc + (now.at - before.at));
        if moved.as_ns().saturating_abs() > COARSE_MOVED_MIN.as_ns() {
            let by = moved.as_seconds().round();
            self.notify(format!(
                "the sentences of {} have consistently reported another second: the time moves by \
                 {by:+} s",
                self.name
            ));
        }
    }

    /// Carries out the decision that follows from a pulse, or from its absence.
    fn carry_out(&mut self, decision: &Decision, pulse: Option<&LabelledPulse>) {
        let entry = &decision.entry;
        self.pulses.add(verdict(entry.verdict));
        let step = decision.command.and_then(|command| command.step);
        let is_done = self.command(decision).unwrap_or_else(|error| {
            self.end_control(&error);
            true
        });
        if !is_done {
            let undone = ClockErrorEntry { command_ppb: None, step_ns: None, ..*entry };
            self.log.iter().for_each(|log| log.write(&undone));
            return;
        }
        if let Some(log) = &self.log {
            log.write(entry);
        }
        if step.is_some() {
            // Readings of the clock before the step do not describe it any more.
            self.waiting.retain(|(_, what)| matches!(what, PendingInput::Sentence(_)));
            return;
        }
        let offset = entry.offset_ns.filter(|_| entry.state.is_synchronised());
        if let (Some(pulse), Some(offset)) = (pulse, offset) {
            self.reference = Some(pulse.utc);
            let uncertainty = deviations(entry.uncertainty_ns.unwrap_or(f64::INFINITY));
            self.give(pulse.pulse.realtime, Span::from_ns(-offset), uncertainty);
        }
    }

    fn give(&mut self, system: Timestamp<Utc>, offset: Span, uncertainty: Span) {
        let leap = wire_leap(self.leaps.today);
        let sample = OutputSample { system, offset, uncertainty, leap };
        self.outputs.write(&sample).into_iter().for_each(|notice| self.notify(notice));
    }
}

/// Returns the error bound of an estimate with this standard deviation, in ns.
fn deviations(ns: f64) -> Span {
    Span::from_ns((DEVIATIONS * ns).clamp(0.0, 1e18).ceil() as i64)
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
