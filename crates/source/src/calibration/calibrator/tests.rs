//! A receiver and a clock of which a test knows everything: whatever is replayed and corrupted,
//! what is said of the time is right, or nothing is said.

use std::time::Duration;

use horolog_discipline::OscillatorModel;
use horolog_sys::adjtimex::KernelClockStatus;

use super::*;
use crate::calibration::ClockErrorLogConfig;
use crate::calibration::config::tests::config;
use crate::calibration::error_log::ClockErrorLogFile;
use crate::calibration::status::allan_deviations;
use crate::control::tests::SimulatedSteerableClock;
use crate::pulse::replay::{PulseReplay, PulseReplayEvent};
use crate::reference::tests::kernel;
use crate::{
    CalibrationStatus, NoFix, PulseEdgeKind, PulseSource, SelectionState, ServerLeapSeconds,
    SourceEstimate,
};

/// 2027-01-15, 08:00 UTC.
pub(super) const START: Timestamp<Utc> = Timestamp::from_ns(1_800_000_000 * NS_PER_S);
/// How late a sentence begins.
const LAG: Span = Span::from_ms(120);

/// The monotonic clock gains as the system clock does, which is off by what is done to it as well.
pub(super) struct World {
    pub(super) calibrator: Calibrator,
    pub(super) control: SimulatedSteerableClock,
    /// How far the system clock was ahead of UTC, or has been set, by nobody known here.
    pub(super) set: Span,
    /// What both clocks have gained up to this second, in nanoseconds, and by how much they do.
    pub(super) gained_ns: f64,
    pub(super) gains_ppb: f64,
    /// Leap seconds that passed.
    pub(super) leapt: Span,
    /// How far the clock is ahead beside that, for it did not make one of them.
    pub(super) owed: Span,
    pub(super) second: i64,
    pub(super) receiver_off_s: i64,
    pub(super) sends: bool,
    pub(super) is_valid: bool,
    pub(super) leap: PendingLeap,
    /// The kernel's TAI minus UTC, and what the server knows of leap seconds.
    pub(super) tai_s: i32,
    pub(super) known: ServerLeapSeconds,
}

impl World {
    pub(super) fn new(config: &CalibrationConfig, ahead: Span) -> Self {
        let control = SimulatedSteerableClock::default();
        let steering = config.controls_clock.then(|| ClockSteering::new(control.clone()));
        let outputs = SampleOutputs::open(&config.shm_outputs, &config.sock_outputs).unwrap();
        let mut calibrator =
            Calibrator::new(config, PlausibilityRuleParameters::default(), steering, 0.0, outputs);
        let log = config.error_log.as_ref().map(|log| ClockErrorLogFile::open(log).unwrap());
        calibrator.log = log.map(|file| ClockErrorLog::start(file).unwrap());
        Self {
            calibrator,
            control,
            set: ahead,
            gained_ns: 0.0,
            gains_ppb: 20_000.0,
            leapt: Span::ZERO,
            owed: Span::ZERO,
            second: 0,
            receiver_off_s: 0,
            sends: true,
            is_valid: true,
            leap: PendingLeap::None,
            tai_s: 0,
            known: ServerLeapSeconds::default(),
        }
    }

    pub(super) fn steered(ahead: Span) -> Self {
        let config = CalibrationConfig { controls_clock: true, ..config(Some("/dev/pps0")) };
        Self::new(&config, ahead)
    }

    fn gained(&self, ms: i64) -> f64 {
        let done = self.control.0.lock().unwrap();
        let frequency_ppb = done.frequency_ppb + done.tick_ppb + done.slew_ppb;
        self.gained_ns + (self.gains_ppb + frequency_ppb) * ms as f64 / 1_000.0
    }

    pub(super) fn ahead(&self, ms: i64) -> Span {
        let stepped = self.control.0.lock().unwrap().stepped;
        Span::from_ns(self.gained(ms).round() as i64) + self.set + stepped
    }

    pub(super) fn readings(&self, ms: i64) -> ClockReadings {
        let gained = Span::from_ns(self.gained(ms).round() as i64);
        let monotonic = Timestamp::from_ns(self.second * NS_PER_S + ms * 1_000_000) + gained;
        let ahead = self.ahead(ms) - gained + self.leapt;
        ClockReadings {
            monotonic,
            realtime_minus_monotonic: Span::from_ns(START.as_ns()) + ahead,
            kernel: Some(KernelClockStatus { leap: self.leap, ..kernel(self.tai_s) }),
            leaps_s: 0,
            leaps: self.known,
        }
    }

