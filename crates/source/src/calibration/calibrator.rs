//! What becomes of pulses and sentences: the labeller names their seconds, the servo makes a
//! clock's error of them, and by that the clock is steered, others are told and a log is kept. It
//! waits for nothing and reads no clock of its own; the thread brings it what comes.

mod crossing;
mod leaps;
mod outvoted;
mod steer;
mod word;

use std::collections::VecDeque;

use horolog_discipline::{
    self as discipline, ClockErrorEntry, Coarse, Decision, LabelSettings, LabelledPulse, Labeller,
    Pulse, SentenceDoubt, Servo, ServoSettings, State,
};
use horolog_sys::adjtimex::PendingLeap;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp;

use self::crossing::Crossing;
use self::leaps::Leaps;
use self::outvoted::Votes;
use super::counts::{pulse_doubt, sentence_doubt, verdict};
use super::error_log::ErrorLog;
use super::status::state_name;
use super::{CalibrationConfig, Counts};
use crate::gnss::rollovers;
use crate::output::Outputs;
use crate::{Conditioner, Fault, Look, OutputSample, PulseEdge, Sentence, Steering};

/// How far an estimate may be wrong: so many standard deviations.
const DEVIATIONS: f64 = 3.0;
/// With a width that is checked, a pulse is known at its end; everything waits for that.
const WIDTH_SLACK: Span = Span::from_ms(50);
/// Pulses and sentences count as missing after so long.
const MISSING: Span = Span::from_ns(4 * NS_PER_S);
/// A thread that has not looked for so long says nothing any more.
const STUCK: Span = Span::from_ns(5 * NS_PER_S);
/// A sentence without a word of its own on that is void as long as another says so.
const VOID_LASTS: Span = Span::from_ns(2 * NS_PER_S);
/// How often absence is judged.
const TICK: Span = Span::from_ns(NS_PER_S);
/// Two clocks are not read at the same instant: a single look sees no smaller step.
const MOVED_MIN: Span = Span::from_ns(100_000);
/// Sentences come within their second; what they tell alone has moved where it is off by more.
const COARSE_MOVED_MIN: Span = Span::from_ms(1_500);
/// So close to a leap second it cannot be taken back any more.
const LEAP_NEAR: Span = Span::from_ns(2 * NS_PER_S);
/// Why other programs are not given the time of sentences alone: SHM and SOCK have no field for an
/// error of this size that daemons heed.
const COARSE: &str = "without a pulse the time is half a second wrong at most, which no other \
                      program can be told; give --pps, or --coarse-output to give it on as it is";
/// More than comes while the end of a pulse is awaited.
const WAITING_MAX: usize = 64;

/// Something that came, which waits for what came before it.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Pulse(PulseEdge),
    Sentence(Sentence),
}

/// When something came last, and what was wrong with it if something was.
#[derive(Clone, Default, Debug)]
struct Last {
    at: Option<Timestamp<Monotonic>>,
    good_at: Option<Timestamp<Monotonic>>,
    doubt: Option<String>,
}

impl Last {
    fn came(&mut self, at: Timestamp<Monotonic>, doubt: Option<String>) {
        self.at = Some(at);
        if doubt.is_none() {
            self.good_at = Some(at);
        }
        self.doubt = doubt;
    }

    fn is_missing(&self, now: Timestamp<Monotonic>) -> bool {
        self.at.is_none_or(|at| now - at > MISSING)
    }
}

/// The state of a calibration.
pub(super) struct Calibrator {
    name: String,
    conditioner: Option<Conditioner>,
    /// How long everything waits for what came before it.
    hold: Span,
    waiting: VecDeque<(Timestamp<Monotonic>, Waiting)>,
    labeller: Labeller,
    settings: ServoSettings,
    servo: Servo,
    control: Option<Steering>,
    control_ended: Option<String>,
    /// The correction of the frequency that holds, by how much it was changed last, and when.
    commanded_ppb: f64,
    change_ppb: f64,
    changed: Option<Timestamp<Monotonic>>,
    pub(super) log: Option<ErrorLog>,
    outputs: Outputs,
    /// Whether they are given what sentences alone say.
    gives_coarse: bool,
    pulses: Counts,
    sentences: Counts,
    /// Damaged sentences since the line was opened.
    damaged: u64,
    /// The last time by sentences alone.
    coarse: Option<Coarse>,
    steps: u64,
    last_pulse: Last,
    last_sentence: Last,
    /// The last pulse that was believed.
    reference: Option<Timestamp<Utc>>,
    void_at: Option<Timestamp<Monotonic>>,
    ticked: Option<Timestamp<Monotonic>>,
    /// When was looked at the clocks last, and what the system clock showed then.
    looked: Timestamp<Monotonic>,
    realtime: Timestamp<Utc>,
    leaps: Leaps,
    crossing: Crossing,
    votes: Votes,
    state: State,
    notices: Vec<String>,
    /// What is wrong with the line or the device.
    pub(super) broken: Option<Fault>,
}