    fn edge(&self, ms: i64, edge: PulseEdgeKind) -> PulseReplayEvent {
        let readings = self.readings(ms);
        PulseReplayEvent::Edge(PulseEdge {
            realtime: readings.realtime(),
            monotonic: readings.monotonic,
            sequence: (self.second * 1_000 + ms) as u32,
            edge,
        })
    }

    /// One second, and what is said of the time, which is right or nothing.
    pub(super) fn run(&mut self, device: PulseReplay) {
        self.feed(device);
        if let Ok(report) = self.calibrator.estimate(&self.readings(900)) {
            self.is_right(&report);
        }
        self.next();
    }

    /// A report is within what it says of itself, late in this second.
    pub(super) fn is_right(&self, report: &SourceEstimate) {
        let off = report.offset_at(self.readings(900).monotonic) + self.ahead(900) + self.owed;
        let bound = report.root_distance_at(self.readings(900).monotonic) + Span::from_ns(1_000);
        assert!(off.as_ns().abs() <= bound.as_ns(), "{off:?} {report:?} at {}", self.second);
    }

    /// These edges by a device, and the sentence.
    pub(super) fn feed(&mut self, mut device: PulseReplay) {
        self.calibrator.update_known_leaps(self.known);
        while let Ok(Some(edge)) = device.wait(Duration::ZERO) {
            let ms = (edge.sequence % 1_000).into();
            self.calibrator.push_edge(edge);
            self.calibrator.advance(&self.readings(ms));
        }
        if self.sends {
            let utc = START + Span::from_ns((self.second + self.receiver_off_s) * NS_PER_S);
            let (talker, is_leap_second, reports_fix) = (*b"GN", false, true);
            let sentence = ParsedSentence { talker, utc, is_leap_second, reports_fix };
            let void = SentenceError::NoFix(talker, NoFix::Void);
            let sentence = if self.is_valid { Ok(sentence) } else { Err(void) };
            self.calibrator.push_sentence(sentence, self.readings(0).monotonic + LAG);
        }
        self.calibrator.advance(&self.readings(300));
        self.calibrator.advance(&self.readings(900));
    }

    /// On to the next second.
    pub(super) fn next(&mut self) {
        (self.gained_ns, self.second) = (self.gained(1_000), self.second + 1);
    }

    pub(super) fn pulse(&self) -> PulseReplay {
        PulseReplay::new([self.edge(0, PulseEdgeKind::Assert)])
    }

    pub(super) fn run_for(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.run(self.pulse());
        }
    }

    pub(super) fn report(&self) -> Result<SourceEstimate, SourceError> {
        self.calibrator.estimate(&self.readings(0))
    }

    pub(super) fn reason(&self) -> String {
        self.report().unwrap_err().to_string()
    }

    pub(super) fn status(&self) -> CalibrationStatus {
        let allan = allan_deviations(&self.calibrator.stability());
        CalibrationStatus { allan, ..self.calibrator.status(&self.readings(0)) }
    }
}

#[test]
fn a_steered_clock_is_stepped_once_and_then_follows() {
    let mut world = World::steered(Span::from_ms(-2_300));
    world.run_for(5);
    assert!(world.report().is_err(), "nothing is said before it is sure");
    world.run_for(60);
    let report = world.report().unwrap();
    assert!(world.ahead(0).as_ns().abs() < 1_000, "{:?}", world.ahead(0));
    assert!(report.offset.as_ns().abs() < 1_000, "{report:?}");
    assert_eq!((report.stratum, &report.reference_id), (1, b"PPS\0"));
    let status = world.status();
    assert_eq!((&*status.state, status.steps, status.controls_clock), ("locked", 1, true));
    assert!(status.frequency_ppb.is_some_and(|ppb| (ppb - 20_000.0).abs() < 50.0), "{status:?}");
    assert!(status.pulses.get("accepted") > 40, "{status:?}");
    assert!(status.allan.iter().any(|point| point.tau_s == 8), "{status:?}");
    let done = world.control.0.lock().unwrap().clone();
    assert!(done.declared.is_some_and(|declared| declared.synchronised));
}

#[test]
fn a_clock_that_is_not_steered_is_only_computed() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::from_ms(1_234));
    world.run_for(60);
    let done = world.control.0.lock().unwrap().clone();
    assert!(done.steps == 0 && done.frequency_ppb == 0.0 && done.declared.is_none());
    let report = world.report().unwrap();
    assert!((report.offset + world.ahead(0)).as_ns().abs() < 1_000, "{report:?}");
    assert!((report.frequency_ppb + 20_000).abs() < 50, "{report:?}");
}

#[test]
fn what_another_does_to_the_clock_ends_the_steering_and_not_the_source() {
    let mut world = World::steered(Span::ZERO);
    world.run_for(40);
    world.control.change(|done| done.frequency_ppb += 777.0).unwrap();
    let set = world.control.0.lock().unwrap().frequency_ppb;
    world.run_for(40);
    assert!((world.control.0.lock().unwrap().frequency_ppb - set).abs() < f64::EPSILON);
    let status = world.status();
    assert!(!status.controls_clock);
    assert!(status.control_ended.is_some_and(|why| why.contains("another program")));
    let notices = world.calibrator.take_notices();
    assert!(
        notices[0].ends_with("is locked") && notices[1].contains("another program"),
        "{notices:?}"
    );
    assert!(world.calibrator.take_notices().len() <= 1, "each once");
    assert!(world.report().is_ok());
}

#[test]
fn false_and_missing_pulses_move_nothing() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::from_ms(5));
    world.run_for(30);
    for second in 0..200 {
        let pulse = world.pulse();
        let device = match second % 10 {
            3 => pulse.disturbed(1, Span::from_ns(70_000)),
            6 => pulse.thinned(1),
            8 => PulseReplay::new([
                world.edge(0, PulseEdgeKind::Assert),
                world.edge(377, PulseEdgeKind::Assert),
            ]),
            _ => pulse,
        };
        world.run(device);
        assert!(world.report().is_ok());
    }
    let pulses = world.status().pulses;
    assert!(pulses.get("outlier") >= 15 && pulses.get("off_grid") >= 19, "{pulses:?}");
}

#[test]
fn holdover_has_a_limit() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    world.run_for(60);
    let before = world.report().unwrap().uncertainty;
    for second in 0..100 {
        world.run(PulseReplay::default());
        let state = world.status().state;
        let held_s = world.status().holdover_s;
        match second {
            7..=55 => {
                assert_eq!(state, "holdover", "{second}");
                assert!(held_s.is_some_and(|s| (s - f64::from(second)).abs() <= 3.0), "{held_s:?}");
            }
            62.. => assert_eq!(state, "unsynchronised", "{second}"),
            _ => {}
        }
        if second == 40 {
            assert!(world.report().unwrap().uncertainty > before, "it grows");
        }
    }
    assert!(matches!(world.report(), Err(SourceError::Unusable(_))));
    assert!(world.reason().contains("holdover limit"), "{}", world.reason());
    world.run_for(20);
    assert!(world.report().is_ok(), "and is over when pulses come again");
}

#[test]
fn a_pulse_without_sentences_and_sentences_without_a_pulse_are_named() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    world.sends = false;
    world.run_for(20);
    assert_eq!(world.reason(), "pulses arrive, and no sentence names their second");
    assert!(
        matches!(world.report(), Err(SourceError::Unusable(_))),
        "no last report is carried on"
    );
    world.sends = true;
    let mut none = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    (0..20).for_each(|_| none.run(PulseReplay::default()));
    assert_eq!(none.reason(), "sentences arrive, and no pulse");
    none.sends = false;
    (0..20).for_each(|_| none.run(PulseReplay::default()));
    assert!(none.reason().starts_with("no pulses, and no sentences"), "{}", none.reason());
}

#[test]
fn two_pulses_a_second_are_named_and_not_believed() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    for _ in 0..20 {
        world.run(PulseReplay::new([
            world.edge(0, PulseEdgeKind::Assert),
            world.edge(500, PulseEdgeKind::Assert),
        ]));
    }
    assert!(world.reason().contains("2 pulses per second"), "{}", world.reason());
}