impl Calibrator {
    /// Begins with a clock whose frequency is corrected by so much already.
    pub(super) fn new(
        config: &CalibrationConfig,
        control: Option<Steering>,
        frequency_ppb: f64,
        mut outputs: Outputs,
    ) -> Self {
        let mut notices = Vec::new();
        let gives_coarse = config.pulse.is_some() || config.coarse_output;
        if !gives_coarse && !outputs.is_empty() {
            outputs.hold_back(COARSE);
            notices.push(format!("nothing is given to other programs: {COARSE}"));
        }
        let width = config.pulse.as_ref().and_then(|pulse| pulse.width);
        let settings = ServoSettings {
            is_steering: control.is_some(),
            initial_frequency_ppb: frequency_ppb,
            oscillator: config.oscillator,
            // A step moves the time under those that are served already.
            step_later: config.step_threshold,
            holdover_max: config.holdover_limit,
            ..ServoSettings::default()
        };
        Self {
            name: config.name(),
            conditioner: config.pulse.as_ref().map(crate::PulseSpec::conditioner),
            hold: width.map_or(Span::ZERO, |width| width + width + WIDTH_SLACK),
            waiting: VecDeque::new(),
            labeller: Labeller::new(LabelSettings {
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
            pulses: Counts::default(),
            sentences: Counts::default(),
            damaged: 0,
            coarse: None,
            steps: 0,
            last_pulse: Last::default(),
            last_sentence: Last::default(),
            reference: None,
            void_at: None,
            ticked: None,
            looked: Timestamp::from_ns(i64::MIN),
            realtime: Timestamp::from_ns(0),
            leaps: Leaps::default(),
            crossing: Crossing::default(),
            votes: Votes::default(),
            state: State::Starting,
            notices,
            broken: None,
        }
    }

    /// Takes an edge of the pulse.
    pub(super) fn edge(&mut self, edge: PulseEdge) {
        let Some(conditioner) = &mut self.conditioner else { return };
        match conditioner.take(edge) {
            Some(pulse) => self.wait(pulse.monotonic, Waiting::Pulse(pulse)),
            // Where the width is not checked, every pulse is taken at its first edge.
            None if self.hold == Span::ZERO => self.labeller.opposite_edge(edge.monotonic),
            None => {}
        }
    }

    /// Takes the number of damaged sentences that came since the line was opened.
    pub(super) fn damaged(&mut self, since_opened: u64) {
        // Fewer than before: the line was opened anew.
        let more = since_opened.checked_sub(self.damaged).unwrap_or(since_opened);
        self.damaged = since_opened;
        self.sentences.set("damaged", self.sentences.get("damaged") + more);
    }

    /// Takes a sentence that began to come at `began`.
    pub(super) fn sentence(&mut self, sentence: Sentence, began: Timestamp<Monotonic>) {
        self.wait(began, Waiting::Sentence(sentence));
    }

    fn wait(&mut self, at: Timestamp<Monotonic>, what: Waiting) {
        let place = self.waiting.partition_point(|(earlier, _)| *earlier <= at);
        self.waiting.insert(place, (at, what));
        if self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
    }

    /// Goes on to `look`: what has waited long enough is taken in the order in which it came.
    pub(super) fn advance(&mut self, look: &Look) {
        let now = look.monotonic;
        (self.looked, self.realtime) = (now, look.realtime());
        self.cross_leap(look);
        self.see_leaps(look);
        while let Some((at, what)) = self.waiting.front().copied() {
            if now - at < self.hold {
                break;
            }
            self.waiting.pop_front();
            match what {
                Waiting::Pulse(pulse) => self.take_pulse(&pulse),
                Waiting::Sentence(sentence) => self.take_sentence(&sentence, at, look),
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

    /// Says where it goes from being locked, and when it is again.
    fn note_state(&mut self) {
        let before = std::mem::replace(&mut self.state, self.servo.state());
        let is_told = matches!(self.state, State::Locked | State::Holdover | State::Unsynchronised);
        if self.state != before && is_told {
            let state = state_name(self.state);
            self.notify(format!("the calibration by {} is {state}", self.name));
        }
    }

    fn notify(&mut self, notice: String) {
        if self.notices.len() < WAITING_MAX {
            self.notices.push(notice);
        }
    }

    /// What the user is to be told since this was asked last, each in one line.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// By how much somebody else has set the clock since the last pulse.
    fn moved(&self, look: &Look) -> Option<Span> {
        self.servo
            .moved(look.realtime_minus_monotonic)
            .filter(|moved| moved.as_ns().saturating_abs() > MOVED_MIN.as_ns())
            .filter(|_| self.leap_passed(look).is_none())
    }

    fn take_pulse(&mut self, edge: &PulseEdge) {
        let pulse = Pulse {
            monotonic: edge.monotonic,
            realtime: edge.realtime,
            sequence: edge.sequence.into(),
        };
        match self.labeller.pulse(&pulse) {
            Ok(labelled) => {
                self.last_pulse.came(edge.monotonic, None);
                self.take_labelled(&labelled);
            }
            Err(doubt) => {
                self.pulses.add(pulse_doubt(doubt));
                self.last_pulse.came(edge.monotonic, Some(doubt.to_string()));
            }
        }
    }

    fn take_sentence(&mut self, sentence: &Sentence, at: Timestamp<Monotonic>, look: &Look) {
        if sentence.is_valid == Some(false) {
            self.void_at = Some(at);
        }
        let is_void = self.void_at.is_some_and(|void| at - void < VOID_LASTS);
        let taken = discipline::Sentence {
            second: sentence.utc,
            received: at,
            is_valid: sentence.is_valid.unwrap_or(!is_void),
            is_leap_second: sentence.is_leap_second,
        };
        // Where the host's own clock can be right, it shows weeks that were miscounted at once.
        let is_possible = look.realtime() >= LabelSettings::default().earliest;
        let miscounted = rollovers(sentence.utc - look.realtime()).filter(|_| is_possible);
        let result = match miscounted {
            Some(times) => Err(SentenceDoubt::Rollover(times)),
            None => self.labeller.sentence(&taken),
        };
        // The second kind of sentence of one second is as it should be, and without a pulse nothing
        // else can be said of a sentence.
        let doubt = result.err();
        let coarse = self.labeller.coarse(at).filter(|coarse| coarse.at == at);
        let coarse = coarse.filter(|_| self.conditioner.is_none());
        let counted = doubt.filter(|_| coarse.is_none());
        self.sentences.add(counted.map_or("accepted", sentence_doubt));
        let harmless = match doubt {
            None | Some(SentenceDoubt::Repeated) => true,
            Some(SentenceDoubt::NoPulse) => self.conditioner.is_none(),
            Some(_) => false,
        };
        let doubt = doubt.filter(|_| !harmless).map(|doubt| doubt.to_string());
        self.last_sentence.came(at, doubt);
        if let Some(coarse) = coarse {
            self.note_coarse(coarse);
        }
        if let Some(coarse) = coarse.filter(|_| self.gives_coarse) {
            let system = Timestamp::<Utc>::from_ns(at.as_ns()) + look.realtime_minus_monotonic;
            let offset = coarse.utc - system;
            self.give(system, offset, coarse.uncertainty);
        }
    }

    /// Says where sentences have moved the time that they alone tell.
    fn note_coarse(&mut self, now: Coarse) {
        let Some(before) = self.coarse.replace(now) else { return };
        let moved = now.utc - (before.utc + (now.at - before.at));
        if moved.as_ns().saturating_abs() > COARSE_MOVED_MIN.as_ns() {
            let by = moved.as_seconds().round();
            self.notify(format!(
                "the sentences of {} have named another second long enough: the time moves by \
                 {by:+} s",
                self.name
            ));
        }
    }

    /// Does what follows from a pulse, or from its absence.
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
            // What the clock showed before the step says nothing of it any more.
            self.waiting.retain(|(_, what)| matches!(what, Waiting::Sentence(_)));
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

/// How far an estimate may be wrong of this standard deviation, in ns.
fn deviations(ns: f64) -> Span {
    Span::from_ns((DEVIATIONS * ns).clamp(0.0, 1e18).ceil() as i64)
}

const fn wire_leap(leap: PendingLeap) -> ntp::Leap {
    match leap {
        PendingLeap::None => ntp::Leap::None,
        PendingLeap::Insert => ntp::Leap::Insert,
        PendingLeap::Delete => ntp::Leap::Delete,
    }
}

#[cfg(test)]
mod coarse_tests;
#[cfg(test)]
mod leap_tests;
#[cfg(test)]
mod panel_tests;
#[cfg(test)]
mod tests;