#[test]
fn a_receiver_that_jumps_by_years_or_weeks_moves_nothing() {
    for off_s in [1024 * 7 * 86_400, -1024 * 7 * 86_400, 5 * 31_557_600, -20 * 31_557_600] {
        let mut world = World::new(&config(Some("/dev/pps0")), Span::from_ms(3));
        world.run_for(30);
        world.receiver_off_s = off_s;
        world.run_for(25);
        let counts = world.status().sentences;
        let named = ["rollover", "apart", "before_build"].map(|name| counts.get(name));
        assert_eq!(named.iter().sum::<u64>(), 25, "{counts:?}");
        // From the start, by a receiver that has never been right.
        let mut world = World::new(&config(Some("/dev/pps0")), Span::from_ms(3));
        world.receiver_off_s = off_s;
        if off_s % (1024 * 7 * 86_400) == 0 {
            world.run_for(20);
            assert!(world.reason().contains("1024 weeks"), "{}", world.reason());
        }
    }
}

#[test]
fn pulses_whose_width_is_checked_are_waited_for() {
    let mut world = World::new(&config(Some("/dev/pps0,width=100ms")), Span::from_ms(3));
    for second in 0..40 {
        let end = if second % 8 == 5 { 30 } else { 100 };
        let edges = [world.edge(0, PulseEdgeKind::Assert), world.edge(end, PulseEdgeKind::Clear)];
        world.run(PulseReplay::new(edges));
    }
    assert!(world.report().is_ok(), "{:?}", world.status());
    assert_eq!(world.status().pulses.get("wrong_width"), 5);
}

#[test]
fn every_pulse_and_correction_is_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("errors.jsonl");
    let log = ClockErrorLogConfig { path: path.clone(), bytes_max: 1 << 20 };
    let config = CalibrationConfig { error_log: Some(log), ..config(Some("/dev/pps0")) };
    let mut world = World::new(&config, Span::from_ms(3));
    world.run_for(30);
    let pulses = world.status().pulses;
    drop(world);
    let text = std::fs::read_to_string(path).unwrap();
    let labelled = ["accepted", "acquired", "awaited"].map(|name| pulses.get(name));
    assert_eq!(text.lines().count() as u64, labelled.iter().sum::<u64>());
}

#[test]
fn a_thread_that_does_not_run_reports_no_time() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    world.run_for(30);
    world.second += 10;
    assert_eq!(world.reason(), "its thread is not running");
}

#[test]
fn a_device_that_fails_is_named() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    let fault = PulseReplay::new([PulseReplayEvent::Failure]).wait(Duration::ZERO).unwrap_err();
    world.calibrator.input_error = Some(fault);
    world.run(PulseReplay::default());
    assert_eq!(world.reason(), "the pulse device failed");
}

#[test]
fn a_clock_that_another_program_sets_is_not_served_before_the_next_pulse() {
    let mut world = World::new(&config(Some("/dev/pps0")), Span::ZERO);
    world.run_for(60);
    (0..10).for_each(|_| world.run(PulseReplay::default()));
    assert!(world.report().is_ok());
    world.set = Span::from_ms(-3);
    for _ in 0..10 {
        assert!(
            world.reason().contains("stepped the system clock by -0.003"),
            "{:?}",
            world.reason()
        );
        world.run(PulseReplay::default());
    }
    world.run_for(3);
    assert!(world.report().is_ok(), "{:?}", world.status());
}

#[test]
fn a_change_of_the_rate_is_allowed_for() {
    let mut world = World::steered(Span::ZERO);
    let frequency = |world: &World| world.control.0.lock().unwrap().frequency_ppb;
    let mut large_changes = 0;
    for _ in 0..60 {
        let before = frequency(&world);
        world.run_for(1);
        let change = (frequency(&world) - before).abs();
        if let Ok(report) = world.report() {
            assert!(report.uncertainty.as_ns() as f64 >= change, "{change} {report:?}");
            large_changes += u32::from(change > 1_000.0);
        }
    }
    assert!(large_changes > 0);
}

#[test]
fn the_clock_is_left_without_a_slew_and_is_declared_right_no_more() {
    let mut world = World::steered(Span::from_ms(2));
    world.run_for(40);
    // A slew that lasts: the clock is off again.
    world.set = Span::from_ns(2_040_000);
    world.run_for(2);
    let control = world.control.clone();
    let done = || control.0.lock().unwrap().clone();
    assert!((done().frequency_ppb + 20_000.0).abs() > 1_000.0, "{:?}", done());
    assert!(done().declared.is_some_and(|declared| declared.synchronised));
    drop(world);
    assert!((done().frequency_ppb + 20_000.0).abs() < 100.0, "{:?}", done());
    assert!(done().declared.is_some_and(|declared| !declared.synchronised));
}

#[test]
fn a_clock_is_not_steered_by_a_time_that_the_majority_contradicts() {
    let mut world = World::steered(Span::ZERO);
    world.run_for(40);
    // The pulses go wrong, slowly enough to be followed.
    world.gains_ppb += 100.0;
    let frequency = |world: &World| world.control.0.lock().unwrap().frequency_ppb;
    (0..2).for_each(|_| world.calibrator.selection_changed(SelectionState::Falseticker));
    world.run_for(5);
    assert!(world.status().controls_clock, "a few votes are an accident");
    world.calibrator.selection_changed(SelectionState::Unusable);
    world.calibrator.selection_changed(SelectionState::Falseticker);
    let left = frequency(&world);
    world.run_for(40);
    assert!((frequency(&world) - left).abs() < f64::EPSILON, "{left} {}", frequency(&world));
    let status = world.status();
    assert_eq!((status.controls_clock, status.control_suspended), (false, true));
    let declared = world.control.0.lock().unwrap().declared.unwrap();
    assert!(!declared.synchronised);
    assert!(world.report().is_ok(), "it goes on to say its time");
    world.calibrator.selection_changed(SelectionState::Undecided);
    assert!(world.status().control_suspended, "nobody says that it is right");
    world.calibrator.selection_changed(SelectionState::Truechimer);
    world.run_for(60);
    assert!(world.status().controls_clock);
    assert!((frequency(&world) + world.gains_ppb).abs() < 50.0);
    assert!(world.ahead(0).as_ns().abs() < 1_000, "{:?}", world.ahead(0));
    let notices = world.calibrator.take_notices().join("; ");
    assert!(notices.contains("majority") && notices.contains("agrees with the other"), "{notices}");
}

#[test]
fn what_others_have_left_in_the_kernel_is_ended_before_the_first_command() {
    for (tick_ppb, slew_ppb) in [(200_000.0, 0.0), (0.0, -400_000.0), (-100_000.0, 300_000.0)] {
        let mut world = World::steered(Span::from_ms(-20));
        world.control.change(|done| (done.tick_ppb, done.slew_ppb) = (tick_ppb, slew_ppb)).unwrap();
        world.run_for(60);
        let done = world.control.0.lock().unwrap().clone();
        assert!(done.tick_ppb.abs() + done.slew_ppb.abs() < f64::EPSILON, "{done:?}");
        assert!((done.frequency_ppb + world.gains_ppb).abs() < 50.0, "{done:?}");
        assert!(world.ahead(0).as_ns().abs() < 1_000, "{:?}", world.ahead(0));
        let CalibrationStatus { state, steps, control_ended, pulses, .. } = world.status();
        assert_eq!((&*state, steps, control_ended), ("locked", 1, None), "{pulses:?}");
    }
}

#[test]
fn a_later_step_is_made_where_it_was_requested() {
    for (step_threshold, expected) in [(None, 1), (Some(Span::from_ms(1)), 2)] {
        let base = config(Some("/dev/pps0"));
        let config = CalibrationConfig { controls_clock: true, step_threshold, ..base };
        let mut world = World::new(&config, Span::from_ms(3));
        world.run_for(40);
        world.set = world.set + Span::from_ms(50);
        world.run_for(20);
        assert_eq!(world.status().steps, expected, "{step_threshold:?}");
    }
}

#[test]
fn the_oscillator_and_the_sentence_lag_are_as_configured() {
    let base = config(Some("/dev/pps0"));
    let held_over = |oscillator| {
        let mut world = World::new(&CalibrationConfig { oscillator, ..base.clone() }, Span::ZERO);
        world.run_for(60);
        (0..50).for_each(|_| world.run(PulseReplay::default()));
        world.report().unwrap().uncertainty
    };
    assert!(held_over(OscillatorModel::TCXO) < held_over(OscillatorModel::RASPBERRY_PI));
    let early = CalibrationConfig { sentence_lag: LAG - Span::from_ms(20), ..base.clone() };
    let mut world = World::new(&early, Span::ZERO);
    world.run_for(20);
    assert!(world.report().is_err() && world.status().sentences.get("lag") > 0);
}
